//! `cargo xtask check`: the checks that every commit must pass, the same on every machine.
//!
//! ```text
//!   layers ──► language ──► deny ──► fmt ──► clippy ──► docs ──► miri ──► aarch64 ──► tests
//! ```
//!
//! ```text
//!   check      all of it; --fast omits what runs the code: Miri, aarch64, the tests
//!   layers     dependencies between crates and between the modules of each, methods of a type;
//!              --report prints every arrow that points up, every cycle, the largest types
//!   language   words, comment lines, `# Errors` sections; --report prints every defect
//!   deny       licences, versions and sources of everything that is built
//!   miri       memory accesses of the lower crates; --all runs more of their tests
//!   aarch64    tests of the lower crates on an emulated processor; --all runs more of them
//!   test       the tests, or those of the named packages
//! ```
#![forbid(unsafe_code)]

mod aarch64;
mod deny;
mod language;
mod layers;
mod methods;
mod miri;
mod programs;
mod strata;
mod suite;

use std::ffi::OsStr;
use std::process::{Command, ExitCode};
use std::time::Instant;

/// A step's name, cargo's arguments, and extra environment where lints are errors.
type Step = (&'static str, &'static [&'static str], &'static [(&'static str, &'static str)]);

const STEPS: &[Step] = &[
    ("fmt", &["fmt", "--all", "--check"], &[]),
    ("clippy", &["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"], &[]),
    (
        "docs",
        &["doc", "--quiet", "--workspace", "--no-deps", "--document-private-items"],
        &[("RUSTDOCFLAGS", "-D warnings -A rustdoc::private_intra_doc_links")],
    ),
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["check"] => fast()
            .and_then(|()| miri::check(false))
            .and_then(|()| aarch64::check(false))
            .and_then(|()| suite::run(&[])),
        ["check", "--fast"] => fast(),
        ["miri"] => miri::check(false),
        ["miri", "--all"] => miri::check(true),
        ["aarch64"] => aarch64::check(false),
        ["aarch64", "--all"] => aarch64::check(true),
        ["layers"] => layers::check().and_then(|()| strata::check(false)),
        ["layers", "--report"] => layers::check().and_then(|()| strata::check(true)),
        ["language"] => language::check(false),
        ["language", "--report"] => language::check(true),
        ["deny"] => deny::check(),
        ["test", ref packages @ ..] => suite::run(packages),
        _ => {
            eprintln!(
                "usage: cargo xtask check [--fast] | layers [--report] | language [--report] | deny \
                 | miri [--all] | aarch64 [--all] | test [PACKAGE...]"
            );
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}

/// All steps except those that run the code.
fn fast() -> Result<(), String> {
    layers::check()
        .and_then(|()| strata::check(false))
        .and_then(|()| language::check(false))
        .and_then(|()| deny::check())
        .and_then(|()| steps(STEPS))
}

/// The toolchain for which the project is free of lint warnings. Newer ones have more lints, which
/// only warn.
const LINTS_OF: &str = "cargo 1.95.";

/// Whether lints of this toolchain are errors.
fn lints_are_errors() -> bool {
    let version = Command::new(cargo()).arg("--version").output();
    version.is_ok_and(|out| out.stdout.starts_with(LINTS_OF.as_bytes()))
}

/// Time limit of a step with `CI=true`, in the syntax of `timeout`: about twice what the longest
/// step needs on two processors.
const LIMIT: &str = "30m";

/// Exit statuses of `timeout` after its limit: the command ended at the signal, or was killed.
const ENDED_BY_TIMEOUT: [i32; 2] = [124, 137];

/// Time limit of a part of the Miri step with `CI=true`. A part needs a few minutes.
const LIMIT_OF_MIRI: &str = "20m";

/// Whether this is CI, where no step may be omitted.
fn in_ci() -> bool {
    std::env::var_os("CI").is_some_and(|ci| ci == "true")
}

/// A command. With `CI=true`, `timeout` ends it after `limit`, so that a run that hangs reports the
/// step.
fn limited(program: impl AsRef<OsStr>, limit: &str) -> Command {
    if !in_ci() {
        return Command::new(program);
    }
    let mut command = Command::new("timeout");
    command.args(["--kill-after=10s", limit]).arg(program);
    command
}

fn steps(steps: &[Step]) -> Result<(), String> {
    for (name, args, env) in steps {
        let began = Instant::now();
        println!("== {name}: cargo {}", args.join(" "));
        let mut command = limited(cargo(), LIMIT);
        command.args(*args);
        if lints_are_errors() {
            command.envs(env.iter().copied());
            if *name == "clippy" {
                command.args(["-D", "warnings"]);
            }
        }
        let status = command.status();
        let status = status.map_err(|e| format!("cargo: {e}"))?;
        if status.code().is_some_and(|code| ENDED_BY_TIMEOUT.contains(&code)) {
            return Err(format!("{name} ended after {LIMIT}: what is named last above hangs"));
        }
        if !status.success() {
            return Err(format!("{name} failed"));
        }
        println!("== {name}: ok ({:.0} s)", began.elapsed().as_secs_f32());
    }
    Ok(())
}

fn cargo() -> std::ffi::OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}
