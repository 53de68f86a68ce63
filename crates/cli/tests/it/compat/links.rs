//! The directory of links, and programs of others that find it first.

use super::{Scene, run};
use crate::common::assert_clean;
use assert_cmd::cargo::cargo_bin;
use extant_testkit::loop_mount::LoopDevice;
use extant_testkit::require;
use extant_testkit::scratch::workspace_dir;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Makes the links in `dir`.
fn install(dir: &Path) -> PathBuf {
    let to = dir.join("compat");
    let mut command = Command::new(workspace_dir().join("packaging/compat"));
    command.env("EXTANT_BIN", cargo_bin("extant"));
    let answer = run(&mut command, dir, &[to.to_str().unwrap()]);
    assert_eq!((answer.code, answer.err.as_str()), (0, ""));
    to
}

#[test]
fn every_name_has_a_link_and_removal_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let links = install(dir.path());
    let mut names: Vec<String> = fs::read_dir(&links)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let table = include_str!("../../../src/compat/mod.rs");
    let rows = table.split_once("const TOOLS").unwrap().1.split_once("];").unwrap().0;
    let known: Vec<&str> = rows.split('"').skip(1).step_by(2).collect();
    assert_eq!(names, known);
    for name in &names {
        let answer = run(&mut Command::new(links.join(name)), dir.path(), &["--no-such-option"]);
        assert!(answer.err.contains(name.as_str()) || answer.err.contains("Usage"), "{answer:?}");
        assert_eq!(answer.code, if name.contains("fsck") { 16 } else { 1 }, "{name}: {answer:?}");
    }
    fs::write(links.join("kept"), "").unwrap();
    let script = workspace_dir().join("packaging/compat");
    let arguments = ["--remove", links.to_str().unwrap()];
    assert_eq!(run(&mut Command::new(&script), dir.path(), &arguments).code, 0);
    assert_eq!(fs::read_dir(&links).unwrap().count(), 1);
    fs::remove_file(links.join("kept")).unwrap();
    assert_eq!(run(&mut Command::new(&script), dir.path(), &arguments).code, 0);
    assert!(!links.exists());
}

/// fsck(8) of util-linux chooses the checker by the type, and passes options and statuses on.
/// systemd-fsck calls it.
#[test]
fn the_systems_programs_find_the_checker() {
    require!(Root, Loop, E2fsprogs, Program("fsck"));
    let Some(scene) = Scene::new("-t ext4 -L label", "12M") else { return };
    let links = install(scene.path());
    let call = |program: &str, options: &[&str]| {
        let device = LoopDevice::attach(&scene.image()).unwrap();
        let path = format!("{}:/usr/sbin:/sbin:/usr/bin:/bin", links.display());
        let mut command = Command::new(program);
        command.env("PATH", path).env("LC_ALL", "C").args(options).arg(device.path());
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code().unwrap(), text)
    };
    let (code, text) = call("fsck", &["-V", "-T", "-t", "ext4", "-a", "-f"]);
    assert!(text.contains(&format!("[{}/fsck.ext4 (1)", links.display())), "{text}");
    assert!(text.contains("\nlabel: 16/3072 files (0.0% non-contiguous), "), "{text}");
    assert_eq!(code, 0, "{text}");
    scene.debugfs("set_inode_field a links_count 7");
    assert_eq!(call("fsck", &["-T", "-t", "ext4", "-n", "-f"]).0, 4);
    let (code, text) = call("fsck", &["-T", "-t", "ext4", "-a", "-f"]);
    assert_eq!(code, 1, "{text}");
    assert_clean(&scene.image());
    let systemd = "/usr/lib/systemd/systemd-fsck";
    if Path::new(systemd).exists() {
        let (code, text) = call(systemd, &[]);
        assert_eq!(code, 0, "{text}");
        assert!(text.starts_with("label: clean, 16/3072 files, "), "{text}");
    }
}
