//! Recovery of a log: the passes in their order, and the end of the recovery.
//!
//! ```text
//!   recover   scan ─► read fast commits ─► revoke ─► replay ─► flush home      log untouched
//!   engine    applies fast commits, writes them home
//!   finish    flush home ─► superblock: start = 0, sequence = end (FUA)        log empty
//! ```
//!
//! Rule D1: a power cut before the last step leaves the log as it was. The next recovery starts
//! over and ends in the same bytes.

use crate::fast_commit::fast_commit_log::FastCommitLog;
use crate::log::open_log::Log;
use crate::recovery::replay::{HomeLimits, WINDOW};
use crate::recovery::superblock_last::Amend;
use extant_base::{Error, Result, Tid};
use extant_blockdev::BlockDevice;
use extant_ondisk::jbd2::{JournalIncompat, JournalSuperblock};

/// The findings of a recovery.
#[derive(Debug)]
pub struct Recovery {
    /// Committed transactions in the log.
    pub transactions: u32,
    /// Blocks written home.
    pub blocks_replayed: u64,
    /// Logged copies that a later transaction revoked.
    pub copies_revoked: u64,
    /// The first transaction that is not complete. Its number is never used again.
    pub end_tid: Tid,
    /// The errno that an aborted journal left in the log: negative, or 0. The caller stores it in
    /// the volume's superblock before [`Log::finish`] clears it.
    pub errno: i32,
    /// The fast commits that follow the last whole transaction. The engine applies them.
    pub fast_commit: Option<FastCommitLog>,
    /// The log block after the last commit block.
    pub(crate) head: u32,
}

impl Log {
    /// Replays the log onto `home`, the volume, and makes it durable there. The log itself is not
    /// changed; [`Log::finish`] does that. If the log needs no recovery, nothing is replayed.
    ///
    /// # Errors
    /// `Device`; `Corrupt` for damage in a committed transaction. All undamaged blocks may be home
    /// then; the log is unchanged.
    pub fn recover(&self, home: &dyn BlockDevice, limits: HomeLimits) -> Result<Recovery> {
        self.recover_amending(home, limits, &|_| ())
    }

    /// Ends a recovery: makes `home` durable, then marks the log empty. The next transaction gets a
    /// number that neither the log nor its fast commits have used. The stored errno is cleared: the
    /// caller has stored it in the volume's superblock.
    ///
    /// Call it after the fast commits of `recovery` were applied and written to `home`.
    ///
    /// # Errors
    /// `Device`; the log is then as it was, or empty, and can be opened again.
    pub fn finish(&mut self, home: &dyn BlockDevice, recovery: &Recovery) -> Result<()> {
        home.flush()?;
        let mut next = self.superblock().clone();
        if self.needs_recovery() {
            next.start = None;
            // The next transaction does not get the number `end_tid`: old fast commits may have it.
            next.sequence = recovery.end_tid;
            next.head = if next.is_v1 { 0 } else { recovery.head };
            next.features.incompat.remove(JournalIncompat::FAST_COMMIT);
        }
        next.errno = 0;
        if next != *self.superblock() {
            self.put_superblock(next)?;
        }
        Ok(())
    }

    /// Discards the content of the log: for a volume whose superblock says that it needs no
    /// recovery.
    ///
    /// # Errors
    /// `Device`.
    pub fn discard(&mut self) -> Result<()> {
        let sequence = match self.scan() {
            Ok(scan) => scan.end,
            Err(error @ Error::Device { .. }) => return Err(error),
            // Damage ends the scan somewhere in the log. The log has used at most one number per
            // block.
            Err(_) => Tid(self.superblock().sequence.0.wrapping_add(self.superblock().maxlen)),
        };
        let mut next =
            JournalSuperblock { start: None, sequence, head: 0, ..self.superblock().clone() };
        next.features.incompat.remove(JournalIncompat::FAST_COMMIT);
        self.put_superblock(next)
    }

    /// As [`Log::recover`]. `amend` changes the superblock before it is written home. It must make
    /// the same change in every call.
    ///
    /// # Errors
    /// As [`Log::recover`].
    pub fn recover_amending(
        &self,
        home: &dyn BlockDevice,
        limits: HomeLimits,
        amend: Amend<'_>,
    ) -> Result<Recovery> {
        self.recover_in_rounds(home, limits, WINDOW, amend)
    }

    pub(crate) fn recover_in_rounds(
        &self,
        home: &dyn BlockDevice,
        limits: HomeLimits,
        window: usize,
        amend: Amend<'_>,
    ) -> Result<Recovery> {
        let scan = self.scan()?;
        // An area that cannot be read is reported before anything is written.
        let fast_commit = match self.needs_recovery() {
            true => self.fast_commits(scan.end, limits.inode_bytes)?,
            false => None,
        };
        let revoked = self.revoked(&scan, home.len() >> self.format().block_size.log2())?;
        let replayed = self.replay(&scan, &revoked, home, limits, window, amend)?;
        if self.needs_recovery() {
            home.flush()?;
        }
        if let Some(error) = scan.failed_commit {
            return Err(error);
        }
        Ok(Recovery {
            transactions: scan.transactions,
            blocks_replayed: replayed.blocks,
            copies_revoked: replayed.revoked,
            end_tid: scan.end,
            fast_commit,
            errno: self.superblock().errno,
            head: scan.head,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_log::{HOME, KINDS, OLD, SIZE, TestLog};
    use extant_base::{Error, What};
    use extant_ondisk::jbd2::{BlockSum, JournalIncompat};
    use extant_testdev::Request;

    const V3: (BlockSum, bool) = (BlockSum::V3, true);

    #[track_caller]
    fn assert_corrupt<T: std::fmt::Debug>(result: Result<T>, want: What) {
        match result {
            Err(Error::Corrupt { what, .. }) => assert_eq!(what, want),
            other => panic!("{other:?} instead of {want:?}"),
        }
    }

    #[test]
    fn the_newest_copy_goes_home_in_every_layout() {
        for kind in KINDS {
            let mut log = TestLog::new(kind, 7, 1, 0);
            log.transaction(&[(3, 1), (9, 1), (10, 1)]);
            log.log(&[(9, 2)]);
            log.log(&[(11, 2), (3, 2)]);
            log.commit(2000);
            log.commit(2000);
            let (recovery, home) = log.recover();
            let recovery = recovery.unwrap();
            assert_eq!((recovery.transactions, recovery.blocks_replayed), (3, 4), "{kind:?}");
            assert_eq!(recovery.end_tid, Tid(10));
            assert_eq!([3, 9, 10, 11].map(|nr| home.value(nr)), [2, 2, 1, 2], "{kind:?}");
            assert_eq!([2, 4, 8, 12].map(|nr| home.value(nr)), [OLD; 4]);
        }
    }

    #[test]
    fn revoke_hides_older_copies_only() {
        for kind in KINDS {
            let mut log = TestLog::new(kind, 7, 1, 0);
            log.transaction(&[(3, 1), (4, 1), (5, 1)]);
            log.revoke(&[3, 4]);
            log.transaction(&[(5, 2), (4, 2)]);
            log.transaction(&[(3, 3)]);
            let (recovery, home) = log.recover();
            assert_eq!([3, 4, 5].map(|nr| home.value(nr)), [3, OLD, 2], "{kind:?}");
            assert_eq!(recovery.unwrap().copies_revoked, 3);
        }
    }

    #[test]
    fn revokes_count_without_their_feature() {
        let mut log = TestLog::new(V3, 7, 1, 0);
        log.superblock.features.incompat.remove(JournalIncompat::REVOKE);
        log.put_superblock();
        log.transaction(&[(3, 1)]);
        log.revoke(&[3]);
        log.commit(2000);
        assert_eq!(log.recover().1.value(3), OLD);
    }

    #[test]
    fn a_revoke_that_was_not_committed_hides_nothing() {
        let mut log = TestLog::new(V3, 7, 1, 0);
        log.transaction(&[(3, 1)]);
        log.revoke(&[3]);
        assert_eq!(log.recover().1.value(3), 1);
    }

    #[test]
    fn an_escaped_block_gets_its_magic_back() {
        for kind in KINDS {
            let mut log = TestLog::new(kind, 7, 1, 0);
            let mut block = [5; SIZE];
            block[..4].copy_from_slice(&[0xC0, 0x3B, 0x39, 0x98]);
            log.log_bytes(&[(3, block), (4, [6; SIZE])]);
            log.commit(1);
            let (recovery, home) = log.recover();
            assert_eq!(recovery.unwrap().blocks_replayed, 2, "{kind:?}");
            assert!(home.block(3) == block && home.value(4) == 6);
        }
    }

    #[test]
    fn a_log_wraps_at_every_block() {
        for start in 1..64 {
            for kind in [(BlockSum::V1, false), V3] {
                let mut log = TestLog::new(kind, 7, start, 0);
                log.transaction(&[(3, 1), (4, 1)]);
                log.revoke(&[4]);
                log.transaction(&[(5, 2), (3, 2)]);
                let (recovery, home) = log.recover();
                assert_eq!(recovery.unwrap().transactions, 2, "start {start}");
                assert_eq!([3, 4, 5].map(|nr| home.value(nr)), [2, OLD, 2], "start {start}");
            }
        }
    }

    #[test]
    fn a_full_log_ends_after_one_round() {
        let mut log = TestLog::new(V3, 7, 20, 0);
        for value in 0..21 {
            log.transaction(&[(u64::from(value), value)]);
        }
        assert_eq!(log.at, 20, "63 blocks are one round");
        let (recovery, home) = log.recover();
        assert_eq!(recovery.unwrap().transactions, 21);
        assert!((0..21).all(|value| home.value(u64::from(value)) == value));
    }

    #[test]
    fn a_transaction_longer_than_the_log_never_happened() {
        let mut log = TestLog::new(V3, 7, 1, 0);
        for value in 0..20 {
            log.transaction(&[(u64::from(value), value)]);
        }
        // From block 4 on, six blocks of a round are left; this transaction needs seven.
        let before = log.block_mut(4).to_vec();
        log.log(&[(3, 99), (4, 99), (5, 99), (6, 99), (7, 99), (8, 99)]);
        log.block_mut(4).copy_from_slice(&before);
        log.superblock.start = Some(4);
        log.superblock.sequence = Tid(8);
        log.put_superblock();
        let (recovery, home) = log.recover();
        assert_eq!(recovery.unwrap().transactions, 19);
        assert_eq!([3, 4, 8].map(|nr| home.value(nr)), [3, 4, 8]);
    }

    #[test]
    fn transaction_numbers_wrap() {
        let mut log = TestLog::new(V3, u32::MAX - 1, 1, 0);
        log.transaction(&[(3, 1), (4, 1)]);
        log.log(&[(3, 2)]);
        log.commit(1 << 33);
        log.revoke(&[4]);
        log.commit(1 << 33);
        let (recovery, home) = log.recover();
        assert_eq!(recovery.unwrap().end_tid, Tid(1));
        assert_eq!([3, 4].map(|nr| home.value(nr)), [2, OLD]);
    }

    #[test]
    fn an_uncommitted_transaction_never_happened() {
        for kind in KINDS {
            let mut log = TestLog::new(kind, 7, 1, 0);
            log.transaction(&[(3, 1)]);
            log.log(&[(3, 2), (4, 2)]);
            let (recovery, home) = log.recover();
            assert_eq!(recovery.unwrap().end_tid, Tid(8));
            assert_eq!([3, 4].map(|nr| home.value(nr)), [1, OLD]);
        }
    }

    #[test]
    fn older_blocks_after_the_end_are_ignored() {
        let mut log = TestLog::new(V3, 7, 1, 0);
        log.transaction(&[(3, 1), (4, 1)]);
        log.transaction(&[(5, 2)]);
        log.transaction(&[(6, 3)]);
        // The log has wrapped: transaction 9 is left from the last round, after 10 and 11.
        log.at = 1;
        log.transaction(&[(7, 4)]);
        log.superblock.sequence = Tid(10);
        log.put_superblock();
        let (recovery, home) = log.recover();
        assert_eq!(recovery.unwrap().end_tid, Tid(11));
        assert_eq!([3, 4, 5, 6, 7].map(|nr| home.value(nr)), [OLD, OLD, OLD, OLD, 4]);
    }

    #[test]
    fn a_commit_block_torn_after_its_first_sector_counts() {
        for (kind, counts) in [((BlockSum::V2, true), true), (V3, true)] {
            let mut log = TestLog::new(kind, 7, 1, 0);
            log.transaction(&[(3, 1)]);
            log.block_mut(3)[512..].fill(0x55);
            let (recovery, home) = log.recover();
            assert_eq!(recovery.unwrap().transactions, u32::from(counts));
            assert_eq!(home.value(3), 1);
        }
    }

    #[test]
    fn a_wrong_commit_block_ends_the_log_with_an_error() {
        for sum in [BlockSum::V1, BlockSum::V2, BlockSum::V3] {
            let mut log = TestLog::new((sum, true), 7, 1, 0);
            log.transaction(&[(3, 1)]);
            log.transaction(&[(4, 2)]);
            log.transaction(&[(5, 3)]);
            log.block_mut(6)[0x10] ^= 1;
            let (recovery, home) = log.recover();
            assert_corrupt(recovery, What::JournalCommitChecksum);
            assert_eq!([3, 4, 5].map(|nr| home.value(nr)), [1, OLD, OLD], "{sum:?}");
        }
    }

    #[test]
    fn a_wrong_commit_block_just_ends_a_log_with_async_commit() {
        let mut log = TestLog::new((BlockSum::V1, true), 7, 1, 0);
        log.superblock.features.incompat |= JournalIncompat::ASYNC_COMMIT;
        log.put_superblock();
        log.transaction(&[(3, 1)]);
        log.transaction(&[(4, 2)]);
        // The copy of block 4 did not reach the log.
        log.block_mut(5).fill(0);
        let (recovery, home) = log.recover();
        assert_eq!(recovery.unwrap().end_tid, Tid(8));
        assert_eq!([3, 4].map(|nr| home.value(nr)), [1, OLD]);
    }

    #[test]
    fn a_wrong_commit_block_of_an_older_time_ends_the_log() {
        let mut log = TestLog::new(V3, 7, 1, 0);
        log.log(&[(3, 1)]);
        log.commit(5000);
        log.log(&[(4, 2)]);
        log.commit(4999);
        log.block_mut(6)[0x10] ^= 1;
        let (recovery, home) = log.recover();
        assert_eq!(recovery.unwrap().end_tid, Tid(8));
        assert_eq!([3, 4].map(|nr| home.value(nr)), [1, OLD]);
    }

    #[test]
    fn a_bad_descriptor_is_damage_or_older_than_the_log() {
        for (seconds, damage) in [(5000, true), (5001, true), (4999, false)] {
            let mut log = TestLog::new(V3, 7, 1, 0);
            log.log(&[(3, 1)]);
            log.commit(5000);
            log.log(&[(4, 2)]);
            log.commit(seconds);
            log.block_mut(4)[900] ^= 1;
            let (recovery, home) = log.recover();
            if damage {
                assert_corrupt(recovery, What::JournalDescriptorChecksum);
                assert_eq!(home.value(3), OLD, "nothing is written");
            } else {
                assert_eq!(recovery.unwrap().end_tid, Tid(8));
                assert_eq!([3, 4].map(|nr| home.value(nr)), [1, OLD]);
            }
        }
    }

    #[test]
    fn a_bad_descriptor_without_a_commit_never_happened() {
        let mut log = TestLog::new(V3, 7, 1, 0);
        log.transaction(&[(3, 1)]);
        log.log(&[(4, 2)]);
        log.block_mut(4)[900] ^= 1;
        assert_eq!(log.recover().0.unwrap().end_tid, Tid(8));
    }

    #[test]
    fn a_bad_revoke_block_is_damage() {
        let mut log = TestLog::new(V3, 7, 1, 0);
        log.transaction(&[(3, 1)]);
        log.revoke(&[3]);
        log.commit(9999);
        log.block_mut(4)[20] ^= 1;
        assert_corrupt(log.recover().0, What::JournalRevoke);
    }

    #[test]
    fn a_damaged_copy_is_skipped_and_reported_at_the_end() {
        for sum in [BlockSum::V2, BlockSum::V3] {
            let mut log = TestLog::new((sum, false), 7, 1, 0);
            log.transaction(&[(3, 1), (4, 1), (5, 1)]);
            log.transaction(&[(6, 2)]);
            log.block_mut(3)[77] ^= 1;
            let (recovery, home) = log.recover();
            assert_corrupt(recovery, What::JournalBlockChecksum);
            assert_eq!([3, 4, 5, 6].map(|nr| home.value(nr)), [1, OLD, 1, 2], "{sum:?}");
        }
    }

    #[test]
    fn blocks_outside_the_volume_or_inside_the_log_are_refused_before_anything_is_written() {
        let blocks = HOME + 64;
        for nr in [HOME, HOME + 63, blocks, 1 << 40, u64::MAX] {
            let mut log = TestLog::new(V3, 7, 1, 0);
            log.transaction(&[(3, 1)]);
            log.transaction(&[(nr, 1)]);
            let (recovery, home) = log.recover();
            assert_corrupt(recovery, What::JournalTarget);
            assert!(home.0 == log.image, "{nr}");
        }
    }

    #[test]
    fn a_window_smaller_than_the_log_gives_the_same_volume() {
        let mut log = TestLog::new(V3, 7, 30, 0);
        for value in 0..15 {
            log.transaction(&[(u64::from(value % 4), value), (u64::from(20 + value), value)]);
        }
        let whole = log.recover().1;
        for window in 1..8 {
            let device = log.device();
            let opened = log.open(&device).unwrap();
            opened.recover_in_rounds(&*device, log.limits(), window, &|_| ()).unwrap();
            assert!(device.content() == whole.0, "window {window}");
        }
    }

    #[test]
    fn neighbours_go_home_in_one_write() {
        let mut log = TestLog::new(V3, 7, 1, 0);
        log.transaction(&[(9, 1), (8, 1), (10, 1), (40, 1)]);
        log.transaction(&[(11, 1)]);
        let device = log.device();
        let opened = log.open(&device).unwrap();
        device.take_requests();
        opened.recover(&*device, log.limits()).unwrap();
        let mut requests = device.take_requests();
        requests.retain(|requests| !matches!(requests, Request::Read { .. }));
        let write =
            |nr: usize, count: usize| Request::Write { at: nr as u64 * 1024, len: count * SIZE };
        assert_eq!(requests, [write(8, 4), write(40, 1), Request::Flush]);
    }

    #[test]
    fn an_empty_log_needs_nothing() {
        let mut log = TestLog::new(V3, 7, 1, 0);
        log.transaction(&[(3, 1)]);
        log.superblock.start = None;
        log.put_superblock();
        let device = log.device();
        let mut opened = log.open(&device).unwrap();
        assert!(!opened.needs_recovery());
        assert_eq!(opened.next_tid(), Tid(8));
        let recovery = opened.recover(&*device, log.limits()).unwrap();
        assert_eq!((recovery.transactions, recovery.blocks_replayed), (0, 0));
        opened.finish(&*device, &recovery).unwrap();
        assert!(device.content() == log.image);
    }

    #[test]
    fn finish_empties_the_log_after_a_flush_and_burns_the_end_number() {
        for kind in KINDS {
            let mut log = TestLog::new(kind, 7, 1, 0);
            log.superblock.errno = -5;
            log.put_superblock();
            log.transaction(&[(3, 1)]);
            let device = log.device();
            let mut opened = log.open(&device).unwrap();
            let recovery = opened.recover(&*device, log.limits()).unwrap();
            assert_eq!(recovery.errno, -5);
            device.take_requests();
            opened.finish(&*device, &recovery).unwrap();
            let at = log.map().locate(0).unwrap().0.0;
            assert_eq!(device.take_requests(), [Request::Flush, Request::Fua { at, len: SIZE }]);

            let again = log.open(&device).unwrap();
            assert!(!again.needs_recovery());
            let superblock = again.superblock();
            assert_eq!((superblock.sequence, superblock.errno), (Tid(8), 0));
            assert_eq!((superblock.head, again.next_tid()), (4, Tid(9)), "{kind:?}");
        }
    }

    #[test]
    fn a_v1_superblock_stays_one() {
        let mut log = TestLog::new((BlockSum::None, false), 7, 1, 0);
        log.superblock.is_v1 = true;
        log.superblock.features.incompat = JournalIncompat::empty();
        log.block_mut(0).fill(0xAB);
        log.put_superblock();
        log.transaction(&[(3, 1)]);
        let device = log.device();
        let mut opened = log.open(&device).unwrap();
        let recovery = opened.recover(&*device, log.limits()).unwrap();
        assert_eq!(recovery.transactions, 1);
        opened.finish(&*device, &recovery).unwrap();
        let again = log.open(&device).unwrap();
        assert!(again.superblock().is_v1 && !again.needs_recovery());
        let at = log.map().locate(0).unwrap().0.0 as usize;
        assert!(device.content()[at + 0x24..at + SIZE].iter().all(|byte| *byte == 0xAB));
    }

    #[test]
    fn a_device_that_fails_leaves_the_log_alone() {
        let mut log = TestLog::new(V3, 7, 1, 0);
        log.transaction(&[(3, 1)]);
        let device = log.device();
        let opened = log.open(&device).unwrap();
        device.fail_flushes.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(matches!(opened.recover(&*device, log.limits()), Err(Error::Device { .. })));
        device.fail_flushes.store(false, std::sync::atomic::Ordering::Relaxed);
        assert!(log.open(&device).unwrap().needs_recovery());
    }
}
