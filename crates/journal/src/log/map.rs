//! Where the blocks of a log lie.
//!
//! ```text
//!   journal inode's runs                    log blocks
//!   ┌───────────┐   ┌───────┐              ┌────┬───────────────────────────┬─────────┐
//!   │ 0 .. 4095 │ … │ 4096… │   ─LogMap─►  │ 0  │ 1 …                       │  blocks │
//!   └───────────┘   └───────┘              └────┴───────────────────────────┴─────────┘
//! ```

use extant_base::{BlockSize, ByteOffset, Result, Site, What};

/// A run of log blocks that are adjacent on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRun {
    /// The number of its first block in the log.
    pub first: u32,
    /// Blocks, at least 1.
    pub count: u32,
    /// Where its first block starts on the device.
    pub at: ByteOffset,
}

/// Where every block of a log lies on the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogMap {
    block_size: BlockSize,
    /// In log order, without gaps.
    runs: Vec<LogRun>,
    blocks: u32,
}

impl LogMap {
    /// The map of a log whose inode has these runs, in log order, from block 0 on and without gaps.
    ///
    /// # Errors
    /// `Corrupt(JournalInode)` for other runs, or when a run passes the last byte that 64 bits can
    /// name.
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
    ///
    /// # Errors
    /// As [`LogMap::new`].
    pub fn contiguous(block_size: BlockSize, at: ByteOffset, blocks: u32) -> Result<LogMap> {
        LogMap::new(block_size, vec![LogRun { first: 0, count: blocks, at }])
    }

    /// The size of the log's blocks.
    pub(crate) fn block_size(&self) -> BlockSize {
        self.block_size
    }

    /// Blocks in the log, its superblock counted.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// The runs, in log order.
    pub fn runs(&self) -> &[LogRun] {
        &self.runs
    }

    /// Where log block `block` starts, and how many blocks from it on are adjacent on the device;
    /// `None` beyond the log.
    pub fn locate(&self, block: u32) -> Option<(ByteOffset, u32)> {
        let run = self.runs[..self.runs.partition_point(|run| run.first <= block)].last()?;
        let inside = block - run.first;
        let left = run.count.checked_sub(inside).filter(|left| *left > 0)?;
        Some((ByteOffset(run.at.0 + (u64::from(inside) << self.block_size.log2())), left))
    }

    /// The blocks of the volume that a log on the volume occupies, ascending, as (first, one past
    /// last).
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
