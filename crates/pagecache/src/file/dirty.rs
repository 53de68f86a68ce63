//! Dirty bytes and their write-back.
//!
//! ```text
//!   make_dirty ──► dirty ── take_dirty ──► writing ── Taken::done ──► clean; marked folios leave
//!                    ▲                        │
//!                    └──── Taken dropped ─────┘
//!
//!   Taken   │ lent: a whole folio, ≥ 256 KiB, under its shared lock │ copied: everything else │
//! ```

use super::{FileCache, Folio, Held};
use crate::frames::{Frame, ORDERS, PAGE_LOG2};
use extant_base::lock::ReadGuard;
use extant_base::narrow::{fits_usize, len_u32};
use extant_base::{Error, Result};
use std::io::IoSlice;
use std::ops::Range;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

/// Fully dirty folios of at least this size are lent under their shared lock, not copied.
const LENT: u64 = 256 << 10;
const COUNT: u64 = u32::MAX as u64;

/// Dirty bytes under write-back, and the buffers that hold them. Dropping it before [`Taken::done`]
/// makes the bytes dirty again.
pub struct Taken<'a> {
    bytes: Vec<Bytes<'a>>,
    copies: Vec<Frame>,
    landing: Landing<'a>,
}

impl std::fmt::Debug for Taken<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Taken").field("landing", &self.landing).finish_non_exhaustive()
    }
}

/// A range under write-back whose buffers are released. Any thread may finish it. Dropping it
/// before [`Landing::done`] makes the bytes dirty again.
pub struct Landing<'a> {
    file: &'a FileCache,
    range: Range<u64>,
    folios: Vec<Part>,
    done: bool,
}

impl std::fmt::Debug for Landing<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Landing").field("range", &self.range).finish_non_exhaustive()
    }
}

/// Blocks of one folio that are under write-back.
struct Part {
    number: u32,
    /// First byte of the folio in the file.
    start: u64,
    blocks: Range<u32>,
}

enum Bytes<'a> {
    /// Bytes of this folio.
    Lent(ReadGuard<'a, Folio>, Range<usize>),
    /// Bytes of the copy with this index.
    Copied(usize, Range<usize>),
}

impl Bytes<'_> {
    fn slice<'s>(&'s self, copies: &'s [Frame]) -> &'s [u8] {
        match self {
            Bytes::Lent(folio, range) => &folio.bytes()[range.clone()],
            Bytes::Copied(copy, range) => &copies[*copy][range.clone()],
        }
    }
}

impl FileCache {
    /// Records that the bytes `part` of the folio have changed.
    #[inline]
    pub(super) fn make_dirty(&self, held: &mut Held<'_>, part: Range<usize>) {
        let blocks = held.folio.touched(part.start, part.end);
        if !held.folio.is_dirty(blocks.clone()) {
            self.newly_dirty(held, blocks);
        }
    }

    #[cold]
    fn newly_dirty(&self, held: &mut Held<'_>, blocks: Range<u32>) {
        let first = held.folio.dirty_count() == 0;
        let new = held.folio.set_dirty(blocks);
        if new == 0 {
            return;
        }
        let bytes = u64::from(new) * self.block();
        self.shared.account.dirtied(bytes, held.slot.marked.load(Relaxed));
        if first {
            self.changing.index.lock().dirty.insert(held.folio.page());
        }
        let before = self.changing.blocks.fetch_add(u64::from(new), AcqRel);
        if before & COUNT == 0
            && let Some(file) = &held.folio.file
        {
            self.shared.flusher.file_dirtied(file);
        }
    }

    /// Whether any byte is dirty or under write-back.
    pub fn is_dirty(&self) -> bool {
        self.changing.blocks.load(Acquire) != 0
    }

    /// Dirty bytes. Bytes under write-back do not count unless they changed again.
    pub fn dirty_bytes(&self) -> u64 {
        (self.changing.blocks.load(Acquire) & COUNT) << self.shared.block_log2
    }

    /// The first folio with dirty blocks that ends after byte `at`: its slot and first byte.
    fn next_dirty_folio(&self, at: u64) -> Option<(u32, u64)> {
        let index = self.changing.index.lock();
        let page = at >> PAGE_LOG2;
        let first = index.covering(page).unwrap_or(page);
        let page = *index.dirty.range(first..).next()?;
        Some((index.folios.get(&page)?.0, page << PAGE_LOG2))
    }

    /// The first run of dirty blocks in `range`, aligned to blocks, at most `max` bytes but at
    /// least one block. A run may span folios. Blocks that `range` covers partly are included.
    pub fn next_dirty(&self, range: Range<u64>, max: u64) -> Option<Range<u64>> {
        let block = self.block();
        let start = range.start & !(block - 1);
        let end = range.end.checked_next_multiple_of(block).unwrap_or(range.end);
        let max = (max & !(block - 1)).max(block);
        let mut at = start;
        let mut found: Option<Range<u64>> = None;
        while at < end {
            if let Some(run) = &found
                && run.end - run.start >= max
            {
                break;
            }
            let Some((number, place)) = self.next_dirty_folio(at).filter(|(_, place)| *place < end)
            else {
                break;
            };
            // A run continues only in the folio that directly follows.
            if found.is_some() && place > at {
                break;
            }
            let Some(slot) = self.shared.slots.get(number) else { break };
            let folio = slot.folio.read();
            if !folio.holds(self.id, place) || folio.start() != place {
                continue;
            }
            let from = fits_usize(at.max(place) - place);
            let to = fits_usize(end.min(folio.end()) - place);
            let run = folio.dirty_run(folio.touched(from, to));
            let run = run.map(|run| folio.bytes_of(run));
            let run = run.map(|run| place + run.start as u64..place + run.end as u64);
            match (&mut found, run) {
                (None, None) => at = folio.end(),
                (None, Some(run)) => {
                    at = run.end;
                    let ends_inside = run.end < folio.end();
                    found = Some(run);
                    if ends_inside {
                        break;
                    }
                }
                (Some(run), Some(more)) if more.start == run.end => {
                    at = more.end;
                    run.end = more.end;
                    if more.end < folio.end() {
                        break;
                    }
                }
                (Some(_), _) => break,
            }
        }
        found.map(|run| run.start..run.end.min(run.start + max))
    }

    /// Starts write-back of the dirty run at the start of `range`. Its bytes do not change until
    /// [`Taken::release_buffers`], and its folios stay in the cache. Fully dirty folios of at least
    /// 256 KiB are lent under their shared locks. Everything else is copied; a copied block can
    /// become dirty again meanwhile. The run ends at the first block that is clean or already under
    /// write-back.
    ///
    /// # Errors
    /// `Invalid` when no byte is dirty at the start of `range`; `NoMemory` when there is no memory
    /// for a copy.
    pub fn take_dirty(&self, range: Range<u64>) -> Result<Taken<'_>> {
        let start = range.start & !(self.block() - 1);
        let end = range.end.checked_next_multiple_of(self.block()).unwrap_or(range.end);
        let landing = Landing { file: self, range: start..start, folios: Vec::new(), done: false };
        let mut taken = Taken { bytes: Vec::new(), copies: Vec::new(), landing };
        let mut space = 0..0;
        while taken.landing.range.end < end {
            let at = taken.landing.range.end;
            let Some((number, place)) = self.next_dirty_folio(at).filter(|(_, p)| *p <= at) else {
                break;
            };
            let Some(slot) = self.shared.slots.get(number) else { break };
            // Folios of one file are locked in ascending order.
            let mut folio = slot.folio.write_second();
            if !folio.holds(self.id, at) || folio.start() != place {
                continue;
            }
            let from = fits_usize(at - place);
            let to = fits_usize(end.min(folio.end()) - place);
            let wanted = folio.touched(from, to);
            if !folio.is_dirty(wanted.start..wanted.start + 1) {
                break;
            }
            let lent = folio.size() >= LENT && folio.dirty_count() == folio.blocks();
            // Allocate the copy before changing any state: a failure then needs no undo.
            let lent = lent && wanted == (0..folio.blocks());
            if !lent && space.is_empty() {
                match self.copy_frame(end - at) {
                    Some(frame) => {
                        space = 0..frame.len();
                        taken.copies.push(frame);
                    }
                    None if !taken.landing.folios.is_empty() => break,
                    None => return Err(Error::NoMemory),
                }
            }
            let fits = len_u32(space.len() >> self.shared.block_log2);
            let most =
                if lent { wanted.end } else { wanted.end.min(wanted.start.saturating_add(fits)) };
            let blocks = folio.start_writeback(wanted.start..most);
            if blocks.is_empty() {
                break;
            }
            let bytes = folio.bytes_of(blocks.clone());
            let count = u64::from(blocks.end - blocks.start);
            let marked = slot.marked.load(Relaxed);
            self.shared.account.taken(count << self.shared.block_log2, marked);
            let clean = folio.dirty_count() == 0;
            // One atomic step: every reader of the word sees each block as dirty or as under
            // write-back.
            self.changing.blocks.fetch_add((count << 32).wrapping_sub(count), AcqRel);
            if clean {
                self.changing.index.lock().dirty.remove(&folio.page());
            }
            if !lent && let Some(copy) = taken.copies.last_mut() {
                let to = space.start..space.start + bytes.len();
                copy[to.clone()].copy_from_slice(&folio.bytes()[bytes.clone()]);
                space.start = to.end;
                let copy = taken.copies.len() - 1;
                match taken.bytes.last_mut() {
                    Some(Bytes::Copied(last, before)) if *last == copy => before.end = to.end,
                    _ => taken.bytes.push(Bytes::Copied(copy, to)),
                }
            }
            let stop = blocks.end < wanted.end && !space.is_empty();
            taken.landing.folios.push(Part { number, start: place, blocks });
            taken.landing.range.end = place + bytes.end as u64;
            drop(folio);
            if lent {
                // A writer that changed the folio since has made it dirty again, so writing its
                // newer bytes now is also correct.
                taken.bytes.push(Bytes::Lent(slot.folio.read_second(), bytes));
                space = 0..0;
            }
            if stop {
                break;
            }
        }
        if taken.landing.folios.is_empty() {
            return Err(Error::Invalid("no byte is dirty at the start of the range to write back"));
        }
        Ok(taken)
    }

    /// A frame for a copy of `bytes`, or of a part of them.
    fn copy_frame(&self, bytes: u64) -> Option<Frame> {
        let pages = bytes.div_ceil(1 << PAGE_LOG2).max(1);
        let order = pages.checked_next_power_of_two().map_or(ORDERS - 1, |pages| pages.ilog2());
        let least = *self.shared.orders.start();
        let mut order = order.clamp(least, ORDERS - 1);
        loop {
            match self.shared.frames.take(order, self.shared.reclaim.free_bytes()) {
                Some(frame) => return Some(frame),
                None if order > least => order -= 1,
                None => return None,
            }
        }
    }

    /// Ends write-back of `part`: its blocks become clean if `clean`, otherwise dirty again.
    fn end_writeback(&self, part: &Part, clean: bool) {
        let Some(slot) = self.shared.slots.get(part.number) else { return };
        let mut folio = slot.folio.write_second();
        // The folio was discarded meanwhile; the discard has updated the account.
        if !folio.holds(self.id, part.start) || folio.start() != part.start {
            return;
        }
        let marked = slot.marked.load(Relaxed);
        let mut ended = 0;
        let mut redirtied = 0;
        let was_clean = folio.dirty_count() == 0;
        if clean {
            ended = folio.end_writeback(part.blocks.clone());
        } else {
            // Blocks still under write-back become dirty, unless they are dirty already.
            for block in part.blocks.clone() {
                if folio.end_writeback(block..block + 1) == 1 {
                    match folio.set_dirty(block..block + 1) {
                        1 => redirtied += 1,
                        _ => ended += 1,
                    }
                }
            }
        }
        let block_log2 = self.shared.block_log2;
        if ended > 0 {
            self.shared.account.written(u64::from(ended) << block_log2, marked);
        }
        if redirtied > 0 {
            self.shared.account.redirtied(u64::from(redirtied) << block_log2, marked);
            if was_clean {
                self.changing.index.lock().dirty.insert(folio.page());
            }
        }
        let gone = u64::from(ended + redirtied) << 32;
        let before =
            self.changing.blocks.fetch_sub(gone.wrapping_sub(u64::from(redirtied)), AcqRel);
        if redirtied > 0
            && before & COUNT == 0
            && let Some(file) = &folio.file
        {
            self.shared.flusher.file_dirtied(file);
        }
        if folio.dirty_count() + folio.writing_count() == 0 {
            self.shared.reclaim.unpark(&self.shared.slots, part.number, folio.size());
            self.drop_if_marked(part.number, slot, folio);
        }
    }
}

impl<'a> Taken<'a> {
    /// The bytes, in file order.
    pub fn slices(&self) -> Vec<IoSlice<'_>> {
        let slices = self.bytes.iter().map(|bytes| bytes.slice(&self.copies));
        slices.map(IoSlice::new).collect()
    }

    /// Their byte range in the file: whole blocks, perhaps fewer than the caller requested.
    pub fn range(&self) -> Range<u64> {
        self.landing.range()
    }

    /// Releases the folio locks and copies. The range stays under write-back.
    pub fn release_buffers(mut self) -> Landing<'a> {
        self.clear();
        let Landing { file, ref range, .. } = self.landing;
        let nothing = Landing { file, range: range.clone(), folios: Vec::new(), done: true };
        std::mem::replace(&mut self.landing, nothing)
    }

    /// As [`Landing::done`].
    pub fn done(self) {
        self.release_buffers().done();
    }

    fn clear(&mut self) {
        self.bytes.clear();
        let shared = &*self.landing.file.shared;
        let space = shared.reclaim.free_bytes();
        self.copies.drain(..).for_each(|frame| shared.frames.give(frame, space));
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        // Release the locks before `landing` is dropped: its drop takes the same folio locks.
        self.clear();
    }
}

impl Landing<'_> {
    /// The byte range in the file.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// Ends write-back successfully: the bytes become clean and marked folios leave the cache.
    pub fn done(mut self) {
        self.done = true;
    }
}

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        for part in &self.folios {
            self.file.end_writeback(part, self.done);
        }
    }
}
