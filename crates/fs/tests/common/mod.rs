//! What the suites of calls share: a volume in a scratch file, and bytes to write.

#![allow(dead_code)]

use extant::{Filesystem, NewFile, OpenOptions};
use extant_testkit::e2fsprogs;
use std::path::PathBuf;

/// A volume in a scratch file.
pub struct Image {
    pub path: PathBuf,
    _dir: tempfile::TempDir,
}

impl Image {
    pub fn mke2fs(mib: u64, options: &str) -> Image {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("img");
        e2fsprogs::mke2fs(&path, mib << 20, options, None).unwrap();
        Image { path, _dir: dir }
    }

    pub fn open(&self) -> Filesystem {
        OpenOptions::new().write(true).open(&self.path).unwrap()
    }

    #[track_caller]
    pub fn judge(&self) {
        e2fsprogs::e2fsck(&self.path, None).expect_clean().unwrap();
    }

    pub fn debugfs(&self, request: &str) -> String {
        e2fsprogs::debugfs(&self.path, request).unwrap()
    }
}

pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|n| (n as u64 * 31 + n as u64 / 253) as u8 ^ seed).collect()
}

pub fn new_file(fs: &Filesystem, name: &str) -> extant::File {
    fs.root().unwrap().create(name, &NewFile::default()).unwrap().open().unwrap()
}
