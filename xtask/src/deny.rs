//! `cargo xtask deny`: runs cargo-deny, which checks licences, versions and sources of all
//! packages that are built, by the rules of `deny.toml`.
//!
//! It needs `Cargo.lock` and the packages themselves, and fetches no list of advisories.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::in_ci;

/// Where `tests/setup-rust` installs it, in the target directory.
const INSTALLED: &str = "tools/cargo-deny/bin/cargo-deny";

/// The parts of its check. Advisories would need a list from the network.
const PARTS: [&str; 3] = ["licenses", "bans", "sources"];

/// Runs the check. If cargo-deny is missing, that is an error in CI and a message elsewhere.
pub fn check() -> Result<(), String> {
    let Some(program) = program() else {
        let missing = "cargo-deny is missing: `tests/setup-rust test` installs it";
        if in_ci() {
            return Err(missing.to_owned());
        }
        println!("== deny: did not run. {missing}");
        return Ok(());
    };
    let mut command = Command::new(program);
    command.args(["--locked", "--log-level", "warn", "check"]).args(PARTS);
    let status = command.status().map_err(|error| format!("cargo-deny: {error}"))?;
    if !status.success() {
        return Err("deny failed: the rules are in deny.toml".to_owned());
    }
    println!("== deny: ok");
    Ok(())
}

/// The program: where `tests/setup-rust` puts it, or in the `PATH`.
fn program() -> Option<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).map(|dir| dir.join("cargo-deny"));
    let mut places = [Path::new(&target).join(INSTALLED)].into_iter().chain(in_path);
    places.find(|place| place.is_file())
}
