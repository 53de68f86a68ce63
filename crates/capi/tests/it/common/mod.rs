//! Helpers for the tests of the library.

#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::Command;

/// The directory of the package.
pub fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The library that programs link. cargo makes none for tests, because a Rust test cannot link it.
pub fn library(name: &str) -> PathBuf {
    // One at a time: cargo waits for itself.
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.args(["build", "--quiet", "--locked", "--package", "extant-capi"]).current_dir(home());
    run(&mut build);
    let test = std::env::current_exe().expect("the test has a path");
    let mut places = test.ancestors().skip(2).take(1).map(|dir| dir.join(name));
    places.find(|path| path.exists()).unwrap_or_else(|| panic!("{name} was not built"))
}

/// Runs a program that must succeed, and returns its standard output.
pub fn run(command: &mut Command) -> String {
    let out = command.output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(out.status.success(), "{command:?}\n{}{}", text(&out.stdout), text(&out.stderr));
    text(&out.stdout)
}
