//! Content of files.

use crate::rig::Rig;
use extant_testkit::rng::bytes;
use rustix::fs::{FallocateFlags, Mode, OFlags, SeekFrom as Seek};
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek as _, SeekFrom, Write};
use std::os::unix::fs::FileExt;

const MIB: usize = 1 << 20;

fn opened(path: &std::path::Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

pub fn files_are_made_written_read_and_removed(rig: &Rig) {
    let path = rig.path("a");
    fs::write(&path, b"hello").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"hello");
    fs::create_dir(rig.path("d")).unwrap();
    fs::rename(&path, rig.path("d/b")).unwrap();
    let mut file = opened(&rig.path("d/b"));
    file.seek(SeekFrom::End(0)).unwrap();
    file.write_all(b" world").unwrap();
    file.rewind().unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "hello world");
    drop(file);
    // Truncation by `open` must not be lost where the server receives no openings.
    drop(OpenOptions::new().write(true).truncate(true).open(rig.path("d/b")).unwrap());
    assert_eq!(fs::metadata(rig.path("d/b")).unwrap().len(), 0);
    assert!(fs::remove_dir(rig.path("d")).is_err());
    fs::remove_file(rig.path("d/b")).unwrap();
    fs::remove_dir(rig.path("d")).unwrap();
    assert_eq!(fs::read_dir(rig.root()).unwrap().count(), 0);
}

pub fn large_transfers_arrive_whole(rig: &Rig) {
    let file = opened(&rig.path("large"));
    let content = bytes(1, 5 * MIB + 777);
    file.write_all_at(&content, 0).unwrap();
    file.sync_all().unwrap();
    let mut back = vec![0; content.len()];
    file.read_exact_at(&mut back, 0).unwrap();
    assert!(back == content);
    // Overwrites what the kernel has cached, at unaligned offsets.
    for (seed, at, len) in [(2, 1, MIB), (3, 3 * MIB - 5, 2 * MIB), (4, 4095, 4097)] {
        let part = bytes(seed, len);
        file.write_all_at(&part, at as u64).unwrap();
        let mut back = vec![0; len];
        file.read_exact_at(&mut back, at as u64).unwrap();
        assert!(back == part, "{len} at {at}");
    }
}

pub fn direct_and_cached_io_agree(rig: &Rig) {
    let path = rig.path("direct");
    let cached = opened(&path);
    let flags = OFlags::RDWR | OFlags::DIRECT;
    let direct = File::from(rustix::fs::open(&path, flags, Mode::empty()).unwrap());
    let content = bytes(9, 2 * MIB);
    direct.write_all_at(&content, 0).unwrap();
    let mut back = vec![0; content.len()];
    cached.read_exact_at(&mut back, 0).unwrap();
    assert!(back == content);
    let part = bytes(10, MIB);
    cached.write_all_at(&part, 4096).unwrap();
    direct.read_exact_at(&mut back[..MIB], 4096).unwrap();
    assert!(back[..MIB] == part);
}

pub fn shared_mappings_reach_the_file(rig: &Rig) {
    let path = rig.path("mapped");
    let file = opened(&path);
    file.set_len(64 * 4096).unwrap();
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at a place that the kernel chooses; no code truncates the file during
    // its life.
    let place = unsafe {
        rustix::mm::mmap(std::ptr::null_mut(), 64 * 4096, prot, MapFlags::SHARED, &file, 0)
    }
    .unwrap();
    for page in 0..64 {
        // SAFETY: within the mapping, which no other code uses.
        unsafe { place.cast::<u8>().add(page * 4096 + page).write(page as u8 + 1) };
    }
    // SAFETY: the whole mapping, which no code uses afterwards.
    unsafe {
        rustix::mm::msync(place, 64 * 4096, MsyncFlags::SYNC).unwrap();
        rustix::mm::munmap(place, 64 * 4096).unwrap();
    }
    let flags = OFlags::RDONLY | OFlags::DIRECT;
    let direct = File::from(rustix::fs::open(&path, flags, Mode::empty()).unwrap());
    let mut back = vec![0; 64 * 4096];
    direct.read_exact_at(&mut back, 0).unwrap();
    for page in 0..64 {
        assert_eq!(back[page * 4096 + page], page as u8 + 1);
    }
    assert_eq!(back.iter().filter(|&&b| b != 0).count(), 64);
}

pub fn ranges_are_allocated_punched_sought_and_copied(rig: &Rig) {
    let file = opened(&rig.path("ranges"));
    file.write_all_at(&bytes(5, 10_000), 0).unwrap();
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 20_000).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 20_000);
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, punch, 100, 200).unwrap();
    let mut back = vec![0; 400];
    file.read_exact_at(&mut back, 0).unwrap();
    let mut want = bytes(5, 400);
    want[100..300].fill(0);
    assert_eq!(back, want);
    assert_eq!(rustix::fs::seek(&file, Seek::Hole(0)).unwrap(), 20_000);
    assert_eq!(rustix::fs::seek(&file, Seek::Data(50)).unwrap(), 50);
    assert!(rustix::fs::seek(&file, Seek::Data(20_000)).is_err());
    let to = opened(&rig.path("copy"));
    let (mut from_at, mut to_at) = (0, 7);
    let copied =
        rustix::fs::copy_file_range(&file, Some(&mut from_at), &to, Some(&mut to_at), 400).unwrap();
    assert_eq!(copied, 400);
    let mut back = vec![0; 400];
    to.read_exact_at(&mut back, 7).unwrap();
    assert_eq!(back, want);
}

pub fn many_threads_find_what_they_wrote(rig: &Rig) {
    fs::create_dir(rig.path("shared")).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..12u64 {
            scope.spawn(move || {
                for round in 0..60 {
                    let seed = thread * 1000 + round;
                    let (first, last) = (format!("shared/{seed}.new"), format!("shared/{seed}"));
                    let content = bytes(seed, 1 + (seed as usize * 7919) % 40_000);
                    let file = File::create(rig.path(&first)).unwrap();
                    file.write_all_at(&content, 0).unwrap();
                    if round % 7 == 0 {
                        file.sync_all().unwrap();
                    }
                    drop(file);
                    fs::rename(rig.path(&first), rig.path(&last)).unwrap();
                    assert!(fs::read(rig.path(&last)).unwrap() == content);
                    if round % 2 == 0 {
                        fs::remove_file(rig.path(&last)).unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(fs::read_dir(rig.path("shared")).unwrap().count(), 12 * 30);
}
