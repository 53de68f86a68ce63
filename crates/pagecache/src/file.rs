//! The cached bytes of one file.
//!
//! ```text
//!   read by every hit, written seldom      id, length, which orders of folios there are
//!   written by first dirtying, write-back  dirty and writing blocks: one word
//!   under a leaf lock, slow paths          folios by page; those with dirty blocks
//! ```

pub(crate) mod borrow;
pub(crate) mod dirty;
mod discard;
mod errors;
mod read;
mod write;

use crate::cache::Shared;
use crate::folio::Folio;
use crate::frames::{ORDERS, PAGE_LOG2};
use crate::index::place;
use crate::owner::Use;
use crate::slots::{Slot, UNUSED};
use crate::writeback::FileState;
use extant_base::lock::{Mutex, Rank, ReadGuard, WriteGuard};
use extant_base::{Error, Ino, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Weak};

/// The cached bytes of one file.
pub struct FileCache {
    ino: Ino,
    id: u64,
    shared: Arc<Shared>,
    me: Weak<FileCache>,
    len: AtomicU64,
    orders: AtomicU32,
    hits: AtomicBool,
    /// What write-back knows of the file without a lock.
    pub(crate) writeback: Arc<FileState>,
    changing: Changing,
}

impl std::fmt::Debug for FileCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileCache").field("ino", &self.ino).finish_non_exhaustive()
    }
}

/// What is written while others hit.
#[repr(align(128))]
struct Changing {
    /// Dirty blocks, and above 32 bits those being written: both are seen at one moment.
    blocks: AtomicU64,
    /// Errors of write-back so far, and below 16 bits the last one's errno.
    errors: AtomicU64,
    index: Mutex<FileIndex>,
}

#[derive(Default)]
struct FileIndex {
    /// First page → slot and order. Folios do not overlap.
    folios: BTreeMap<u64, (u32, u32)>,
    /// First pages of folios with dirty blocks.
    dirty: BTreeSet<u64>,
    orders: [u32; ORDERS as usize],
    dead: bool,
}

/// What [`FileCache::make`] found or made.
enum Made<'a> {
    /// Somebody else's folio is there.
    Present(u32),
    /// A new folio, nothing in it up to date, held alone.
    New(Held<'a>),
}

/// A folio held alone.
struct Held<'a> {
    number: u32,
    slot: &'a Slot,
    folio: WriteGuard<'a, Folio>,
}

impl FileCache {
    pub(crate) fn new(ino: Ino, id: u64, shared: Arc<Shared>) -> Arc<FileCache> {
        Arc::new_cyclic(|me| FileCache {
            ino,
            id,
            shared,
            me: me.clone(),
            len: AtomicU64::new(0),
            orders: AtomicU32::new(0),
            hits: AtomicBool::new(true),
            writeback: Arc::default(),
            changing: Changing {
                blocks: AtomicU64::new(0),
                errors: AtomicU64::new(0),
                index: Mutex::new(Rank::Leaf, FileIndex::default()),
            },
        })
    }

    /// Whose bytes these are.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// The file's length in bytes, which hits are clipped to.
    #[inline]
    pub fn len(&self) -> u64 {
        self.len.load(Acquire)
    }

    /// Whether the file has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sets the length. The caller holds the inode; a file that shrinks is set before its folios
    /// are discarded or zeroed.
    pub fn set_len(&self, len: u64) {
        self.len.store(len.min(write::LONGEST), Release);
    }

    /// Lets hits find folios, or hides them (the file changes its kind of storage).
    pub fn set_hits(&self, on: bool) {
        self.hits.store(on, Release);
    }

    /// Whether any folio is in the cache.
    pub fn has_folios(&self) -> bool {
        self.orders.load(Acquire) != 0
    }

    pub(crate) fn me(&self) -> Option<Arc<FileCache>> {
        self.me.upgrade()
    }

    pub(crate) fn ahead(&self) -> &crate::readahead::Ahead {
        &self.shared.ahead
    }

    fn block(&self) -> u64 {
        1 << self.shared.block_log2
    }

    /// What a folio that left is remembered by.
    pub(crate) fn ghost(&self, page: u64) -> u64 {
        self.id.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ page
    }

    /// The slot that held byte `offset` a moment ago, by the index without a lock.
    #[inline]
    fn find(&self, offset: u64) -> Option<u32> {
        let mut orders = self.orders.load(Acquire);
        let page = offset >> PAGE_LOG2;
        while orders != 0 {
            let order = orders.trailing_zeros();
            let place = place(page >> order << order, order);
            if let Some(number) = self.shared.index.find(&self.shared.slots, self.id, place) {
                return Some(number);
            }
            orders &= orders - 1;
        }
        None
    }

    /// The folio around `offset`, shared, if it is in the cache.
    #[inline]
    fn hit(&self, offset: u64) -> Option<(u32, &Slot, ReadGuard<'_, Folio>)> {
        let number = self.find(offset)?;
        let slot = self.shared.slots.get(number)?;
        let folio = slot.folio.read();
        folio.holds(self.id, offset).then_some((number, slot, folio))
    }

    /// The folio around `offset`, alone, if it is in slot `number`.
    #[inline]
    fn hold(&self, number: u32, offset: u64) -> Option<Held<'_>> {
        let slot = self.shared.slots.get(number)?;
        let folio = slot.folio.write();
        folio.holds(self.id, offset).then_some(Held { number, slot, folio })
    }

    /// The folio around `offset`, alone: the one that is there, or a new one that reaches to `end`
    /// at most, as far as alignment goes, but is of one block at least.
    fn hold_or_make(&self, offset: u64, end: u64, how: Use) -> Result<(Held<'_>, bool)> {
        loop {
            let number = match self.find(offset) {
                Some(number) => number,
                None => match self.make(offset, end, how)? {
                    Made::New(held) => return Ok((held, true)),
                    Made::Present(number) => number,
                },
            };
            if let Some(mut held) = self.hold(number, offset) {
                self.used(&mut held, how);
                return Ok((held, false));
            }
        }
    }

    /// Takes the mark off a folio that an ordinary user found.
    #[inline]
    fn used(&self, held: &mut Held<'_>, how: Use) {
        if how == Use::Keep {
            self.shared.unmark(held.number, held.slot, &held.folio);
        }
    }

    /// Makes the folio around `offset`, unless there is one.
    fn make(&self, offset: u64, end: u64, how: Use) -> Result<Made<'_>> {
        let shared = &*self.shared;
        let page = offset >> PAGE_LOG2;
        let mut most = *shared.orders.end();
        loop {
            let planned = self.changing.index.lock().plan(page, end, most, &shared.orders);
            let (start, order) = match planned {
                Plan::Present(number) => return Ok(Made::Present(number)),
                Plan::New { start, order } => (start, order),
            };
            let size = 1u64 << (PAGE_LOG2 + order);
            shared.make_room(size);
            let Some(frame) = shared.frames.take(order, shared.reclaim.room()) else {
                shared.reclaim.release(size);
                // Smaller ones are easier to have; the last try is after something else left.
                if order > *shared.orders.start() {
                    most = order - 1;
                } else if !shared.evict(crate::reclaim::From::Any) {
                    return Err(Error::NoMemory);
                }
                continue;
            };
            let undo = |frame, number| {
                shared.frames.give(frame, shared.reclaim.room());
                shared.reclaim.release(size);
                if let Some(number) = number {
                    shared.slots.give(number);
                }
            };
            let file = self.me.upgrade();
            let taken = shared.slots.take();
            let slot = taken.and_then(|number| Some((number, shared.slots.get(number)?)));
            let (Some(file), Some((number, slot))) = (file, slot) else {
                undo(frame, taken);
                return Err(Error::NoMemory);
            };
            // A reader that found this slot as somebody else's may hold it for a moment.
            let mut folio = slot.folio.write();
            {
                let mut index = self.changing.index.lock();
                if index.dead || shared.is_closed() {
                    drop(index);
                    drop(folio);
                    undo(frame, Some(number));
                    return Err(Error::Invalid("the file's cache is closed"));
                }
                if index.overlaps(start, order) {
                    drop(index);
                    drop(folio);
                    undo(frame, Some(number));
                    continue;
                }
                index.folios.insert(start, (number, order));
                index.orders[order as usize] += 1;
                self.orders.fetch_or(1 << order, AcqRel);
            }
            *folio = Folio::new(file, self.id, start, order, shared.block_log2, frame);
            let marked = how == Use::DropBehind;
            slot.marked.store(marked, Relaxed);
            slot.referenced.store(false, Relaxed);
            slot.trigger.store(false, Relaxed);
            slot.last_end.store(UNUSED, Relaxed);
            shared.account.cached(size as i64);
            if marked {
                shared.account.marked(size);
            }
            shared.index.insert(&shared.slots, number, self.id, place(start, order));
            shared.reclaim.enter(&shared.slots, number, size, marked, self.ghost(start));
            shared.tally.missed();
            return Ok(Made::New(Held { number, slot, folio }));
        }
    }

    /// A folio leaves: it is struck off the file's lists. The caller holds it alone.
    pub(crate) fn unlist(&self, page: u64, order: u32, dirty: u32, writing: u32) {
        let mut index = self.changing.index.lock();
        index.folios.remove(&page);
        index.dirty.remove(&page);
        let count = &mut index.orders[order as usize];
        *count -= 1;
        if *count == 0 {
            self.orders.fetch_and(!(1 << order), AcqRel);
        }
        self.changing.blocks.fetch_sub(u64::from(writing) << 32 | u64::from(dirty), AcqRel);
    }

    /// Folios that touch the bytes from `start` to `end`: their slots and first bytes.
    fn listed(&self, start: u64, end: u64) -> Vec<(u32, u64)> {
        let index = self.changing.index.lock();
        let first = index.covering(start >> PAGE_LOG2).unwrap_or(start >> PAGE_LOG2);
        let last = end.saturating_sub(1) >> PAGE_LOG2;
        let folios = if start < end { Some(index.folios.range(first..=last)) } else { None };
        folios
            .into_iter()
            .flatten()
            .map(|(page, (number, _))| (*number, page << PAGE_LOG2))
            .collect()
    }

    /// All folios leave, and no new one comes.
    pub(crate) fn die(&self) {
        self.changing.index.lock().dead = true;
        self.set_hits(false);
        self.discard(0..u64::MAX);
    }
}

enum Plan {
    Present(u32),
    New { start: u64, order: u32 },
}

impl FileIndex {
    /// The first page of the folio that holds `page`.
    fn covering(&self, page: u64) -> Option<u64> {
        let (start, (_, order)) = self.folios.range(..=page).next_back()?;
        (page - start < 1 << order).then_some(*start)
    }

    fn overlaps(&self, start: u64, order: u32) -> bool {
        let end = start + (1 << order);
        self.covering(start).is_some() || self.folios.range(start..end).next().is_some()
    }

    /// The largest folio around `page` that begins at it (but for the alignment of the smallest),
    /// ends at byte `end` or before, and overlaps no other.
    fn plan(&self, page: u64, end: u64, most: u32, orders: &std::ops::RangeInclusive<u32>) -> Plan {
        if let Some(start) = self.covering(page)
            && let Some((number, _)) = self.folios.get(&start)
        {
            return Plan::Present(*number);
        }
        let least = *orders.start();
        let start = page >> least << least;
        let end = end.div_ceil(1 << PAGE_LOG2).div_ceil(1 << least) << least;
        let room = self.folios.range(start..).next().map_or(end, |(next, _)| end.min(*next));
        let room = room.saturating_sub(start).max(1).ilog2();
        let aligned = if start == 0 { ORDERS } else { start.trailing_zeros() };
        Plan::New { start, order: aligned.min(room).min(most).max(least) }
    }
}
