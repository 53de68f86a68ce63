//! The log as a place: where its blocks lie, what its superblock says, how it is made empty.
//!
//! ```text
//!   journal inode's runs                    log blocks
//!   ┌───────────┐   ┌───────┐              0    first                     end      maxlen
//!   │ 0 .. 4095 │ … │ 4096… │   ─LogMap─►  ┌────┬───────────────────────────┬─┬───────┐
//!   └───────────┘   └───────┘              │ sb │ transactions, cyclic   ↺  │ │ fast  │
//!                                          └────┴───────────────────────────┴─┴───────┘
//!   open ──► needs_recovery? ──recover──► engine applies fast commits ──► finish: start = 0
//! ```
//!
//! Rule: the superblock that ends a log's life is written when all that the log held is durable at
//! home, and never before. Until then every cut leaves a log that replays to the same volume.

use crate::recovery::Recovery;
use extant_base::{BlockNr, BlockSize, ByteOffset, Error, Result, Site, Tid, What};
use extant_blockdev::BlockDevice;
use extant_ondisk::jbd2::{JournalCompat, JournalIncompat, JournalSuperblock, LogFormat};
use std::sync::Arc;

/// Log blocks that lie side by side on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRun {
    /// The first of them, counted in the log.
    pub first: u32,
    /// How many, at least 1.
    pub count: u32,
    /// Where the first one starts.
    pub at: ByteOffset,
}

/// Where every block of a log lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogMap {
    block_size: BlockSize,
    /// In log order, without gaps.
    runs: Vec<LogRun>,
    blocks: u32,
}

impl LogMap {
    /// The map of a log whose inode has these runs, in log order, from block 0 on and without
    /// gaps. Errors: `Corrupt(JournalInode)` otherwise, or when a run passes the last byte.
    pub fn new(block_size: BlockSize, runs: Vec<LogRun>) -> Result<LogMap> {
        let mut blocks = 0u32;
        for run in &runs {
            let bytes = u64::from(run.count) << block_size.log2();
            let next = blocks.checked_add(run.count);
            match next.filter(|_| run.first == blocks && run.count > 0) {
                Some(next) if run.at.0.checked_add(bytes).is_some() => blocks = next,
                _ => return Err(Site::NOWHERE.corrupt(What::JournalInode)),
            }
        }
        Ok(LogMap { block_size, runs, blocks })
    }

    /// The map of a log that is one run: an external journal's device, from its journal superblock
    /// on.
    pub fn contiguous(block_size: BlockSize, at: ByteOffset, blocks: u32) -> Result<LogMap> {
        LogMap::new(block_size, vec![LogRun { first: 0, count: blocks, at }])
    }

    /// Blocks in the log, its superblock counted.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// The runs, in log order.
    pub fn runs(&self) -> &[LogRun] {
        &self.runs
    }

    /// Where log block `block` starts, and how many blocks from it on lie side by side.
    pub fn locate(&self, block: u32) -> Option<(ByteOffset, u32)> {
        let run = self.runs[..self.runs.partition_point(|run| run.first <= block)].last()?;
        let inside = block - run.first;
        let left = run.count.checked_sub(inside).filter(|left| *left > 0)?;
        Some((ByteOffset(run.at.0 + (u64::from(inside) << self.block_size.log2())), left))
    }

    /// The volume's blocks that a log on the volume takes, ascending, as (first, one past last).
    pub(crate) fn taken(&self) -> Vec<(u64, u64)> {
        let shift = self.block_size.log2();
        let mut taken: Vec<_> = self
            .runs
            .iter()
            .map(|run| (run.at.0 >> shift, (run.at.0 >> shift) + u64::from(run.count)))
            .collect();
        taken.sort_unstable();
        taken
    }
}

/// Which blocks a log may write home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HomeLimits {
    /// Blocks of the volume as the superblock at home tells. The log may have a newer one that tells of more; a
    /// logged block beyond the device is corruption.
    pub volume_blocks: u64,
    /// The log is a file of the volume: a logged block inside it is corruption.
    pub log_on_volume: bool,
    /// Bytes of an inode of the volume: a fast commit cannot carry more of one.
    pub inode_bytes: usize,
}

/// A log on a device, its superblock checked.
pub struct Log {
    device: Arc<dyn BlockDevice>,
    map: LogMap,
    superblock: JournalSuperblock,
    /// Log block 0 as read: bytes nobody described are kept.
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
    /// Errors: `Device`; `Corrupt` with `JournalMagic`, `JournalChecksum`, `JournalSuperblock` or
    /// `JournalInode` (no blocks); `Unsupported` for unknown features.
    pub fn open(device: Arc<dyn BlockDevice>, map: LogMap) -> Result<Log> {
        let block_size = map.block_size;
        let (at, _) = map.locate(0).ok_or(Site::NOWHERE.corrupt(What::JournalInode))?;
        let mut block = vec![0; block_size.bytes()].into_boxed_slice();
        let site = Site::of_block(block_size.block_at(at));
        let read =
            |block: &[u8]| JournalSuperblock::read(block, block_size, u64::from(map.blocks), site);
        device.read_verified(at, &mut block, &|block| read(block).is_ok())?;
        let superblock = read(&block)?;
        Ok(Log { device, map, superblock, block })
    }

    /// The journal superblock as on disk.
    pub fn superblock(&self) -> &JournalSuperblock {
        &self.superblock
    }

    /// Where the log's blocks lie.
    pub fn map(&self) -> &LogMap {
        &self.map
    }

    /// The device that holds the log.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// Another way to the same device.
    pub(crate) fn set_device(&mut self, device: Arc<dyn BlockDevice>) {
        self.device = device;
    }

    /// Whether the log holds, or may hold, transactions to bring home.
    pub fn needs_recovery(&self) -> bool {
        self.superblock.start.is_some()
    }

    /// The number of the next transaction, once the log is empty.
    pub fn next_tid(&self) -> Tid {
        self.superblock.sequence.next()
    }

    /// Ends a recovery: makes `home` durable, then marks the log empty, so that the next
    /// transaction gets a number that neither the log nor its fast commits have used. The stored
    /// errno is cleared: the caller has put it into the volume's superblock.
    ///
    /// Call it when the fast commits of `recovery` are applied and written to `home`. Errors:
    /// `Device`; the log is then as it was, or empty, and can be opened again.
    pub fn finish(&mut self, home: &dyn BlockDevice, recovery: &Recovery) -> Result<()> {
        home.flush()?;
        let mut next = self.superblock.clone();
        if self.needs_recovery() {
            next.start = None;
            // Not end_tid for the next transaction: fast commits of that number may lie around.
            next.sequence = recovery.end_tid;
            next.head = if next.is_v1 { 0 } else { recovery.head };
            next.features.incompat.remove(JournalIncompat::FAST_COMMIT);
        }
        next.errno = 0;
        if next != self.superblock {
            self.put_superblock(next)?;
        }
        Ok(())
    }

    /// Writes the superblock durably, bypassing the device's cache.
    fn put_superblock(&mut self, superblock: JournalSuperblock) -> Result<()> {
        superblock.write(&mut self.block);
        let (at, _) = self.map.locate(0).expect("open has read block 0");
        self.device.write_fua(at, &self.block)?;
        self.superblock = superblock;
        Ok(())
    }

    /// Throws away what the log holds: for a volume that is marked as not needing it.
    ///
    /// Errors: `Device`.
    pub fn discard(&mut self) -> Result<()> {
        let sequence = match self.scan() {
            Ok(scan) => scan.end,
            Err(error @ Error::Device { .. }) => return Err(error),
            // Damage ends the walk somewhere inside: no number further on than blocks was used.
            Err(_) => Tid(self.superblock.sequence.0.wrapping_add(self.superblock.maxlen)),
        };
        let mut next =
            JournalSuperblock { start: None, sequence, head: 0, ..self.superblock.clone() };
        next.features.incompat.remove(JournalIncompat::FAST_COMMIT);
        self.put_superblock(next)
    }

    /// Makes the log begin at `start` with transaction `sequence`, durably; all it held is dead.
    pub(crate) fn restart_at(&mut self, start: u32, sequence: Tid) -> Result<()> {
        let next = JournalSuperblock { start: Some(start), sequence, ..self.superblock.clone() };
        self.put_superblock(next)
    }

    /// Takes over what the volume's features ask of its log, as Linux does: checksums v3 and 64-bit
    /// numbers, and room for fast commits where it is large enough. The superblock is written with
    /// the first commit.
    pub(crate) fn set_features(&mut self, checksums: bool, wide: bool, fast_commits: bool) {
        let next = &mut self.superblock;
        if next.is_v1 {
            // A v1 superblock ends here; what follows was never written.
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

    /// Whether whoever recovers the volume looks for fast commits: the superblock says, durably,
    /// that there may be some behind a log that is not empty.
    pub(crate) fn is_open_to_fast_commits(&self) -> bool {
        let incompat = self.superblock.features.incompat;
        self.needs_recovery() && incompat.contains(JournalIncompat::FAST_COMMIT)
    }

    /// Rule J2: says, durably and before the first commit block, that the log is not empty, and that
    /// there are revoke blocks in it. Nothing is written when the superblock says so already.
    pub(crate) fn announce(&mut self, start: u32, tid: Tid, revokes: bool) -> Result<()> {
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

    /// Marks the log empty, durably; nothing is written when it is. `sequence` is the last
    /// transaction's number, `head` where the next one would begin.
    pub(crate) fn set_empty(&mut self, head: u32, sequence: Tid) -> Result<()> {
        if !self.needs_recovery() {
            return Ok(());
        }
        let mut next = JournalSuperblock { start: None, sequence, head, ..self.superblock.clone() };
        next.features.incompat.remove(JournalIncompat::FAST_COMMIT);
        self.put_superblock(next)
    }

    /// Leaves a negative errno for whoever opens the volume next, if that can be written. Not in an
    /// empty log: nothing was changed then.
    pub(crate) fn put_errno(&mut self, errno: i32) {
        if self.needs_recovery() && self.superblock.errno == 0 {
            let next = JournalSuperblock { errno, ..self.superblock.clone() };
            // Errors were what led here; there is nobody left to tell of another.
            let _ = self.put_superblock(next);
        }
    }

    /// Where the first transaction goes while the log is empty.
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

    /// The cyclic part of the log: first block, one past the last.
    pub(crate) fn cycle(&self) -> Cycle {
        let end = self.superblock.log_end().expect("open has checked the log's end");
        Cycle { first: self.superblock.first, end }
    }

    /// The place in the log as errors name it: the block on the device.
    pub(crate) fn site(&self, block: u32) -> Site {
        match self.map.locate(block) {
            Some((at, _)) => Site::of_block(self.map.block_size.block_at(at)),
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

    /// Reads log block `block`: of several copies one that `is_right`; whether there was one.
    pub(crate) fn read_right(
        &self,
        block: u32,
        bytes: &mut [u8],
        is_right: &dyn Fn(&[u8]) -> bool,
    ) -> Result<bool> {
        self.device.read_verified(self.place(block)?, bytes, is_right)
    }

    /// Reads the log blocks from `first` on that fill `bytes`; they must not pass the log's end.
    pub(crate) fn read(&self, first: u32, bytes: &mut [u8]) -> Result<()> {
        let shift = self.map.block_size.log2();
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

/// The part of the log that is written round and round.
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
