//! Every write and every flush fails once: the journal aborts, reports it, and loses nothing.

use crate::test_journal::{empty_log, home, journal_on, options, recover, stamp};
use crate::test_log::{OLD, SIZE};
use crate::{Credits, Journal, JournalOptions};
use extant_base::{BlockNr, Error, IoOp, Tid};
use extant_blockdev::MemoryDevice;
use extant_ondisk::jbd2::BlockSum;
use extant_testdev::{Faulty, Recorder};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

type Device = Faulty<Recorder<MemoryDevice>>;

/// Changes that fill the log more than once, until something fails. `acknowledged` is set to the
/// last value that was acknowledged as durable.
fn work(journal: &Journal, acknowledged: &AtomicU64) -> Result<(), Error> {
    for round in 1..40 {
        let handle = journal.start(Credits::blocks(3))?;
        for nr in [round % 16, 16 + round % 5, 30] {
            let block = journal.cache().get(BlockNr(nr))?;
            block.write(&handle)?.bytes_mut().copy_from_slice(&stamp(round));
        }
        let tid = handle.tid();
        handle.stop()?;
        if round % 3 == 0 {
            journal.commit(tid)?;
            acknowledged.store(round, Ordering::Relaxed);
        }
        if round % 8 == 0 {
            journal.write_back(0)?;
        }
    }
    journal.close()
}

/// The round of the volume on `device`. Every block must match it.
fn round_of(device: &MemoryDevice) -> u64 {
    let block = home(device, 30);
    if block == [OLD; SIZE] {
        return 0;
    }
    let round = u64::from_le_bytes(block[8..16].try_into().unwrap());
    for nr in 0..21 {
        let of = |r: &u64| if nr < 16 { r % 16 == nr } else { 16 + r % 5 == nr };
        let want = (1..=round).rev().find(of).map_or([OLD; SIZE], stamp);
        assert!(home(device, nr) == want, "block {nr} after round {round}");
    }
    round
}

#[test]
fn every_failure_aborts_and_leaves_a_volume_that_recovers() {
    let log = empty_log((BlockSum::V3, true), 40);
    let mut failures = 0;
    for op in [IoOp::Write, IoOp::Flush] {
        for nth in 1.. {
            let base = MemoryDevice::from_bytes(&log.image);
            let device: Arc<Device> = Arc::new(Faulty::new(Recorder::new(base)));
            let journal = journal_on(&log, &device, options());
            device.fail(op, nth);
            let acknowledged = AtomicU64::new(0);
            let Err(error) = work(&journal, &acknowledged) else { break };
            failures += 1;
            assert!(matches!(error, Error::Device { .. }), "{op} {nth}: {error}");
            // The device works again, but no request may be sent.
            let position = device.inner().position();
            assert!(matches!(journal.start(Credits::blocks(1)), Err(Error::Aborted { .. })));
            let next = Tid(journal.committed().0.wrapping_add(1));
            assert!(matches!(journal.commit(next), Err(Error::Aborted { .. })));
            assert!(matches!(journal.sync(), Err(Error::Aborted { .. })));
            assert!(matches!(journal.close(), Err(Error::Aborted { .. })));
            assert!(matches!(journal.write_back(0), Err(Error::Aborted { .. })));
            assert!(journal.commit(journal.committed()).is_ok(), "what is durable stays so");
            drop(journal);
            assert_eq!(device.inner().position(), position, "{op} {nth}: written after the end");

            let crashed = Arc::new(MemoryDevice::copy_of(&*device).unwrap());
            let opened = log.open(&crashed).unwrap();
            let errno = if opened.needs_recovery() { -5 } else { 0 };
            assert_eq!(opened.superblock().errno, errno, "{op} {nth}");
            recover(&log, &crashed);
            assert!(round_of(&crashed) >= acknowledged.into_inner(), "{op} {nth}");
        }
    }
    assert!(failures > 60, "{failures}");
}

#[test]
fn every_waiter_sees_the_error_of_a_broken_device() {
    for nth in 1..12 {
        let log = empty_log((BlockSum::V3, true), 40);
        let base = MemoryDevice::from_bytes(&log.image);
        let device: Arc<Device> = Arc::new(Faulty::new(Recorder::new(base)));
        let commit_interval = Some(Duration::from_millis(1));
        let journal = journal_on(&log, &device, JournalOptions { commit_interval, ..options() });
        device.fail_from(IoOp::Write, nth);
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let journal = &journal;
                scope.spawn(move || {
                    let once = || {
                        let handle = journal.start(Credits::blocks(1))?;
                        let block = journal.cache().get(BlockNr(thread))?;
                        block.write(&handle)?.bytes_mut().fill(1);
                        let tid = handle.tid();
                        handle.stop()?;
                        journal.commit(tid)
                    };
                    let failed = (0..).find_map(|_| once().err());
                    let reported =
                        matches!(failed, Some(Error::Device { .. } | Error::Aborted { .. }));
                    assert!(reported, "{failed:?}");
                });
            }
        });
    }
}
