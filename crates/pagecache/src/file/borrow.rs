//! Folios borrowed by embedders, like a memory map.

use super::read::{part_of, to_end};
use super::{FileCache, Folio, Held};
use crate::interface::{Fill, Use};
use crate::reclaim::touch;
use extant_base::lock::ReadGuard;
use extant_base::narrow::{fits_u32, fits_usize, len_u32};
use extant_base::{Error, Result};
use std::ops::{Deref, DerefMut, Range};

/// A folio created for a borrower ends at the next multiple of this many bytes.
const WINDOW: u64 = 64 << 10;

/// Bytes of one folio, to be read in place. It holds the folio's shared lock, so writers wait. A
/// thread that holds one makes no other call to the cache or the engine.
pub struct FolioRef<'a> {
    start: u64,
    folio: ReadGuard<'a, Folio>,
    part: Range<usize>,
}

impl std::fmt::Debug for FolioRef<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FolioRef")
            .field("start", &self.start)
            .field("len", &self.part.len())
            .finish_non_exhaustive()
    }
}

impl FolioRef<'_> {
    /// Byte offset of the first byte in the file.
    pub fn start(&self) -> u64 {
        self.start
    }
}

impl Deref for FolioRef<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.folio.bytes()[self.part.clone()]
    }
}

/// Bytes of one folio, to be changed in place. Dropping it marks them dirty. It holds the folio's
/// exclusive lock. A thread that holds one makes no other call to the cache or the engine.
pub struct FolioMut<'a> {
    start: u64,
    file: &'a FileCache,
    held: Held<'a>,
    part: Range<usize>,
}

impl std::fmt::Debug for FolioMut<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FolioMut")
            .field("start", &self.start)
            .field("len", &self.part.len())
            .finish_non_exhaustive()
    }
}

impl FolioMut<'_> {
    /// Byte offset of the first byte in the file.
    pub fn start(&self) -> u64 {
        self.start
    }
}

impl Deref for FolioMut<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.held.folio.bytes()[self.part.clone()]
    }
}

impl DerefMut for FolioMut<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.held.folio.bytes_mut()[self.part.clone()]
    }
}

impl Drop for FolioMut<'_> {
    fn drop(&mut self) {
        self.file.make_dirty(&mut self.held, self.part.clone());
    }
}

impl FileCache {
    /// Borrows the folio that contains `offset`, up to the end of file.
    ///
    /// # Errors
    /// `Invalid` when `offset` is at or past the end of file; the errors of `fill`.
    pub fn borrow(&self, offset: u64, how: Use, fill: &dyn Fill) -> Result<FolioRef<'_>> {
        loop {
            let len = self.len();
            if offset >= len {
                return Err(Error::Invalid("the borrowed offset is past the end of the file"));
            }
            if let Some((number, slot, folio)) = self.hit(offset) {
                let to = fits_usize(len.min(folio.end()) - folio.start());
                if folio.is_up_to_date(folio.touched(0, to)) {
                    if how == Use::Keep {
                        self.shared.unmark(number, slot, &folio);
                    }
                    let at = fits_u32(offset - folio.start());
                    touch(slot, at, at);
                    return Ok(FolioRef { start: folio.start(), folio, part: 0..to });
                }
            }
            let end = len.min((offset / WINDOW + 1).saturating_mul(WINDOW));
            let (held, _) = self.hold_or_make(offset, end, how)?;
            let blocks = 0..held.folio.blocks();
            self.filled(held, blocks, fill)?;
        }
    }

    /// Borrows `range` to change it. The range lies within one folio and before the end of file,
    /// and all of its blocks are allocated or reserved. The caller holds the inode lock
    /// exclusively, or otherwise ensures that the blocks stay allocated.
    ///
    /// # Errors
    /// `Invalid` when the range is empty, passes the end of file or spans several folios; the
    /// errors of `fill`.
    pub fn borrow_mut(&self, range: Range<u64>, fill: &dyn Fill) -> Result<FolioMut<'_>> {
        if range.is_empty() || range.end > self.len() {
            return Err(Error::Invalid("the borrowed range is empty or past the end of the file"));
        }
        let (held, _) = self.hold_or_make(range.start, range.end, Use::Keep)?;
        let part = part_of(&held.folio, range.start, to_end(range.start, range.end));
        if range.end > held.folio.end() {
            self.drop_if_empty(held);
            return Err(Error::Invalid("the borrowed range spans several folios"));
        }
        let blocks = held.folio.touched(part.start, part.end);
        let mut held = self.filled(held, blocks.clone(), fill)?;
        held.folio.set_backed(blocks);
        touch(held.slot, len_u32(part.start), len_u32(part.end));
        Ok(FolioMut { start: range.start, file: self, held, part })
    }
}
