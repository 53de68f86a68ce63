//! Helpers for the tests of the command line: the program, small volumes, and checks.

#![allow(dead_code)]

use assert_cmd::Command;
use extant_testkit::judge::program;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{self, Stdio};
use tempfile::TempDir;

/// The program, in an environment that does not influence it.
pub fn extant() -> Command {
    let mut command = Command::cargo_bin("extant").expect("cargo builds the program first");
    command.env_remove("COLUMNS").env_remove("SOURCE_DATE_EPOCH").env("LC_ALL", "C");
    command.timeout(std::time::Duration::from_secs(120));
    command
}

/// Runs the program in `dir`: exit status, standard output, standard error.
pub fn run(dir: &Path, args: &[&str]) -> (i32, String, String) {
    let output = extant().current_dir(dir).args(args).output().expect("the program starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let code = output.status.code().expect("no signal ends the program");
    (code, text(&output.stdout), text(&output.stderr))
}

/// As [`run`], for commands that must succeed. Returns standard output.
pub fn succeed(dir: &Path, args: &[&str]) -> String {
    let (code, out, err) = run(dir, args);
    assert_eq!((code, err.as_str()), (0, ""), "extant {args:?} printed {out}");
    out
}

/// As [`run`], for commands that must fail. Returns the one-line message without the program's
/// name.
pub fn fail(dir: &Path, status: i32, args: &[&str]) -> String {
    let (code, _, err) = run(dir, args);
    assert_eq!(code, status, "extant {args:?}: {err}");
    let line = err.strip_prefix("extant: ").unwrap_or_else(|| panic!("no message: {err:?}"));
    let line = line.strip_suffix('\n').unwrap_or(line);
    assert!(!line.contains('\n'), "more than one line: {err}");
    line.to_owned()
}

/// Asserts that `e2fsck -fn` finds nothing. If e2fsck is missing and not required, checks nothing.
pub fn assert_clean(image: &Path) {
    match std::process::Command::new("e2fsck").arg("-fn").arg(image).output() {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "e2fsck: {text}");
        }
        Err(_) if std::env::var_os("CI").is_none() => eprintln!("no e2fsck here: not judged"),
        Err(error) => panic!("e2fsck is needed in CI: {error}"),
    }
}

/// A small tree with one file of every kind that a normal user can create.
pub fn source_tree(dir: &TempDir) -> PathBuf {
    let root = dir.path().join("src");
    fs::create_dir_all(root.join("etc/empty")).unwrap();
    fs::write(root.join("etc/hostname"), "host\n").unwrap();
    fs::write(root.join("etc/script"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(root.join("etc/script"), fs::Permissions::from_mode(0o750)).unwrap();
    fs::hard_link(root.join("etc/hostname"), root.join("etc/alias")).unwrap();
    symlink("etc/hostname", root.join("link")).unwrap();
    symlink("etc", root.join("dir-link")).unwrap();
    fs::write(root.join("big"), pattern(300_000)).unwrap();
    let sparse = fs::File::create(root.join("sparse")).unwrap();
    sparse.set_len(4 << 20).unwrap();
    std::os::unix::fs::FileExt::write_at(&sparse, b"middle", 2 << 20).unwrap();
    fs::write(root.join("name with \n line"), "x").unwrap();
    root
}

/// Bytes that differ from block to block.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n / 7 + n / 4096) as u8).collect()
}

/// A directory that holds `src`, and `a.img` built from it.
pub fn built() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    source_tree(&dir);
    succeed(dir.path(), &["build", "src", "-o", "a.img", "--free", "1M", "--owner", "7:8"]);
    dir
}

/// `deep.img` in `dir`: a chain of `levels` nested directories called `name`, with a file `end` in
/// the innermost.
pub fn deep(dir: &Path, levels: usize, name: &str) -> PathBuf {
    let inodes = (levels + 100).to_string();
    let size = format!("{}K", levels * 2 + (16 << 10));
    let args = ["mkfs", "deep.img", "--size", &size, "-b", "1024", "-q", "--inodes", &inodes];
    succeed(dir, &args);
    let image = dir.join("deep.img");
    let fs = extant::OpenOptions::new().write(true).open(&image).unwrap();
    let mut at = fs.root().unwrap();
    for _ in 0..levels {
        at = at.create_dir(name, &extant::NewFile::directory()).unwrap();
    }
    drop(at.create_file("end", &extant::NewFile::default()).unwrap());
    drop(at);
    fs.close().unwrap();
    image
}

/// As [`run`], with limits of memory in KiB and of descriptors.
pub fn run_limited(
    dir: &Path,
    kib: usize,
    descriptors: usize,
    args: &[&str],
) -> (i32, Vec<u8>, String) {
    let program = assert_cmd::cargo::cargo_bin("extant");
    let script = format!("ulimit -v {kib}; ulimit -n {descriptors}; exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.timeout(std::time::Duration::from_secs(120)).env("LC_ALL", "C");
    command.current_dir(dir).args(["-c", &script]).arg(program).args(args);
    let output = command.output().expect("sh starts");
    let code = output.status.code().expect("no signal ends the program");
    (code, output.stdout, String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Makes the file `disk` of `bytes`, with the partition table that sfdisk makes of `table`.
pub fn make_partitions(disk: &Path, bytes: u64, table: &str) {
    fs::File::create(disk).unwrap().set_len(bytes).unwrap();
    let mut sfdisk = process::Command::new(program("sfdisk").unwrap());
    sfdisk.arg("--quiet").arg(disk).stdin(Stdio::piped());
    let mut child = sfdisk.spawn().unwrap();
    child.stdin.take().unwrap().write_all(table.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "{table}");
}
