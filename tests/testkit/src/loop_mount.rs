//! A clean volume mounted by this machine's own kernel, unmounted on drop.
//!
//! **Clean volumes only.** Replay of some journals hits a bug in the kernel and hangs the machine.
//! Crashed and damaged volumes go to [`Uml`](crate::uml::Uml).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::command::{Finished, run};

const LIMIT: Duration = Duration::from_secs(120);

/// How often a mount or unmount is tried again that the kernel refuses as busy.
const BUSY_TRIES: usize = 50;
/// The time between two tries.
const BUSY_PAUSE: Duration = Duration::from_millis(100);

/// A mounted volume. Dropping it unmounts it and frees the loop devices, also after a panic.
#[derive(Debug)]
pub struct LoopMount {
    dir: tempfile::TempDir,
    journal: Option<LoopDevice>,
    mounted: bool,
}

impl LoopMount {
    /// Mounts `img` read-only; `options` are added to `loop,noatime,ro`.
    pub fn ro(img: &Path, options: &str) -> Result<Self, String> {
        Self::mount(img, None, &join("ro", options))
    }

    /// Mounts `img` for writing; `options` are added to `loop,noatime`.
    pub fn rw(img: &Path, options: &str) -> Result<Self, String> {
        Self::mount(img, None, options)
    }

    /// Mounts `img` with its external journal; `options` are passed unchanged.
    pub fn mount(img: &Path, journal: Option<&Path>, options: &str) -> Result<Self, String> {
        let dir = tempfile::Builder::new().prefix("extant-mnt.").tempdir();
        let dir = dir.map_err(|e| format!("no mount point: {e}"))?;
        let mut all = join("loop,noatime", options);
        let journal = match journal {
            Some(journal) => {
                let device = LoopDevice::attach(journal)?;
                all = join(&all, &format!("journal_path={}", device.path().display()));
                Some(device)
            }
            None => None,
        };
        // Another process that looks for a free loop device briefly claims each one that it tries,
        // also the one that `mount` has just set up. The kernel then refuses the mount as busy.
        let mut done = mount_ext4(&all, img, dir.path())?;
        for _ in 0..BUSY_TRIES {
            if done.ok() || !done.err().contains("busy") {
                break;
            }
            std::thread::sleep(BUSY_PAUSE);
            done = mount_ext4(&all, img, dir.path())?;
        }
        done.success()?;
        Ok(Self { dir, journal, mounted: true })
    }

    /// The mount point.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Unmounts and returns the error, which drop would only print.
    pub fn unmount(mut self) -> Result<(), String> {
        self.leave()
    }

    fn leave(&mut self) -> Result<(), String> {
        if !std::mem::take(&mut self.mounted) {
            return Ok(());
        }
        // Between fork and exec, a program that another thread starts has copies of our
        // descriptors.
        let mut done = run(Command::new("umount").arg(self.dir.path()), LIMIT)?;
        for _ in 0..BUSY_TRIES {
            if done.ok() || !done.err().contains("busy") {
                break;
            }
            std::thread::sleep(BUSY_PAUSE);
            done = run(Command::new("umount").arg(self.dir.path()), LIMIT)?;
        }
        if !done.ok() {
            // Busy: detach it now; it disappears when its last user ends.
            run(Command::new("umount").arg("-l").arg(self.dir.path()), LIMIT)?.success()?;
        }
        self.journal = None;
        done.success().map(drop)
    }
}

impl Drop for LoopMount {
    fn drop(&mut self) {
        if let Err(error) = self.leave() {
            eprintln!("unmount: {error}");
        }
    }
}

fn mount_ext4(options: &str, img: &Path, dir: &Path) -> Result<Finished, String> {
    run(Command::new("mount").args(["-t", "ext4", "-o", options]).arg(img).arg(dir), LIMIT)
}

fn join(a: &str, b: &str) -> String {
    [a, b].iter().filter(|s| !s.is_empty()).copied().collect::<Vec<_>>().join(",")
}

/// A loop device over a file, detached on drop.
#[derive(Debug)]
pub struct LoopDevice(PathBuf);

impl LoopDevice {
    /// Attaches `file` to a free loop device.
    pub fn attach(file: &Path) -> Result<Self, String> {
        LoopDevice::with_sectors(file, 512)
    }

    /// As [`LoopDevice::attach`], with sectors of this size in bytes.
    ///
    /// # Errors
    /// The words of losetup.
    pub fn with_sectors(file: &Path, bytes: u32) -> Result<Self, String> {
        let mut command = Command::new("losetup");
        command.args(["--sector-size", &bytes.to_string()]);
        let done = run(command.args(["--find", "--show"]).arg(file), LIMIT)?.success()?;
        Ok(Self(done.out().trim().into()))
    }

    /// `/dev/loopN`.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        match run(Command::new("losetup").arg("--detach").arg(&self.0), LIMIT) {
            Ok(done) if done.ok() => {}
            Ok(done) => eprintln!("{done}"),
            Err(error) => eprintln!("{error}"),
        }
    }
}
