//! A log on its device: its superblock and its blocks.
//!
//! ```text
//!                                      log blocks
//!                                      0    first                     end      maxlen
//!                                      ┌────┬───────────────────────────┬─┬───────┐
//!                                      │ sb │ transactions, cyclic   ↺  │ │ fast  │
//!                                      └────┴───────────────────────────┴─┴───────┘
//!   open ──► needs_recovery? ──recover──► engine applies fast commits ──► finish: start = 0
//! ```
//!
//! Rule: the superblock that marks the log empty is written only after all that the log held is
//! durable at home. Until then, a power cut leaves a log that replays to the same volume.

use crate::log::map::LogMap;
use extant_base::{BlockNr, ByteOffset, Result, Site, Tid, What};
use extant_blockdev::BlockDevice;
use extant_ondisk::jbd2::{JournalCompat, JournalIncompat, JournalSuperblock, LogFormat};
use std::sync::Arc;

/// A log on a device, its superblock checked.
pub struct Log {
    device: Arc<dyn BlockDevice>,
    map: LogMap,
    superblock: JournalSuperblock,
    /// Log block 0 as read. Bytes that no field describes are kept.
    block: Box<[u8]>,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log").field("superblock", &self.superblock).finish_non_exhaustive()
    }
}

impl Log {
    /// Reads and checks the journal superblock.
    ///
    /// # Errors
    /// `Device`; `Corrupt` with `JournalMagic`, `JournalChecksum`, `JournalSuperblock` or
    /// `JournalInode` (no blocks); `Unsupported` for unknown features.
    pub fn open(device: Arc<dyn BlockDevice>, map: LogMap) -> Result<Log> {
        let block_size = map.block_size();
        let (at, _) = map.locate(0).ok_or(Site::NOWHERE.corrupt(What::JournalInode))?;
        let mut block = vec![0; block_size.bytes()].into_boxed_slice();
        let site = Site::of_block(block_size.block_at(at));
        let read = |block: &[u8]| {
            JournalSuperblock::read(block, block_size, u64::from(map.blocks()), site)
        };
        device.read_verified(at, &mut block, &|block| read(block).is_ok())?;
        let superblock = read(&block)?;
        Ok(Log { device, map, superblock, block })
    }

    /// The journal superblock as on disk.
    pub fn superblock(&self) -> &JournalSuperblock {
        &self.superblock
    }

    /// The log's map.
    pub fn map(&self) -> &LogMap {
        &self.map
    }

    /// The device that holds the log.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// Replaces the device by another path to the same one.
    pub(crate) fn set_device(&mut self, device: Arc<dyn BlockDevice>) {
        self.device = device;
    }

    /// Whether the log holds, or may hold, transactions that are not home.
    pub fn needs_recovery(&self) -> bool {
        self.superblock.start.is_some()
    }

    /// The number of the next transaction, if the log is empty.
    pub fn next_tid(&self) -> Tid {
        self.superblock.sequence.next()
    }

    /// Writes the superblock, durable on return.
    pub(crate) fn put_superblock(&mut self, superblock: JournalSuperblock) -> Result<()> {
        superblock.write(&mut self.block);
        let (at, _) = self.map.locate(0).expect("open has read block 0");
        self.device.write_fua(at, &self.block)?;
        self.superblock = superblock;
        Ok(())
    }

    /// Makes the log begin at `start` with transaction `sequence`, durably. Older transactions are
    /// void.
    pub(crate) fn restart_at(&mut self, start: u32, sequence: Tid) -> Result<()> {
        let next = JournalSuperblock { start: Some(start), sequence, ..self.superblock.clone() };
        self.put_superblock(next)
    }

    /// Sets the log's features to those that the volume's features require, as Linux does:
    /// checksums v3 and 64-bit block numbers, and an area for fast commits if the log is large
    /// enough. The superblock is written with the first commit.
    pub(crate) fn set_features(&mut self, checksums: bool, wide: bool, fast_commits: bool) {
        let next = &mut self.superblock;
        if next.is_v1 {
            // A v1 superblock ends here; the bytes after it were never written.
            self.block[0x24..].fill(0);
            next.is_v1 = false;
        }
        next.features.compat.remove(JournalCompat::CHECKSUM);
        let incompat = &mut next.features.incompat;
        incompat.remove(JournalIncompat::CSUM_V2 | JournalIncompat::ASYNC_COMMIT);
        incompat.set(JournalIncompat::CSUM_V3, checksums);
        if wide {
            incompat.insert(JournalIncompat::BIT64);
        }
        incompat.set(JournalIncompat::FAST_COMMIT, fast_commits);
        if next.log_end().is_none_or(|end| end <= next.first) {
            next.features.incompat.remove(JournalIncompat::FAST_COMMIT);
        }
    }

    /// Takes the last blocks as the area of fast commits, in memory, if the log is long enough.
    pub(crate) fn reserve_fast_commit_area(&mut self) {
        let incompat = &mut self.superblock.features.incompat;
        let before = *incompat;
        incompat.insert(JournalIncompat::FAST_COMMIT);
        if self.superblock.log_end().is_none_or(|end| end <= self.superblock.first) {
            self.superblock.features.incompat = before;
        }
    }

    /// Whether recovery looks for fast commits: the superblock says, durably, that the log is not
    /// empty and may have fast commits.
    pub(crate) fn allows_fast_commits(&self) -> bool {
        let incompat = self.superblock.features.incompat;
        self.needs_recovery() && incompat.contains(JournalIncompat::FAST_COMMIT)
    }

    /// Rule J2: before the first commit block, makes the superblock say durably that the log is not
    /// empty, and that it may hold revoke blocks. Writes nothing if the superblock says so already.
    pub(crate) fn mark_not_empty(&mut self, start: u32, tid: Tid, revokes: bool) -> Result<()> {
        let mut next = self.superblock.clone();
        if next.start.is_none() {
            next.start = Some(start);
            next.sequence = tid;
        }
        if revokes {
            next.features.incompat.insert(JournalIncompat::REVOKE);
        }
        if next == self.superblock { Ok(()) } else { self.put_superblock(next) }
    }

    /// Marks the log empty, durably; writes nothing if it is. `sequence` is the last transaction's
    /// number, `head` the block where the next one begins.
    pub(crate) fn set_empty(&mut self, head: u32, sequence: Tid) -> Result<()> {
        if !self.needs_recovery() {
            return Ok(());
        }
        let mut next = JournalSuperblock { start: None, sequence, head, ..self.superblock.clone() };
        next.features.incompat.remove(JournalIncompat::FAST_COMMIT);
        self.put_superblock(next)
    }

    /// Stores a negative errno for the next opening of the volume, if it can be written. An empty
    /// log is left alone: nothing was changed then.
    pub(crate) fn put_errno(&mut self, errno: i32) {
        if self.needs_recovery() && self.superblock.errno == 0 {
            let next = JournalSuperblock { errno, ..self.superblock.clone() };
            // The caller is aborting after an error, so it has no use for a second one.
            let _ = self.put_superblock(next);
        }
    }

    /// The block where the first transaction begins while the log is empty.
    pub(crate) fn empty_head(&self) -> u32 {
        let cycle = self.cycle();
        match self.superblock.head {
            head if (cycle.first..cycle.end).contains(&head) => head,
            _ => cycle.first,
        }
    }

    pub(crate) fn format(&self) -> LogFormat {
        self.superblock.log_format()
    }

    /// The cyclic part of the log.
    pub(crate) fn cycle(&self) -> Cycle {
        let end = self.superblock.log_end().expect("open has checked the log's end");
        Cycle { first: self.superblock.first, end }
    }

    /// The site that errors name for log block `block`: the block on the device.
    pub(crate) fn site(&self, block: u32) -> Site {
        match self.map.locate(block) {
            Some((at, _)) => Site::of_block(self.map.block_size().block_at(at)),
            None => Site::of_block(BlockNr(u64::from(block))),
        }
    }

    /// Writes log block `block`.
    pub(crate) fn write(&self, block: u32, bytes: &[u8]) -> Result<()> {
        self.device.write_at(self.place(block)?, bytes)
    }

    /// Writes log block `block`, durable on return.
    pub(crate) fn write_fua(&self, block: u32, bytes: &[u8]) -> Result<()> {
        self.device.write_fua(self.place(block)?, bytes)
    }

    fn place(&self, block: u32) -> Result<ByteOffset> {
        match self.map.locate(block) {
            Some((at, _)) => Ok(at),
            None => Err(self.site(block).corrupt(What::JournalInode)),
        }
    }

    /// Reads log block `block`, and of several copies one that `is_right`. Returns whether there
    /// was one.
    pub(crate) fn read_right(
        &self,
        block: u32,
        bytes: &mut [u8],
        is_right: &dyn Fn(&[u8]) -> bool,
    ) -> Result<bool> {
        self.device.read_verified(self.place(block)?, bytes, is_right)
    }

    /// Reads log blocks from `first` on until `bytes` is full. The range must not pass the log's
    /// end.
    pub(crate) fn read(&self, first: u32, bytes: &mut [u8]) -> Result<()> {
        let shift = self.map.block_size().log2();
        let (mut block, mut rest) = (first, bytes);
        while !rest.is_empty() {
            let (at, run) =
                self.map.locate(block).ok_or(self.site(block).corrupt(What::JournalInode))?;
            let here = rest.len().min((u64::from(run) << shift).min(1 << 30) as usize);
            let (now, later) = rest.split_at_mut(here);
            self.device.read_at(at, now)?;
            block = block.saturating_add((here >> shift) as u32);
            rest = later;
        }
        Ok(())
    }
}

/// The part of the log that is written cyclically: the first block, and one past the last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cycle {
    pub(crate) first: u32,
    pub(crate) end: u32,
}

impl Cycle {
    /// Blocks in one round.
    pub(crate) fn len(self) -> u32 {
        self.end - self.first
    }

    /// The block `steps` after `block`; `steps` is at most one round.
    pub(crate) fn after(self, block: u32, steps: u32) -> u32 {
        let ahead = (u64::from(block - self.first) + u64::from(steps)) % u64::from(self.len());
        self.first + ahead as u32
    }
}
