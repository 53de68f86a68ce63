//! Which judges this machine has, and what a test does if one is missing.
//!
//! ```text
//!   present            ──► the test runs
//!   missing, no CI     ──► a printed reason, the test returns early
//!   missing, CI=true   ──► the test fails
//! ```

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::command::run_args;
use crate::uml::Uml;

/// Something outside the project that a test needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judge {
    /// Effective user id 0.
    Root,
    /// Loop devices, and the right to mount them as ext4 with this machine's kernel.
    Loop,
    /// mke2fs, e2fsck, debugfs, dumpe2fs, tune2fs.
    E2fsprogs,
    /// grub-fstest of GRUB 2.06.
    Grub,
    /// User-mode Linux: a real kernel as a process, for crashed and damaged volumes.
    Uml,
    /// `/dev/fuse` and the right to mount it.
    Fuse,
    /// A program, named by its command; [`program`] finds it.
    Program(&'static str),
}

/// True if the tests run as part of CI, where no judge may be missing.
pub fn in_ci() -> bool {
    std::env::var_os("CI").is_some_and(|v| v == "true" || v == "1")
}

/// `Ok` if `judge` is available; otherwise the error says what is missing and how to get it.
pub fn available(judge: Judge) -> Result<(), String> {
    match judge {
        Judge::Root => root(),
        Judge::Loop => loop_mounts(),
        Judge::E2fsprogs => e2fsprogs(),
        Judge::Grub => run_args("grub-fstest", &["--version"])
            .map(drop)
            .map_err(|e| format!("{e}; install the Debian package grub-common")),
        Judge::Uml => Uml::get().map(drop),
        Judge::Fuse => fuse(),
        Judge::Program(name) => program(name).map(drop),
    }
}

/// The path of the command `name`: in `$PATH`, in the folders of administrators, or, for
/// PostgreSQL, in the folder of its newest version, where Debian keeps it. `Err` says how to get
/// it.
pub fn program(name: &str) -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut dirs: Vec<PathBuf> = std::env::split_paths(&path).collect();
    dirs.extend(["/usr/sbin", "/sbin"].map(PathBuf::from));
    let mut versions: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .map(|entries| entries.flatten().map(|e| e.path().join("bin")).collect())
        .unwrap_or_default();
    versions.sort();
    dirs.extend(versions.into_iter().rev());
    let found = dirs.iter().map(|dir| dir.join(name)).find(|file| file.is_file());
    found.ok_or_else(|| format!("there is no {name}; tests/setup-judges installs it"))
}

/// True if all of `judges` are available. If one is not, prints the reason and returns false, or
/// panics under `CI=true`. Use [`require!`](crate::require), which returns from the test.
pub fn require(judges: &[Judge]) -> bool {
    for &judge in judges {
        if let Err(reason) = available(judge) {
            assert!(!in_ci(), "CI needs the judge {judge:?}: {reason}");
            println!("NOT RUN: needs {judge:?}: {reason}");
            return false;
        }
    }
    true
}

/// Returns from the test if a judge is missing (fails the test under `CI=true`).
///
/// `require!(Root, Loop, E2fsprogs, Program("rsync"));`
#[macro_export]
macro_rules! require {
    ($($judge:ident $(($name:literal))?),+ $(,)?) => {
        if !$crate::judge::require(&[$($crate::judge::Judge::$judge $(($name))?),+]) {
            return;
        }
    };
}

fn root() -> Result<(), String> {
    if rustix::process::geteuid().is_root() { Ok(()) } else { Err("run it as root".into()) }
}

fn e2fsprogs() -> Result<(), String> {
    static FOUND: OnceLock<Result<(), String>> = OnceLock::new();
    let look = || {
        for tool in ["mke2fs", "e2fsck", "debugfs", "dumpe2fs", "tune2fs"] {
            run_args(tool, &["-V"])
                .map_err(|e| format!("{e}; install the Debian package e2fsprogs"))?;
        }
        Ok(())
    };
    FOUND.get_or_init(look).clone()
}

fn loop_mounts() -> Result<(), String> {
    static FOUND: OnceLock<Result<(), String>> = OnceLock::new();
    let look = || {
        root()?;
        e2fsprogs()?;
        let scratch = crate::scratch::Scratch::new();
        let img = scratch.file("probe.img");
        crate::e2fsprogs::mke2fs(&img, 4 << 20, "-t ext4 -b 1024", None)?;
        crate::loop_mount::LoopMount::ro(&img, "").map(drop)
    };
    FOUND.get_or_init(look).clone()
}

fn fuse() -> Result<(), String> {
    if Path::new("/dev/fuse").exists() { root() } else { Err("there is no /dev/fuse".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_by_its_command() {
        assert!(program("sh").unwrap().is_absolute());
        assert!(program("no-such-program").unwrap_err().contains("setup-judges"));
        assert!(available(Judge::Program("no-such-program")).is_err());
    }
}
