use super::cpu::Lines;
use super::*;
use crate::{
    BlockDevice, Faulty, FileDevice, FileOptions, MemoryDevice, ReadOnly, Recorder, Slice,
};
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
    check(&Recorder::new(Faulty::new(MemoryDevice::new(LEN))));
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
    let somebody = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    somebody.set_len(0).unwrap();
    assert!(dax.store(0, b"x").is_err() && dax.load(0, &mut [0]).is_err());
    // The device keeps its recorded length, but offers no new window.
    assert!(device.dax(ByteOffset(32 << 10), 32 << 10).is_none());
    somebody.set_len(LEN).unwrap();
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

#[test]
fn stores_and_fences_fail_on_demand() {
    let device = Faulty::new(MemoryDevice::new(LEN));
    let dax = window(&device, 4096, 4096);
    device.fail_range(IoOp::Write, 4096 + 64..4096 + 128);
    assert!(dax.store(0, &[1; 64]).is_ok() && dax.store(63, &[1; 2]).is_err());
    device.fail(IoOp::Flush, 1);
    assert!(dax.fence().is_err() && dax.fence().is_ok());
    device.fail(IoOp::Read, 1);
    assert!(dax.load(0, &mut [0]).is_err());
}

mod crash {
    use super::*;
    use crate::{CrashPlan, CrashState, Op};
    use std::collections::HashSet;

    fn record(run: impl FnOnce(&Recorder<MemoryDevice>, &dyn Dax)) -> CrashPlan {
        let base = MemoryDevice::new(4096);
        let device = Recorder::new(base.clone());
        run(&device, &*window(&device, 1024, 1024));
        device.crash_plan(&base)
    }

    fn store(dax: &dyn Dax, line: u64, byte: u8) {
        dax.store(line * 64, &[byte; 64]).unwrap();
    }

    /// The first word of each of the first four lines; no word may be torn.
    fn picture(state: &CrashState) -> String {
        let mut all = vec![0; 256];
        state.image.read_at(ByteOffset(1024), &mut all).unwrap();
        for word in all.chunks(8) {
            assert!(word.iter().all(|byte| *byte == word[0]), "a word is torn: {state}");
        }
        let letter = |line: &[u8]| if line[0] == 0 { '.' } else { char::from(line[0]) };
        all.chunks(64).map(letter).collect()
    }

    #[test]
    fn a_store_is_logged_line_by_line() {
        let base = MemoryDevice::new(4096);
        let device = Recorder::new(base.clone());
        let dax = window(&device, 1024, 1024);
        dax.store(60, &[7; 70]).unwrap();
        dax.write_back(60, 70).unwrap();
        dax.fence().unwrap();
        let store = |at, len: usize| Op::Store { at: ByteOffset(at), data: vec![7; len].into() };
        let back = Op::WriteBack { at: ByteOffset(1084), len: 70 };
        let want = [store(1084, 4), store(1088, 64), store(1152, 2), back, Op::Fence];
        assert_eq!(device.log(), want);
        let counts = device.counts_since(0);
        assert_eq!((counts.stored_bytes, counts.written_back_lines, counts.fences), (70, 3, 1));
        assert_eq!((counts.writes, counts.flushes), (0, 0));
    }

    #[test]
    fn every_subset_of_lines_not_fenced_comes_up() {
        let plan = record(|_, dax| {
            for (line, byte) in (0..4).zip(*b"abcd") {
                store(dax, line, byte);
            }
            dax.write_back(0, 256).unwrap();
        });
        let seen: HashSet<_> = plan.torn(0).states().map(|state| picture(&state)).collect();
        assert_eq!(seen.len(), 16);
    }

    #[test]
    fn only_lines_sent_before_a_fence_are_durable_after_it() {
        let plan = record(|device, dax| {
            store(dax, 0, b'a');
            store(dax, 1, b'b');
            dax.write_back(0, 1).unwrap();
            device.flush().unwrap();
            dax.fence().unwrap();
            store(dax, 0, b'A');
            dax.fence().unwrap();
            store(dax, 2, b'c');
        });
        let mut seen = HashSet::new();
        for state in plan.states().filter(|state| state.cut == 8) {
            seen.insert(picture(&state));
        }
        let want = ["a.c.", "abc.", "A.c.", "Abc."].map(String::from);
        assert!(want.iter().all(|picture| seen.contains(picture)), "{seen:?}");
        assert!(seen.iter().all(|picture| !picture.starts_with('.')), "{seen:?}");
    }

    #[test]
    fn a_line_tears_between_words_only() {
        let plan = record(|_, dax| {
            store(dax, 0, b'a');
            dax.store(64 + 3, &[b'b'; 13]).unwrap();
        });
        let mut torn = 0;
        for state in plan.torn(16).states() {
            let mut all = vec![0; 128];
            state.image.read_at(ByteOffset(1024), &mut all).unwrap();
            let words: Vec<bool> = all[..64].chunks(8).map(|word| word == [b'a'; 8]).collect();
            torn += usize::from(words.contains(&true) && words.contains(&false));
            let parts = [&all[64 + 3..64 + 8], &all[64 + 8..64 + 16]];
            for part in parts {
                assert!(part.iter().all(|byte| *byte == part[0]), "{state}");
            }
        }
        assert!(torn > 4);
    }

    #[test]
    fn a_fence_says_nothing_about_writes() {
        let plan = record(|device, dax| {
            device.write_at(ByteOffset(1024), &[b'w'; 64]).unwrap();
            store(dax, 1, b'b');
            dax.write_back(64, 64).unwrap();
            dax.fence().unwrap();
            device.flush().unwrap();
        });
        let at = |cut| -> HashSet<String> {
            plan.states().filter(|state| state.cut == cut).map(|state| picture(&state)).collect()
        };
        assert!(at(2).contains(".b.."));
        assert_eq!(at(5), HashSet::from(["wb..".into()]));
    }
}
