//! User-mode Linux: a real kernel in an ordinary process, two seconds from start to power-off.
//!
//! It judges crashed and damaged volumes: a kernel bug that a recovery hits ends only the guest.
//!
//! ```text
//!   host                                guest
//!   /             ── hostfs, ro ──►     /                 programs and libraries
//!   shared dir    ── hostfs, rw ──►     /mnt/work         init, script, what comes back
//!   images[0..16] ── ubd ──────────►    /dev/ubda … ubdp
//! ```

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use crate::command::run;
use crate::scratch::{Scratch, target_dir, workspace_dir};

/// The most images that one guest takes.
pub const IMAGES_MAX: usize = 16;

/// An installed user-mode Linux.
#[derive(Debug, Clone)]
pub struct Uml {
    home: PathBuf,
}

/// How a guest ended.
#[derive(Debug)]
pub struct GuestEnd {
    /// The script's exit status; `None` if the kernel panicked or the time was over.
    pub exit: Option<i32>,
    /// What the script printed, both outputs.
    pub text: String,
    /// The kernel's console, which has the message of a panic.
    pub console: String,
}

impl GuestEnd {
    /// `Ok` if the script ended with 0; otherwise what is known.
    pub fn success(self) -> Result<Self, String> {
        if self.exit == Some(0) { Ok(self) } else { Err(self.to_string()) }
    }

    /// The line of the console that names the kernel's bug, if it hit one.
    pub fn bug(&self) -> Option<&str> {
        let marks = ["kernel BUG at", "Kernel panic", "BUG: "];
        self.console.lines().find(|l| marks.iter().any(|m| l.contains(m)))
    }
}

impl std::fmt::Display for GuestEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.exit {
            Some(code) => write!(f, "guest: exit {code}")?,
            None => write!(f, "guest died: {}", self.bug().unwrap_or("no exit status"))?,
        }
        let lines: Vec<&str> = self.text.trim().lines().collect();
        write!(f, ": {}", lines[lines.len().saturating_sub(6)..].join(" | "))
    }
}

impl Uml {
    /// The one in the target directory, fetched from Debian and set up on first use.
    pub fn get() -> Result<Self, String> {
        static HOME: OnceLock<Result<Uml, String>> = OnceLock::new();
        HOME.get_or_init(Self::set_up).clone()
    }

    fn set_up() -> Result<Self, String> {
        let home = target_dir().join("judges").join("uml");
        let setup = workspace_dir().join("tests/testkit/uml/setup");
        run(Command::new(&setup).arg(&home), Duration::from_secs(300))?
            .success()
            .map_err(|e| format!("{e}; run tests/setup-judges as root"))?;
        Ok(Self { home })
    }

    /// Runs `script` (sh) in a new guest, for at most `limit`.
    ///
    /// `images` are its block devices in order, `/dev/ubda` first, at most [`IMAGES_MAX`]. `shared`
    /// is its `/mnt/work`. In the script, `$KIT` is the `extant-testkit` command and `$MODULES` the
    /// argument with which `modprobe` finds the guest's modules; `/dev/shm/m` is an empty directory
    /// to mount on.
    pub fn run(
        &self,
        script: &str,
        images: &[&Path],
        shared: &Path,
        limit: Duration,
    ) -> Result<GuestEnd, String> {
        assert!(images.len() <= IMAGES_MAX, "a guest has {IMAGES_MAX} disks");
        // Not under /dev: the guest's kernel mounts its own /dev before it looks for init.
        let own = tempfile::Builder::new().prefix("extant-uml.").tempdir();
        let own = own.map_err(|e| format!("no temporary directory: {e}"))?;
        let file = |name: &str| own.path().join(name);
        let memory = Scratch::new();
        let write = |name: &str, text: &str| {
            let path = file(name);
            std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(&path, mode).map_err(|e| format!("{}: {e}", path.display()))
        };
        write("init", &self.init(own.path(), shared)?)?;
        write("script", script)?;
        let mut command = Command::new(self.home.join("usr/bin/linux.uml"));
        command
            .env("LD_PRELOAD", self.home.join("xstate_shim.so"))
            .env("TMPDIR", memory.path())
            .args(["mem=512M", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro"])
            .args(["con=null", "con0=null,fd:1", "panic=-1"])
            .arg(format!("init={}", file("init").display()))
            .arg(format!("uml_dir={}/", own.path().display()));
        for (i, image) in images.iter().enumerate() {
            command.arg(format!("ubd{}={}", char::from(b'a' + i as u8), image.display()));
        }
        let done = run(&mut command, limit)?;
        let read = |name| std::fs::read_to_string(file(name)).ok();
        let exit = read("exit").and_then(|s| s.trim().parse().ok());
        let text = std::fs::read(file("output")).unwrap_or_default();
        let console = format!("{}{}", done.out(), done.err());
        Ok(GuestEnd { exit, text: String::from_utf8_lossy(&text).into_owned(), console })
    }

    fn init(&self, own: &Path, shared: &Path) -> Result<String, String> {
        let (own, shared) = (own.display(), shared.display());
        let kit = crate::extant::kit_binary()?;
        Ok(format!(
            "#!/bin/sh\n\
             mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev\n\
             mkdir -p /dev/shm; mount -t tmpfs shm /dev/shm; mount -t tmpfs run /run\n\
             mount -t tmpfs mnt /mnt; mkdir /mnt/own /mnt/work /dev/shm/m\n\
             mount -t hostfs own /mnt/own -o {own}; mount -t hostfs work /mnt/work -o {shared}\n\
             export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/run KIT={kit} MODULES='-d {home}/modroot'\n\
             sh /mnt/own/script > /mnt/own/output 2>&1\n\
             echo $? > /mnt/own/exit\n\
             umount /dev/shm/m 2>/dev/null\n\
             poweroff -f\n",
            kit = kit.display(),
            home = self.home.display(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_mounts_a_volume_and_its_exit_status_comes_back() {
        crate::require!(E2fsprogs, Uml);
        let scratch = Scratch::new();
        let img = scratch.file("a.img");
        crate::e2fsprogs::mke2fs(&img, 16 << 20, "", None).unwrap();
        let script = "mount -t ext4 /dev/ubda /dev/shm/m || exit 9\n\
                      echo hello > /dev/shm/m/file; umount /dev/shm/m; uname -r > /mnt/work/release\n\
                      echo done; exit 7";
        let limit = Duration::from_secs(60);
        let end = Uml::get().unwrap().run(script, &[&img], scratch.path(), limit).unwrap();
        assert_eq!((end.exit, end.text.as_str()), (Some(7), "done\n"), "{}", end.console);
        assert!(std::fs::read_to_string(scratch.file("release")).unwrap().starts_with("6."));
        assert!(crate::e2fsprogs::e2fsck(&img, None).clean());
        assert_eq!(crate::e2fsprogs::debugfs(&img, "cat /file").unwrap(), "hello\n");
    }
}
