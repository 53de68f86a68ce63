//! Who is measured: a mount of a fresh volume, and the process behind it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use extant::mkfs::{InodeCount, MkfsOptions, format};
use extant::{Environment, FileDevice};

use super::Plan;
use super::serve::{Serve, Served};
use crate::rig::{Mount, Scratch, run};

/// Where the kernel says whether it offers FUSE over io_uring.
const URING: &str = "/sys/module/fuse/parameters/enable_uring";

/// A rival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Extant,
    Uring,
    FastCommit,
    Fuse2fs,
    Null,
    Kernel,
}

impl Kind {
    pub(super) const ALL: [Kind; 6] =
        [Kind::Extant, Kind::Uring, Kind::FastCommit, Kind::Fuse2fs, Kind::Null, Kind::Kernel];

    /// Whether it differs from the others in `sqlite_commits` alone.
    pub(super) fn syncs_only(self) -> bool {
        self == Kind::FastCommit
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Extant => "extant",
            Kind::Uring => "extant-uring",
            Kind::FastCommit => "extant-fast-commit",
            Kind::Fuse2fs => "fuse2fs",
            Kind::Null => "null-fuse",
            Kind::Kernel => "kernel-ext4",
        }
    }
}

/// A mounted rival; unmounted, with its server ended, when it is dropped.
pub(super) struct Subject {
    dir: PathBuf,
    server: Option<Child>,
    kernel: Option<Mount>,
}

impl Subject {
    /// Makes a volume and mounts it.
    pub(super) fn mount(kind: Kind, scratch: &Scratch, plan: &Plan) -> Result<Subject> {
        if kind == Kind::Uring && fs::read_to_string(URING).is_ok_and(|on| on.trim() != "Y") {
            bail!("the kernel's fuse module has io_uring switched off ({URING})");
        }
        let image = scratch.join(&format!("{}.img", kind.name()));
        if kind != Kind::Null {
            make_volume(&image, plan, kind == Kind::FastCommit)?;
        }
        let dir = scratch.join(&format!("{}.mnt", kind.name()));
        fs::create_dir_all(&dir)?;
        if kind == Kind::Kernel {
            let kernel = Some(Mount::image(&image, &dir, "ext4", false)?);
            return Ok(Subject { dir, server: None, kernel });
        }
        let own = std::env::current_exe()?;
        let mut command = match kind {
            Kind::Fuse2fs => {
                let mut command = Command::new("fuse2fs");
                command.args(["-f", "-o", "rw"]).arg(&image).arg(&dir);
                command
            }
            _ => {
                let served = if kind == Kind::Null { Served::Null } else { Served::Extant };
                let mut command = Command::new(own);
                let serve = Serve::new(served, &image, &dir, kind == Kind::Uring, plan.idle);
                command.args(serve.arguments());
                command
            }
        };
        let server = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let server = server.with_context(|| format!("cannot start {}", kind.name()))?;
        let mut subject = Subject { dir, server: Some(server), kernel: None };
        subject.wait_until_usable()?;
        Ok(subject)
    }

    fn wait_until_usable(&mut self) -> Result<()> {
        let before = device_of(self.dir.parent().context("it has a parent")?)?;
        for _ in 0..2000 {
            if device_of(&self.dir).is_ok_and(|now| now != before) {
                return Ok(());
            }
            if let Some(server) = &mut self.server
                && let Some(status) = server.try_wait()?
            {
                bail!("the server ended with {status}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!("the mount did not come up")
    }

    /// A path on the mount.
    pub(super) fn join(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        self.kernel = None;
        let Some(mut server) = self.server.take() else { return };
        for _ in 0..50 {
            if run(Command::new("umount").arg(&self.dir)).is_ok() {
                // It ends when the volume is written.
                let _ = server.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        eprintln!("extant-bench: cannot unmount {}", self.dir.display());
        let _ = server.kill();
        let _ = server.wait();
    }
}

fn device_of(dir: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    Ok(fs::metadata(dir)?.dev())
}

fn make_volume(path: &Path, plan: &Plan, fast_commits: bool) -> Result<()> {
    let _ = fs::remove_file(path);
    let inodes = plan.files as u64 * 3 + 50_000;
    // A group of 128 MiB has at most 32,768 inodes; small files take a block each.
    let bytes = (((inodes >> 15) + 8) << 27).max((plan.mib << 20) * 3);
    let mut options = MkfsOptions::new().inodes(InodeCount::AtLeast(inodes as u32));
    if fast_commits {
        options = options.features("fast_commit")?;
    }
    let device = Arc::new(FileDevice::create(path, bytes)?);
    format(device, &options, &Environment::default())?;
    Ok(())
}
