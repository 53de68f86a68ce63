//! Fast commits through the API: when they occur, their cost, and what a cut leaves.

use crate::commit::crash_test::seeds;
use crate::commit::point::CommitPoint;
use crate::records::changes::{Change, Piece, RecordedInode, Snapshot};
use crate::records::ineligible::Ineligible;
use crate::recovery::cut_test::Random;
use crate::test_journal::{LAST, end_of, home, journal_on, options, put, stamp};
use crate::test_log::{OLD, SIZE, TestLog};
use crate::{Credits, Journal, JournalOptions};
use extant_base::{BlockNr, ByteOffset, Error, Ino, IoOp, Result, Tid};
use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_ondisk::fast_commit::Record;
use extant_ondisk::jbd2::{BlockSum, JournalIncompat};
use extant_testdev::{Faulty, Hook, OpCounts, Recorder};
use parking_lot::Mutex;
use std::sync::{Arc, Barrier, mpsc};
use std::time::Duration;

/// Block n of these volumes is inode n + 12.
const FIRST: u64 = 12;
/// Blocks that handles stamp. Every handle stamps the block after them.
const STAMPED: u64 = 20;

fn ino(nr: u64) -> Ino {
    Ino::new((nr + FIRST) as u32).unwrap()
}

/// A snapshot of inodes in the cache.
pub(crate) struct Cached<'a>(pub(crate) &'a Journal);

impl Snapshot for Cached<'_> {
    fn inode(&self, ino: Ino, raw: &mut Vec<u8>) -> Result<Option<RecordedInode>> {
        let block = self.0.cache().get(BlockNr(u64::from(ino.get()) - FIRST))?;
        raw.extend_from_slice(&block.read()[..128]);
        Ok(Some(RecordedInode { links: 1, regular: true, mapped: true }))
    }

    fn pieces(&self, _: Ino, _: u32, _: u32, _: &mut dyn FnMut(Piece)) -> Result<()> {
        Ok(())
    }
}

/// A volume with an empty log and an area of 15 usable blocks for fast commits.
pub(crate) fn empty_log() -> TestLog {
    let mut log = TestLog::new((BlockSum::V3, true), LAST.0, 1, 16);
    log.superblock.start = None;
    log.superblock.features.incompat.remove(JournalIncompat::FAST_COMMIT);
    log.put_superblock();
    log
}

pub(crate) fn fast() -> JournalOptions {
    JournalOptions { fast_commits: true, ..options() }
}

/// Stamps blocks in one handle, and notes the changes.
pub(crate) fn change(journal: &Journal, numbers: &[u64], value: u64) -> CommitPoint {
    let handle = journal.start(Credits::blocks(numbers.len() as u32)).unwrap();
    for nr in numbers {
        put(&handle, *nr, value);
        handle.note(Change::Inode(ino(*nr)));
    }
    let point = handle.commit_point();
    handle.stop().unwrap();
    point
}

pub(crate) fn sync(journal: &Journal, point: CommitPoint) {
    journal.commit_with_data(point, Some(&Cached(journal))).unwrap();
}

/// Recovers the volume on `device`. Returns the number of fast commits.
pub(crate) fn recover<D: BlockDevice + 'static>(log: &TestLog, device: &Arc<D>) -> u32 {
    let mut opened = log.open(device).unwrap();
    let recovery = opened.recover(&**device, log.limits()).unwrap();
    let mut commits = 0;
    if let Some(found) = &recovery.fast_commit {
        commits = found.commits();
        for record in found.records() {
            let Record::Inode { ino, raw } = record else { panic!("{record:?}") };
            let value = u64::from_le_bytes(raw[8..16].try_into().unwrap());
            assert_eq!(raw, &stamp(value)[..128]);
            let at = (u64::from(ino.get()) - FIRST) * SIZE as u64;
            device.write_at(ByteOffset(at), &stamp(value)).unwrap();
        }
    }
    opened.finish(&**device, &recovery).unwrap();
    commits
}

pub(crate) fn recorded(log: &TestLog) -> (MemoryDevice, Arc<Recorder<MemoryDevice>>) {
    let before = MemoryDevice::from_bytes(&log.image);
    (before.clone(), Arc::new(Recorder::new(before)))
}

#[test]
fn after_the_first_commit_an_fsync_is_one_block() {
    let log = empty_log();
    let (_, device) = recorded(&log);
    let journal = journal_on(&log, &device, fast());
    sync(&journal, change(&journal, &[3], 1));
    assert_eq!(journal.stats().full_because, [(Ineligible::First, 1)]);
    let before = device.position();
    let point = change(&journal, &[3, 4], 2);
    sync(&journal, point);
    let want = OpCounts { writes: 1, written_bytes: 1024, fua_writes: 1, ..OpCounts::default() };
    assert_eq!(device.counts_since(before), want);
    assert_eq!(journal.durable_point(), point);
    let before = device.position();
    sync(&journal, point);
    assert_eq!(device.counts_since(before), OpCounts::default(), "it is recorded");
    journal.device().write_at(ByteOffset(100 << 10), &[7; SIZE]).unwrap();
    sync(&journal, point);
    sync(&journal, point);
    assert_eq!(device.counts_since(before).flushes, 1, "data was written since");
    journal.device().write_at(ByteOffset(100 << 10), &[8; SIZE]).unwrap();
    let before = device.position();
    sync(&journal, change(&journal, &[5], 3));
    let want = OpCounts { flushes: 1, ..want };
    assert_eq!(device.counts_since(before), want);
    let stats = journal.stats();
    assert!(stats.fast_commits_on);
    assert_eq!((stats.commits, stats.fast_commits), (1, 2));
    assert_eq!(stats.fast_commit_bytes, 3 * (8 + 128));
    drop(journal);
    let crashed = Arc::new(MemoryDevice::copy_of(&*device).unwrap());
    assert_eq!(recover(&log, &crashed), 2);
    for (nr, value) in [(3, 2), (4, 2), (5, 3)] {
        assert!(home(&*crashed, nr) == stamp(value), "{nr}");
    }
}

/// A snapshot of inodes in the cache; a handle has aborted the journal before it stopped.
struct Aborting<'a>(&'a Journal);

impl Snapshot for Aborting<'_> {
    fn inode(&self, ino: Ino, raw: &mut Vec<u8>) -> Result<Option<RecordedInode>> {
        self.0.abort(&Error::NoSpace);
        Cached(self.0).inode(ino, raw)
    }

    fn pieces(&self, _: Ino, _: u32, _: u32, _: &mut dyn FnMut(Piece)) -> Result<()> {
        Ok(())
    }
}

#[test]
fn incomplete_changes_of_a_handle_that_aborted_are_not_recorded() {
    for byte_log in [None, Some(4096)] {
        let log = empty_log();
        let (_, device) = recorded(&log);
        let journal = journal_on(&log, &device, JournalOptions { byte_log, ..fast() });
        sync(&journal, change(&journal, &[3], 1));
        sync(&journal, change(&journal, &[3], 2));
        let point = change(&journal, &[3, 4], 3);
        let failed = journal.commit_with_data(point, Some(&Aborting(&journal)));
        assert!(matches!(failed, Err(Error::Aborted { .. })), "{failed:?}");
        drop(journal);
        let crashed = Arc::new(MemoryDevice::copy_of(&*device).unwrap());
        assert_eq!(recover(&log, &crashed), 1);
        assert!(home(&*crashed, 3) == stamp(2) && home(&*crashed, 4) == [OLD; SIZE]);
    }
}

#[test]
fn a_full_commit_makes_the_fast_ones_void_and_starts_an_epoch() {
    let log = empty_log();
    let device = log.device();
    let journal = journal_on(&log, &device, fast());
    for round in 0..4 {
        for value in 1..5 {
            sync(&journal, change(&journal, &[3, 4], 10 * round + value));
        }
        let point = change(&journal, &[5], round + 100);
        journal.commit_with_data(point, None).unwrap();
        assert!(journal.is_durable(point.tid));
        let crashed = Arc::new(MemoryDevice::from_bytes(&device.content()));
        assert_eq!(recover(&log, &crashed), 0, "round {round}");
        assert!(home(&*crashed, 4) == stamp(10 * round + 4));
        assert!(home(&*crashed, 5) == stamp(round + 100));
    }
    let stats = journal.stats();
    assert_eq!((stats.commits, stats.fast_commits), (5, 15));
    sync(&journal, change(&journal, &[3], 77));
    let crashed = Arc::new(MemoryDevice::from_bytes(&device.content()));
    assert_eq!(recover(&log, &crashed), 1);
    assert!(home(&*crashed, 3) == stamp(77));
    journal.close().unwrap();
    let closed = log.open(&device).unwrap();
    let incompat = closed.superblock().features.incompat;
    assert!(!closed.needs_recovery() && !incompat.contains(JournalIncompat::FAST_COMMIT));
    assert!(home(&*device, 3) == stamp(77));
}

#[test]
fn the_log_keeps_out_of_the_fast_commits_place() {
    let log = empty_log();
    let (_, device) = recorded(&log);
    let journal = journal_on(&log, &device, fast());
    sync(&journal, change(&journal, &[3], 1));
    let opened = log.open(&device).unwrap();
    let (end, area) =
        (opened.superblock().log_end().unwrap(), opened.superblock().fast_commit_area());
    assert_eq!((end, area), (1024, 1025..1040));
    // The log wraps many times.
    for value in 0..1200 {
        let point = change(&journal, &[value % STAMPED, STAMPED], value);
        journal.commit(point.tid).unwrap();
    }
    let mut block = [0; SIZE];
    for at in 1024..1040 {
        opened.read(at, &mut block).unwrap();
        assert!(block == [0; SIZE], "{at}");
    }
}

#[test]
fn a_change_without_a_note_or_without_a_record_takes_a_full_commit() {
    type Action = fn(&Journal);
    fn once(journal: &Journal, note: impl FnOnce(&crate::Handle<'_>)) {
        let handle = journal.start(Credits { blocks: 1, revokes: 1 }).unwrap();
        put(&handle, 3, 7);
        note(&handle);
        let point = handle.commit_point();
        handle.stop().unwrap();
        sync(journal, point);
    }
    let rows: &[(Action, Option<Ineligible>)] = &[
        (|j| once(j, |_| ()), Some(Ineligible::Unnoted)),
        (|j| once(j, |h| h.forget(BlockNr(9))), Some(Ineligible::Unnoted)),
        (|j| once(j, |h| h.note(Change::Full(Ineligible::Xattr))), Some(Ineligible::Xattr)),
        (
            |j| once(j, |h| h.note(Change::Inode(Ino::new(5000).unwrap()))),
            Some(Ineligible::NotRecordable),
        ),
        (|j| once(j, |h| h.note(Change::InodeFreed(ino(3)))), Some(Ineligible::LastLink)),
        (|j| once(j, |h| h.note(Change::Nothing)), None),
        (|j| once(j, |h| h.note(Change::Inode(ino(3)))), None),
    ];
    for (n, (action, why)) in rows.iter().enumerate() {
        let log = empty_log();
        let device = log.device();
        let journal = journal_on(&log, &device, fast());
        sync(&journal, change(&journal, &[3], 1));
        action(&journal);
        let stats = journal.stats();
        assert_eq!(stats.commits, 1 + u64::from(why.is_some()), "row {n}");
        let reasons: Vec<_> = stats.full_because.iter().map(|(why, _)| *why).collect();
        let want: Vec<_> = [Some(Ineligible::First), *why].into_iter().flatten().collect();
        assert_eq!(reasons, want, "row {n}");
        // The next transaction is recorded again.
        sync(&journal, change(&journal, &[3], 9));
        assert_eq!(journal.stats().commits, stats.commits);
    }
}

#[test]
fn one_change_without_a_record_makes_the_whole_transaction_ineligible() {
    let log = empty_log();
    let device = log.device();
    let journal = journal_on(&log, &device, fast());
    sync(&journal, change(&journal, &[3], 1));
    let point = change(&journal, &[3], 2);
    let handle = journal.start(Credits::blocks(1)).unwrap();
    put(&handle, 4, 2);
    handle.note(Change::Full(Ineligible::Directory));
    handle.stop().unwrap();
    // No notes are kept.
    change(&journal, &[5], 2);
    sync(&journal, point);
    drop(journal);
    assert_eq!(recover(&log, &device), 0);
    assert!([3, 4, 5].iter().all(|nr| home(&*device, *nr) == stamp(2)));
}

#[test]
fn a_full_commit_follows_when_the_area_is_full() {
    let log = empty_log();
    let device = log.device();
    let journal = journal_on(&log, &device, fast());
    sync(&journal, change(&journal, &[3], 1));
    for value in 0..32 {
        sync(&journal, change(&journal, &[3, 4], value));
    }
    let stats = journal.stats();
    assert_eq!((stats.commits, stats.fast_commits), (1 + 2, 15 + 15), "{stats:?}");
    assert!(stats.full_because.contains(&(Ineligible::LogFull, 2)));
    // More notes than the limit.
    for _ in 0..2000 {
        change(&journal, &[3], 99);
    }
    let point = change(&journal, &[3], 100);
    sync(&journal, point);
    assert!(journal.is_durable(point.tid));
    drop(journal);
    recover(&log, &device);
    assert!(home(&*device, 3) == stamp(100));
}

#[test]
fn without_an_area_or_the_option_there_are_no_fast_commits() {
    let small = crate::test_journal::empty_log((BlockSum::V3, true), 1);
    let large = empty_log();
    let one = JournalOptions { one_transaction: true, ..fast() };
    for (log, options) in [(&small, fast()), (&large, options()), (&large, one)] {
        let device = log.device();
        let journal = journal_on(log, &device, options.clone());
        for value in 1..4 {
            let point = change(&journal, &[3], value);
            if !options.one_transaction {
                sync(&journal, point);
                assert!(journal.is_durable(point.tid));
            }
        }
        let stats = journal.stats();
        assert!(!stats.fast_commits_on && stats.fast_commits == 0);
        assert_eq!(stats.full_because, []);
        journal.close().unwrap();
        assert!(home(&*device, 3) == stamp(3));
    }
}

#[test]
fn steps_rise_and_those_of_a_restarted_handle_differ() {
    let log = empty_log();
    let device = log.device();
    let journal = journal_on(&log, &device, fast());
    let first = change(&journal, &[3], 1);
    let mut handle = journal.start(Credits::blocks(1)).unwrap();
    let second = handle.commit_point();
    assert_eq!(first, CommitPoint { tid: LAST.next(), nr: 1 });
    assert_eq!(second, CommitPoint { nr: 2, ..first });
    handle.restart(Credits::blocks(1)).unwrap();
    assert_eq!(handle.commit_point(), CommitPoint { nr: 3, ..first });
    handle.stop().unwrap();
    assert_eq!(journal.durable_point(), end_of(LAST));
    sync(&journal, first);
    assert_eq!(journal.durable_point(), end_of(first.tid));
    assert_eq!(change(&journal, &[3], 2), CommitPoint { tid: first.tid.next(), nr: 1 });
}

#[test]
fn threads_that_wait_together_share_a_fast_commit() {
    let log = empty_log();
    let device = Arc::new(Hook::new(log.device()));
    let journal = Arc::new(journal_on(&log, &device, fast()));
    sync(&journal, change(&journal, &[3], 1));
    let (send, threads) = mpsc::channel();
    let inner = Arc::clone(&journal);
    // While one is written, other threads change blocks and then all request a commit.
    device.on_next_fua(move || {
        let (changed, done) = (Arc::new(Barrier::new(6)), Arc::new(Barrier::new(6)));
        for thread in 0..5 {
            let (journal, changed, done) =
                (Arc::clone(&inner), Arc::clone(&changed), Arc::clone(&done));
            let fsync = std::thread::spawn(move || {
                let point = change(&journal, &[4 + thread], 2);
                changed.wait();
                done.wait();
                sync(&journal, point);
            });
            send.send(fsync).unwrap();
        }
        changed.wait();
        done.wait();
    });
    sync(&journal, change(&journal, &[3], 2));
    threads.into_iter().for_each(|fsync| fsync.join().unwrap());
    let stats = journal.stats();
    assert_eq!((stats.commits, stats.fast_commits), (1, 2));
    drop(journal);
    assert_eq!(recover(&log, device.inner()), 2);
    assert!((3..9).all(|nr| home(&**device.inner(), nr) == stamp(2)));
}

#[test]
fn handles_start_while_a_fast_commit_is_written() {
    let log = empty_log();
    let device = Arc::new(Hook::new(log.device()));
    let journal = Arc::new(journal_on(&log, &device, fast()));
    sync(&journal, change(&journal, &[3], 1));
    let inner = Arc::clone(&journal);
    // The hook waits for this handle: if the commit kept handles out, the test would hang.
    device.on_next_fua(move || {
        change(&inner, &[3, 4], 3);
    });
    let point = change(&journal, &[3], 2);
    sync(&journal, point);
    let crashed = Arc::new(MemoryDevice::from_bytes(&device.inner().content()));
    recover(&log, &crashed);
    assert!(home(&*crashed, 3) == stamp(2) && home(&*crashed, 4) == [OLD; SIZE]);
    // The next fast commit records the changes that came meanwhile.
    sync(&journal, CommitPoint { nr: point.nr + 1, ..point });
    drop(journal);
    assert_eq!(recover(&log, device.inner()), 2);
    assert!(home(&**device.inner(), 3) == stamp(3) && home(&**device.inner(), 4) == stamp(3));
}

#[test]
fn a_fast_commit_that_fails_ends_the_journal() {
    for (op, nth) in [(IoOp::Write, 1), (IoOp::Flush, 1), (IoOp::Write, 2)] {
        let log = empty_log();
        let device = Arc::new(Faulty::new(MemoryDevice::from_bytes(&log.image)));
        let journal = journal_on(&log, &device, fast());
        sync(&journal, change(&journal, &[3], 1));
        let point = change(&journal, &[3, 4, 5, 6, 7], 2);
        // More than one sector: a write, a flush, a forced write.
        device.fail(op, nth);
        let done = journal.commit_with_data(point, Some(&Cached(&journal)));
        assert!(matches!(done, Err(Error::Device { .. })), "{op} {nth}");
        let refused = journal.commit_with_data(point, Some(&Cached(&journal)));
        assert!(matches!(refused, Err(Error::Aborted { .. })));
        assert!(matches!(journal.start(Credits::blocks(1)), Err(Error::Aborted { .. })));
        drop(journal);
        let crashed = Arc::new(MemoryDevice::copy_of(&*device).unwrap());
        recover(&log, &crashed);
        assert!(home(&*crashed, 3) == stamp(1));
    }
}

#[test]
fn a_snapshot_that_panics_aborts_the_journal_and_no_thread_keeps_waiting() {
    struct Bad;
    impl Snapshot for Bad {
        fn inode(&self, _: Ino, _: &mut Vec<u8>) -> Result<Option<RecordedInode>> {
            panic!("no inode")
        }
        fn pieces(&self, _: Ino, _: u32, _: u32, _: &mut dyn FnMut(Piece)) -> Result<()> {
            Ok(())
        }
    }
    let log = empty_log();
    let device = log.device();
    let journal = journal_on(&log, &device, fast());
    sync(&journal, change(&journal, &[3], 1));
    let point = change(&journal, &[3], 2);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        journal.commit_with_data(point, Some(&Bad))
    }));
    assert!(panicked.is_err());
    assert!(matches!(journal.start(Credits::blocks(1)), Err(Error::Aborted { .. })));
    assert!(matches!(journal.commit(point.tid), Err(Error::Aborted { .. })));
}

/// The changes of handles, in order, and what was acknowledged.
struct Run {
    /// After handle n: the value of each block. Index 0 is before all.
    after: Vec<Vec<Option<u64>>>,
    /// (requests, handles): after so many requests, all handles up to this one were acknowledged as
    /// durable.
    acknowledged: Vec<(usize, usize)>,
}

/// The rounds of one thread.
fn work(
    run: &Mutex<Run>,
    journal: &Journal,
    device: &Recorder<MemoryDevice>,
    random: &mut Random,
    handles: usize,
) {
    for _ in 0..handles {
        let handle = journal.start(Credits::blocks(4)).unwrap();
        // While this handle runs, no fast or full commit ends, so the numbers rise with both.
        let number = {
            let mut run = run.lock();
            let number = run.after.len();
            let mut now = run.after[number - 1].clone();
            let more = (0..random.below(3)).map(|_| random.below(STAMPED));
            for nr in more.chain([STAMPED]) {
                put(&handle, nr, number as u64);
                handle.note(Change::Inode(ino(nr)));
                now[nr as usize] = Some(number as u64);
            }
            run.after.push(now);
            number
        };
        if random.below(16) == 0 {
            handle.note(Change::Full(Ineligible::Directory));
        }
        let point = handle.commit_point();
        handle.stop().unwrap();
        match random.below(12) {
            0..=4 => journal.commit_with_data(point, Some(&Cached(journal))).unwrap(),
            5 => journal.commit_with_data(point, None).unwrap(),
            6 => {
                journal.write_back(0).unwrap();
                continue;
            }
            _ => continue,
        }
        let mut run = run.lock();
        run.acknowledged.push((device.position(), number));
    }
}

/// Cuts random work of threads at every request. Returns the number of full and of fast commits.
pub(crate) fn check_cuts(
    seed: u64,
    threads: u64,
    handles: usize,
    options: JournalOptions,
) -> (u64, u64) {
    let log = empty_log();
    let (before, device) = recorded(&log);
    let journal = journal_on(&log, &device, options);
    let run =
        Mutex::new(Run { after: vec![vec![None; STAMPED as usize + 1]], acknowledged: Vec::new() });
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (run, journal, device) = (&run, &journal, &device);
            let mut random = Random(seed ^ thread << 32);
            scope.spawn(move || work(run, journal, device, &mut random, handles));
        }
    });
    let stats = journal.stats();
    drop(journal);
    let run = run.into_inner();
    let plan = device.crash_plan(&before).seed(seed).exhaustive_up_to(2).samples(3).torn(1);
    for state in plan.states() {
        let what = format!("seed {seed}, {state}");
        let cut = Arc::new(state.image);
        recover(&log, &cut);
        let last = home(&*cut, STAMPED);
        let reached = match last == [OLD; SIZE] {
            true => 0,
            false => u64::from_le_bytes(last[8..16].try_into().unwrap()) as usize,
        };
        let acknowledged =
            run.acknowledged.iter().filter(|(at, _)| *at <= state.completed).map(|(_, n)| *n).max();
        assert!(
            reached >= acknowledged.unwrap_or(0),
            "{what}: {reached}, acknowledged {acknowledged:?}"
        );
        for (nr, value) in run.after[reached].iter().enumerate() {
            let want = value.map_or([OLD; SIZE], stamp);
            assert!(home(&*cut, nr as u64) == want, "{what}: block {nr}");
        }
        assert!(!log.open(&cut).unwrap().needs_recovery());
    }
    (stats.commits, stats.fast_commits)
}

#[test]
fn a_cut_anywhere_leaves_what_was_acknowledged() {
    let (mut full, mut fast_ones) = (0, 0);
    for seed in seeds(16) {
        let (commits, fast_commits) = check_cuts(seed, 1, 60, fast());
        (full, fast_ones) = (full + commits, fast_ones + fast_commits);
    }
    assert!(full > 50 && fast_ones > 150, "{full}, {fast_ones}");
}

#[test]
fn a_cut_anywhere_while_threads_sync_both_ways_leaves_what_was_acknowledged() {
    for seed in seeds(8) {
        let commit_interval = Some(Duration::from_millis(2));
        check_cuts(seed, 3, 30, JournalOptions { commit_interval, ..fast() });
    }
}

#[test]
fn a_volume_that_was_recovered_goes_on() {
    let log = empty_log();
    let device = log.device();
    for life in 1..4 {
        let journal = journal_on(&log, &device, fast());
        sync(&journal, change(&journal, &[3], life));
        sync(&journal, change(&journal, &[4], life));
        sync(&journal, change(&journal, &[5], life));
        drop(journal);
        assert_eq!(recover(&log, &device), 2);
        assert!((3..6).all(|nr| home(&*device, nr) == stamp(life)));
        let opened = log.open(&device).unwrap();
        assert!(opened.next_tid().is_after(Tid(LAST.0.wrapping_add(2 * life as u32))));
    }
}

#[test]
fn fast_commits_of_an_earlier_session_are_removed_before_the_first_commit_counts() {
    let mut log = empty_log();
    log.superblock.features.incompat.insert(JournalIncompat::FAST_COMMIT);
    log.fast(Tid(5), &[Record::Inode { ino: ino(3), raw: &[9; 128] }]);
    let head = log.fast_block(0);
    log.superblock.features.incompat.remove(JournalIncompat::FAST_COMMIT);
    let (before, device) = recorded(&log);
    let journal = journal_on(&log, &device, fast());
    sync(&journal, change(&journal, &[3], 1));
    drop(journal);
    let plan = device.crash_plan(&before).samples(8).torn(2);
    let mut committed = 0;
    for state in plan.states() {
        let what = state.to_string();
        let opened = log.open(&Arc::new(state.image)).unwrap();
        if opened.scan().unwrap().transactions > 0 {
            committed += 1;
            let mut block = [1; SIZE];
            opened.read(head, &mut block).unwrap();
            assert!(block == [0; SIZE], "{what}");
        }
    }
    assert!(committed > 0);
}

#[test]
fn a_reused_inode_number_is_recorded_in_the_order_of_its_inodes() {
    let log = empty_log();
    let device = log.device();
    let journal = journal_on(&log, &device, fast());
    sync(&journal, change(&journal, &[3, 4], 1));
    let (started, freed) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // This handle starts first, and allocates the number that the other one frees.
            let handle = journal.start(Credits::blocks(1)).unwrap();
            started.wait();
            freed.wait();
            put(&handle, 3, 2);
            handle.note(Change::InodeAllocated(ino(3)));
            handle.note(Change::Create { parent: Ino::ROOT, ino: ino(3), name: b"new" });
            handle.stop().unwrap();
        });
        started.wait();
        let handle = journal.start(Credits::blocks(1)).unwrap();
        put(&handle, 4, 2);
        handle.note(Change::Unlink { parent: Ino::ROOT, ino: ino(3), name: b"old" });
        handle.note(Change::InodeFreed(ino(3)));
        freed.wait();
        handle.stop().unwrap();
    });
    sync(&journal, change(&journal, &[4], 3));
    assert_eq!(journal.stats().commits, 1, "{:?}", journal.stats());
    drop(journal);
    let opened = log.open(&device).unwrap();
    let found = opened.recover(&*device, log.limits()).unwrap().fast_commit.unwrap();
    let names = found.records().map(|record| match record {
        Record::Unlink(change) => (b'-', change.name.to_vec()),
        Record::Create(change) => (b'+', change.name.to_vec()),
        _ => (b' ', Vec::new()),
    });
    let names: Vec<_> = names.filter(|(kind, _)| *kind != b' ').collect();
    assert_eq!(names, [(b'-', b"old".to_vec()), (b'+', b"new".to_vec())]);
}
