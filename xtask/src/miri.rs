//! `cargo xtask miri`: runs tests of the lower crates under Miri, which finds undefined behaviour.
//!
//! ```text
//!   PARTS ──► two at a time: cargo +nightly miri test -p PACKAGE --lib -- FILTERS
//!   --all     every test of them that Miri can run (make soak)
//! ```

use crate::{LIMIT_OF_MIRI, in_ci, limited};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;

/// The toolchain whose Miri runs the tests. `tests/setup-rust` installs it.
const TOOLCHAIN: &str = "nightly-2026-05-20";
/// The toolchain to use if that one is missing.
const FALLBACK: &str = "nightly";

/// Tests of one package.
struct Part {
    package: &'static str,
    /// Name filters of the tests for every check; empty means all tests.
    quick: &'static [&'static str],
    /// Name filters for `--all`: tests that use no system call unknown to Miri. Empty means all
    /// tests.
    all: &'static [&'static str],
    /// Tests that Miri cannot run, or not within an hour.
    skipped: &'static [&'static str],
}

/// The parts, the longest first.
const PARTS: &[Part] = &[
    Part {
        package: "extant-pagecache",
        quick: &["frames::", "a_run_ends_where"],
        all: &["frames::", "bits::", "slots::", "index::", "folio::"],
        skipped: &[],
    },
    Part {
        package: "extant-blockdev",
        quick: MEMORY_OF_BLOCKDEV,
        all: MEMORY_OF_BLOCKDEV,
        skipped: &[],
    },
    Part {
        package: "extant-ondisk",
        quick: &["acl::", "bitmap::", "block_map::", "a_record_is_laid_out_byte_by_byte"],
        all: &[],
        skipped: &["any_changed_bit_of_a_record_shows"],
    },
    Part { package: "extant-base", quick: &["numbers::", "error::"], all: &[], skipped: &[] },
    Part { package: "extant-crc32c", quick: &[], all: &[], skipped: &[] },
];

const MEMORY_OF_BLOCKDEV: &[&str] = &[
    "aligned::",
    "caller::",
    "shared_words::",
    "pool::",
    "memory_that_others_change_is_copied",
    "requests_fail_one_by_one",
    "what_may_only_be_read_is_not_filled",
];

/// Runs the quick tests, or all that Miri can run. If Miri is missing, that is an error in CI and a
/// message elsewhere.
pub fn check(all: bool) -> Result<(), String> {
    let began = Instant::now();
    let Some(toolchain) = [TOOLCHAIN, FALLBACK].into_iter().find(|name| has_miri(name)) else {
        let missing = format!(
            "Miri is missing: `tests/setup-rust test` installs it, with the toolchain {TOOLCHAIN}"
        );
        if in_ci() {
            return Err(missing);
        }
        println!("== miri: did not run. {missing}");
        return Ok(());
    };
    println!("== miri: of {toolchain}");
    let mut setup = cargo_miri(toolchain);
    run(setup.args(["setup", "--quiet"]), "the standard library for Miri")?;
    let parts = Mutex::new(PARTS.iter());
    let worker = || {
        loop {
            let next = parts.lock().expect("no worker panics").next();
            let Some(part) = next else { return Ok(()) };
            let part_began = Instant::now();
            let mut command = cargo_miri(toolchain);
            command.args(["test", "--quiet", "-p", part.package, "--lib", "--"]);
            command.args(if all { part.all } else { part.quick });
            command.args(part.skipped.iter().flat_map(|name| ["--skip", name]));
            run(&mut command, part.package)?;
            println!("   {}: ok ({:.0} s)", part.package, part_began.elapsed().as_secs_f32());
        }
    };
    let (one, two): (Result<(), String>, _) = std::thread::scope(|scope| {
        let second = scope.spawn(worker);
        (worker(), second.join().expect("a worker does not panic"))
    });
    one.and(two)?;
    println!("== miri: ok ({:.0} s)", began.elapsed().as_secs_f32());
    Ok(())
}

/// Whether a toolchain has Miri.
fn has_miri(toolchain: &str) -> bool {
    let mut command = Command::new("rustup");
    command.args(["run", toolchain, "cargo-miri", "miri", "--version"]);
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// `cargo miri` of a toolchain. It runs through `rustup`, because the cargo that runs this program
/// belongs to another toolchain.
fn cargo_miri(toolchain: &str) -> Command {
    let mut command = limited("rustup", LIMIT_OF_MIRI);
    command.args(["run", toolchain, "cargo", "miri"]);
    for name in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN", "RUSTFLAGS"] {
        command.env_remove(name);
    }
    // Tests read the clock and create directories.
    command.env("MIRIFLAGS", "-Zmiri-disable-isolation");
    command
}

/// Runs a command to its end and prints its output if it fails.
fn run(command: &mut Command, what: &str) -> Result<(), String> {
    let out = command.output().map_err(|e| format!("rustup: {e}"))?;
    if out.status.success() {
        return Ok(());
    }
    let (stdout, stderr) =
        (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    println!("{stdout}\n{stderr}");
    let how = match out.status.code() {
        Some(124 | 137) => format!("ended after {LIMIT_OF_MIRI}"),
        _ => "failed".into(),
    };
    Err(format!("miri: {what} {how}; its output is above"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Whether a source of `folder` has a test whose name starts with `filter`, or a module of that
    /// name.
    fn has(folder: &Path, filter: &str) -> bool {
        std::fs::read_dir(folder).expect("the crate has sources").flatten().any(|entry| {
            let path = entry.path();
            if let Some(module) = filter.strip_suffix("::") {
                let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
                return stem.as_deref() == Some(module) || path.is_dir() && has(&path, filter);
            }
            match path.is_dir() {
                true => has(&path, filter),
                false => std::fs::read_to_string(&path)
                    .is_ok_and(|text| text.contains(&format!("fn {filter}"))),
            }
        })
    }

    #[test]
    fn every_filter_names_tests() {
        for part in PARTS {
            let name = part.package.trim_start_matches("extant-");
            let sources = format!("{}/../crates/{name}/src", env!("CARGO_MANIFEST_DIR"));
            for filter in part.quick.iter().chain(part.all).chain(part.skipped) {
                assert!(has(Path::new(&sources), filter), "{}: {filter}", part.package);
            }
        }
    }
}
