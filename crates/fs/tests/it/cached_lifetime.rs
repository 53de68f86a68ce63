//! What happens to a file's folios when its inode leaves memory and returns.

use crate::common::{judge, mke2fs, new_file};
use extant::{Error, Filesystem, MemoryDevice, NewFile, OpenOptions};
use extant_testkit::rng;
use std::sync::Arc;

fn volume(mke2fs_options: &str) -> (Arc<MemoryDevice>, Filesystem) {
    let device = Arc::new(mke2fs(64, mke2fs_options));
    let mut options = OpenOptions::new();
    options.write(true).commit_interval(None).page_cache_bytes(16 << 20);
    (device.clone(), options.open_device(device).unwrap())
}

/// Creates so many inodes that unused ones leave the table of inodes in use.
fn fill_inode_table(fs: &Filesystem) {
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
        let file = new_file(&fs, name);
        file.write_all_at(&[0xAA; 100_000], 0).unwrap();
        file.sync_all().unwrap();
    }
    let ino = fs.metadata("gone").unwrap().ino();
    fill_inode_table(&fs);
    assert!(fs.cache_stats().unwrap().cached >= 200_000);

    let cut = fs.open_file("cut").unwrap();
    cut.set_len(0).unwrap();
    cut.set_len(100_000).unwrap();
    assert!(fs.read("cut").unwrap() == vec![0; 100_000], "what was cut off is back");

    fs.remove_file("gone").unwrap();
    let file = new_file(&fs, "heir");
    assert_eq!(file.ino(), ino);
    file.set_len(100_000).unwrap();
    assert!(fs.read("heir").unwrap() == vec![0; 100_000], "the content of another file");
    drop((cut, file));
    fs.close().unwrap();
    judge(&*device);
}

#[test]
fn small_writes_reserve_no_more_than_they_need() {
    for kind in ["-b 1024 -O ^extents,^64bit", "-b 1024 -O ^has_journal", "-b 1024 -O bigalloc"] {
        let (device, fs) = volume(kind);
        let file = new_file(&fs, "f");
        let before = fs.space().free;
        let want = rng::bytes(3, 3 << 20);
        for (n, block) in want.chunks(1024).enumerate() {
            file.write_all_at(block, n as u64 * 1024).unwrap();
        }
        let (reserved, blocks) = (before - fs.space().free, want.len() as u64 / 1024);
        assert!(reserved <= blocks + blocks / 20 + 16, "{kind}: {reserved} for {blocks}");
        drop(file);
        assert!(fs.read("f").unwrap() == want, "{kind}");
        fs.close().unwrap();
        judge(&*device);
    }
}

#[test]
fn a_write_is_not_refused_while_reserved_space_can_be_returned() {
    for kind in ["-b 1024 -O ^extents,^64bit -m 0", "-b 1024 -O ^has_journal -m 0"] {
        let (device, fs) = volume(kind);
        let ballast = new_file(&fs, "ballast");
        let free = fs.space().free * 1024;
        ballast.write_all_at(&vec![1; (free - (3 << 20)) as usize], 0).unwrap();
        fs.sync().unwrap();
        // Pieces far apart: each may need its own blocks of the map.
        let file = new_file(&fs, "f");
        for n in 0..1000 {
            file.write_all_at(&[n as u8; 1024], n * 20 * 1024)
                .unwrap_or_else(|e| panic!("{kind}: {n}: {e}"));
        }
        drop((ballast, file));
        fs.close().unwrap();
        judge(&*device);
    }
}

#[test]
fn a_refused_borrow_leaves_no_reservation() {
    let (device, fs) = volume("-b 1024 -m 0");
    let file = new_file(&fs, "f");
    for n in 0..200 {
        file.write_all_at(&[1; 1024], n * 20 * 1024).unwrap();
    }
    fs.sync().unwrap();
    let ballast = new_file(&fs, "ballast");
    while ballast.append(&[2; 64 << 10]).is_ok() {}
    while ballast.append(&[2; 1 << 10]).is_ok() {}
    ballast.set_len(ballast.metadata().len() - (100 << 10)).unwrap();
    fs.sync().unwrap();
    // Over many holes, of which some find space.
    assert!(matches!(file.borrow_mut(0..2 << 20), Err(Error::NoSpace)));
    fs.sync().unwrap();
    let free = fs.space().free;
    drop((file, ballast));
    fs.close().unwrap();
    judge(&*device);
    assert_eq!(OpenOptions::new().open_device(device).unwrap().space().free, free);
}
