//! The byte log through the API: what a sync costs, when it overflows, what a cut leaves.

use crate::JournalOptions;
use crate::fast_commit_test::{change, check_cuts, empty_log, fast, recorded, recover, sync};
use crate::stats::Ineligible;
use crate::test_journal::{home, journal_on, stamp};
use crate::test_log::SIZE;
use extant_base::{ByteOffset, Error, IoOp};
use extant_blockdev::{BlockDevice, Faulty, MemoryDevice, OpCounts, ReadOnly};
use extant_ondisk::byte_log::BATCH_BYTES;
use std::sync::Arc;
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
    let step = change(&journal, &[4], 3);
    sync(&journal, step);
    // An inode of 128 bytes: 64 + 136 + 44, in whole lines.
    let want =
        OpCounts { stored_bytes: 256, written_back_lines: 4, fences: 1, ..OpCounts::default() };
    assert_eq!(device.counts_since(before), want);
    assert_eq!(journal.durable_step(), step);
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
fn a_full_ring_takes_a_full_commit_and_starts_anew() {
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
        let step = change(&journal, &[4], 3);
        device.fail(op, 1);
        let done = journal.commit_with_data(step, Some(&crate::fast_commit_test::Cached(&journal)));
        assert!(matches!(done, Err(Error::Device { .. })), "{op}");
        assert!(matches!(journal.commit(step.tid), Err(Error::Aborted { .. })));
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
