//! Common code of the suites: volumes in a scratch file and in memory, test data, and the costs of
//! a call.

#![allow(dead_code)]

pub mod mirrored;
pub mod seen;

use extant::{BlockDevice, Filesystem, MemoryDevice, NewFile, OpenOptions};
use extant_testdev::{OpCounts, Recorder};
use extant_testkit::e2fsprogs;
use std::path::PathBuf;
use std::sync::Arc;

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
    fs.root().unwrap().create_file(name, &NewFile::default()).unwrap().open().unwrap()
}

/// A device in memory that counts requests.
pub type Device = Arc<Recorder<MemoryDevice>>;

/// A volume that mke2fs makes, in memory.
pub fn mke2fs(mib: u64, options: &str) -> MemoryDevice {
    let image = Image::mke2fs(mib, options);
    MemoryDevice::from_bytes(&std::fs::read(&image.path).unwrap())
}

/// A volume in memory whose writes are counted, with `cache_mib` MiB of page cache.
pub fn counted(mib: u64, options: &str, cache_mib: u64) -> (Device, Filesystem) {
    let device = Arc::new(Recorder::new(mke2fs(mib, options)));
    // Only requested commits happen.
    let fs = OpenOptions::new()
        .write(true)
        .commit_interval(None)
        .page_cache_bytes(cache_mib << 20)
        .open_device(device.clone());
    (device, fs.unwrap())
}

/// mke2fs places the start of a small log in pieces. This moves past them, so that a commit is one
/// write.
pub fn leave_front_of_log(file: &extant::File) {
    for _ in 0..20 {
        file.append(&[1; 4096]).unwrap();
        file.sync_all().unwrap();
    }
}

/// All bytes of a device.
pub fn image_of(device: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.len() as usize];
    device.read_at(extant_base::ByteOffset(0), &mut bytes).unwrap();
    bytes
}

/// Runs e2fsck on the content of a device.
#[track_caller]
pub fn judge(device: &dyn BlockDevice) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("img");
    std::fs::write(&path, image_of(device)).unwrap();
    e2fsprogs::clear_data_csum(&path).unwrap();
    e2fsprogs::e2fsck(&path, None).expect_clean().unwrap();
}

/// The requests of a call at the device.
pub fn costs(device: &Device, call: impl FnOnce()) -> OpCounts {
    let before = device.position();
    call();
    device.counts_since(before)
}
