//! Random handles over a small log, and a power cut at every request.
//!
//! ```text
//!   handle n stamps 2 to 4 blocks with n      ──►  after a cut and recovery the volume is as after
//!   some handles free a block; file data is        some handle k: the last of its transaction, and
//!   written there once that is durable             not before the last commit that returned
//! ```

use crate::recovery::cut_test::Random;
use crate::test_journal::{
    change, empty_log, home, journal_on, journal_with_cache, options, put, recover, stamp,
};
use crate::test_log::{OLD, SIZE, TestLog};
use crate::{CacheOptions, Credits, Handle, Journal, JournalOptions};
use extant_base::{BlockNr, ByteOffset, Tid};
use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_ondisk::jbd2::BlockSum;
use extant_testdev::{Op, Recorder};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Blocks that are stamped. They are enough that some stay dirty while others change all the time.
const STAMPED: u64 = 28;

/// The expected content of a block of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expect {
    /// The stamp of a handle.
    Stamp(u64),
    /// The block was freed, and file data may have been written to it.
    Free,
}

/// File data that was written to a freed block.
struct Data {
    block: u64,
    value: u8,
    /// The number of requests when the write returned.
    written: usize,
    /// The number of handles at that time.
    handles: usize,
}

/// A run, and the state of the volume after each of its handles.
struct Run {
    log: TestLog,
    device: Arc<Recorder<MemoryDevice>>,
    base: MemoryDevice,
    /// After handle n: the content of each block, and the handle's transaction. Index 0 is the
    /// state before all handles.
    after: Vec<(BTreeMap<u64, Expect>, Tid)>,
    /// (requests, handles): after so many requests, all handles up to this one were acknowledged as
    /// durable.
    acknowledged: Vec<(usize, usize)>,
    data: Vec<Data>,
}

impl Run {
    fn new(kind: (BlockSum, bool), head: u32) -> Run {
        let log = empty_log(kind, head);
        let base = MemoryDevice::from_bytes(&log.image);
        let device = Arc::new(Recorder::new(base.clone()));
        Run {
            log,
            device,
            base,
            after: vec![(BTreeMap::new(), Tid(0))],
            acknowledged: Vec::new(),
            data: Vec::new(),
        }
    }

    /// The changes of the next handle.
    fn change(&mut self, handle: &Handle<'_>, random: &mut Random) {
        let number = self.after.len() as u64;
        let mut now = self.after[self.after.len() - 1].0.clone();
        if random.below(4) == 0 {
            let block = random.below(STAMPED);
            if matches!(now.get(&block), Some(Expect::Stamp(_))) {
                handle.forget(BlockNr(block));
                now.insert(block, Expect::Free);
            }
        }
        for _ in 0..1 + random.below(3) {
            let block = random.below(STAMPED);
            if now.get(&block) == Some(&Expect::Free) {
                let new = handle.journal().cache().get_new(BlockNr(block)).unwrap();
                new.write(handle).unwrap().bytes_mut().copy_from_slice(&stamp(number));
            } else {
                put(handle, block, number);
            }
            now.insert(block, Expect::Stamp(number));
        }
        // A block that every handle changes, as the superblock is.
        put(handle, STAMPED, number);
        now.insert(STAMPED, Expect::Stamp(number));
        self.after.push((now, handle.tid()));
    }

    fn acknowledge(&mut self, handles: usize) {
        self.acknowledged.push((self.device.position(), handles));
    }

    /// Writes file data to a freed block, as an allocator may once the free is durable.
    fn write_data(&mut self, journal: &Journal, random: &mut Random) {
        let (now, _) = &self.after[self.after.len() - 1];
        let is_free = |nr: &u64| now.get(nr) == Some(&Expect::Free);
        let free: Vec<u64> = (0..STAMPED)
            .filter(is_free)
            .filter(|nr| journal.is_durable(self.freed_in(*nr)))
            .collect();
        if !free.is_empty() {
            let block = free[random.below(free.len() as u64) as usize];
            let value = 0x80 | random.next() as u8;
            self.device.write_at(ByteOffset(block * SIZE as u64), &[value; SIZE]).unwrap();
            let (written, handles) = (self.device.position(), self.after.len() - 1);
            self.data.push(Data { block, value, written, handles });
        }
    }

    /// The transaction that freed `nr`, which is free now.
    fn freed_in(&self, nr: u64) -> Tid {
        let used = self.after.iter().rposition(|(now, _)| now.get(&nr) != Some(&Expect::Free));
        self.after[used.expect("it was in use before it was freed") + 1].1
    }

    /// Checks one state after a cut and a recovery. `flushed` is the last flush that had returned.
    fn check(&self, device: &MemoryDevice, cut: usize, flushed: usize, what: &str) {
        let stamped = home(device, STAMPED);
        let reached = match stamped == [OLD; SIZE] {
            true => 0,
            false => u64::from_le_bytes(stamped[8..16].try_into().unwrap()) as usize,
        };
        let acknowledged =
            self.acknowledged.iter().filter(|(at, _)| *at <= cut).map(|(_, n)| *n).max();
        assert!(
            reached >= acknowledged.unwrap_or(0),
            "{what}: {reached}, acknowledged {acknowledged:?}"
        );
        let (now, tid) = &self.after[reached];
        if let Some((_, next)) = self.after.get(reached + 1) {
            assert!(next != tid || reached == 0, "{what}: {reached} is not its transaction's last");
        }
        for nr in 0..=STAMPED {
            match now.get(&nr) {
                None => assert!(home(device, nr) == [OLD; SIZE], "{what}: block {nr}"),
                Some(Expect::Stamp(number)) => {
                    assert!(home(device, nr) == stamp(*number), "{what}: block {nr}, {number}");
                }
                Some(Expect::Free) => self.check_data(device, nr, reached, (cut, flushed), what),
            }
        }
    }

    fn check_data(
        &self,
        device: &MemoryDevice,
        nr: u64,
        reached: usize,
        (cut, flushed): (usize, usize),
        what: &str,
    ) {
        // A write that began and did not return may leave anything.
        let mut writes =
            self.data.iter().filter(|data| data.block == nr && data.written <= cut + 1);
        let Some(last) = writes.next_back() else { return };
        let between = last.handles.min(reached)..=last.handles.max(reached);
        let free = self.after[between].iter().all(|(now, _)| now.get(&nr) == Some(&Expect::Free));
        if free && last.written <= flushed {
            assert!(home(device, nr) == [last.value; SIZE], "{what}: data of block {nr}");
        }
    }
}

/// The `handles` rounds of one thread.
fn work(run: &Mutex<Run>, journal: &Journal, random: &mut Random, handles: usize) {
    for _ in 0..handles {
        let handle = journal.start(Credits { blocks: 5, revokes: 1 }).unwrap();
        // While this handle runs, no later transaction exists, so the numbers rise with
        // transactions.
        let number = {
            let mut run = run.lock();
            run.change(&handle, random);
            run.after.len() - 1
        };
        let tid = handle.tid();
        handle.stop().unwrap();
        match random.below(12) {
            0..=2 => {
                journal.commit(tid).unwrap();
                run.lock().acknowledge(number);
            }
            3..=4 => run.lock().write_data(journal, random),
            5 => journal.write_back(0).unwrap(),
            _ => (),
        }
    }
}

fn run(seed: u64, threads: u64, handles: usize, options: JournalOptions) -> Run {
    let mut random = Random(seed);
    let kind = [(BlockSum::V3, true), (BlockSum::None, false)][(seed % 2) as usize];
    let run = Run::new(kind, 1 + random.below(62) as u32);
    // Every other cache holds fewer blocks than the run changes: blocks are evicted and read again.
    let cache = match seed / 2 % 2 {
        0 => CacheOptions::default(),
        _ => CacheOptions { limit_bytes: 16 * SIZE, dirty_limit_bytes: 6 * SIZE },
    };
    let journal = journal_with_cache(&run.log, &run.device, options, cache);
    let run = Mutex::new(run);
    std::thread::scope(|scope| {
        for thread in 1..threads {
            let (run, journal) = (&run, &journal);
            scope.spawn(move || work(run, journal, &mut Random(seed ^ thread << 32), handles));
        }
        work(&run, &journal, &mut random, handles);
    });
    let mut run = run.into_inner();
    if random.below(2) == 0 {
        journal.close().unwrap();
        run.acknowledge(run.after.len() - 1);
    }
    run
}

/// Cuts `run` at every request and checks the recovered volumes.
fn check_cuts(run: &Run, seed: u64, samples: usize) {
    let log = run.device.log();
    let plan = run.device.crash_plan(&run.base).seed(seed).exhaustive_up_to(2).samples(samples);
    for state in plan.states() {
        let what = format!("seed {seed}, {state}");
        let completed = &log[..state.completed];
        let flushed = completed.iter().rposition(|op| *op == Op::Flush).map_or(0, |n| n + 1);
        let device = Arc::new(state.image);
        recover(&run.log, &device);
        run.check(&device, state.completed, flushed, &what);
    }
}

/// `count` seeds, from EXTANT_SEED on; a hundred times as many with EXTANT_SOAK.
pub(crate) fn seeds(count: u64) -> std::ops::Range<u64> {
    let first = std::env::var("EXTANT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    let rounds = if std::env::var_os("EXTANT_SOAK").is_some() { 100 } else { 1 };
    first..u64::saturating_add(first, count * rounds)
}

#[test]
fn a_cut_anywhere_leaves_whole_transactions_in_order() {
    for seed in seeds(24) {
        let checksums = seed % 2 == 0;
        let options = JournalOptions { checksums, wide: checksums, ..options() };
        check_cuts(&run(seed, 1, 90, options), seed, 4);
    }
}

#[test]
fn a_cut_anywhere_while_threads_work_leaves_whole_transactions_in_order() {
    for seed in seeds(12) {
        let commit_interval = Some(Duration::from_millis(1));
        let options = JournalOptions { commit_interval, ..options() };
        check_cuts(&run(seed, 3, 40, options), seed, 3);
    }
}

#[test]
fn a_log_that_was_replayed_after_a_cut_goes_on() {
    let run = run(77, 1, 60, options());
    let plan = run.device.crash_plan(&run.base).samples(2).torn(0);
    for state in plan.states().step_by(7) {
        let device = Arc::new(state.image);
        recover(&run.log, &device);
        let journal = journal_on(&run.log, &device, options());
        journal.commit(change(&journal, &[100, 101], 5)).unwrap();
        change(&journal, &[102], 6);
        drop(journal);
        assert_eq!(recover(&run.log, &device).transactions, 1);
        assert!(home(&*device, 100) == stamp(5) && home(&*device, 101) == stamp(5));
        assert!(home(&*device, 102) == [OLD; SIZE]);
    }
}
