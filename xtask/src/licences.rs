//! `cargo xtask licences`: checks that every crate that is built has a licence compatible with
//! ours.
//!
//! Reads from cargo all packages of `Cargo.lock`, for every target, and evaluates each one's
//! licence expression: a choice (`OR`, or `/` as older crates write) needs one permitted licence,
//! `AND` needs all.

use std::process::Command;

use serde_json::Value;

/// The permitted licences. `WITH` an exception permits more, never less.
const PERMITTED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unicode-DFS-2016",
    "Zlib",
];

/// Reports every package whose licence is not permitted.
pub fn check() -> Result<(), String> {
    let mut command = Command::new(super::cargo());
    let out = command.args(["metadata", "--format-version", "1", "--locked"]).output();
    let out = out.map_err(|e| format!("cargo metadata: {e}"))?;
    if !out.status.success() {
        return Err(String::from_utf8_lossy(&out.stderr).into_owned());
    }
    let metadata: Value =
        serde_json::from_slice(&out.stdout).map_err(|e| format!("cargo metadata: {e}"))?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata names no packages")?;
    let text = |package: &Value, key: &str| package[key].as_str().unwrap_or_default().to_owned();
    let wrong: Vec<String> = packages
        .iter()
        .filter(|package| !permits(&text(package, "license")))
        .map(|package| format!("{}: {:?}", text(package, "name"), text(package, "license")))
        .collect();
    if wrong.is_empty() {
        println!("== licences: ok, {} packages", packages.len());
        return Ok(());
    }
    Err(format!("licences that are not permitted:\n  {}", wrong.join("\n  ")))
}

/// Whether an SPDX expression has a permitted choice. An expression that cannot be parsed has none.
fn permits(expression: &str) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = &words[..];
    choice(&mut rest) == Some(true) && rest.is_empty()
}

/// `all OR all …`
fn choice(rest: &mut &[&str]) -> Option<bool> {
    let mut permitted = all(rest)?;
    while rest.first() == Some(&"OR") {
        *rest = &rest[1..];
        permitted |= all(rest)?;
    }
    Some(permitted)
}

/// `one AND one …`
fn all(rest: &mut &[&str]) -> Option<bool> {
    let mut permitted = one(rest)?;
    while rest.first() == Some(&"AND") {
        *rest = &rest[1..];
        permitted &= one(rest)?;
    }
    Some(permitted)
}

/// A licence, perhaps `WITH` an exception, or an expression in parentheses.
fn one(rest: &mut &[&str]) -> Option<bool> {
    let (&word, after) = rest.split_first()?;
    *rest = after;
    if word == "(" {
        let permitted = choice(rest)?;
        *rest = rest.strip_prefix(&[")"])?;
        return Some(permitted);
    }
    if let ["WITH", _, after @ ..] = rest {
        *rest = after;
    }
    Some(PERMITTED.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::permits;

    #[test]
    fn a_choice_needs_one_and_a_sum_all() {
        for good in [
            "MIT",
            "MIT OR Apache-2.0",
            "MIT/GPL-2.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-3.0",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "GPL-3.0 AND LGPL-2.1 OR Zlib",
        ] {
            assert!(permits(good), "{good}");
        }
        for bad in [
            "",
            "GPL-2.0",
            "MIT AND GPL-2.0",
            "(MIT OR Apache-2.0) AND GPL-3.0",
            "(MIT",
            "MIT)",
            "MIT OR",
            "MIT Apache-2.0",
        ] {
            assert!(!permits(bad), "{bad}");
        }
    }
}
