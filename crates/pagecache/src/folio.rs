//! One folio: a naturally aligned part of a file, with a state for each of its blocks.
//!
//! ```text
//!   up to date   the folio holds the file's bytes
//!   backed       a write needs no new space: the block is allocated or reserved
//!   dirty        changed since it was read or written
//!   writing      under write-back; also dirty when it changes meanwhile
//!
//!   dirty or writing ⊂ up to date
//! ```
//! A block that is not up to date holds arbitrary bytes, perhaps of another file. Nothing may be
//! copied from it.

use crate::bits::Bits;
use crate::frames::{Frame, PAGE_LOG2};
use crate::interface::Fill;
use extant_base::Result;
use extant_base::narrow::{fits_u32, len_u32};
use std::ops::Range;
use std::sync::Arc;

/// A set of blocks that is mostly full. While it is full, its bitmap is neither read nor written.
#[derive(Debug)]
struct DenseBits {
    bits: Bits,
    count: u32,
    blocks: u32,
}

impl DenseBits {
    fn none(blocks: u32) -> DenseBits {
        DenseBits { bits: Bits::none(blocks), count: 0, blocks }
    }

    fn all(&self, range: Range<u32>) -> bool {
        self.count == self.blocks || self.bits.all(range)
    }

    fn set(&mut self, range: Range<u32>) {
        if self.count < self.blocks {
            self.count += self.bits.set(range);
        }
    }

    fn clear(&mut self, range: Range<u32>) {
        self.count -= self.bits.clear(range);
    }

    /// The first run of `range` that is not in the set.
    fn missing(&self, range: Range<u32>) -> Option<Range<u32>> {
        match self.count == self.blocks {
            true => None,
            false => self.bits.run(range, false),
        }
    }
}

/// The content of a slot: a folio of a file of type `F`. A free slot has no file.
pub(crate) struct Folio<F> {
    pub file: Option<Arc<F>>,
    id: u64,
    page: u64,
    order: u32,
    block_log2: u32,
    frame: Option<Frame>,
    up_to_date: DenseBits,
    backed: DenseBits,
    dirty: Bits,
    dirty_count: u32,
    writing: Bits,
    writing_count: u32,
}

impl<F> Folio<F> {
    /// The content of a free slot.
    pub fn free() -> Folio<F> {
        Folio {
            file: None,
            id: 0,
            page: 0,
            order: 0,
            block_log2: PAGE_LOG2,
            frame: None,
            up_to_date: DenseBits::none(0),
            backed: DenseBits::none(0),
            dirty: Bits::none(0),
            dirty_count: 0,
            writing: Bits::none(0),
            writing_count: 0,
        }
    }

    /// A folio of `file` that starts at page `page`; no block is up to date.
    pub fn new(file: Arc<F>, id: u64, page: u64, order: u32, bits: u32, frame: Frame) -> Folio<F> {
        let blocks = 1 << (PAGE_LOG2 + order - bits);
        Folio {
            file: Some(file),
            id,
            page,
            order,
            block_log2: bits,
            frame: Some(frame),
            up_to_date: DenseBits::none(blocks),
            backed: DenseBits::none(blocks),
            dirty: Bits::none(blocks),
            dirty_count: 0,
            writing: Bits::none(blocks),
            writing_count: 0,
        }
    }

    /// Whether this folio belongs to file `id` and contains byte `offset`.
    #[inline]
    pub fn holds(&self, id: u64, offset: u64) -> bool {
        self.id == id
            && self.frame.is_some()
            && offset >> (PAGE_LOG2 + self.order) == self.page >> self.order
    }

    pub fn page(&self) -> u64 {
        self.page
    }

    pub fn order(&self) -> u32 {
        self.order
    }

    /// Byte offset of the folio in the file.
    #[inline]
    pub fn start(&self) -> u64 {
        self.page << PAGE_LOG2
    }

    /// Size in bytes.
    #[inline]
    pub fn size(&self) -> u64 {
        1 << (PAGE_LOG2 + self.order)
    }

    pub fn end(&self) -> u64 {
        self.start() + self.size()
    }

    /// Number of blocks.
    pub fn blocks(&self) -> u32 {
        1 << (PAGE_LOG2 + self.order - self.block_log2)
    }

    /// Block size in bytes.
    pub fn block_size(&self) -> u64 {
        1 << self.block_log2
    }

    /// The blocks that overlap the bytes `from..to` of the folio.
    #[inline]
    pub fn touched(&self, from: usize, to: usize) -> Range<u32> {
        let bits = self.block_log2;
        len_u32(from >> bits)..len_u32((to + (1 << bits) - 1) >> bits)
    }

    /// The byte range of `blocks` in the folio.
    pub fn bytes_of(&self, blocks: Range<u32>) -> Range<usize> {
        let bits = self.block_log2;
        (blocks.start as usize) << bits..(blocks.end as usize) << bits
    }

    /// All bytes of the folio. Bytes of blocks that are not up to date are meaningless.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.frame.as_deref().unwrap_or(&[])
    }

    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.frame.as_deref_mut().unwrap_or(&mut [])
    }

    #[inline]
    pub fn is_up_to_date(&self, blocks: Range<u32>) -> bool {
        self.up_to_date.all(blocks)
    }

    #[inline]
    pub fn is_backed(&self, blocks: Range<u32>) -> bool {
        self.backed.all(blocks)
    }

    /// Whether no block is up to date.
    pub fn is_empty(&self) -> bool {
        self.up_to_date.count == 0
    }

    pub fn set_up_to_date(&mut self, blocks: Range<u32>) {
        self.up_to_date.set(blocks);
    }

    pub fn set_backed(&mut self, blocks: Range<u32>) {
        self.backed.set(blocks);
    }

    /// Records that a write to `blocks` needs new space.
    pub fn clear_backed(&mut self, blocks: Range<u32>) {
        self.backed.clear(blocks);
    }

    /// The first run of blocks in `range` that are not up to date.
    pub fn missing(&self, range: Range<u32>) -> Option<Range<u32>> {
        self.up_to_date.missing(range)
    }

    pub fn is_dirty(&self, blocks: Range<u32>) -> bool {
        self.dirty.all(blocks)
    }

    /// Whether any of `blocks` is dirty or under write-back.
    pub fn is_busy(&self, blocks: Range<u32>) -> bool {
        self.dirty.any(blocks.clone()) || self.writing.any(blocks)
    }

    /// Marks blocks dirty; returns how many were not dirty before.
    pub fn set_dirty(&mut self, blocks: Range<u32>) -> u32 {
        let new = self.dirty.set(blocks);
        self.dirty_count += new;
        new
    }

    /// Number of dirty blocks.
    pub fn dirty_count(&self) -> u32 {
        self.dirty_count
    }

    /// Number of blocks under write-back.
    pub fn writing_count(&self) -> u32 {
        self.writing_count
    }

    /// The first run of dirty blocks in `range`.
    pub fn dirty_run(&self, range: Range<u32>) -> Option<Range<u32>> {
        self.dirty.run(range, true)
    }

    /// Moves the leading blocks of `blocks` from dirty to writing, up to the first block that is
    /// clean or already under write-back. Returns the blocks moved; the range may be empty.
    pub fn start_writeback(&mut self, blocks: Range<u32>) -> Range<u32> {
        let end = self.dirty.next(blocks.clone(), false).unwrap_or(blocks.end);
        let end = self.writing.next(blocks.start..end, true).unwrap_or(end);
        let taken = blocks.start..end;
        self.dirty_count -= self.dirty.clear(taken.clone());
        self.writing_count += self.writing.set(taken.clone());
        taken
    }

    /// Ends write-back of `blocks`, whether it succeeded or failed. Returns how many were still
    /// under write-back.
    pub fn end_writeback(&mut self, blocks: Range<u32>) -> u32 {
        let ended = self.writing.clear(blocks);
        self.writing_count -= ended;
        ended
    }

    /// Clears every state of `blocks`; returns how many were dirty and how many under write-back.
    pub fn discard(&mut self, blocks: Range<u32>) -> (u32, u32) {
        self.up_to_date.clear(blocks.clone());
        self.backed.clear(blocks.clone());
        let (dirty, writing) = (self.dirty.clear(blocks.clone()), self.writing.clear(blocks));
        self.dirty_count -= dirty;
        self.writing_count -= writing;
        (dirty, writing)
    }

    /// Frees the slot; returns the folio's frame and file.
    pub fn take_apart(&mut self) -> (Option<Frame>, Option<Arc<F>>) {
        let old = std::mem::replace(self, Folio::free());
        (old.frame, old.file)
    }

    /// Fills those of `blocks` that are not up to date.
    ///
    /// # Errors
    /// Those of [`Fill::fill`]; blocks filled before the error stay up to date.
    pub fn fill(&mut self, blocks: Range<u32>, fill: &dyn Fill) -> Result<()> {
        while let Some(run) = self.missing(blocks.clone()) {
            let (start, bits) = (self.start(), self.block_log2);
            let bytes = self.bytes_of(run.clone());
            let from = start + bytes.start as u64;
            let (Some(frame), backed) = (self.frame.as_deref_mut(), &mut self.backed) else {
                return Ok(());
            };
            let mut note = |range: Range<u64>| {
                // Only whole blocks inside the run count, whatever range the filler reports.
                let low = range.start.saturating_sub(from).div_ceil(1 << bits);
                let high = range.end.saturating_sub(from) >> bits;
                let low = run.start + fits_u32(low.min(u64::from(run.end - run.start)));
                let high = run.start + fits_u32(high.min(u64::from(run.end - run.start)));
                if low < high {
                    backed.set(low..high);
                }
            };
            fill.fill(from, &mut frame[bytes], &mut note)?;
            self.up_to_date.set(run);
        }
        Ok(())
    }

    /// Fills `block` with zeros and marks it up to date.
    pub fn zero(&mut self, block: u32) {
        let bytes = self.bytes_of(block..block + 1);
        self.bytes_mut()[bytes].fill(0);
        self.up_to_date.set(block..block + 1);
    }
}
