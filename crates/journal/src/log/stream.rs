//! Writes to the log, gathered into large aligned writes.
//!
//! ```text
//!   buffer   │revokes│descriptor│copy│copy│copy│descriptor│copy│ …
//!            └──────────────── one write ──────────────────────┘ unless the log's run or the
//!                                                                cycle ends inside
//! ```

use crate::log::map::LogMap;
use crate::log::open_log::{Cycle, Log};
use extant_base::{Error, Result, Site, What};
use extant_blockdev::{AlignedBuf, BlockDevice};
use extant_ondisk::jbd2::LogFormat;
use std::sync::Arc;

/// Most bytes of one write, unless [`WRITE_BLOCKS_MIN`] blocks are more.
const WRITE_BYTES: usize = 1 << 20;
/// Blocks that one write can hold at least.
const WRITE_BLOCKS_MIN: usize = 64;

/// The log's place and format: what does not change while it is written.
pub(crate) struct LogArea {
    device: Arc<dyn BlockDevice>,
    map: LogMap,
    pub(crate) cycle: Cycle,
    pub(crate) format: LogFormat,
}

impl LogArea {
    pub(crate) fn of(log: &Log) -> LogArea {
        LogArea {
            device: Arc::clone(log.device()),
            map: log.map().clone(),
            cycle: log.cycle(),
            format: log.format(),
        }
    }

    pub(crate) fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// Blocks that one write of a [`LogStream`] can hold.
    fn write_blocks(&self) -> usize {
        (WRITE_BYTES / self.format.block_size.bytes()).max(WRITE_BLOCKS_MIN)
    }

    /// Copies after one descriptor. The descriptor and its copies fit one write.
    pub(crate) fn copies_per_descriptor(&self) -> usize {
        self.format.blocks_per_descriptor().min(self.write_blocks() - 1)
    }

    /// Log blocks of a transaction that changes `blocks` and revokes `revokes` blocks.
    pub(crate) fn needed(&self, blocks: u64, revokes: u64) -> u64 {
        let descriptors = blocks.div_ceil(self.copies_per_descriptor() as u64);
        let revoke_blocks = revokes.div_ceil(self.format.revokes_per_block() as u64);
        let commit = 1;
        blocks.saturating_add(descriptors).saturating_add(revoke_blocks).saturating_add(commit)
    }

    /// Writes `bytes`, whole blocks, to the log from block `at` on.
    fn write(&self, mut at: u32, mut bytes: &[u8]) -> Result<()> {
        let shift = self.format.block_size.log2();
        while !bytes.is_empty() {
            let bad = || Error::Corrupt { what: What::JournalInode, at: Site::NOWHERE };
            let (place, run) = self.map.locate(at).ok_or_else(bad)?;
            let blocks = run.min(self.cycle.end - at).min((bytes.len() >> shift) as u32);
            let (now, later) = bytes.split_at((blocks as usize) << shift);
            self.device.write_at(place, now)?;
            at = self.cycle.after(at, blocks);
            bytes = later;
        }
        Ok(())
    }

    /// Writes log block `at`, durable on return.
    pub(crate) fn write_fua(&self, at: u32, block: &[u8]) -> Result<()> {
        let bad = || Error::Corrupt { what: What::JournalInode, at: Site::NOWHERE };
        let (place, _) = self.map.locate(at).ok_or_else(bad)?;
        self.device.write_fua(place, block)
    }
}

/// Blocks that are gathered for one write to the log.
pub(crate) struct LogStream<'a> {
    area: &'a LogArea,
    /// Memory for one write. It grows to that size as a transaction needs it.
    buffer: &'a mut AlignedBuf,
    /// The log block that the buffer's first block goes to.
    first: u32,
    /// Bytes of the buffer that are in use.
    used: usize,
    /// Blocks handed out so far.
    pub(crate) blocks: u32,
}

impl<'a> LogStream<'a> {
    /// Begins to write at log block `first`.
    pub(crate) fn new(area: &'a LogArea, buffer: &'a mut AlignedBuf, first: u32) -> Self {
        LogStream { area, buffer, first, used: 0, blocks: 0 }
    }

    /// The next `count` blocks of the log, for the caller to fill; they hold old bytes. At most a
    /// descriptor and its copies.
    pub(crate) fn take(&mut self, count: usize) -> Result<&mut [u8]> {
        let size = self.area.format.block_size.bytes();
        let whole = self.area.write_blocks() * size;
        let bytes = count * size;
        if self.used + bytes > whole {
            self.write_out()?;
        }
        if self.used + bytes > self.buffer.len() {
            let mut larger =
                AlignedBuf::zeroed((self.used + bytes).next_power_of_two().min(whole).max(bytes));
            larger[..self.used].copy_from_slice(&self.buffer[..self.used]);
            *self.buffer = larger;
        }
        let start = self.used;
        self.used += bytes;
        self.blocks += count as u32;
        Ok(&mut self.buffer[start..start + bytes])
    }

    /// Writes the blocks that were handed out. Returns the log block after them.
    pub(crate) fn write_out(&mut self) -> Result<u32> {
        self.area.write(self.first, &self.buffer[..self.used])?;
        let blocks = (self.used >> self.area.format.block_size.log2()) as u32;
        self.first = self.area.cycle.after(self.first, blocks);
        self.used = 0;
        Ok(self.first)
    }
}
