//! The byte log through the API: the cost of a sync, overflow, and what a cut leaves.

use crate::JournalOptions;
use crate::commit::fast_commit_test::{
    change, check_cuts, empty_log, fast, recorded, recover, sync,
};
use crate::records::ineligible::Ineligible;
use crate::test_journal::{home, journal_on, stamp};
use crate::test_log::SIZE;
use extant_base::{ByteOffset, Error, IoOp};
use extant_blockdev::{BlockDevice, Dax, MemoryDevice, PersistenceDomain, ReadOnly, Way};
use extant_ondisk::byte_log::BATCH_BYTES;
use extant_testdev::{Faulty, OpCounts};
use parking_lot::Mutex;
use std::sync::{Arc, Barrier, mpsc};
use std::time::Duration;

fn to_ring(batch: usize) -> JournalOptions {
    JournalOptions { byte_log: Some(batch), ..fast() }
}

#[test]
fn from_an_epochs_second_fsync_on_nothing_is_written_or_flushed() {
    let log = empty_log();
    let (_, device) = recorded(&log);
    let journal = journal_on(&log, &device, to_ring(BATCH_BYTES));
    assert!(journal.byte_log().is_some());
    sync(&journal, change(&journal, &[3], 1));
    assert_eq!(journal.stats().full_because, [(Ineligible::First, 1)]);
    sync(&journal, change(&journal, &[3], 2));
    let before = device.position();
    let point = change(&journal, &[4], 3);
    sync(&journal, point);
    // An inode of 128 bytes: 64 + 136 + 44, in whole lines.
    let want =
        OpCounts { stored_bytes: 256, written_back_lines: 4, fences: 1, ..OpCounts::default() };
    assert_eq!(device.counts_since(before), want);
    assert_eq!(journal.durable_point(), point);
    journal.device().write_at(ByteOffset(100 << 10), &[7; SIZE]).unwrap();
    let before = device.position();
    sync(&journal, change(&journal, &[4], 4));
    assert_eq!(device.counts_since(before), OpCounts { flushes: 1, ..want }, "data was written");
    let stats = journal.stats();
    assert_eq!((stats.commits, stats.fast_commits), (1, 3));
    let byte_log = stats.byte_log.unwrap();
    assert_eq!((byte_log.records, byte_log.bytes), (3, 3 * 256));
    drop(journal);
    let crashed = Arc::new(MemoryDevice::copy_of(&*device).unwrap());
    assert_eq!(recover(&log, &crashed), 3);
    assert!(home(&*crashed, 3) == stamp(2) && home(&*crashed, 4) == stamp(4));
}

#[test]
fn a_full_ring_takes_a_full_commit_and_starts_at_its_base() {
    let log = empty_log();
    let device = Arc::new(MemoryDevice::from_bytes(&log.image));
    let journal = journal_on(&log, &device, to_ring(BATCH_BYTES));
    sync(&journal, change(&journal, &[3], 1));
    // 14 blocks of ring hold 56 records of 256 bytes.
    for value in 0..57 * 2 {
        sync(&journal, change(&journal, &[3], value));
    }
    let stats = journal.stats();
    assert_eq!((stats.commits, stats.fast_commits), (1 + 2, 56 * 2), "{stats:?}");
    assert!(stats.full_because.contains(&(Ineligible::ByteLogFull, 2)));
    sync(&journal, change(&journal, &[4], 200));
    let crashed = Arc::new(MemoryDevice::copy_of(&*device).unwrap());
    assert_eq!(recover(&log, &crashed), 1);
    assert!(home(&*crashed, 3) == stamp(113) && home(&*crashed, 4) == stamp(200));
    journal.close().unwrap();
    assert!(!log.open(&device).unwrap().needs_recovery());
    assert!(home(&*device, 4) == stamp(200));
}

#[test]
fn without_a_window_fast_commits_are_blocks() {
    struct Plain(MemoryDevice);
    impl BlockDevice for Plain {
        fn len(&self) -> u64 {
            self.0.len()
        }
        fn read_at(&self, at: ByteOffset, buf: &mut [u8]) -> extant_base::Result<()> {
            self.0.read_at(at, buf)
        }
        fn write_at(&self, at: ByteOffset, buf: &[u8]) -> extant_base::Result<()> {
            self.0.write_at(at, buf)
        }
        fn flush(&self) -> extant_base::Result<()> {
            Ok(())
        }
    }
    let log = empty_log();
    let device = Arc::new(Plain(MemoryDevice::from_bytes(&log.image)));
    let journal = journal_on(&log, &device, to_ring(BATCH_BYTES));
    sync(&journal, change(&journal, &[3], 1));
    sync(&journal, change(&journal, &[3], 2));
    assert!(journal.byte_log().is_none() && journal.stats().byte_log.is_none());
    assert_eq!(journal.stats().fast_commits, 1);
    drop(journal);
    let crashed = Arc::new(MemoryDevice::copy_of(&ReadOnly::new(&*device)).unwrap());
    assert_eq!(recover(&log, &crashed), 1);
}

#[test]
fn a_store_that_fails_ends_the_journal() {
    for op in [IoOp::Write, IoOp::Flush] {
        let log = empty_log();
        let device = Arc::new(Faulty::new(MemoryDevice::from_bytes(&log.image)));
        let journal = journal_on(&log, &device, to_ring(BATCH_BYTES));
        for value in 1..3 {
            sync(&journal, change(&journal, &[3], value));
        }
        let point = change(&journal, &[4], 3);
        device.fail(op, 1);
        let done = journal
            .commit_with_data(point, Some(&crate::commit::fast_commit_test::Cached(&journal)));
        assert!(matches!(done, Err(Error::Device { .. })), "{op}");
        assert!(matches!(journal.commit(point.tid), Err(Error::Aborted { .. })));
        drop(journal);
        let crashed = Arc::new(MemoryDevice::copy_of(&*device).unwrap());
        recover(&log, &crashed);
        assert!(home(&*crashed, 3) == stamp(2));
    }
}

#[test]
fn a_cut_after_any_line_leaves_what_was_acknowledged() {
    for batch in [0, 64, BATCH_BYTES] {
        let mut fast_ones = 0;
        for seed in 0..5 {
            fast_ones += check_cuts(seed + 40, 1, 40, to_ring(batch)).1;
        }
        assert!(fast_ones > 40, "{fast_ones}");
    }
}

#[test]
fn a_cut_while_threads_sync_leaves_what_was_acknowledged() {
    for seed in 200..204 {
        let commit_interval = Some(Duration::from_millis(2));
        check_cuts(seed, 3, 30, JournalOptions { commit_interval, ..to_ring(BATCH_BYTES) });
    }
}

type Action = Box<dyn FnOnce() + Send>;
/// Runs in a thread of its own at the next fence.
type AtFence = Arc<Mutex<Option<Action>>>;

/// A device that runs an action at a fence of one of its mappings.
struct Held {
    memory: MemoryDevice,
    at_fence: AtFence,
}

struct HeldDax(Arc<dyn Dax>, AtFence);

impl BlockDevice for Held {
    fn len(&self) -> u64 {
        self.memory.len()
    }
    fn read_at(&self, at: ByteOffset, buf: &mut [u8]) -> extant_base::Result<()> {
        self.memory.read_at(at, buf)
    }
    fn write_at(&self, at: ByteOffset, buf: &[u8]) -> extant_base::Result<()> {
        self.memory.write_at(at, buf)
    }
    fn flush(&self) -> extant_base::Result<()> {
        Ok(())
    }
    fn dax(&self, at: ByteOffset, len: u64) -> Option<Arc<dyn Dax>> {
        let inner = self.memory.dax(at, len)?;
        Some(Arc::new(HeldDax(inner, Arc::clone(&self.at_fence))))
    }
}

impl Dax for HeldDax {
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn store(&self, at: u64, bytes: &[u8]) -> extant_base::Result<()> {
        self.0.store(at, bytes)
    }
    fn load(&self, at: u64, buf: &mut [u8]) -> extant_base::Result<()> {
        self.0.load(at, buf)
    }
    fn write_back(&self, at: u64, len: u64) -> extant_base::Result<()> {
        self.0.write_back(at, len)
    }
    fn fence(&self) -> extant_base::Result<()> {
        let action = self.1.lock().take();
        if let Some(action) = action {
            std::thread::spawn(action).join().expect("the test's action succeeds");
        }
        self.0.fence()
    }
    fn persistence_domain(&self) -> PersistenceDomain {
        self.0.persistence_domain()
    }
    fn way(&self) -> Way {
        self.0.way()
    }
}

#[test]
fn threads_that_sync_together_share_a_record_and_a_fence() {
    let log = empty_log();
    let at_fence = AtFence::default();
    let memory = MemoryDevice::from_bytes(&log.image);
    let device = Arc::new(Held { memory, at_fence: Arc::clone(&at_fence) });
    let journal = Arc::new(journal_on(&log, &device, to_ring(BATCH_BYTES)));
    for value in 0..2 {
        sync(&journal, change(&journal, &[3], value));
    }
    let (send, threads) = mpsc::channel();
    let inner = Arc::clone(&journal);
    // While one is stored, other threads change blocks and then all request a commit.
    *at_fence.lock() = Some(Box::new(move || {
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
    }));
    sync(&journal, change(&journal, &[3], 2));
    threads.into_iter().for_each(|fsync| fsync.join().unwrap());
    let stats = journal.stats();
    assert_eq!((stats.commits, stats.fast_commits), (1, 3));
    assert_eq!(stats.byte_log.unwrap().records, 3);
    drop(journal);
    let crashed = Arc::new(device.memory.clone());
    assert_eq!(recover(&log, &crashed), 3);
    assert!((3..9).all(|nr| home(&*crashed, nr) == stamp(2)));
}
