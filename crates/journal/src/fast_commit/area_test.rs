//! The fast-commit area: what fits, the order of writes, and what a cut leaves.

use crate::commit::crash_test::seeds;
use crate::fast_commit::area::BlockArea;
use crate::fast_commit::fast_commit_log::FastCommitLog;
use crate::fast_commit::sink::Sink;
use crate::log::watched::Watched;
use crate::test_log::{SIZE, TestLog};
use extant_base::{ByteOffset, Ino, Tid};
use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_ondisk::fast_commit::{NameChange, Record, Records, encode};
use extant_ondisk::jbd2::BlockSum;
use extant_testdev::{Recorder, Request, TestDevice};
use std::sync::Arc;

/// The running transaction of [`log`].
const T: Tid = Tid(8);
/// Usable blocks of the area.
const BLOCKS: usize = 15;
/// Bytes of records in a block that holds HEAD and TAIL too.
const WITH_HEAD: usize = SIZE - 12 - 12;
/// The same without a HEAD.
const WITHOUT: usize = SIZE - 12;

fn log() -> TestLog {
    let mut log = TestLog::new((BlockSum::V3, true), 7, 1, BLOCKS as u32 + 1);
    log.transaction(&[(3, 1)]);
    log
}

/// The area of the log on `device`, and the device that it writes through.
fn area<D: BlockDevice + 'static>(log: &TestLog, device: &Arc<D>) -> (BlockArea, Arc<Watched>) {
    let volume = Watched::new(Arc::clone(device) as Arc<dyn BlockDevice>);
    let opened = log.open(&volume).unwrap();
    volume.flush().unwrap();
    (BlockArea::of(&opened, &volume).unwrap(), volume)
}

fn found<D: BlockDevice + 'static>(log: &TestLog, device: &Arc<D>) -> Option<FastCommitLog> {
    log.open(device).unwrap().fast_commits(T, 256).unwrap()
}

/// Records of `len` bytes, at least 13, that contain the number `stamp`.
fn records(len: usize, stamp: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < len {
        let left = len - bytes.len();
        // A name has 1 to 255 bytes. The rest must be enough for one more.
        let here = match left {
            0..=267 => left,
            268..=300 => 200,
            _ => 267,
        };
        let name = vec![b'n'; here - 12];
        let change = NameChange { parent: Ino::ROOT, ino: Ino::new(stamp).unwrap(), name: &name };
        encode(&Record::Link(change), &mut bytes);
    }
    bytes
}

/// The records that the reader should return for `records`.
fn parsed(records: &[u8]) -> Vec<String> {
    let all = Records::new(records, 256, Default::default());
    all.map(|located| format!("{:?}", located.unwrap().record)).collect()
}

fn scanned(found: &FastCommitLog) -> Vec<String> {
    found.records().map(|record| format!("{record:?}")).collect()
}

#[test]
fn every_length_reads_back_and_takes_no_block_more_than_it_needs() {
    let log = log();
    for first in [true, false] {
        let one = if first { WITH_HEAD } else { WITHOUT };
        for len in (13..40).chain(one - 40..one + 40).chain(2 * one - 60..2 * one + 60) {
            let device = log.device();
            let (mut area, _) = area(&log, &device);
            let mut want = Vec::new();
            if !first {
                assert!(area.put(T, &records(20, 12)).unwrap());
                want = parsed(&records(20, 12));
            }
            let bytes = records(len, 13);
            assert!(area.put(T, &bytes).unwrap());
            want.extend(parsed(&bytes));
            let found = found(&log, &device).unwrap();
            assert_eq!(scanned(&found), want, "{len}");
            let blocks = found.bytes().len() / SIZE - usize::from(!first);
            if len <= one + 8 {
                // A PAD of up to 8 bytes fills the block if the TAIL does not fit.
                assert_eq!(blocks, if len <= one { 1 } else { 2 }, "{len}, first: {first}");
            }
            assert!(blocks <= 3);
        }
    }
}

#[test]
fn only_the_first_fast_commit_has_a_head() {
    let log = log();
    let device = log.device();
    let (mut area, _) = area(&log, &device);
    for nr in 0..3 {
        assert!(area.put(T, &records(50, 12 + nr)).unwrap());
    }
    let found = found(&log, &device).unwrap();
    assert_eq!(found.commits(), 3);
    for (nr, block) in found.bytes().chunks(SIZE).enumerate() {
        let first = Records::new(block, 256, Default::default()).next().unwrap().unwrap();
        assert_eq!(first.record == Record::Head { tid: T }, nr == 0);
    }
    assert_eq!(found.bytes().len(), 3 * SIZE);
}

#[test]
fn an_area_takes_what_fits_and_refuses_one_byte_more() {
    let log = log();
    let device = log.device();
    let (mut all, _) = area(&log, &device);
    // One fast commit that fills each block to the last byte: PAD's header ends all blocks but the
    // last. The area's own last block is not written.
    let mut bytes = records(SIZE - 12 - 4, 12);
    (1..BLOCKS - 2).for_each(|_| bytes.extend(records(SIZE - 4, 12)));
    let fits = [&bytes[..], &records(WITHOUT, 13)].concat();
    let too_much = [&bytes[..], &records(WITHOUT + 1, 13)].concat();
    assert!(too_much.len() > all.capacity() || !all.put(T, &too_much).unwrap());
    assert!(fits.len() <= all.capacity());
    assert_eq!(
        device.take_requests().iter().filter(|a| !matches!(a, Request::Read { .. })).count(),
        1
    );
    assert!(all.put(T, &fits).unwrap());
    assert_eq!(all.capacity(), 0);
    assert_eq!(scanned(&found(&log, &device).unwrap()), parsed(&fits));
    // Fast commits until the area is full.
    let device = log.device();
    let (mut area, _) = area(&log, &device);
    let mut count = 0;
    while area.put(Tid(7), &records(100, 12 + count)).unwrap() {
        count += 1;
    }
    assert_eq!(count as usize, BLOCKS - 1);
    let opened = log.open(&device).unwrap();
    assert_eq!(opened.fast_commits(Tid(7), 256).unwrap().unwrap().commits(), count);
    area.new_epoch().unwrap();
    assert_eq!(opened.fast_commits(Tid(7), 256).unwrap(), None, "HEAD is gone");
    assert!(area.put(T, &records(100, 99)).unwrap());
    assert_eq!(scanned(&found(&log, &device).unwrap()), parsed(&records(100, 99)));
}

#[test]
fn a_record_larger_than_a_block_is_refused() {
    let log = log();
    let device = log.device();
    let (mut area, _) = area(&log, &device);
    // HEAD is alone in the first block then.
    for (raw, fits) in [(SIZE - 11, false), (SIZE - 12, true)] {
        let mut bytes = Vec::new();
        encode(&Record::Inode { ino: Ino::ROOT, raw: &vec![1; raw] }, &mut bytes);
        assert_eq!(area.put(T, &bytes).unwrap(), fits, "{raw}");
    }
}

/// The requests other than reads, as (kind, length).
fn requests(device: &TestDevice) -> Vec<(char, usize)> {
    let kind = |requests| match requests {
        Request::Read { .. } => None,
        Request::Write { len, .. } => Some(('w', len)),
        Request::Fua { len, .. } => Some(('f', len)),
        Request::Flush => Some(('F', 0)),
    };
    device.take_requests().into_iter().filter_map(kind).collect()
}

#[test]
fn a_fast_commit_costs_one_write_and_the_flush_that_data_needs() {
    let log = log();
    let device = log.device();
    let (mut area, volume) = area(&log, &device);
    requests(&device);
    area.put(T, &records(200, 12)).unwrap();
    assert_eq!(requests(&device), [('f', SIZE)], "HEAD to TAIL in one sector");
    area.put(T, &records(900, 12)).unwrap();
    assert_eq!(requests(&device), [('f', SIZE)], "a later one may tear");
    volume.write_at(ByteOffset(0), &[1; SIZE]).unwrap();
    area.put(T, &records(200, 12)).unwrap();
    assert_eq!(requests(&device), [('w', SIZE), ('F', 0), ('f', SIZE)]);
    area.put(T, &records(2 * SIZE, 12)).unwrap();
    assert_eq!(requests(&device), [('w', 2 * SIZE), ('F', 0), ('f', SIZE)]);
    area.new_epoch().unwrap();
    area.put(Tid(9), &records(900, 12)).unwrap();
    let first = [('w', SIZE), ('w', SIZE - 512), ('F', 0), ('f', 512)];
    assert_eq!(requests(&device), first, "the sector with HEAD comes last");
}

#[test]
fn on_a_device_of_its_own_the_log_is_flushed_as_needed_and_the_volume_as_needed() {
    let log = log();
    let (device, home) = (log.device(), log.device());
    let volume = Watched::new(Arc::clone(&home) as Arc<dyn BlockDevice>);
    volume.flush().unwrap();
    let mut area = BlockArea::of(&log.open(&device).unwrap(), &volume).unwrap();
    device.take_requests();
    home.take_requests();
    area.put(T, &records(200, 12)).unwrap();
    assert_eq!((requests(&home), requests(&device)), (vec![], vec![('f', SIZE)]));
    volume.write_at(ByteOffset(0), &[1; SIZE]).unwrap();
    area.put(T, &records(200, 12)).unwrap();
    assert_eq!(requests(&home), [('w', SIZE), ('F', 0)]);
    assert_eq!(requests(&device), [('f', SIZE)]);
    area.put(T, &records(2 * SIZE, 12)).unwrap();
    assert_eq!(requests(&device), [('w', 2 * SIZE), ('F', 0), ('f', SIZE)]);
    area.new_epoch().unwrap();
    area.put(Tid(9), &records(20, 12)).unwrap();
    assert_eq!(
        requests(&device),
        [('w', SIZE), ('F', 0), ('f', SIZE)],
        "zeros before the next HEAD"
    );
    assert_eq!(requests(&home), []);
}

#[test]
fn a_cut_anywhere_keeps_what_was_acknowledged_and_nothing_by_half() {
    for seed in seeds(12) {
        let log = log();
        let before = MemoryDevice::from_bytes(&log.image);
        let device = Arc::new(Recorder::new(before.clone()));
        let (mut area, _) = area(&log, &device);
        // The whole area holds remains of an older epoch.
        if seed % 2 == 0 {
            while area.put(Tid(7), &records(700, 99)).unwrap() {}
            area.new_epoch().unwrap();
        }
        let lens = [[200, 700, 2500, 100], [700, 100, 1500, 3000], [3000, 50, 1011, 1013]];
        let mut acknowledged = vec![(device.position(), 0)];
        let mut want: Vec<String> = Vec::new();
        let mut after = vec![want.clone()];
        for (nr, len) in lens[seed as usize % 3].into_iter().enumerate() {
            let bytes = records(len, 12 + nr as u32);
            assert!(area.put(T, &bytes).unwrap());
            want.extend(parsed(&bytes));
            after.push(want.clone());
            acknowledged.push((device.position(), nr + 1));
        }
        let plan = device.crash_plan(&before).seed(seed).samples(8).torn(2);
        for state in plan.states() {
            let what = format!("seed {seed}, {state}");
            let cut = Arc::new(state.image);
            let found = log.open(&cut).unwrap().fast_commits(T, 256).unwrap();
            let commits = found.as_ref().map_or(0, |found| found.commits() as usize);
            let least =
                acknowledged.iter().filter(|(at, _)| *at <= state.completed).map(|(_, nr)| *nr);
            assert!(commits >= least.max().unwrap_or(0), "{what}: {commits}");
            let scanned = found.as_ref().map_or(Vec::new(), scanned);
            assert!(scanned == after[commits], "{what}");
            // Linux reports a HEAD without a TAIL as damage: there are both or none.
            let mut block = [0; SIZE];
            log.open(&cut).unwrap().read(log.fast_block(0), &mut block).unwrap();
            let first = Records::new(&block, 256, Default::default()).next();
            let has_head = matches!(first, Some(Ok(l)) if l.record == Record::Head { tid: T });
            assert!(!has_head || commits > 0, "{what}: HEAD alone");
        }
    }
}
