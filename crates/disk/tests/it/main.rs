//! Partition tables made by sfdisk and sgdisk, damaged and hostile ones.

mod hostile;
mod select;
mod tables;

use extant_blockdev::MemoryDevice;
use extant_testkit::judge::program;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A disk of `bytes` with the partition table that sfdisk makes of `script`.
fn made_by_sfdisk(dir: &Path, bytes: u64, script: &str) -> PathBuf {
    let path = dir.join("disk.img");
    fs::File::create(&path).unwrap().set_len(bytes).unwrap();
    partition(&path, script);
    path
}

/// Makes a partition table with sfdisk.
fn partition(disk: &Path, script: &str) {
    let mut sfdisk = Command::new(program("sfdisk").unwrap());
    sfdisk.args(["--quiet", "--no-reread", "--no-tell-kernel"]).arg(disk);
    let mut child = sfdisk.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "{script}");
}

/// The table of the disk in `path`, as sfdisk shows it.
fn shown_by_sfdisk(path: &Path) -> serde_json::Value {
    let mut sfdisk = Command::new(program("sfdisk").unwrap());
    let out = sfdisk.arg("--json").arg(path).output().unwrap();
    assert!(out.status.success());
    let mut all: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    all["partitiontable"].take()
}

/// The content of a file as a device in memory.
fn device(path: &Path) -> MemoryDevice {
    MemoryDevice::from_bytes(&fs::read(path).unwrap())
}
