//! Helpers for the tests of the library.

#![allow(dead_code)]

use std::path::Path;
use std::process::Command;

/// The directory of the package.
pub fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs a program that must succeed, and returns its standard output.
pub fn run(command: &mut Command) -> String {
    let out = command.output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(out.status.success(), "{command:?}\n{}{}", text(&out.stdout), text(&out.stderr));
    text(&out.stdout)
}
