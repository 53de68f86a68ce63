//! Commits through the API: the content of the log, durability, cost.

use crate::test_journal::{
    LAST, change, empty_log, end_of, home, journal_on, options, put, recover, stamp,
};
use crate::test_log::{HOME, KINDS, OLD, SIZE};
use crate::{CacheOptions, Credits, Journal, JournalOptions};
use extant_base::{BlockNr, ByteOffset, Error, Tid};
use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_ondisk::jbd2::{BlockSum, JournalFeatures, JournalIncompat};
use extant_testdev::{Hook, OpCounts, Recorder, Request};
use std::sync::Arc;
use std::time::Duration;

const V3: (BlockSum, bool) = (BlockSum::V3, true);

#[test]
fn what_was_committed_replays_from_every_layout() {
    for kind in KINDS {
        for checksums in [false, true] {
            let log = empty_log(kind, 60);
            let device = log.device();
            let journal = journal_on(&log, &device, JournalOptions { checksums, ..options() });
            let first = change(&journal, &[3, 4, 9], 6);
            assert_eq!(first, LAST.next());
            assert!(!journal.is_durable(first));
            journal.commit(first).unwrap();
            assert!(journal.is_durable(first));
            let second = change(&journal, &[9, 10], 7);
            assert_eq!(second, first.next());
            journal.commit(second).unwrap();
            change(&journal, &[11], 8);
            drop(journal);
            assert!(home(&*device, 3) == [OLD; SIZE], "nothing is home");
            let recovery = recover(&log, &device);
            assert_eq!((recovery.transactions, recovery.blocks_replayed), (2, 4), "{kind:?}");
            for (nr, value) in [(3, 6), (4, 6), (9, 7), (10, 7)] {
                assert!(home(&*device, nr) == stamp(value), "{kind:?}, block {nr}");
            }
            assert!(home(&*device, 11) == [OLD; SIZE]);
        }
    }
}

#[test]
fn a_block_that_another_thread_changes_again_is_home_after_sync_home() {
    let log = empty_log(V3, 1);
    let device = Arc::new(Hook::new(log.device()));
    let journal = Arc::new(journal_on(&log, &device, options()));
    change(&journal, &[3], 1);
    let inner = Arc::clone(&journal);
    let (send, waits) = std::sync::mpsc::channel();
    // During the commit, another thread tries to take the block into the next transaction. It has
    // time enough, but has to wait.
    device.on_next_fua(move || {
        let change = std::thread::spawn(move || change(&inner, &[3], 2));
        std::thread::sleep(Duration::from_millis(50));
        send.send(change).unwrap();
    });
    journal.sync_home().unwrap();
    assert_eq!(device.inner().take_requests().last(), Some(&Request::Flush));
    assert!(home(&**device.inner(), 3) == stamp(1));
    waits.recv().unwrap().join().unwrap();
    journal.close().unwrap();
    assert!(home(&**device.inner(), 3) == stamp(2));
}

#[test]
fn a_small_commit_takes_two_writes_and_two_flushes() {
    let log = empty_log(V3, 1);
    let device = Arc::new(Recorder::new(MemoryDevice::from_bytes(&log.image)));
    let journal = journal_on(&log, &device, options());
    journal.commit(change(&journal, &[3], 1)).unwrap();
    let before = device.position();
    journal.commit(change(&journal, &[3, 4, 90], 2)).unwrap();
    // Descriptor and copies, flush, commit block with forced unit access.
    let want = OpCounts {
        writes: 2,
        written_bytes: 5 << 10,
        fua_writes: 1,
        flushes: 1,
        ..OpCounts::default()
    };
    assert_eq!(device.counts_since(before), want);
    let before = device.position();
    journal.commit(journal.committed()).unwrap();
    assert_eq!(device.counts_since(before), OpCounts::default(), "it was durable");
    journal.sync().unwrap();
    assert_eq!(device.counts_since(before), OpCounts { flushes: 1, ..OpCounts::default() });
}

#[test]
fn opening_and_dropping_writes_nothing() {
    for one_transaction in [false, true] {
        let log = empty_log(V3, 1);
        let device = log.device();
        let journal = journal_on(&log, &device, JournalOptions { one_transaction, ..options() });
        change(&journal, &[3, 4], 1);
        drop(journal);
        assert!(device.content() == log.image);
        let journal = journal_on(&log, &device, options());
        journal.close().unwrap();
        assert!(device.content() == log.image);
    }
}

#[test]
fn a_closed_journal_has_everything_home_and_an_empty_log() {
    let log = empty_log(V3, 61);
    let device = log.device();
    let journal = journal_on(&log, &device, options());
    for round in 1..6 {
        let tid = change(&journal, &[round, 20 + round, 40], round);
        journal.commit(tid).unwrap();
    }
    change(&journal, &[50], 6);
    journal.close().unwrap();
    assert!(matches!(journal.start(Credits::blocks(1)), Err(Error::ReadOnly)));
    let opened = log.open(&device).unwrap();
    assert!(!opened.needs_recovery());
    assert_eq!(opened.superblock().sequence, Tid(LAST.0.wrapping_add(6)));
    assert!(home(&*device, 40) == stamp(5) && home(&*device, 50) == stamp(6));
    // The next session continues after it.
    let journal = journal_on(&log, &device, options());
    let tid = change(&journal, &[51], 7);
    assert_eq!(tid, Tid(LAST.0.wrapping_add(7)));
    journal.commit(tid).unwrap();
    drop(journal);
    assert_eq!(recover(&log, &device).transactions, 1);
    assert!(home(&*device, 51) == stamp(7));
}

#[test]
fn a_log_goes_round_many_times() {
    let log = empty_log(V3, 7);
    let device = log.device();
    let journal = journal_on(&log, &device, options());
    let mut last = Tid(0);
    for round in 0..200 {
        last = change(&journal, &[round % HOME, (round * 7 + 1) % HOME, 100], round + 1);
    }
    journal.commit(last).unwrap();
    assert_eq!(journal.committed(), last);
    drop(journal);
    recover(&log, &device);
    assert!(home(&*device, 100) == stamp(200));
    let written = device.content();
    assert!(written.chunks(SIZE).take(HOME as usize).all(|block| block != [OLD; SIZE]));
}

#[test]
fn a_block_changed_while_its_transaction_is_written_is_logged_as_it_was() {
    let log = empty_log(V3, 1);
    let device = Arc::new(Hook::new(log.device()));
    let journal = Arc::new(journal_on(&log, &device, options()));
    let first = change(&journal, &[3, 4], 1);
    // The superblock is written after the transaction is closed and before its copies are taken.
    let inner = Arc::clone(&journal);
    device.on_next_fua(move || {
        change(&inner, &[3, 5], 2);
    });
    journal.commit(first).unwrap();
    assert!(journal.cache().get(BlockNr(3)).unwrap().read()[..] == stamp(2));
    let image = device.inner().content();
    let crashed = Arc::new(MemoryDevice::from_bytes(&image));
    recover(&log, &crashed);
    assert!(home(&*crashed, 3) == stamp(1) && home(&*crashed, 4) == stamp(1));
    assert!(home(&*crashed, 5) == [OLD; SIZE]);
    // Uncommitted content does not go home, although an older copy of the block waits for
    // write-out.
    journal.write_back(0).unwrap();
    assert!(home(&**device.inner(), 3) == [OLD; SIZE] && home(&**device.inner(), 4) == stamp(1));
    journal.sync().unwrap();
    journal.close().unwrap();
    assert!(home(&**device.inner(), 3) == stamp(2) && home(&**device.inner(), 4) == stamp(1));
}

#[test]
fn an_fsync_that_comes_during_a_commit_flushes_the_data_it_wrote() {
    let log = empty_log(V3, 1);
    let device = Arc::new(Hook::new(log.device()));
    let journal = Arc::new(journal_on(&log, &device, options()));
    journal.commit(change(&journal, &[3], 1)).unwrap();
    let tid = change(&journal, &[3], 2);
    let inner = Arc::clone(&journal);
    let (send, waits) = std::sync::mpsc::channel();
    // The commit block is about to be written; the flush before it is over.
    device.on_next_fua(move || {
        inner.device().write_at(ByteOffset(100 * SIZE as u64), &[7; SIZE]).unwrap();
        let fsync = std::thread::spawn(move || inner.commit_with_data(end_of(tid), None).unwrap());
        send.send(fsync).unwrap();
    });
    journal.commit(tid).unwrap();
    waits.recv().unwrap().join().unwrap();
    let requests = device.inner().take_requests();
    let data = Request::Write { at: 100 * SIZE as u64, len: SIZE };
    let written = requests.iter().position(|requests| *requests == data).unwrap();
    assert!(requests[written..].contains(&Request::Flush), "{requests:?}");
    journal.commit_with_data(end_of(tid), None).unwrap();
    assert_eq!(device.inner().take_requests(), [], "no data was written since the last flush");
    journal.commit_with_data(end_of(change(&journal, &[4], 3)), None).unwrap();
    let flushes = device.inner().take_requests().iter().filter(|a| **a == Request::Flush).count();
    assert_eq!(flushes, 1, "the commit's own, besides the forced commit block");
}

#[test]
fn a_log_on_another_device_waits_for_the_volume() {
    let log = empty_log(V3, 1);
    let (volume, on_log) = (log.device(), Arc::new(Hook::new(log.device())));
    let opened = log.open(&on_log).unwrap();
    let home_device = Arc::clone(&volume) as Arc<dyn BlockDevice>;
    let cache = CacheOptions::default();
    let size = extant_base::BlockSize::ALL[0];
    let journal = Journal::with_log(home_device, size, cache, opened, options()).unwrap();
    journal.commit(change(&journal, &[3], 1)).unwrap();
    volume.write_at(ByteOffset(100 * SIZE as u64), &[7; SIZE]).unwrap();
    let tid = change(&journal, &[3, 4], 2);
    volume.take_requests();
    let (send, requests) = std::sync::mpsc::channel();
    let at_seal = Arc::clone(&volume);
    on_log.on_next_fua(move || send.send(at_seal.take_requests()).unwrap());
    journal.commit(tid).unwrap();
    let requests = requests.recv().unwrap();
    assert_eq!(
        requests.last(),
        Some(&Request::Flush),
        "file data is durable before the commit block"
    );
    drop(journal);
    // Only the log has it: replay writes it to the volume.
    let mut opened = log.open(&on_log).unwrap();
    let recovery = opened.recover(&*volume, log.limits()).unwrap();
    opened.finish(&*volume, &recovery).unwrap();
    assert!(home(&*volume, 3) == stamp(2) && home(&*volume, 4) == stamp(2));
}

#[test]
fn closing_waits_for_handles_that_run() {
    let log = empty_log(V3, 1);
    let device = log.device();
    let journal = journal_on(&log, &device, options());
    std::thread::scope(|scope| {
        let (send, started) = std::sync::mpsc::channel();
        let journal = &journal;
        scope.spawn(move || {
            let handle = journal.start(Credits::blocks(2)).unwrap();
            send.send(()).unwrap();
            for nr in [3, 4] {
                std::thread::yield_now();
                put(&handle, nr, 1);
            }
        });
        started.recv().unwrap();
        journal.close().unwrap();
    });
    assert!(home(&*device, 3) == stamp(1) && home(&*device, 4) == stamp(1));
}

#[test]
fn restarting_in_the_only_transaction_gives_unused_credits_back() {
    let log = empty_log(V3, 1);
    let device = log.device();
    let journal = journal_on(&log, &device, JournalOptions { one_transaction: true, ..options() });
    let mut handle = journal.start(Credits::blocks(20)).unwrap();
    for nr in 0..40 {
        put(&handle, nr, 1);
        handle.restart(Credits::blocks(20)).unwrap();
    }
    assert!(matches!(
        handle.restart(Credits::blocks(30)),
        Err(Error::TransactionTooLarge { needed: 73, limit: 62 })
    ));
    handle.stop().unwrap();
    journal.close().unwrap();
    assert!((0..40).all(|nr| home(&*device, nr) == stamp(1)));
}

#[test]
fn a_freed_block_is_revoked_and_one_used_again_is_not() {
    for kind in [V3, (BlockSum::None, false)] {
        let log = empty_log(kind, 1);
        let device = log.device();
        let wide = kind.1;
        let journal = journal_on(&log, &device, JournalOptions { wide, ..options() });
        journal.commit(change(&journal, &[3, 4, 5], 1)).unwrap();
        let handle = journal.start(Credits { blocks: 2, revokes: 2 }).unwrap();
        handle.forget(BlockNr(3));
        handle.forget(BlockNr(4));
        let again = journal.cache().get_new(BlockNr(4)).unwrap();
        again.write(&handle).unwrap().bytes_mut().copy_from_slice(&stamp(2));
        put(&handle, 6, 2);
        let tid = handle.tid();
        handle.stop().unwrap();
        journal.commit(tid).unwrap();
        device.write_at(ByteOffset(3 * SIZE as u64), &[0xDA; SIZE]).unwrap();
        drop(journal);
        let opened = log.open(&device).unwrap();
        assert!(opened.superblock().features.incompat.contains(JournalIncompat::REVOKE));
        assert_eq!(recover(&log, &device).copies_revoked, 1);
        assert!(home(&*device, 3) == [0xDA; SIZE]);
        assert!(home(&*device, 4) == stamp(2) && home(&*device, 5) == stamp(1));
    }
}

#[test]
fn a_freed_block_is_home_or_in_the_log_until_its_revoke_is_durable() {
    let log = empty_log(V3, 1);
    let device = log.device();
    let journal = journal_on(&log, &device, options());
    journal.commit(change(&journal, &[3, 4], 1)).unwrap();
    let handle = journal.start(Credits { blocks: 0, revokes: 1 }).unwrap();
    handle.forget(BlockNr(3));
    handle.stop().unwrap();
    // All committed blocks go home, but block 3 must stay in the log.
    journal.write_back(0).unwrap();
    drop(journal);
    recover(&log, &device);
    assert!(home(&*device, 3) == stamp(1) && home(&*device, 4) == stamp(1));
}

#[test]
fn a_log_of_the_oldest_kind_is_brought_up_with_its_first_commit() {
    for checksums in [false, true] {
        let mut log = empty_log((BlockSum::None, false), 1);
        log.superblock.features = JournalFeatures::NONE;
        log.superblock.is_v1 = true;
        // A v1 superblock has no fields after its 36th byte.
        log.block_mut(0)[0x24..].fill(0xEE);
        log.put_superblock();
        let device = log.device();
        assert!(log.open(&device).unwrap().superblock().is_v1);
        let journal = journal_on(&log, &device, JournalOptions { checksums, ..options() });
        journal.commit(change(&journal, &[3], 1)).unwrap();
        drop(journal);
        let opened = log.open(&device).unwrap();
        let superblock = opened.superblock();
        assert!(!superblock.is_v1 && superblock.uuid == [0; 16] && superblock.nr_users == 0);
        assert_eq!(superblock.features.block_sum() == BlockSum::V3, checksums);
        recover(&log, &device);
        assert!(home(&*device, 3) == stamp(1));
    }
}

#[test]
fn one_transaction_is_whole_at_close_and_refuses_what_does_not_fit() {
    let log = empty_log(V3, 1);
    let device = log.device();
    let journal = journal_on(&log, &device, JournalOptions { one_transaction: true, ..options() });
    change(&journal, &(0..40).collect::<Vec<_>>(), 1);
    let mut handle = journal.start(Credits::blocks(10)).unwrap();
    assert!(matches!(
        handle.extend(Credits::blocks(30)),
        Err(Error::TransactionTooLarge { needed: 83, limit: 62 })
    ));
    put(&handle, 50, 2);
    handle.restart(Credits::blocks(2)).unwrap();
    put(&handle, 51, 2);
    handle.stop().unwrap();
    let too_large = journal.start(Credits::blocks(30)).map(drop);
    assert!(matches!(too_large, Err(Error::TransactionTooLarge { .. })));
    assert!(device.content() == log.image, "nothing is written before the end");
    journal.close().unwrap();
    let opened = log.open(&device).unwrap();
    assert_eq!(opened.superblock().sequence, LAST.next());
    assert!(home(&*device, 39) == stamp(1) && home(&*device, 51) == stamp(2));
}

#[test]
fn what_fits_no_transaction_is_refused_at_the_start() {
    let log = empty_log(V3, 1);
    let device = log.device();
    let journal = journal_on(&log, &device, options());
    let refused = journal.start(Credits::blocks(21)).map(drop);
    assert!(matches!(refused, Err(Error::TransactionTooLarge { needed: 23, limit: 20 })));
    let mut handle = journal.start(Credits::blocks(10)).unwrap();
    assert!(!handle.extend(Credits::blocks(20)).unwrap());
    put(&handle, 3, 1);
    handle.restart(Credits::blocks(18)).unwrap();
    put(&handle, 4, 1);
}

#[test]
fn threads_that_wait_together_share_commits() {
    let log = empty_log(V3, 1);
    let device = Arc::new(Recorder::new(MemoryDevice::from_bytes(&log.image)));
    let journal = journal_on(&log, &device, options());
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let journal = &journal;
            scope.spawn(move || {
                for round in 0..100 {
                    let tid = change(journal, &[thread, 10 + thread, 20 + round % 8], round);
                    if round % 2 == 0 {
                        journal.commit(tid).unwrap();
                        assert!(journal.is_durable(tid));
                    }
                }
            });
        }
    });
    journal.sync().unwrap();
    drop(journal);
    let crashed = Arc::new(MemoryDevice::copy_of(&*device).unwrap());
    recover(&log, &crashed);
    for thread in 0..4 {
        assert!(home(&*crashed, thread) == stamp(99) && home(&*crashed, 10 + thread) == stamp(99));
    }
}

#[test]
fn the_background_commits_by_the_clock() {
    let log = empty_log(V3, 1);
    let device = log.device();
    let commit_interval = Some(std::time::Duration::from_millis(1));
    let journal = journal_on(&log, &device, JournalOptions { commit_interval, ..options() });
    let tid = change(&journal, &[3], 1);
    while !journal.is_durable(tid) {
        std::thread::yield_now();
    }
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "has 1 credits and changes 2 blocks")]
fn a_handle_that_overspends_panics() {
    let log = empty_log(V3, 1);
    let device = log.device();
    let journal = journal_on(&log, &device, options());
    let handle = journal.start(Credits::blocks(1)).unwrap();
    put(&handle, 3, 1);
    put(&handle, 3, 2);
    put(&handle, 4, 1);
}

#[test]
fn a_panic_inside_a_handle_aborts() {
    let log = empty_log(V3, 1);
    let device = log.device();
    let journal = journal_on(&log, &device, options());
    let halfway = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let handle = journal.start(Credits::blocks(2)).unwrap();
        put(&handle, 3, 1);
        panic!("incomplete change");
    }));
    assert!(halfway.is_err());
    assert!(matches!(journal.sync(), Err(Error::Aborted { .. })));
    assert!(device.content() == log.image);
}

#[test]
fn a_commit_covers_a_block_that_a_running_handle_was_first_to_change() {
    let log = empty_log(V3, 1);
    let device = log.device();
    let journal = journal_on(&log, &device, options());
    let (changed, stopped) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let first = journal.start(Credits::blocks(1)).unwrap();
            put(&first, 3, 1);
            changed.wait();
            // The other handle changes the same block and stops, and its thread requests a commit.
            stopped.wait();
            std::thread::yield_now();
            first.stop().unwrap();
        });
        changed.wait();
        let tid = change(&journal, &[3], 2);
        stopped.wait();
        journal.commit(tid).unwrap();
        assert!(journal.is_durable(tid));
    });
    drop(journal);
    recover(&log, &device);
    assert!(home(&*device, 3) == stamp(2));
}
