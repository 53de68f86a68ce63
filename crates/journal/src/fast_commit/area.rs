//! Fast commits as blocks after the log.
//!
//! ```text
//!   k = 0                       1                     2                    3
//!   ┌──────┬─────────────────┬─────────────────────┬────────────────────┬──────────────
//!   │HEAD T│ records, TAIL   │ records │ TAIL      │ records │ PAD      │ records │ TAIL
//!   └──────┴─────────────────┴─────────────────────┴────────────────────┴──────────────
//!    └ first sector last                             └ plain ── flush ── └ forced
//!
//!   later ones     all blocks but the last ─► flush, if anything was written since the last flush
//!                  ─► last block
//!   the first one  all but its first sector ─► flush, likewise ─► first sector
//! ```
//!
//! Rule C2: a HEAD of the current transaction is never on the device without the rest of its fast
//! commit, because Linux and e2fsck report that as damage. A sector is whole or absent, so the
//! first sector, which holds HEAD, is written last. A full commit makes HEAD stale, and zeros
//! replace it: e2fsck rejects the whole log when it finds a HEAD of an older transaction.

use crate::fast_commit::sink::Sink;
use crate::log::map::LogMap;
use crate::log::open_log::Log;
use crate::log::watched::Watched;
use crate::log::watched::is_same_device;
use extant_base::{ByteOffset, Error, Result, Site, Tid, What};
use extant_blockdev::{AlignedBuf, BlockDevice};
use extant_ondisk::fast_commit::{
    BlockWriter, FcSum, HEAD_LEN, HEAD_VALUE_LEN, Record, TAIL_VALUE_LEN, whole_records,
};
use std::ops::Range;
use std::sync::Arc;

/// Bytes that a power cut leaves whole.
const SECTOR: usize = 512;

/// The fast-commit area of a log.
pub(crate) struct BlockArea {
    volume: Arc<Watched>,
    device: Arc<dyn BlockDevice>,
    map: LogMap,
    area: Range<u32>,
    block_bytes: usize,
    /// The next block of the area to write.
    next: usize,
    buffer: AlignedBuf,
    /// The first block may hold the HEAD of an older transaction.
    stale: bool,
    /// The first block was overwritten, and no flush has followed.
    wiped: bool,
}

impl BlockArea {
    /// The area of `log`; `None` when it has none. File data is written to `volume`.
    pub(crate) fn of(log: &Log, volume: &Arc<Watched>) -> Option<BlockArea> {
        let mut area = log.superblock().fast_commit_area();
        // Linux reads until a block is not part of the epoch, and rejects the log if the area ends
        // before such a block. So the last block is never written.
        area.end = area.end.saturating_sub(1).max(area.start);
        (!area.is_empty()).then(|| BlockArea {
            volume: Arc::clone(volume),
            device: Arc::clone(log.device()),
            map: log.map().clone(),
            area,
            block_bytes: log.superblock().block_size.bytes(),
            next: 0,
            buffer: AlignedBuf::zeroed(0),
            stale: true,
            wiped: false,
        })
    }

    fn blocks_left(&self) -> usize {
        self.area.len() - self.next
    }

    /// Block `nr` of the buffer.
    fn buffered(&mut self, nr: usize) -> &mut [u8] {
        let end = (nr + 1) * self.block_bytes;
        if end > self.buffer.len() {
            let mut larger = AlignedBuf::zeroed(end.next_power_of_two());
            larger[..self.buffer.len()].copy_from_slice(&self.buffer);
            self.buffer = larger;
        }
        &mut self.buffer[end - self.block_bytes..end]
    }

    /// Lays records out in the buffer. Returns how many blocks they take, or `None` when they do
    /// not fit.
    fn lay_out(&mut self, tid: Tid, records: &[u8]) -> Option<usize> {
        let mut records = whole_records(records).peekable();
        let mut sum = FcSum::default();
        let needs_head = self.next == 0;
        for nr in 0..self.blocks_left() {
            let mut writer = BlockWriter::new(self.buffered(nr), sum);
            if needs_head && nr == 0 {
                writer.record(&Record::Head { tid });
            }
            while records.next_if(|record| writer.push(record)).is_some() {}
            sum = match records.peek() {
                // The record is larger than a block.
                Some(_) if writer.is_empty() => return None,
                Some(_) => writer.pad(),
                None => match writer.tail(tid) {
                    Ok(()) => return Some(nr + 1),
                    Err(sum) => sum,
                },
            };
        }
        None
    }

    /// The range of the buffer that is written last, because it makes the rest valid. `live` is the
    /// number of bytes in use if `blocks` is 1.
    fn seal(&self, blocks: usize, live: usize) -> Range<usize> {
        let all = blocks * self.block_bytes;
        match self.next {
            0 if blocks == 1 && live <= SECTOR => 0..all,
            0 => 0..SECTOR,
            _ => all - self.block_bytes..all,
        }
    }

    /// Where byte `offset`, counted from the next block, lies on the device, and how many bytes are
    /// adjacent there.
    fn place(&self, offset: usize) -> Result<(ByteOffset, usize)> {
        let block = self.area.start + (self.next + offset / self.block_bytes) as u32;
        let bad = || Error::Corrupt { what: What::JournalInode, at: Site::NOWHERE };
        let (at, run) = self.map.locate(block).ok_or_else(bad)?;
        let inside = offset % self.block_bytes;
        Ok((ByteOffset(at.0 + inside as u64), run as usize * self.block_bytes - inside))
    }

    /// Writes a range of the buffer, without a flush.
    fn write(&self, mut range: Range<usize>) -> Result<()> {
        while !range.is_empty() {
            let (at, run) = self.place(range.start)?;
            let end = range.end.min(range.start.saturating_add(run));
            self.device.write_at(at, &self.buffer[range.start..end])?;
            range.start = end;
        }
        Ok(())
    }

    /// Makes earlier writes to both devices durable; `wrote` says whether the log's device had any.
    fn flush(&self, wrote: bool) -> Result<()> {
        let one = is_same_device(&self.device, &(Arc::clone(&self.volume) as Arc<dyn BlockDevice>));
        if !self.volume.is_flushed(self.volume.mark()) {
            self.volume.flush()?;
        }
        if wrote && !one { self.device.flush() } else { Ok(()) }
    }
}

impl Sink for BlockArea {
    fn capacity(&self) -> usize {
        (self.blocks_left() * self.block_bytes).saturating_sub(HEAD_LEN + TAIL_VALUE_LEN)
    }

    fn put(&mut self, tid: Tid, records: &[u8]) -> Result<bool> {
        let Some(blocks) = self.lay_out(tid, records) else { return Ok(false) };
        let head = HEAD_LEN + HEAD_VALUE_LEN;
        let seal = self.seal(blocks, head + records.len() + HEAD_LEN + TAIL_VALUE_LEN);
        let all = blocks * self.block_bytes;
        self.write(0..seal.start)?;
        self.write(seal.end..all)?;
        let wiped = std::mem::take(&mut self.wiped);
        self.flush(wiped || seal.len() < all)?;
        let (at, _) = self.place(seal.start)?;
        self.device.write_fua(at, &self.buffer[seal])?;
        self.next += blocks;
        self.stale = true;
        Ok(true)
    }

    fn new_epoch(&mut self) -> Result<()> {
        self.next = 0;
        if !std::mem::take(&mut self.stale) {
            return Ok(());
        }
        // Zeros need not be durable before the next flush, which comes before the next HEAD.
        self.wiped = true;
        self.buffered(0).fill(0);
        self.write(0..self.block_bytes)
    }
}
