//! Writing into the cache: preparation is bounded by the write, not by the folio.
//!
//! ```text
//!          from                 to
//!   │┄┄┄┄│┄┄█│████│████│████│█┄┄┄│┄┄┄┄│      blocks of a folio; █ what the write covers
//!          ▲                  ▲
//!          edges that are not up to date come from the file (zeros past its end) before the copy;
//!          blocks between need nothing; blocks outside are not looked at
//!
//!   short copy: a block that was not up to date and is not covered wholly counts as not written
//! ```

use super::read::{part_of, to_end};
use super::{FileCache, Held};
use crate::owner::{Fill, Source, Use};
use crate::reclaim::touch;
use extant_base::{Error, Result};
use std::ops::Range;
use std::sync::atomic::Ordering::Acquire;

/// Folios that one overwrite holds at once, at most.
const FOLIOS: usize = 16;
/// The largest folio, in bytes, that is made for more than what is written.
const GROWTH: u64 = 64 << 10;
/// How often an overwrite starts over because somebody held a folio of it.
const ROUNDS: usize = 8;
/// Where files end at the latest, so that no reckoning of places overflows.
pub(super) const LONGEST: u64 = 1 << 62;

impl FileCache {
    /// Overwrites bytes that are in the cache, all or nothing: every block that is touched is up
    /// to date and backed, the end is not past the file's, `may` (asked under the folios' locks)
    /// agrees, and there are at most 16 folios. Bytes done: all, fewer after a short copy, or 0:
    /// go the slow way, nothing was changed.
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

    /// [`FileCache::overwrite_hit`] of more than one folio: all are held before a byte changes.
    fn overwrite_several(
        &self,
        first: Held<'_>,
        range: Range<u64>,
        source: &mut dyn Source,
        how: Use,
        may: &dyn Fn() -> bool,
    ) -> usize {
        let mut start = Some(first);
        for _ in 0..ROUNDS {
            let Some(first) = start.take() else { return 0 };
            let mut all = [const { None }; FOLIOS];
            match self.hold_all(first, &range, &mut all) {
                Hold::All => {
                    let mut parts = all.iter().flatten();
                    let able = parts.all(|(held, part)| can_overwrite(held, part));
                    if !able || !self.may_overwrite(range.end, may) {
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
                    // Waited for with nothing held, so nobody can be waited for in a circle.
                    all.fill_with(|| None);
                    drop(self.hold(number, at));
                }
            }
            start = self.find(range.start).and_then(|number| self.hold(number, range.start));
        }
        0
    }

    /// Holds the folios of `range` after the first one, in order, without waiting.
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

    /// Asked under the folios' locks: whoever shortens the file, or hides it, and then takes these
    /// locks is seen here, or sees what is done here.
    #[inline]
    fn may_overwrite(&self, end: u64, may: &dyn Fn() -> bool) -> bool {
        end <= self.len() && self.hits.load(Acquire) && may()
    }

    /// Overwrites up to date, backed bytes of a folio.
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
        touch(held.slot, written.start as u32, written.end as u32);
        self.make_dirty(held, written);
        n
    }

    /// Writes bytes, the slow way. The caller holds the inode alone, and every block of the range
    /// is allocated or reserved. Bytes past the file's end are fine; its length stays. Bytes
    /// written: fewer than the source has only after a short copy, or an error after the first
    /// folio.
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
        Ok((at - offset) as usize)
    }

    /// Writes what falls into the folio around `at`: bytes, and whether the source gave all.
    fn write_piece(
        &self,
        at: u64,
        end: u64,
        source: &mut dyn Source,
        how: Use,
        fill: &dyn Fill,
    ) -> Result<(usize, bool)> {
        // Who appends in small pieces gets folios that grow with the file.
        let growth = if at >= self.len() { at.min(GROWTH) } else { 0 };
        let (mut held, _) = self.hold_or_make(at, end.max(at + growth), how)?;
        let part = part_of(&held.folio, at, to_end(at, end));
        let blocks = held.folio.touched(part.start, part.end);
        if !held.folio.is_up_to_date(blocks.clone()) {
            for block in [blocks.start, blocks.end - 1] {
                if let Err(error) = self.prepare(&mut held, block, &part, fill) {
                    self.leave_empty(held);
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
            touch(held.slot, written.start as u32, written.end as u32);
            self.make_dirty(&mut held, written);
        } else {
            self.leave_empty(held);
        }
        Ok((done, copied == part.len()))
    }

    /// Makes a block that `part` covers partly ready for it: the rest of it is the file's bytes.
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
            // Up to the file's end all is covered, so nothing needs to be read. The block is up to
            // date only when the copy was whole.
            folio.bytes_mut()[part.end..bytes.end].fill(0);
            return Ok(());
        }
        folio.fill(block..block + 1, fill)
    }

    /// Makes the block around `offset` up to date and dirty: an unaligned old end of file that a
    /// later write leaves behind. The caller holds the inode alone, and the block is allocated or
    /// reserved.
    pub fn dirty_block(&self, offset: u64, fill: &dyn Fill) -> Result<()> {
        if offset >= LONGEST {
            return Err(Error::FileTooLarge);
        }
        // Not a use: a marked folio stays marked, and a folio that is made leaves once clean.
        let (held, _) = self.hold_or_make(offset, offset + 1, Use::DropBehind)?;
        let part = part_of(&held.folio, offset, 1);
        let blocks = held.folio.touched(part.start, part.end);
        let mut held = self.filled(held, blocks.clone(), fill)?;
        held.folio.set_backed(blocks);
        self.make_dirty(&mut held, part);
        Ok(())
    }
}

/// What [`FileCache::hold_all`] got.
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
