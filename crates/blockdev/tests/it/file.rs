//! What only file devices have: opening, locks, lengths, holes, direct transfers.
//!
//! ```text
//!   create ──► lock ──► write ──► drop (unlock) ──► open
//! ```

use extant_base::{ByteOffset, Error};
use extant_blockdev::{AlignedBuf, BlockDevice, FileDevice, FileOptions};
use extant_testkit::loop_mount::LoopDevice;
use extant_testkit::require;
use std::fs;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

fn temp_dir() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn space_of(path: &std::path::Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

#[test]
fn a_writer_keeps_everybody_out_and_readers_share() {
    let dir = temp_dir();
    let path = dir.path().join("volume");
    let writer = FileDevice::create(&path, MIB).unwrap();
    writer.write_at(ByteOffset(0), b"mine").unwrap();
    assert!(matches!(FileDevice::open_rw(&path), Err(Error::Busy)));
    assert!(matches!(FileDevice::open(&path), Err(Error::Busy)));
    assert!(matches!(FileDevice::create(&path, 5), Err(Error::Busy)));
    let peek = FileOptions::new().lock(false).open(&path).unwrap();
    let mut buf = [0; 4];
    peek.read_at(ByteOffset(0), &mut buf).unwrap();
    assert_eq!((&buf, peek.len()), (b"mine", MIB), "the refused create emptied nothing");
    drop(writer);

    let readers = [FileDevice::open(&path).unwrap(), FileDevice::open(&path).unwrap()];
    assert!(matches!(FileDevice::open_rw(&path), Err(Error::Busy)));
    drop(readers);
    FileDevice::open_rw(&path).unwrap();
}

#[test]
fn what_is_no_file_is_refused_by_name() {
    let dir = temp_dir();
    let missing = FileDevice::open(dir.path().join("missing")).err().unwrap();
    assert_eq!(missing.errno(), libc::ENOENT);
    assert!(matches!(FileDevice::open(dir.path()), Err(Error::IsADirectory)));
    assert!(matches!(FileDevice::open("/dev/null"), Err(Error::Invalid(_))));
    assert!(matches!(FileDevice::create("/dev/null", 4096), Err(Error::Invalid(_))));
    let path = dir.path().join("there");
    FileOptions::new().create_new(&path, 10).unwrap();
    let again = FileOptions::new().create_new(&path, 10).err().unwrap();
    assert_eq!(again.errno(), libc::EEXIST);
}

#[test]
fn a_new_file_is_zero_sparse_and_as_long_as_asked() {
    let dir = temp_dir();
    let path = dir.path().join("volume");
    fs::write(&path, [b'x'; 5000]).unwrap();
    let device = FileDevice::create(&path, 1 << 40).unwrap();
    assert_eq!((device.len(), fs::metadata(&path).unwrap().len()), (1 << 40, 1 << 40));
    assert_eq!(space_of(&path), 0);
    let mut buf = [1; 5000];
    device.read_at(ByteOffset(0), &mut buf).unwrap();
    assert!(buf.iter().all(|byte| *byte == 0));
    let far = ByteOffset((1 << 40) - 5);
    device.write_at(far, b"far o").unwrap();
    device.read_at(far, &mut buf[..5]).unwrap();
    assert_eq!(&buf[..5], b"far o");
}

#[test]
fn zeroed_and_discarded_ranges_give_their_space_back_unless_it_was_reserved() {
    let dir = temp_dir();
    let path = dir.path().join("volume");
    let device = FileDevice::create(&path, 4 * MIB).unwrap();
    device.write_at(ByteOffset(0), &vec![b'x'; 4 << 20]).unwrap();
    device.flush().unwrap();
    let full = space_of(&path);
    assert!(full >= 4 * MIB);
    device.zero(ByteOffset(100), 2 * MIB).unwrap();
    assert!(space_of(&path) <= full - 2 * MIB + 8192);
    device.discard(ByteOffset(2 * MIB), 2 * MIB).unwrap();
    assert!(space_of(&path) <= 16384);
    device.allocate(4 * MIB).unwrap();
    device.zero(ByteOffset(0), 4 * MIB).unwrap();
    assert!(space_of(&path) >= 4 * MIB);
    assert!(device.allocate(4 * MIB + 1).is_err());
}

#[test]
fn a_length_can_change() {
    let dir = temp_dir();
    let device = FileDevice::create(dir.path().join("volume"), 100).unwrap();
    assert!(device.write_at(ByteOffset(100), b"x").is_err());
    device.set_len(200).unwrap();
    device.write_at(ByteOffset(199), b"x").unwrap();
    device.set_len(150).unwrap();
    assert!(device.read_at(ByteOffset(199), &mut [0]).is_err());
}

#[test]
fn a_file_cut_short_from_outside_is_an_error_that_says_where() {
    let dir = temp_dir();
    let path = dir.path().join("volume");
    drop(FileDevice::create(&path, MIB).unwrap());
    for direct in [false, true] {
        let device = FileOptions::new().direct(direct).lock(false).open(&path).unwrap();
        let shortened = fs::OpenOptions::new().write(true).open(&path).unwrap();
        shortened.set_len(1000).unwrap();
        let mut buf = AlignedBuf::zeroed(1 << 20);
        let error = device.read_at(ByteOffset(0), &mut buf).unwrap_err();
        match error {
            Error::Device { at, len, source, .. } => {
                assert_eq!((at, len), (ByteOffset(0), 1 << 20));
                assert_eq!(source.kind(), std::io::ErrorKind::UnexpectedEof);
            }
            other => panic!("{other}"),
        }
        shortened.set_len(MIB).unwrap();
    }
}

#[test]
fn direct_and_cached_transfers_see_each_other() {
    let dir = temp_dir();
    let path = dir.path().join("volume");
    let device = FileOptions::new().direct(true).create(&path, 8 * MIB).unwrap();
    if !device.is_direct() {
        // The filesystem of the test has no direct I/O; all transfers go through the page cache.
        return;
    }
    assert!(device.alignment() >= 4096);
    let mut large = AlignedBuf::zeroed(1 << 20);
    let mut small = [0; 16];
    for round in 0..50u64 {
        let base = round % 7 * MIB;
        large.fill(round as u8 + 1);
        // Cached by a read, then changed on the disk by a direct write.
        device.read_at(ByteOffset(base + 5000), &mut small).unwrap();
        device.write_at(ByteOffset(base), &large).unwrap();
        device.read_at(ByteOffset(base + 5000), &mut small).unwrap();
        assert_eq!(small, [round as u8 + 1; 16], "a small read after a direct write");
        // Dirty in the cache, then read directly.
        device.write_at(ByteOffset(base + 9000), &[200; 16]).unwrap();
        device.read_at(ByteOffset(base), &mut large).unwrap();
        assert_eq!(large[9000..9016], [200; 16], "a direct read after a small write");
        // Dirty in the cache, then overwritten directly.
        large.fill(round as u8 + 100);
        device.write_at(ByteOffset(base), &large).unwrap();
        device.flush().unwrap();
        device.read_at(ByteOffset(base + 9000), &mut small).unwrap();
        assert_eq!(small, [round as u8 + 100; 16], "a direct write over a small one");
    }
}

#[test]
fn small_writes_beside_direct_ones_are_never_lost() {
    let dir = temp_dir();
    let path = dir.path().join("volume");
    let device = FileOptions::new().direct(true).create(&path, 16 * MIB).unwrap();
    // Even stretches of 128 KiB are written directly, odd ones in small pieces, by four threads.
    let stretch = 128 << 10;
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let device = &device;
            scope.spawn(move || {
                for n in (thread..128).step_by(4) {
                    let at = n * stretch;
                    if thread % 2 == 0 {
                        let mut buf = AlignedBuf::zeroed(stretch as usize);
                        buf.fill(n as u8 + 1);
                        device.write_at(ByteOffset(at), &buf).unwrap();
                    } else {
                        for piece in 0..stretch / 1024 {
                            let at = ByteOffset(at + piece * 1024);
                            device.read_at(at, &mut [0; 4096][..1024]).unwrap();
                            device.write_at(at, &[n as u8 + 1; 1024]).unwrap();
                        }
                    }
                }
            });
        }
    });
    device.flush().unwrap();
    drop(device);
    let bytes = fs::read(&path).unwrap();
    for (n, bytes) in bytes.chunks(stretch as usize).enumerate() {
        assert!(bytes.iter().all(|byte| *byte == n as u8 + 1), "stretch {n}");
    }
}

/// Asserts that while one of two ways to the same bytes is open for writing, the other one cannot
/// be opened for writing.
fn assert_not_both_written(one: &std::path::Path, other: &std::path::Path, why: &str) {
    for (first, second) in [(one, other), (other, one)] {
        let writer = FileDevice::open_rw(first).unwrap();
        let refused = FileDevice::open_rw(second).err();
        assert!(
            matches!(refused, Some(Error::Busy)),
            "{why}: {first:?}, then {second:?}: {refused:?}"
        );
        drop(writer);
        drop(FileDevice::open_rw(second).unwrap());
    }
}

#[test]
fn a_loop_device_whose_file_lost_its_name_and_that_file_are_not_both_written() {
    require!(Root, Loop);
    let dir = temp_dir();
    let (name, link) = (dir.path().join("name"), dir.path().join("link"));
    fs::write(&name, vec![0; 1 << 20]).unwrap();
    fs::hard_link(&name, &link).unwrap();
    let device = LoopDevice::attach(&link).unwrap();
    assert_not_both_written(device.path(), &name, "both names are there");
    // The path in sysfs names no file, and then another file.
    fs::remove_file(&link).unwrap();
    assert_not_both_written(device.path(), &name, "the device's name of it is gone");
    fs::write(format!("{} (deleted)", link.display()), vec![0; 1 << 20]).unwrap();
    assert_not_both_written(device.path(), &name, "the device's name of it is another file's");
}

#[test]
fn loop_devices_over_each_other_and_the_file_below_are_not_both_written() {
    require!(Root, Loop);
    let dir = temp_dir();
    let file = dir.path().join("file");
    fs::write(&file, vec![0; 1 << 20]).unwrap();
    let lower = LoopDevice::attach(&file).unwrap();
    let upper = LoopDevice::attach(lower.path()).unwrap();
    assert_not_both_written(lower.path(), &file, "one device over it");
    assert_not_both_written(upper.path(), &file, "two devices over it");
    assert_not_both_written(upper.path(), lower.path(), "the devices");
}

/// A claim on a loop device over the file stands for a mount of it that the kernel is taking down.
#[test]
fn an_opening_waits_for_a_claim_that_ends_soon() {
    require!(Root, Loop);
    let dir = temp_dir();
    let path = dir.path().join("file");
    fs::write(&path, vec![0; 1 << 20]).unwrap();
    let device = LoopDevice::attach(&path).unwrap();
    let claim = || fs::File::options().read(true).custom_flags(libc::O_EXCL).open(device.path());
    let held = claim().unwrap();
    let start = Instant::now();
    assert!(matches!(FileDevice::open_rw(&path), Err(Error::Busy)), "it was claimed all the time");
    assert!(start.elapsed() >= Duration::from_secs(1), "{:?}", start.elapsed());
    std::thread::scope(|threads| {
        threads.spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            drop(held);
        });
        let start = Instant::now();
        drop(FileDevice::open_rw(&path).unwrap());
        assert!(start.elapsed() >= Duration::from_millis(100), "it was not claimed when it began");
    });
    // Readers do not wait.
    let _held = claim().unwrap();
    drop(FileDevice::open(&path).unwrap());
}

/// As long as a thread of this process starts a program, that program shares the claim of a device
/// that another thread closes.
#[test]
fn an_opening_of_a_block_device_waits_for_a_claim_on_it_that_ends_soon() {
    require!(Root, Loop);
    let dir = temp_dir();
    let path = dir.path().join("file");
    fs::write(&path, vec![0; 1 << 20]).unwrap();
    let device = LoopDevice::attach(&path).unwrap();
    let held = fs::File::options().read(true).custom_flags(libc::O_EXCL).open(device.path());
    let held = held.unwrap();
    assert!(matches!(FileDevice::open_rw(device.path()), Err(Error::Busy)));
    std::thread::scope(|threads| {
        threads.spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            drop(held);
        });
        drop(FileDevice::open_rw(device.path()).unwrap());
    });
}
