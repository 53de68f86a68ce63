//! `cargo xtask check`: what every commit must pass, the same command everywhere.
//!
//! ```text
//!   layers ──► licences ──► fmt ──► clippy ──► docs ──► tests
//! ```
//! `cargo xtask check --fast` leaves the tests out; `cargo xtask layers` looks at the crates' arrows
//! only, `cargo xtask licences` at the licences of all that is built.
#![forbid(unsafe_code)]

mod layers;
mod licences;

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
    ("tests", &["test", "--workspace", "--no-fail-fast"], &[]),
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["check"] => whole().and_then(|()| steps(STEPS)),
        ["check", "--fast"] => whole().and_then(|()| steps(&STEPS[..STEPS.len() - 1])),
        ["layers"] => layers::check(),
        ["licences"] => licences::check(),
        _ => {
            eprintln!("usage: cargo xtask check [--fast] | layers | licences");
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

/// What is asked of the workspace as a whole.
fn whole() -> Result<(), String> {
    layers::check().and_then(|()| licences::check())
}

/// The toolchain whose lints the project keeps clean; newer ones have more, which only warn.
const LINTS_OF: &str = "cargo 1.95.";

/// Whether lints of this toolchain are errors.
fn lints_are_errors() -> bool {
    let version = Command::new(cargo()).arg("--version").output();
    version.is_ok_and(|out| out.stdout.starts_with(LINTS_OF.as_bytes()))
}

/// How long a step may take with `CI=true`, as `timeout` reads it: about twice what the longest needs
/// on two processors.
const LIMIT: &str = "65m";

/// What `timeout` ends with when time was over: the command ended at its signal, or had to be killed.
const ENDED_BY_TIMEOUT: [i32; 2] = [124, 137];

/// Cargo, with `CI=true` ended after [`LIMIT`]: a run that hangs says where, and is not only cut off.
fn limited() -> Command {
    if std::env::var_os("CI").is_none_or(|ci| ci != "true") {
        return Command::new(cargo());
    }
    let mut command = Command::new("timeout");
    command.args(["--kill-after=10s", LIMIT]).arg(cargo());
    command
}

fn steps(steps: &[Step]) -> Result<(), String> {
    for (name, args, env) in steps {
        let began = Instant::now();
        println!("== {name}: cargo {}", args.join(" "));
        let mut command = limited();
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
