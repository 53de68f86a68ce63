//! Checks that dependencies between crates point down only.
//!
//! ```text
//!   5   cli  capi                    front ends       aside: bench, test suites, testdev,
//!                                                     testkit, xtask
//!   4   image  fuse  repair
//!   3   extant (crates/fs)
//!   2   pagecache  journal  raid  disk
//!   1   blockdev  ondisk
//!   0   base  crc32c
//! ```
//! Apart from dev-dependencies, a crate may depend only on crates of lower layers. A crate that is
//! not in the table is an error: add it with a layer.

use std::process::Command;

use serde_json::Value;

/// Every crate of the workspace and its layer.
const FLOORS: &[(&str, u32)] = &[
    ("extant-base", 0),
    ("extant-crc32c", 0),
    ("extant-blockdev", 1),
    ("extant-ondisk", 1),
    ("extant-pagecache", 2),
    ("extant-journal", 2),
    ("extant-raid", 2),
    ("extant-disk", 2),
    ("extant", 3),
    ("extant-image", 4),
    ("extant-fuse", 4),
    ("extant-repair", 4),
    ("extant-cli", 5),
    ("extant-capi", 5),
];

/// Crates that only test, measure or serve the project, besides all that are named `*-tests`. They
/// may depend on any crate. Other crates may depend on them only by dev-dependencies.
const ASIDE: &[&str] = &[
    "extant-bench",
    "extant-nullfs",
    "extant-testdev",
    "extant-testkit",
    "extant-compat-tests",
    "extant-model-tests",
    "extant-concurrent-tests",
    "extant-crash-tests",
    "extant-hostile-tests",
    "extant-mount-tests",
    "extant-guide-tests",
    "xtask",
];

/// Reads the workspace from cargo and reports every dependency that points up or sideways.
pub fn check() -> Result<(), String> {
    let mut command = Command::new(super::cargo());
    let out = command.args(["metadata", "--format-version", "1", "--no-deps"]).output();
    let out = out.map_err(|e| format!("cargo metadata: {e}"))?;
    if !out.status.success() {
        return Err(String::from_utf8_lossy(&out.stderr).into_owned());
    }
    let metadata: Value =
        serde_json::from_slice(&out.stdout).map_err(|e| format!("cargo metadata: {e}"))?;
    let (arrows, crates) = arrows(&metadata)?;
    let wrong = wrong_arrows(&crates, &arrows);
    if wrong.is_empty() {
        println!("== layers: ok, {} arrows between {} crates", arrows.len(), crates.len());
        return Ok(());
    }
    Err(format!("layers:\n  {}", wrong.join("\n  ")))
}

type Arrow = (String, String);

/// The dependencies between crates of the workspace without dev-dependencies, and all crates.
fn arrows(metadata: &Value) -> Result<(Vec<Arrow>, Vec<String>), String> {
    let packages = metadata["packages"].as_array().ok_or("cargo metadata names no packages")?;
    let name = |v: &Value| v["name"].as_str().unwrap_or_default().to_owned();
    let crates: Vec<String> = packages.iter().map(name).collect();
    let mut arrows = Vec::new();
    for package in packages {
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let to = name(dependency);
            if dependency["kind"].as_str() != Some("dev") && crates.contains(&to) {
                arrows.push((name(package), to));
            }
        }
    }
    Ok((arrows, crates))
}

fn floor(name: &str) -> Option<u32> {
    FLOORS.iter().find(|(n, _)| *n == name).map(|(_, floor)| *floor)
}

fn wrong_arrows(crates: &[String], arrows: &[Arrow]) -> Vec<String> {
    let aside = |name: &str| ASIDE.contains(&name) || name.ends_with("-tests");
    let mut wrong: Vec<String> = crates
        .iter()
        .filter(|name| !aside(name) && floor(name).is_none())
        .map(|name| format!("{name} has no floor: add it to xtask/src/layers.rs"))
        .collect();
    for (from, to) in arrows.iter().filter(|(from, _)| !aside(from)) {
        match (floor(from), floor(to)) {
            (Some(a), Some(b)) if a > b => {}
            _ => wrong.push(format!("{from} must not depend on {to}")),
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(crates: &[&str], arrows: &[(&str, &str)]) -> Vec<String> {
        let own = |s: &&str| (*s).to_owned();
        let crates: Vec<String> = crates.iter().map(own).collect();
        let arrows: Vec<Arrow> =
            arrows.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        wrong_arrows(&crates, &arrows)
    }

    #[test]
    fn arrows_point_down_only() {
        let all = ["extant", "extant-journal", "extant-base", "extant-compat-tests"];
        let down = [("extant", "extant-journal"), ("extant-journal", "extant-base")];
        assert!(judge(&all, &down).is_empty());
        assert_eq!(judge(&all, &[("extant-base", "extant")]).len(), 1);
        assert_eq!(judge(&all, &[("extant-journal", "extant-pagecache")]).len(), 1, "siblings");
        assert!(judge(&all, &[("extant-compat-tests", "extant")]).is_empty());
        assert_eq!(judge(&all, &[("extant", "extant-testkit")]).len(), 1);
    }

    #[test]
    fn a_crate_without_a_floor_is_named() {
        assert_eq!(judge(&["extant-new"], &[]).len(), 1);
        assert!(judge(&["extant-model-tests"], &[]).is_empty());
    }
}
