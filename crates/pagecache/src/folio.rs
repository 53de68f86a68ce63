//! One folio: a naturally aligned piece of a file, and what is known of each of its blocks.
//!
//! ```text
//!   up to date   its bytes are the file's; while all are, the bits are not looked at
//!   backed       a write needs no space from the volume: allocated or reserved
//!   dirty        changed since it was read or written
//!   writing      on its way to the device; dirty again when it is changed meanwhile
//!
//!   dirty or writing ⊂ up to date
//! ```
//! A block that is not up to date holds bytes of anybody: nothing may be copied from it.

use crate::bits::Bits;
use crate::file::FileCache;
use crate::frames::{Frame, PAGE_LOG2};
use crate::owner::Fill;
use extant_base::Result;
use std::ops::Range;
use std::sync::Arc;

/// A set of blocks that is mostly full: no bit is written while it is.
#[derive(Debug)]
struct Known {
    bits: Bits,
    count: u32,
    blocks: u32,
}

impl Known {
    fn none(blocks: u32) -> Known {
        Known { bits: Bits::none(blocks), count: 0, blocks }
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

    /// The first run of `range` that is not in.
    fn missing(&self, range: Range<u32>) -> Option<Range<u32>> {
        match self.count == self.blocks {
            true => None,
            false => self.bits.run(range, false),
        }
    }
}

/// The content of a slot. A free slot has no file.
pub(crate) struct Folio {
    pub file: Option<Arc<FileCache>>,
    id: u64,
    page: u64,
    order: u32,
    block_log2: u32,
    frame: Option<Frame>,
    up_to_date: Known,
    backed: Known,
    dirty: Bits,
    dirty_count: u32,
    writing: Bits,
    writing_count: u32,
}

impl Folio {
    /// What a slot holds while it is free.
    pub fn free() -> Folio {
        Folio {
            file: None,
            id: 0,
            page: 0,
            order: 0,
            block_log2: PAGE_LOG2,
            frame: None,
            up_to_date: Known::none(0),
            backed: Known::none(0),
            dirty: Bits::none(0),
            dirty_count: 0,
            writing: Bits::none(0),
            writing_count: 0,
        }
    }

    /// A folio of `file` from page `page` on with nothing in it yet.
    pub fn new(
        file: Arc<FileCache>,
        id: u64,
        page: u64,
        order: u32,
        bits: u32,
        frame: Frame,
    ) -> Folio {
        let blocks = 1 << (PAGE_LOG2 + order - bits);
        Folio {
            file: Some(file),
            id,
            page,
            order,
            block_log2: bits,
            frame: Some(frame),
            up_to_date: Known::none(blocks),
            backed: Known::none(blocks),
            dirty: Bits::none(blocks),
            dirty_count: 0,
            writing: Bits::none(blocks),
            writing_count: 0,
        }
    }

    /// Whether this is the folio of file `id` that holds byte `offset`.
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

    /// Its first byte in the file.
    #[inline]
    pub fn start(&self) -> u64 {
        self.page << PAGE_LOG2
    }

    /// Bytes.
    #[inline]
    pub fn size(&self) -> u64 {
        1 << (PAGE_LOG2 + self.order)
    }

    pub fn end(&self) -> u64 {
        self.start() + self.size()
    }

    /// Blocks.
    pub fn blocks(&self) -> u32 {
        1 << (PAGE_LOG2 + self.order - self.block_log2)
    }

    /// Bytes of a block.
    pub fn block_size(&self) -> u64 {
        1 << self.block_log2
    }

    /// The blocks that the bytes `from..to` of the folio touch.
    #[inline]
    pub fn touched(&self, from: usize, to: usize) -> Range<u32> {
        let bits = self.block_log2;
        (from >> bits) as u32..((to + (1 << bits) - 1) >> bits) as u32
    }

    /// The bytes of `blocks` in the folio.
    pub fn bytes_of(&self, blocks: Range<u32>) -> Range<usize> {
        let bits = self.block_log2;
        (blocks.start as usize) << bits..(blocks.end as usize) << bits
    }

    /// All bytes, of which those of blocks that are not up to date mean nothing.
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

    /// A write over `blocks` needs space first.
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

    /// Whether any of `blocks` is dirty or on its way.
    pub fn is_busy(&self, blocks: Range<u32>) -> bool {
        self.dirty.any(blocks.clone()) || self.writing.any(blocks)
    }

    /// Marks blocks dirty; how many were not.
    pub fn set_dirty(&mut self, blocks: Range<u32>) -> u32 {
        let new = self.dirty.set(blocks);
        self.dirty_count += new;
        new
    }

    /// Dirty blocks.
    pub fn dirty_count(&self) -> u32 {
        self.dirty_count
    }

    /// Blocks on their way.
    pub fn writing_count(&self) -> u32 {
        self.writing_count
    }

    /// The first run of dirty blocks in `range`.
    pub fn dirty_run(&self, range: Range<u32>) -> Option<Range<u32>> {
        self.dirty.run(range, true)
    }

    /// The part of dirty `blocks` from their start on that is not on its way already starts its
    /// way now.
    pub fn take(&mut self, blocks: Range<u32>) -> Range<u32> {
        let end = self.dirty.next(blocks.clone(), false).unwrap_or(blocks.end);
        let end = self.writing.next(blocks.start..end, true).unwrap_or(end);
        let taken = blocks.start..end;
        self.dirty_count -= self.dirty.clear(taken.clone());
        self.writing_count += self.writing.set(taken.clone());
        taken
    }

    /// `blocks` have arrived, or will not; how many were on their way still.
    pub fn land(&mut self, blocks: Range<u32>) -> u32 {
        let landed = self.writing.clear(blocks);
        self.writing_count -= landed;
        landed
    }

    /// `blocks` are no longer known; how many were dirty, and how many on their way.
    pub fn discard(&mut self, blocks: Range<u32>) -> (u32, u32) {
        self.up_to_date.clear(blocks.clone());
        self.backed.clear(blocks.clone());
        let (dirty, writing) = (self.dirty.clear(blocks.clone()), self.writing.clear(blocks));
        self.dirty_count -= dirty;
        self.writing_count -= writing;
        (dirty, writing)
    }

    /// The memory, and who the folio belonged to; the slot is free then.
    pub fn take_apart(&mut self) -> (Option<Frame>, Option<Arc<FileCache>>) {
        let old = std::mem::replace(self, Folio::free());
        (old.frame, old.file)
    }

    /// Fills those of `blocks` that are not up to date.
    pub fn fill(&mut self, blocks: Range<u32>, fill: &dyn Fill) -> Result<()> {
        while let Some(run) = self.missing(blocks.clone()) {
            let (start, bits) = (self.start(), self.block_log2);
            let bytes = self.bytes_of(run.clone());
            let from = start + bytes.start as u64;
            let (Some(frame), backed) = (self.frame.as_deref_mut(), &mut self.backed) else {
                return Ok(());
            };
            let mut note = |range: Range<u64>| {
                // Whole blocks inside the run only, whatever is said.
                let low = range.start.saturating_sub(from).div_ceil(1 << bits);
                let high = range.end.saturating_sub(from) >> bits;
                let low = run.start + low.min(u64::from(run.end - run.start)) as u32;
                let high = run.start + high.min(u64::from(run.end - run.start)) as u32;
                if low < high {
                    backed.set(low..high);
                }
            };
            fill.fill(from, &mut frame[bytes], &mut note)?;
            self.up_to_date.set(run);
        }
        Ok(())
    }

    /// Makes `block` zeros, up to date.
    pub fn zero(&mut self, block: u32) {
        let bytes = self.bytes_of(block..block + 1);
        self.bytes_mut()[bytes].fill(0);
        self.up_to_date.set(block..block + 1);
    }
}
