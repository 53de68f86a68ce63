//! Writes into the cache. The cost of preparation depends on the write, not on the folio's size.
//!
//! ```text
//!          from                 to
//!   │┄┄┄┄│┄┄█│████│████│████│█┄┄┄│┄┄┄┄│      blocks of a folio; █ bytes that the write covers
//!          ▲                  ▲
//!          edge blocks that are not up to date are filled from the file before the copy (zeros
//!          past its end); blocks between need no preparation; blocks outside are not visited
//!
//!   short copy: a block that was not up to date and is not fully covered counts as not written
//! ```

use super::read::{part_of, to_end};
use super::{FileCache, Held};
use crate::interface::{Fill, Source, Use};
use crate::reclaim::touch;
use extant_base::narrow::{fits_usize, len_u32};
use extant_base::{Error, Result};
use std::ops::Range;
use std::sync::atomic::Ordering::Acquire;

/// Maximum number of folios that one overwrite holds at once.
const FOLIOS: usize = 16;
/// Maximum size, in bytes, of a folio that is made larger than the write itself.
const GROWTH: u64 = 64 << 10;
/// How often an overwrite starts again because another thread held one of its folios.
const ATTEMPTS: usize = 8;
/// Maximum file length in bytes; offset arithmetic below it cannot overflow.
pub(super) const LONGEST: u64 = 1 << 62;

impl FileCache {
    /// Overwrites bytes that are in the cache, all or nothing. Conditions: every block touched is
    /// up to date and backed, the end does not pass the end of file, `may` (called under the folio
    /// locks) returns true, and there are at most 16 folios. Returns the number of bytes written:
    /// all of them, fewer after a short copy, or 0 if a condition fails. After 0 nothing has
    /// changed and the caller takes the slow path.
    pub fn overwrite_hit(
        &self,
        offset: u64,
        source: &mut dyn Source,
        how: Use,
        may: &dyn Fn() -> bool,
    ) -> usize {
        let len = source.len();
        let Some(end) = offset.checked_add(len as u64) else { return 0 };
        if len == 0 || end > self.len() {
            return 0;
        }
        let Some(number) = self.find(offset) else { return 0 };
        let Some(mut held) = self.hold(number, offset) else { return 0 };
        if end > held.folio.end() {
            return self.overwrite_several(held, offset..end, source, how, may);
        }
        let part = part_of(&held.folio, offset, len);
        if !can_overwrite(&held, &part) || !self.may_overwrite(end, may) {
            return 0;
        }
        self.overwrite_part(&mut held, part, source, how)
    }

    /// [`FileCache::overwrite_hit`] across several folios. Holds all of them before it changes a
    /// byte.
    fn overwrite_several(
        &self,
        first: Held<'_>,
        range: Range<u64>,
        source: &mut dyn Source,
        how: Use,
        may: &dyn Fn() -> bool,
    ) -> usize {
        let mut start = Some(first);
        for _ in 0..ATTEMPTS {
            let Some(first) = start.take() else { return 0 };
            let mut all = [const { None }; FOLIOS];
            match self.hold_all(first, &range, &mut all) {
                Hold::All => {
                    let mut parts = all.iter().flatten();
                    let can_overwrite_all = parts.all(|(held, part)| can_overwrite(held, part));
                    if !can_overwrite_all || !self.may_overwrite(range.end, may) {
                        return 0;
                    }
                    let mut done = 0;
                    for (held, part) in all.iter_mut().flatten() {
                        let n = self.overwrite_part(held, part.clone(), source, how);
                        done += n;
                        if n < part.len() {
                            break;
                        }
                    }
                    return done;
                }
                Hold::Miss => return 0,
                Hold::Busy(number, at) => {
                    // Wait with no folio held, so no cycle of waiting threads can form.
                    all.fill_with(|| None);
                    drop(self.hold(number, at));
                }
            }
            start = self.find(range.start).and_then(|number| self.hold(number, range.start));
        }
        0
    }

    /// Locks the folios of `range` after the first one, in order, by try-lock.
    fn hold_all<'a>(
        &'a self,
        first: Held<'a>,
        range: &Range<u64>,
        all: &mut [Option<(Held<'a>, Range<usize>)>; FOLIOS],
    ) -> Hold {
        let (mut next, mut held) = (range.start, first);
        for place in all {
            let part = part_of(&held.folio, next, to_end(next, range.end));
            next = held.folio.end();
            *place = Some((held, part));
            if next >= range.end {
                return Hold::All;
            }
            let found = self.find(next).and_then(|n| Some((n, self.shared.slots.get(n)?)));
            let Some((number, slot)) = found else { return Hold::Miss };
            let Some(folio) = slot.folio.try_write_second() else {
                return Hold::Busy(number, next);
            };
            if !folio.holds(self.id, next) {
                return Hold::Miss;
            }
            held = Held { number, slot, folio };
        }
        Hold::Miss
    }

    /// Checked under the folio locks. A thread that shortens the file, or disables hits, does so
    /// before it takes these locks: either this check sees the change, or that thread sees the
    /// overwrite.
    #[inline]
    fn may_overwrite(&self, end: u64, may: &dyn Fn() -> bool) -> bool {
        end <= self.len() && self.hits.load(Acquire) && may()
    }

    /// Overwrites bytes of a folio that are up to date and backed.
    #[inline]
    fn overwrite_part(
        &self,
        held: &mut Held<'_>,
        part: Range<usize>,
        source: &mut dyn Source,
        how: Use,
    ) -> usize {
        let n = source.copy_to(&mut held.folio.bytes_mut()[part.clone()]).min(part.len());
        let written = part.start..part.start + n;
        self.used(held, how);
        touch(held.slot, len_u32(written.start), len_u32(written.end));
        self.make_dirty(held, written);
        n
    }

    /// Writes bytes on the slow path. The caller holds the inode lock exclusively, and every block
    /// of the range is allocated or reserved. Bytes may lie past the end of file; the length does
    /// not change. Returns the number of bytes written; the number is short only after a short
    /// copy, or after an error past the first folio.
    ///
    /// # Errors
    /// `FileTooLarge`; `NoMemory`; those of `fill` for an edge block of the first folio.
    pub fn write(
        &self,
        offset: u64,
        source: &mut dyn Source,
        how: Use,
        fill: &dyn Fill,
    ) -> Result<usize> {
        let end = offset.checked_add(source.len() as u64).filter(|end| *end <= LONGEST);
        let end = end.ok_or(Error::FileTooLarge)?;
        let mut at = offset;
        while at < end {
            match self.write_piece(at, end, source, how, fill) {
                Ok((n, whole)) => {
                    at += n as u64;
                    if !whole {
                        break;
                    }
                }
                Err(error) if at == offset => return Err(error),
                Err(_) => break,
            }
        }
        Ok(fits_usize(at - offset))
    }

    /// Writes the part of `at..end` that lies in one folio. Returns the number of bytes, and
    /// whether the source gave all of them.
    fn write_piece(
        &self,
        at: u64,
        end: u64,
        source: &mut dyn Source,
        how: Use,
        fill: &dyn Fill,
    ) -> Result<(usize, bool)> {
        // Small appends get folios that grow with the file.
        let growth = if at >= self.len() { at.min(GROWTH) } else { 0 };
        let (mut held, _) = self.hold_or_make(at, end.max(at + growth), how)?;
        let part = part_of(&held.folio, at, to_end(at, end));
        let blocks = held.folio.touched(part.start, part.end);
        if !held.folio.is_up_to_date(blocks.clone()) {
            for block in [blocks.start, blocks.end - 1] {
                if let Err(error) = self.prepare(&mut held, block, &part, fill) {
                    self.drop_if_empty(held);
                    return Err(error);
                }
            }
        }
        let folio = &mut *held.folio;
        let copied = source.copy_to(&mut folio.bytes_mut()[part.clone()]).min(part.len());
        let mut done = copied;
        if copied < part.len() {
            let cut = folio.touched(part.start + copied, part.start + copied + 1);
            if !folio.is_up_to_date(cut.clone()) {
                done = folio.bytes_of(cut).start.saturating_sub(part.start).min(copied);
            }
        }
        let written = part.start..part.start + done;
        if done > 0 {
            let blocks = folio.touched(written.start, written.end);
            folio.set_up_to_date(blocks.clone());
            folio.set_backed(blocks);
            touch(held.slot, len_u32(written.start), len_u32(written.end));
            self.make_dirty(&mut held, written);
        } else {
            self.drop_if_empty(held);
        }
        Ok((done, copied == part.len()))
    }

    /// Prepares a block that `part` covers partly: the uncovered rest gets the file's bytes.
    fn prepare(
        &self,
        held: &mut Held<'_>,
        block: u32,
        part: &Range<usize>,
        fill: &dyn Fill,
    ) -> Result<()> {
        let folio = &mut *held.folio;
        let bytes = folio.bytes_of(block..block + 1);
        let covered = part.start <= bytes.start && part.end >= bytes.end;
        if covered || folio.is_up_to_date(block..block + 1) {
            return Ok(());
        }
        let (start, len) = (folio.start(), self.len());
        if start + bytes.start as u64 >= len {
            folio.zero(block);
            return Ok(());
        }
        if part.start <= bytes.start && start + part.end as u64 >= len {
            // The write covers the block up to the end of file, so nothing needs to be read. The
            // block becomes up to date only after a full copy.
            folio.bytes_mut()[part.end..bytes.end].fill(0);
            return Ok(());
        }
        folio.fill(block..block + 1, fill)
    }

    /// Makes the block that contains `offset` up to date and dirty. A later write uses this for the
    /// unaligned old end of file that it leaves inside the file. The caller holds the inode lock
    /// exclusively, and the block is allocated or reserved.
    ///
    /// # Errors
    /// `FileTooLarge`; `NoMemory`; those of `fill`.
    pub fn dirty_block(&self, offset: u64, fill: &dyn Fill) -> Result<()> {
        if offset >= LONGEST {
            return Err(Error::FileTooLarge);
        }
        // This does not count as an ordinary use: a marked folio stays marked, and a folio created
        // here leaves once it is clean.
        let (held, _) = self.hold_or_make(offset, offset + 1, Use::DropBehind)?;
        let part = part_of(&held.folio, offset, 1);
        let blocks = held.folio.touched(part.start, part.end);
        let mut held = self.filled(held, blocks.clone(), fill)?;
        held.folio.set_backed(blocks);
        self.make_dirty(&mut held, part);
        Ok(())
    }
}

/// Result of [`FileCache::hold_all`].
enum Hold {
    All,
    Miss,
    Busy(u32, u64),
}

#[inline]
fn can_overwrite(held: &Held<'_>, part: &Range<usize>) -> bool {
    let blocks = held.folio.touched(part.start, part.end);
    held.folio.is_up_to_date(blocks.clone()) && held.folio.is_backed(blocks)
}
