//! `cargo xtask aarch64`: runs tests of the lower crates as aarch64 programs. QEMU emulates the
//! processor for one process.
//!
//! ```text
//!   cargo test --target aarch64-unknown-linux-gnu ──► linked by Debian's cross compiler
//!                                                 └─► run by qemu-aarch64
//! ```
//!
//! It finds what depends on the processor: instructions for checksums, and the signedness of C's
//! `char`. It says nothing about the order of memory accesses, because QEMU keeps that of this
//! machine.

use std::process::{Command, Stdio};
use std::time::Instant;

use crate::{LIMIT, cargo, in_ci, limited};

const TARGET: &str = "aarch64-unknown-linux-gnu";
const LINKER: &str = "aarch64-linux-gnu-gcc";
const EMULATORS: [&str; 2] = ["qemu-aarch64-static", "qemu-aarch64"];
/// Where Debian's cross compiler has the target's libraries.
const LIBRARIES: &str = "/usr/aarch64-linux-gnu";

/// Cargo's selections of tests for every check.
const QUICK: &[&[&str]] = &[
    &["-p", "extant-base", "-p", "extant-crc32c", "-p", "extant-ondisk", "--lib"],
    &["-p", "extant-crc32c", "--test", "it"],
];

/// More for `--all`, a few minutes each.
const MORE: &[&[&str]] =
    &[&["-p", "extant-blockdev", "-p", "extant-journal", "-p", "extant-pagecache", "--lib"], CORE];

/// Of the engine: what works on bytes of a volume.
const CORE: &[&str] =
    &["-p", "extant", "--lib", "--", "space::", "inodes::", "tree::", "tests::maps::"];

/// Runs the quick tests, or all. If the emulator, the linker or the target is missing, that is an
/// error in CI and a message elsewhere.
pub fn check(all: bool) -> Result<(), String> {
    let began = Instant::now();
    let emulator = match emulator() {
        Ok(emulator) => emulator,
        Err(missing) if in_ci() => return Err(format!("aarch64: {missing}")),
        Err(missing) => {
            println!("== aarch64: did not run: {missing}");
            return Ok(());
        }
    };
    println!("== aarch64: with {emulator}");
    for selection in QUICK.iter().chain(if all { MORE } else { &[] }) {
        let mut command = limited(cargo(), LIMIT);
        command.args(["test", "--quiet", "--no-fail-fast", "--target", TARGET]).args(*selection);
        command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER);
        let runner = format!("{emulator} -L {LIBRARIES}");
        command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", runner);
        let status = command.status().map_err(|error| format!("cargo: {error}"))?;
        if !status.success() {
            return Err(format!("aarch64: cargo test {} failed ({status})", selection.join(" ")));
        }
    }
    println!("== aarch64: ok ({:.0} s)", began.elapsed().as_secs_f32());
    Ok(())
}

/// The emulator to use, or what is missing.
fn emulator() -> Result<&'static str, String> {
    let starts = |program: &str, argument: &str| {
        let mut command = Command::new(program);
        let status = command.arg(argument).stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    if !starts(LINKER, "--version") {
        return Err(format!("there is no {LINKER}; tests/setup-judges installs it"));
    }
    let mut command = Command::new("rustc");
    let libraries = command.args(["--print", "target-libdir", "--target", TARGET]).output();
    let libraries = libraries.map_err(|error| format!("rustc: {error}"))?;
    if !std::path::Path::new(String::from_utf8_lossy(&libraries.stdout).trim()).is_dir() {
        return Err(format!("Rust has no {TARGET}; `tests/setup-rust test` installs it"));
    }
    let found = EMULATORS.into_iter().find(|emulator| starts(emulator, "--version"));
    found.ok_or_else(|| "there is no qemu-aarch64; tests/setup-judges installs it".to_owned())
}
