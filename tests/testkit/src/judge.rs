//! Which judges this machine has, and what a test does without one.
//!
//! ```text
//!   present            ──► the test runs
//!   missing, no CI     ──► a printed reason, the test returns early
//!   missing, CI=true   ──► the test fails
//! ```

use std::path::Path;
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
}

/// True when tests run as the project's own checks, where nothing may be left out.
pub fn in_ci() -> bool {
    std::env::var_os("CI").is_some_and(|v| v == "true" || v == "1")
}

/// `Ok` when `judge` is there; else what is missing and how to get it.
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
    }
}

/// True when all of `judges` are there. Prints the reason and returns false when one is not;
/// panics instead under `CI=true`. Use [`require!`](crate::require), which returns for you.
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

/// Returns from the test when a judge is missing (fails it under `CI=true`).
///
/// `require!(Root, Loop, E2fsprogs);`
#[macro_export]
macro_rules! require {
    ($($judge:ident),+ $(,)?) => {
        if !$crate::judge::require(&[$($crate::judge::Judge::$judge),+]) {
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
