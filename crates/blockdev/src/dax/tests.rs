use super::cpu::Lines;
use super::*;
use crate::{BlockDevice, FileDevice, FileOptions, MemoryDevice, ReadOnly, Slice};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

const LEN: u64 = 64 << 10;

fn file(path: &Path, mode: DaxMode) -> FileDevice {
    FileOptions::new().dax(mode).create(path, LEN).unwrap()
}

/// Whether this machine can write lines back at all.
fn offered() -> bool {
    Lines::detect().is_some()
}

fn window(device: &dyn BlockDevice, at: u64, len: u64) -> Arc<dyn Dax> {
    device.dax(ByteOffset(at), len).expect("a window")
}

fn check(device: &dyn BlockDevice) {
    let dax = window(device, 8192 + 24, 9000);
    assert_eq!(dax.len(), 9000);
    let bytes: Vec<u8> = (0..300u32).map(|n| n as u8 | 1).collect();
    for (at, len) in [(0, 8), (0, 300), (1, 7), (3, 200), (13, 1), (8990, 10), (4071, 64), (5, 0)] {
        dax.store(at, &bytes[..len]).unwrap();
        dax.write_back(at, len as u64).unwrap();
        dax.fence().unwrap();
        let (mut loaded, mut read) = (vec![0; len], vec![0; len]);
        dax.load(at, &mut loaded).unwrap();
        device.read_at(ByteOffset(8192 + 24 + at), &mut read).unwrap();
        assert!(loaded == bytes[..len] && read == bytes[..len], "{at} {len}");
    }
    device.write_at(ByteOffset(8192 + 24 + 77), b"written").unwrap();
    let mut loaded = [0; 7];
    dax.load(77, &mut loaded).unwrap();
    assert_eq!(&loaded, b"written");
    // The neighbours of a store stay as they are.
    dax.store(100, &[9; 24]).unwrap();
    dax.store(105, b"abc").unwrap();
    let mut around = [0; 24];
    dax.load(100, &mut around).unwrap();
    assert!(around[..5] == [9; 5] && &around[5..8] == b"abc" && around[8..] == [9; 16]);
    for (at, len) in [(9000, 1), (8999, 2), (u64::MAX, 1), (0, 9001)] {
        assert!(dax.store(at, &vec![0; len]).is_err(), "{at} {len}");
        assert!(dax.load(at, &mut vec![0; len]).is_err(), "{at} {len}");
        assert!(dax.write_back(at, len as u64).is_err(), "{at} {len}");
    }
    assert!(device.dax(ByteOffset(LEN - 8), 9).is_none(), "past the end");
    assert!(device.dax(ByteOffset(u64::MAX), 8).is_none());
}

#[test]
fn a_window_and_its_device_see_the_same_bytes() {
    let memory = MemoryDevice::new(LEN);
    check(&memory);
    assert_eq!(window(&memory, 0, LEN).persistence_domain(), PersistenceDomain::Power);
    check(&Slice::new(MemoryDevice::new(2 * LEN), ByteOffset(4096), LEN).unwrap());
    if offered() {
        let dir = tempfile::tempdir().unwrap();
        let device = file(&dir.path().join("image"), DaxMode::Always);
        check(&device);
        let dax = window(&device, 0, LEN);
        assert_eq!(dax.way(), Lines::detect().unwrap().way());
    }
}

#[test]
fn every_way_that_the_cpu_has_leaves_the_bytes_alone() {
    let bytes: Vec<u8> = (0..10_000u32).map(|n| n as u8).collect();
    for lines in Lines::all() {
        for (at, len) in [(0, 10_000), (1, 1), (63, 2), (64, 64), (100, 0)] {
            // SAFETY: the range lies in `bytes`.
            unsafe { lines.write_back(bytes[at..].as_ptr(), len) };
            lines.fence();
        }
        assert!(bytes.iter().enumerate().all(|(n, byte)| *byte == n as u8), "{}", lines.way());
    }
}

#[test]
fn a_file_is_mapped_only_as_far_as_its_option_allows() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    assert!(file(&path, DaxMode::Never).dax(ByteOffset(0), LEN).is_none());
    // Where the test files lie on persistent memory there is a window, and its domain is `Power`.
    if let Some(dax) = file(&path, DaxMode::IfDurable).dax(ByteOffset(0), LEN) {
        assert_eq!(dax.persistence_domain(), PersistenceDomain::Power);
    } else if offered() {
        let device = file(&path, DaxMode::Always);
        assert_eq!(window(&device, 0, LEN).persistence_domain(), PersistenceDomain::ProcessCrash);
        assert!(device.dax(ByteOffset(0), 0).is_none());
    }
    let reader = FileOptions::new().dax(DaxMode::Always).open(&path).unwrap();
    assert!(reader.dax(ByteOffset(0), LEN).is_none(), "opened for reading");
    assert!(ReadOnly::new(MemoryDevice::new(LEN)).dax(ByteOffset(0), LEN).is_none());
}

#[test]
fn a_file_that_was_cut_is_an_error_and_not_the_end_of_the_process() {
    if !offered() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let device = file(&path, DaxMode::Always);
    let dax = window(&device, 32 << 10, 32 << 10);
    dax.store(0, b"here").unwrap();
    let other = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    other.set_len(0).unwrap();
    assert!(dax.store(0, b"x").is_err() && dax.load(0, &mut [0]).is_err());
    // The device keeps its recorded length, but offers no new window.
    assert!(device.dax(ByteOffset(32 << 10), 32 << 10).is_none());
    other.set_len(LEN).unwrap();
    dax.store(0, b"again").unwrap();
}

#[test]
fn a_window_outlives_its_device_and_keeps_the_lock() {
    if !offered() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let device = file(&path, DaxMode::Always);
    let dax = window(&device, 0, LEN);
    drop(device);
    dax.store(5, b"late").unwrap();
    assert!(FileDevice::open_rw(&path).is_err());
    drop(dax);
    let mut read = [0; 4];
    FileDevice::open(&path).unwrap().read_at(ByteOffset(5), &mut read).unwrap();
    assert_eq!(&read, b"late");
}

#[test]
fn what_was_fenced_outlives_the_process() {
    const PATH: &str = "EXTANT_TEST_DAX_PATH";
    if !offered() {
        return;
    }
    if let Some(path) = std::env::var_os(PATH) {
        let device = FileOptions::new().write(true).dax(DaxMode::Always).open(path).unwrap();
        let dax = window(&device, 4096, 4096);
        dax.store(100, b"outlives").unwrap();
        dax.write_back(100, 8).unwrap();
        dax.fence().unwrap();
        std::process::abort();
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    drop(file(&path, DaxMode::Always));
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "dax::tests::what_was_fenced_outlives_the_process"]).env(PATH, &path);
    assert!(!child.output().unwrap().status.success(), "it aborts");
    let mut read = [0; 8];
    FileDevice::open(&path).unwrap().read_at(ByteOffset(4096 + 100), &mut read).unwrap();
    assert_eq!(&read, b"outlives");
}
