//! Golden images: one volume of each format that is extant's own, written by the version that
//! introduced the format. Every later version must open them and read the same.
//!
//! ```text
//!   member-1-raid0-N, member-1-raid1-N   member records; the mirrors also have data checksums
//!   byte-log-1                           fast commits in the byte log, not yet recovered
//! ```
//!
//! A format that changes gets a new image beside the old one. An image is never replaced.

use extant::{Filesystem, OpenOptions};
use extant_testkit::e2fsprogs::e2fsck;
use extant_testkit::require;
use extant_testkit::scratch::Scratch;
use std::fs::{File, read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The content of `/t.txt` in every image when it was made or last synced.
const TEXT: &str = "the first version\n";

fn unpacked(scratch: &Scratch, name: &str) -> PathBuf {
    let packed = format!("{}/tests/golden/{name}.img.gz", env!("CARGO_MANIFEST_DIR"));
    let path = scratch.file(name);
    let out = Stdio::from(File::create(&path).unwrap());
    let status = Command::new("gzip").arg("-dc").arg(&packed).stdout(out).status().unwrap();
    assert!(status.success(), "gzip -dc {packed}: {status}");
    path
}

fn expect_data(fs: &Filesystem) {
    let data = fs.read("/d.txt").unwrap();
    let line = b"golden bytes of a covered file\n";
    assert_eq!(data.len(), 20_000);
    assert!(data.iter().zip(line.iter().cycle()).all(|(is, want)| is == want));
}

fn pair(scratch: &Scratch, kind: &str) -> [PathBuf; 2] {
    [0, 1].map(|n| unpacked(scratch, &format!("member-1-{kind}-{n}")))
}

fn open(paths: &[PathBuf; 2]) -> Filesystem {
    OpenOptions::new().write(true).member(&paths[1]).open(&paths[0]).unwrap()
}

#[test]
fn stripes_with_records_of_version_1_open() {
    let scratch = Scratch::new();
    let fs = open(&pair(&scratch, "raid0"));
    assert_eq!(fs.read_to_string("/t.txt").unwrap(), TEXT);
    expect_data(&fs);
    fs.close().unwrap();
}

#[test]
fn mirrors_with_records_of_version_1_and_data_checksums_open() {
    let scratch = Scratch::new();
    let paths = pair(&scratch, "raid1");
    let fs = open(&paths);
    assert_eq!(fs.read_to_string("/t.txt").unwrap(), TEXT);
    expect_data(&fs);
    fs.close().unwrap();
    // The checksums are read, not only carried: content that changed on both mirrors is an error.
    for path in &paths {
        let mut bytes = read(path).unwrap();
        let line = b"golden bytes of a covered file\n";
        let at = bytes.windows(line.len()).position(|part| part == line).unwrap();
        bytes[at] ^= 1;
        std::fs::write(path, bytes).unwrap();
    }
    assert!(open(&paths).read("/d.txt").is_err());
}

#[test]
fn a_byte_log_of_version_1_is_recovered() {
    require!(E2fsprogs);
    let scratch = Scratch::new();
    let path: &Path = &unpacked(&scratch, "byte-log-1");
    let fs = OpenOptions::new().write(true).open(path).unwrap();
    let want = format!("{TEXT}line 0\nline 1\nline 2\n");
    assert_eq!(fs.read_to_string("/t.txt").unwrap(), want);
    expect_data(&fs);
    fs.close().unwrap();
    e2fsck(path, None).expect_clean().unwrap();
}
