//! Appends one change to a recovered log, so that after a power cut it is whole at home, or absent.
//!
//! ```text
//!   log replayed, durable at home; the engine has prepared its change elsewhere
//!   ├──────── dead ────────┤head                                    fast commits of T still count
//!   1  superblock: start = head, sequence = T        the log is empty, T did not commit
//!   2  head: │descriptor│copies …│ flush │commit T│  FUA             the change is durable and the
//!   3  copies home, superblock last, flush                           fast commits of T are stale,
//!                                                                    both by this one block
//! ```
//!
//! Rule D6: what recovery adds to a log's content (fast commits, orphans) touches bitmaps,
//! descriptors and trees together. If it were written home block by block, a power cut could leave
//! a volume that no second recovery can read. As a transaction of the log it is never half done.
//!
//! Rule J8: before the transaction is written, no block of its log space may have the number T. The
//! crashed writer may have begun a transaction T there, and its remains must not complete ours.

use crate::log::open_log::Log;
use crate::recovery::recover::Recovery;
use crate::recovery::superblock_last;
use extant_base::{BlockNr, Result, Tid};
use extant_blockdev::BlockDevice;
use extant_ondisk::jbd2::commit::TransactionCrc;
use extant_ondisk::jbd2::{BlockSum, Commit, DescriptorWriter, Header, header};
use std::cell::Cell;

/// Bytes of copies in memory at a time, besides those of one descriptor.
const BATCH_BYTES: usize = 1 << 20;

impl Log {
    /// The most blocks that [`Log::append`] takes at once.
    pub fn append_limit(&self) -> u64 {
        let per_descriptor = self.format().blocks_per_descriptor() as u64;
        let usable = u64::from(self.cycle().len()).saturating_sub(2);
        usable.saturating_sub(usable.div_ceil(per_descriptor + 1))
    }

    /// Writes `blocks` of `from`, which are ascending, to the same blocks of `home`: as one
    /// transaction in the log, then at home, durable.
    ///
    /// Call it after [`Log::recover`]. `recovery` is updated: its fast commits, which the change
    /// includes, no longer count. `now` is the time in seconds and nanoseconds. Returns `false`,
    /// and changes nothing, when there are more blocks than [`Log::append_limit`].
    ///
    /// # Errors
    /// `Device`. When opened again, the log holds the change, or what it held before.
    pub fn append(
        &mut self,
        home: &dyn BlockDevice,
        recovery: &mut Recovery,
        from: &dyn BlockDevice,
        blocks: &[BlockNr],
        now: (u64, u32),
    ) -> Result<bool> {
        self.append_after(home, recovery, from, blocks, now, &mut || Ok(()))
    }

    /// As [`Log::append`]. `committed` runs between the commit and the first write home: for a
    /// change that makes this log the volume's, the log's name must be durable before that write.
    ///
    /// # Errors
    /// As [`Log::append`], and those of `committed`.
    pub fn append_after(
        &mut self,
        home: &dyn BlockDevice,
        recovery: &mut Recovery,
        from: &dyn BlockDevice,
        blocks: &[BlockNr],
        now: (u64, u32),
        committed: &mut dyn FnMut() -> Result<()>,
    ) -> Result<bool> {
        let wide = |block: &BlockNr| block.0 >> 32 == 0 || self.format().wide;
        if blocks.len() as u64 > self.append_limit() || !blocks.iter().all(wide) {
            return Ok(false);
        }
        if blocks.is_empty() {
            return Ok(true);
        }
        home.flush()?;
        let (tid, head) = match self.needs_recovery() {
            true => (recovery.end_tid, recovery.head),
            false => (self.next_tid(), self.empty_head()),
        };
        let descriptors = blocks.len().div_ceil(self.format().blocks_per_descriptor());
        // Far below 2^32, because it fits the log.
        let len = (blocks.len() + descriptors + 1) as u32;
        self.wipe(head, len, tid)?;
        self.restart_at(head, tid)?;
        let at = self.write_copies(from, blocks, head, tid, now)?;
        recovery.end_tid = tid.next();
        recovery.head = at;
        recovery.fast_commit = None;
        committed()?;
        self.write_home(home, from, blocks)?;
        home.flush()?;
        Ok(true)
    }

    /// Overwrites blocks that have the number `tid` among the next `len` blocks of the log.
    fn wipe(&self, head: u32, len: u32, tid: Tid) -> Result<()> {
        let mut block = vec![0; self.format().block_size.bytes()];
        let zeros = vec![0; block.len()];
        let mut wiped = false;
        for step in 0..len {
            let at = self.cycle().after(head, step);
            // On any copy of the device, because a later read of the log may choose any of them.
            let bears = Cell::new(false);
            self.read_right(at, &mut block, &|bytes| {
                bears.set(
                    bears.get() || Header::read(bytes).is_some_and(|header| header.tid == tid),
                );
                false
            })?;
            if bears.get() {
                self.write(at, &zeros)?;
                wiped = true;
            }
        }
        if wiped {
            self.device().flush()?;
        }
        Ok(())
    }

    /// Writes the transaction from `head` on. Returns the log block after it.
    fn write_copies(
        &self,
        from: &dyn BlockDevice,
        blocks: &[BlockNr],
        head: u32,
        tid: Tid,
        now: (u64, u32),
    ) -> Result<u32> {
        let (format, cycle) = (self.format(), self.cycle());
        let size = format.block_size.bytes();
        let mut crc = TransactionCrc::default();
        let mut at = head;
        let mut descriptor = vec![0; size];
        for batch in blocks.chunks(format.blocks_per_descriptor()) {
            let mut copies = vec![0; batch.len() * size];
            let mut writer = DescriptorWriter::new(&mut descriptor, format, tid);
            for (block, copy) in batch.iter().zip(copies.chunks_mut(size)) {
                from.read_at(format.block_size.start_of(*block), copy)?;
                let escape = header::needs_escape(copy);
                if escape {
                    header::escape(copy);
                }
                let fits = writer.push(*block, escape, format.copy_sum(tid, copy));
                assert!(fits, "a descriptor holds as many tags as its format says");
            }
            writer.finish();
            for block in std::iter::once(&descriptor[..]).chain(copies.chunks(size)) {
                if format.sum == BlockSum::V1 {
                    crc = crc.with(block);
                }
                self.write(at, block)?;
                at = cycle.after(at, 1);
            }
        }
        // The commit block says that everything before it is on the device.
        self.device().flush()?;
        let mut commit = vec![0; size];
        Commit::write(&mut commit, &format, tid, now, crc);
        self.write_fua(at, &commit)?;
        Ok(cycle.after(at, 1))
    }

    fn write_home(
        &self,
        home: &dyn BlockDevice,
        from: &dyn BlockDevice,
        blocks: &[BlockNr],
    ) -> Result<()> {
        let size = self.format().block_size;
        let last = superblock_last::block_of(size);
        let others: Vec<BlockNr> = blocks.iter().copied().filter(|block| *block != last).collect();
        for run in others.chunk_by(|a, b| a.0 + 1 == b.0) {
            for part in run.chunks((BATCH_BYTES / size.bytes()).max(1)) {
                let mut bytes = vec![0; part.len() * size.bytes()];
                from.read_at(size.start_of(part[0]), &mut bytes)?;
                home.write_at(size.start_of(part[0]), &bytes)?;
            }
        }
        if others.len() < blocks.len() {
            let mut bytes = vec![0; size.bytes()];
            from.read_at(size.start_of(last), &mut bytes)?;
            superblock_last::write(home, size, &bytes)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::recovery::cut_test::Random;
    use crate::test_log::{HOME, KINDS, SIZE, TestLog};
    use extant_base::{BlockNr, BlockSize, ByteOffset, Ino};
    use extant_blockdev::{BlockDevice, MemoryDevice};
    use extant_ondisk::fast_commit::{NameChange, Record};
    use extant_ondisk::jbd2::BlockSum;
    use extant_testdev::Recorder;
    use std::sync::Arc;

    /// The engine's part of a recovery, for a test: if there are fast commits, or with `always`,
    /// block n gets the value n.
    const CHANGED: [u64; 5] = [3, 4, 9, 40, 41];

    fn changed(home: &dyn BlockDevice) -> (MemoryDevice, Vec<BlockNr>) {
        let mut bytes = vec![0; HOME as usize * SIZE];
        home.read_at(ByteOffset(0), &mut bytes).unwrap();
        for nr in CHANGED {
            bytes[nr as usize * SIZE..][..SIZE].fill(nr as u8);
        }
        // A block that must be escaped in the log.
        bytes[9 * SIZE..][..4].copy_from_slice(&[0xC0, 0x3B, 0x39, 0x98]);
        (MemoryDevice::from_bytes(&bytes), CHANGED.map(BlockNr).to_vec())
    }

    fn home<D: BlockDevice>(device: &D) -> Vec<u8> {
        let mut home = vec![0; HOME as usize * SIZE];
        device.read_at(ByteOffset(0), &mut home).unwrap();
        home
    }

    fn recover_all<D: BlockDevice + 'static>(log: &TestLog, device: &Arc<D>, always: bool) {
        let mut opened = log.open(device).unwrap();
        let mut recovery = opened.recover(&**device, log.limits()).unwrap();
        if always || recovery.fast_commit.is_some() {
            let (from, blocks) = changed(&**device);
            let done = opened.append(&**device, &mut recovery, &from, &blocks, (9000, 1));
            assert!(done.unwrap() && recovery.fast_commit.is_none());
        }
        opened.finish(&**device, &recovery).unwrap();
    }

    #[test]
    fn an_appended_change_replays_in_every_layout() {
        for kind in KINDS {
            let mut log = TestLog::new(kind, 7, 60, 0);
            log.transaction(&[(3, 1), (5, 1)]);
            let device = log.device();
            let mut opened = log.open(&device).unwrap();
            let mut recovery = opened.recover(&*device, log.limits()).unwrap();
            let (from, blocks) = changed(&*device);
            assert!(opened.append(&*device, &mut recovery, &from, &blocks, (9000, 1)).unwrap());
            let want = home(&*device);
            assert_eq!(want, home(&from), "{kind:?}");
            // The blocks at home are lost again. The log alone restores them.
            for nr in CHANGED {
                let at = BlockSize::ALL[0].start_of(BlockNr(nr));
                device.write_at(at, &[0x77; SIZE]).unwrap();
            }
            let again = log.open(&device).unwrap();
            let recovery = again.recover(&*device, log.limits()).unwrap();
            assert_eq!((recovery.transactions, recovery.blocks_replayed), (1, 5), "{kind:?}");
            assert_eq!(home(&*device), want, "{kind:?}");
        }
    }

    #[test]
    fn a_change_larger_than_the_log_is_refused() {
        let mut log = TestLog::new((BlockSum::V3, true), 7, 1, 0);
        log.transaction(&[(3, 1)]);
        let device = log.device();
        let mut opened = log.open(&device).unwrap();
        let mut recovery = opened.recover(&*device, log.limits()).unwrap();
        let limit = opened.append_limit();
        assert!((55..63).contains(&limit));
        let blocks: Vec<BlockNr> = (0..=limit).map(BlockNr).collect();
        let before = home(&*device);
        let (from, _) = changed(&*device);
        for (n, fits) in [(blocks.len(), false), (blocks.len() - 1, true)] {
            let done = opened.append(&*device, &mut recovery, &from, &blocks[..n], (9, 0));
            assert_eq!(done.unwrap(), fits);
            assert_eq!(home(&*device) == before, !fits);
        }
    }

    #[test]
    fn remains_of_an_unfinished_transaction_do_not_close_ours() {
        // The crashed writer left a transaction 8 that is whole except for its first block, where
        // ours goes.
        let mut log = TestLog::new((BlockSum::V3, true), 7, 1, 0);
        log.transaction(&[(3, 1)]);
        let at = log.at;
        log.log(&[(60, 66), (61, 66), (62, 66), (63, 66), (64, 66)]);
        log.commit(9999);
        log.block_mut(at).fill(0);
        let before = MemoryDevice::from_bytes(&log.image);
        let recorder = Arc::new(Recorder::new(before.clone()));
        recover_all(&log, &recorder, true);
        let plan = recorder.crash_plan(&before).seed(1).samples(40);
        for state in plan.states() {
            let device = Arc::new(state.image);
            recover_all(&log, &device, false);
            assert_ne!(home(&*device)[60 * SIZE], 66);
        }
    }

    #[test]
    fn cut_anywhere_the_fast_commits_or_the_change_are_there() {
        for seed in 0..6 {
            let mut random = Random(seed);
            let mut log = TestLog::new((BlockSum::V3, true), 7, 1 + seed as u32 * 170, 16);
            for _ in 0..3 {
                let blocks: Vec<_> =
                    (0..4).map(|_| (random.below(HOME), random.next() as u8)).collect();
                log.transaction(&blocks);
            }
            let name = NameChange { parent: Ino::ROOT, ino: Ino::ROOT, name: b"n" };
            log.fast(log.tid, &[Record::Link(name)]);
            let before = MemoryDevice::from_bytes(&log.image);
            let recorder = Arc::new(Recorder::new(before.clone()));
            recover_all(&log, &recorder, false);
            let want = home(&*recorder);
            assert_eq!(want[40 * SIZE], 40, "the engine's change is there");
            let plan = recorder.crash_plan(&before).seed(seed).samples(6);
            for state in plan.states() {
                let what = state.to_string();
                let device = Arc::new(state.image);
                recover_all(&log, &device, false);
                assert!(home(&*device) == want, "seed {seed}, {what}");
                assert!(!log.open(&device).unwrap().needs_recovery());
            }
        }
    }
}
