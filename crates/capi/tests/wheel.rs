//! The Python wheel: made, installed with pip where nothing else is, and used.

mod common;

use common::{home, library, run};
use extant_testkit::e2fsprogs;
use std::fs;
use std::process::Command;

#[test]
fn a_python_program_uses_the_wheel() {
    let dir = tempfile::tempdir().unwrap();
    let here = dir.path();
    let script = home().join("../../packaging/wheel");
    let mut make = Command::new(script);
    let wheel = run(make.arg(here).env("EXTANT_LIB", library("libextant.so")));
    run(Command::new("python3").args(["-m", "venv", "env"]).current_dir(here));
    run(Command::new("env/bin/python")
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"])
        .arg(wheel.trim_end())
        .current_dir(here));
    fs::create_dir_all(here.join("source/etc")).unwrap();
    fs::write(here.join("source/etc/hostname"), "built\n").unwrap();
    // -I: no module is found by way of the folder or the environment.
    let mut python = Command::new("env/bin/python");
    run(python.arg("-I").arg(home().join("tests/stranger.py")).current_dir(here));
    for image in ["built.img", "new.img"] {
        e2fsprogs::e2fsck(&here.join(image), None).expect_clean().unwrap();
    }
}
