//! Reads through the cache.
//!
//! ```text
//!   read_hit   folio in the cache and up to date: copy under its shared lock, next folio
//!              a miss, or a folio that triggers read-ahead: stop
//!   read       miss: create a folio as large as the window and fill it under its exclusive lock,
//!              so that other readers of the same bytes wait for one device read; copy
//! ```

use super::{FileCache, Folio, Held, Slot};
use crate::interface::{Fill, Use};
use crate::readahead::{Plan, ReadStream};
use crate::reclaim::touch;
use extant_base::Result;
use extant_base::lock::WriteGuard;
use extant_base::narrow::{fits_usize, len_u32};
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

impl FileCache {
    /// Copies bytes from `offset` on that are in the cache, up to the first byte that is not or to
    /// the end of file. Returns the number of bytes. Takes folio locks only. It also stops where
    /// [`FileCache::read`] should start read-ahead.
    pub fn read_hit(&self, offset: u64, buf: &mut [u8], how: Use) -> usize {
        let end = offset.saturating_add(buf.len() as u64).min(self.len());
        if offset >= end || !self.hits.load(Relaxed) {
            return 0;
        }
        let mut at = offset;
        while at < end {
            let Some((number, slot, folio)) = self.hit(at) else { break };
            if slot.trigger.load(Relaxed) {
                break;
            }
            let to = fits_usize(end.min(folio.end()) - folio.start());
            let from = fits_usize(at - folio.start());
            let known = match folio.missing(folio.touched(from, to)) {
                Some(missing) => folio.bytes_of(missing).start.max(from),
                None => to,
            };
            let target = fits_usize(at - offset);
            buf[target..target + known - from].copy_from_slice(&folio.bytes()[from..known]);
            if how == Use::Keep {
                self.shared.unmark(number, slot, &folio);
            }
            touch(slot, len_u32(from), len_u32(known));
            at += (known - from) as u64;
            let finished = at == folio.end() || at == self.len();
            drop(folio);
            if finished && how == Use::DropBehind {
                self.drop_behind(number, slot, at);
            }
            if known < to {
                break;
            }
        }
        if at == end {
            self.shared.tally.hit();
        }
        fits_usize(at - offset)
    }

    /// Reads from `offset` on, up to the end of file. Bytes that are not in the cache come from
    /// `fill`. With a `stream` it reads ahead. Returns the number of bytes read; the number is
    /// short only when an error followed some bytes.
    ///
    /// # Errors
    /// Those of `fill`, when no byte was read; `NoMemory`.
    pub fn read(
        &self,
        offset: u64,
        buf: &mut [u8],
        how: Use,
        stream: Option<&ReadStream>,
        fill: &dyn Fill,
    ) -> Result<usize> {
        let len = self.len();
        let end = offset.saturating_add(buf.len() as u64).min(len);
        if offset >= end {
            return Ok(0);
        }
        let mut at = offset;
        let mut window: Option<u64> = None;
        let submit = |plan: Plan| {
            plan.requests.into_iter().for_each(|range| self.request_read_ahead(range, how));
            plan.now_to
        };
        while at < end {
            let seen = self.find(at).and_then(|number| self.shared.slots.get(number));
            let trigger = seen.is_some_and(|slot| {
                slot.trigger.load(Relaxed) && slot.trigger.swap(false, Relaxed)
            });
            match (stream, seen, window) {
                (Some(stream), _, _) if trigger => {
                    submit(stream.triggered(at, end - at, len));
                }
                (Some(stream), None, None) => {
                    window = Some(submit(stream.missed(at, end - at, len)));
                }
                (Some(stream), Some(_), None) => stream.passed(at, end - at),
                _ => {}
            }
            let to = &mut buf[fits_usize(at - offset)..fits_usize(end - offset)];
            match self.read_piece(at, to, window.unwrap_or(end).max(end), how, fill) {
                Ok(n) => at += n as u64,
                Err(error) if at == offset => return Err(error),
                Err(_) => break,
            }
        }
        if how == Use::DropBehind {
            self.shared.limit_marked();
        }
        Ok(fits_usize(at - offset))
    }

    /// Reads the bytes from `at` on that lie in one folio. A folio created here reaches to
    /// `window`.
    fn read_piece(
        &self,
        at: u64,
        to: &mut [u8],
        window: u64,
        how: Use,
        fill: &dyn Fill,
    ) -> Result<usize> {
        if let Some((number, slot, folio)) = self.hit(at) {
            let part = part_of(&folio, at, to.len());
            if folio.is_up_to_date(folio.touched(part.start, part.end)) {
                to[..part.len()].copy_from_slice(&folio.bytes()[part.clone()]);
                if how == Use::Keep {
                    self.shared.unmark(number, slot, &folio);
                }
                touch(slot, len_u32(part.start), len_u32(part.end));
                let end = at + part.len() as u64;
                let finished = end == folio.end() || end == self.len();
                drop(folio);
                if finished && how == Use::DropBehind {
                    self.drop_behind(number, slot, end);
                }
                return Ok(part.len());
            }
        }
        let _reading = self.shared.account.readers.begin();
        let (mut held, new) = self.hold_or_make(at, window, how)?;
        let part = part_of(&held.folio, at, to.len());
        let wanted = held.folio.touched(part.start, part.end);
        // Fill a new folio whole. If that fails, try the requested blocks alone.
        let whole = 0..held.folio.blocks();
        if !new || wanted == whole || held.folio.fill(whole, fill).is_err() {
            held = self.filled(held, wanted, fill)?;
        }
        to[..part.len()].copy_from_slice(&held.folio.bytes()[part.clone()]);
        touch(held.slot, len_u32(part.start), len_u32(part.end));
        let end = at + part.len() as u64;
        if how == Use::DropBehind && (end == held.folio.end() || end == self.len()) {
            self.drop_if_marked(held.number, held.slot, held.folio);
        }
        Ok(part.len())
    }

    /// Reads `range` into the cache: the work of the read-ahead thread. The folio at its start
    /// triggers the next read-ahead.
    ///
    /// # Errors
    /// Those of `fill`; `NoMemory`.
    pub fn populate(&self, range: Range<u64>, how: Use, fill: &dyn Fill) -> Result<()> {
        let end = range.end.min(self.len());
        let mut at = range.start;
        while at < end {
            let known = self.hit(at).and_then(|(_, slot, folio)| {
                let part = part_of(&folio, at, to_end(at, end));
                let whole = folio.is_up_to_date(folio.touched(part.start, part.end));
                whole.then(|| (slot, folio.end()))
            });
            let (slot, next) = match known {
                Some(known) => known,
                None => {
                    let _reading = self.shared.account.readers.begin();
                    let (mut held, _) = self.hold_or_make(at, end, how)?;
                    let part = part_of(&held.folio, at, to_end(at, end));
                    let wanted = held.folio.touched(part.start, part.end);
                    held = self.filled(held, wanted, fill)?;
                    self.shared.tally.read_ahead(part.len() as u64);
                    (held.slot, held.folio.end())
                }
            };
            if at == range.start {
                slot.trigger.store(true, Relaxed);
            }
            at = next;
        }
        if how == Use::DropBehind {
            self.shared.limit_marked();
        }
        Ok(())
    }

    /// Fills those of `blocks` that are not up to date. On an error, removes a folio that has no
    /// block up to date.
    pub(super) fn filled<'a>(
        &self,
        mut held: Held<'a>,
        blocks: Range<u32>,
        fill: &dyn Fill,
    ) -> Result<Held<'a>> {
        match held.folio.fill(blocks, fill) {
            Ok(()) => Ok(held),
            Err(error) => {
                self.drop_if_empty(held);
                Err(error)
            }
        }
    }

    /// Removes a folio that has no block up to date.
    pub(super) fn drop_if_empty(&self, held: Held<'_>) {
        if held.folio.is_empty() {
            self.shared.remove(held.number, held.slot, held.folio);
        }
    }

    /// Called when a drop-behind reader reaches the end of a folio. Removes the folio if it is
    /// clean and still marked, and no other thread holds its lock.
    fn drop_behind(&self, number: u32, slot: &Slot, end: u64) {
        if !slot.marked.load(Relaxed) {
            return;
        }
        if let Some(folio) = slot.folio.try_write_second()
            && folio.holds(self.id, end - 1)
        {
            self.drop_if_marked(number, slot, folio);
        }
    }

    /// Removes the folio if it is clean and marked.
    pub(super) fn drop_if_marked(&self, number: u32, slot: &Slot, folio: WriteGuard<'_, Folio>) {
        let busy = folio.dirty_count() + folio.writing_count() > 0;
        if slot.marked.load(Relaxed) && !busy {
            self.shared.remove(number, slot, folio);
        }
    }
}

/// The bytes of `folio` from byte `at` of the file on, at most `len`.
pub(super) fn part_of(folio: &Folio, at: u64, len: usize) -> Range<usize> {
    let from = fits_usize(at - folio.start());
    from..from + len.min(fits_usize(folio.size()) - from)
}

/// Number of bytes from `at` to `end`.
pub(super) fn to_end(at: u64, end: u64) -> usize {
    usize::try_from(end.saturating_sub(at)).unwrap_or(usize::MAX)
}
