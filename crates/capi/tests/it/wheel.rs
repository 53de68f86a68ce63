//! The Python wheel: built, installed with pip into an empty environment, and used.

use crate::common::{home, run};
use extant_testkit::e2fsprogs;
use extant_testkit::extant::c_libraries;
use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn a_python_program_uses_the_wheel() {
    let dir = tempfile::tempdir().unwrap();
    let here = dir.path();
    used_by("python3", here);
    typed(here);
}

/// Pythons without a global interpreter lock, by the names of their programs.
const FREE_THREADED: [&str; 3] = ["python3.14t", "python3.13t", "python3.13-nogil"];

#[test]
fn a_program_of_a_free_threaded_python_uses_the_wheel() {
    let is_there = |python: &&&str| Command::new(python).arg("--version").output().is_ok();
    let Some(python) = FREE_THREADED.iter().find(is_there) else {
        println!("NOT RUN: no free-threaded Python ({})", FREE_THREADED.join(", "));
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    used_by(python, dir.path());
    // A module that does not declare support would have enabled the lock again.
    let program = "import sys, extant; sys.exit(sys._is_gil_enabled())";
    run(Command::new("env/bin/python").args(["-I", "-c", program]).current_dir(dir.path()));
}

/// Installs the wheel in an environment of `python`, and runs a program that uses all of it from
/// several threads.
fn used_by(python: &str, here: &Path) {
    let script = home().join("../../packaging/wheel");
    let mut make = Command::new(script);
    let library = c_libraries().expect("libextant builds").join("libextant.so");
    let wheel = run(make.arg(here).env("EXTANT_LIB", library));
    run(Command::new(python).args(["-m", "venv", "env"]).current_dir(here));
    run(Command::new("env/bin/python")
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"])
        .arg(wheel.trim_end())
        .current_dir(here));
    fs::create_dir_all(here.join("source/etc")).unwrap();
    fs::write(here.join("source/etc/hostname"), "built\n").unwrap();
    // The options that the command's help lists, one line for each.
    let left_to_the_command = ["output", "force", "json", "quiet", "reproducible", "help"];
    let options = ["build", "tune"].map(|verb| {
        let help = home().join(format!("../cli/tests/help/{verb}.txt"));
        let help = fs::read_to_string(help).unwrap();
        let lines = help.lines().filter_map(|line| {
            let (before, name) = line.split_once("--")?;
            let name = name.split(' ').next()?;
            let is_option = before.trim_start().is_empty() || before.trim_start().starts_with('-');
            (is_option && !left_to_the_command.contains(&name)).then(|| name.to_owned())
        });
        lines.collect::<Vec<_>>().join(" ")
    });
    assert!(options[0].contains("source-date-epoch") && options[1].contains("mount-text"));
    fs::write(here.join("options"), options.join("\n")).unwrap();
    // -I: Python searches no module in the current directory or by the environment.
    let mut program = Command::new("env/bin/python");
    run(program.arg("-I").arg(home().join("tests/stranger.py")).current_dir(here));
    for image in ["built.img", "new.img", "options.img", "sized.img"] {
        e2fsprogs::e2fsck(&here.join(image), None).expect_clean().unwrap();
    }
}

/// The stubs describe what the module has, and a program that uses it passes a type check with
/// them.
fn typed(here: &Path) {
    if Command::new("stubtest").arg("--help").output().is_err() {
        assert!(std::env::var_os("CI").is_none(), "CI needs mypy; tests/setup-judges installs it");
        println!("NOT RUN: no mypy; tests/setup-judges installs it");
        return;
    }
    let mut lib = fs::read_dir(here.join("env/lib")).unwrap().flatten().map(|entry| entry.path());
    let python = lib.find(|path| path.to_string_lossy().contains("/python3"));
    let modules = python.expect("an environment has its modules").join("site-packages/extant");
    // In an environment that contains nothing else.
    fs::create_dir(here.join("typed")).unwrap();
    run(Command::new("cp").arg("-r").arg(modules).arg(here.join("typed")));
    fs::write(here.join("right.py"), RIGHT).unwrap();
    fs::write(here.join("wrong.py"), WRONG).unwrap();
    let mypy = |program: &str, args: &[&str]| {
        let mut command = Command::new(program);
        command.args(args).current_dir(here).env("MYPYPATH", "typed").env("PYTHONPATH", "typed");
        command
    };
    // The library lies among the modules, but is not a module.
    fs::write(here.join("no-module"), "extant.libextant\n").unwrap();
    run(&mut mypy(
        "stubtest",
        &["extant", "--allowlist", "no-module", "--ignore-unused-allowlist"],
    ));
    run(&mut mypy("mypy", &["--strict", "right.py"]));
    let wrong = mypy("mypy", &["--strict", "wrong.py"]).output().unwrap();
    assert!(String::from_utf8_lossy(&wrong.stdout).contains("Found 2 errors"), "{wrong:?}");
}

const RIGHT: &str = "\
import extant

with extant.open('disk.img', write=True) as volume:
    count: int = volume.write('/a', b'bytes')
    names: list[str] = [entry.path for entry in volume.walk('/')]
    with volume.open_file('/a') as file:
        text: bytes = file.read_at(0, count)
report: extant.Report = extant.check('disk.img')
";

const WRONG: &str = "\
import extant

extant.open('disk.img').write('/a', 'text')
extant.check('disk.img').clear
";
