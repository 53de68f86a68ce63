//! Power cuts of a device that is written through a window.

use crate::{CrashPlan, CrashState, Faulty, Op, Recorder};
use extant_base::ByteOffset;
use extant_blockdev::{BlockDevice, Dax, MemoryDevice};
use std::collections::HashSet;
use std::sync::Arc;

fn window(device: &dyn BlockDevice, at: u64, len: u64) -> Arc<dyn Dax> {
    device.dax(ByteOffset(at), len).expect("a window")
}

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

#[test]
fn a_window_through_wrapping_devices_shows_the_same_bytes() {
    let device = Recorder::new(Faulty::new(MemoryDevice::new(8192)));
    let dax = window(&device, 1024, 2048);
    dax.store(7, b"stored").unwrap();
    dax.write_back(7, 6).unwrap();
    dax.fence().unwrap();
    let mut read = [0; 6];
    device.read_at(ByteOffset(1024 + 7), &mut read).unwrap();
    assert_eq!(&read, b"stored");
    device.write_at(ByteOffset(1024 + 100), b"written").unwrap();
    let mut loaded = [0; 7];
    dax.load(100, &mut loaded).unwrap();
    assert_eq!(&loaded, b"written");
    assert!(dax.load(2048, &mut [0]).is_err(), "past the window");
    assert!(device.dax(ByteOffset(8190), 3).is_none(), "past the device");
}
