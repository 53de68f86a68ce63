//! A C program is compiled against the header and linked with the library, shared and static.

mod common;

use common::{home, library, run};
use extant_testkit::e2fsprogs;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a program needs beside `libextant.a` (rustc --print native-static-libs).
const STATIC_NEEDS: [&str; 5] = ["-lgcc_s", "-lutil", "-lpthread", "-lm", "-ldl"];

fn compiled(dir: &Path, link: &[&str]) -> PathBuf {
    let program = dir.join("stranger");
    let mut cc = Command::new("cc");
    cc.args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-D_DEFAULT_SOURCE", "-I"]);
    cc.arg(home().join("include")).arg(home().join("tests/stranger.c"));
    run(cc.arg("-o").arg(&program).args(link));
    program
}

fn tried(dir: &Path, program: &Path) {
    let source = dir.join("source");
    std::fs::create_dir_all(source.join("etc")).unwrap();
    std::fs::write(source.join("etc/hostname"), "built\n").unwrap();
    run(Command::new(program)
        .args(["new.img", "damaged.img", "source", "built.img"])
        .current_dir(dir));
    for image in ["new.img", "built.img"] {
        let report = e2fsprogs::e2fsck(&dir.join(image), None);
        report.expect_clean().unwrap();
    }
}

#[test]
fn a_c_program_uses_the_shared_library() {
    let dir = tempfile::tempdir().unwrap();
    let shared = library("libextant.so");
    // By the name that the dynamic linker asks for.
    std::os::unix::fs::symlink(&shared, dir.path().join("libextant.so.0")).unwrap();
    let path = format!("-Wl,-rpath,{}", dir.path().display());
    let program = compiled(dir.path(), &[shared.to_str().unwrap(), &path]);
    tried(dir.path(), &program);
}

#[test]
fn a_c_program_uses_the_static_library() {
    let dir = tempfile::tempdir().unwrap();
    let archive = library("libextant.a");
    let needs = [&[archive.to_str().unwrap()][..], &STATIC_NEEDS].concat();
    let program = compiled(dir.path(), &needs);
    tried(dir.path(), &program);
}

#[test]
fn the_header_declares_what_the_library_offers() {
    let header = std::fs::read_to_string(home().join("include/extant.h")).unwrap();
    let names = |text: &str| -> BTreeSet<String> {
        let calls = text.split('(').filter_map(|before| before.rsplit([' ', '*', '\n']).next());
        calls.filter(|name| name.starts_with("extant_")).map(str::to_owned).collect()
    };
    let declared: String =
        header.lines().filter(|line| !line.starts_with([' ', '/'])).collect::<Vec<_>>().join("\n");
    let mut offered = String::new();
    for file in std::fs::read_dir(home().join("src")).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        for line in text.lines().filter(|line| line.contains("extern \"C\" fn extant_")) {
            offered.push_str(line);
            offered.push('\n');
        }
    }
    assert_eq!(names(&declared), names(&offered));
    assert!(names(&declared).len() > 20);
}
