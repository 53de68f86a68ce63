//! What becomes of a file's folios while its inode comes and goes.

use extant::{BlockDevice, File, Filesystem, MemoryDevice, NewFile, OpenOptions};
use extant_base::ByteOffset;
use extant_testkit::e2fsprogs;
use std::sync::Arc;

fn volume(mke2fs_options: &str) -> (Arc<MemoryDevice>, Filesystem) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("img");
    e2fsprogs::mke2fs(&path, 64 << 20, mke2fs_options, None).unwrap();
    let device = Arc::new(MemoryDevice::from_bytes(&std::fs::read(&path).unwrap()));
    let mut options = OpenOptions::new();
    options.write(true).commit_interval(None).page_cache_bytes(16 << 20);
    (device.clone(), options.open_device(device).unwrap())
}

fn judge(device: &MemoryDevice) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("img");
    let mut bytes = vec![0; device.len() as usize];
    device.read_at(ByteOffset(0), &mut bytes).unwrap();
    std::fs::write(&path, bytes).unwrap();
    e2fsprogs::e2fsck(&path, None).expect_clean().unwrap();
}

fn create(fs: &Filesystem, name: &str) -> File {
    fs.root().unwrap().create(name, &NewFile::default()).unwrap().open().unwrap()
}

/// Makes so many inodes that those nobody holds leave the table of inodes in use.
fn crowd(fs: &Filesystem) {
    fs.create_dir("crowd", &NewFile::default()).unwrap();
    for n in 0..INODES {
        fs.create_file(format!("crowd/{n}"), &NewFile::default()).unwrap();
    }
}

const INODES: u32 = 20_000;

#[test]
fn folios_that_outlive_their_inode_in_memory_follow_what_becomes_of_the_file() {
    let (device, fs) = volume("-N 30000 -b 4096");
    for name in ["cut", "gone"] {
        let file = create(&fs, name);
        file.write_all_at(0, &[0xAA; 100_000]).unwrap();
        file.sync_all().unwrap();
    }
    let ino = fs.metadata("gone").unwrap().ino();
    crowd(&fs);
    assert!(fs.cache_stats().unwrap().cached >= 200_000);

    let cut = fs.open_file("cut").unwrap();
    cut.set_len(0).unwrap();
    cut.set_len(100_000).unwrap();
    assert!(fs.read("cut").unwrap() == vec![0; 100_000], "what was cut off is back");

    fs.remove_file("gone").unwrap();
    let file = create(&fs, "heir");
    assert_eq!(file.ino(), ino);
    file.set_len(100_000).unwrap();
    assert!(fs.read("heir").unwrap() == vec![0; 100_000], "the content of another file");
    drop((cut, file));
    fs.close().unwrap();
    judge(&device);
}
