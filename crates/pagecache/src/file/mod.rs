//! The cached bytes of one file.
//!
//! ```text
//!   read by every hit, seldom written      id, length, set of folio orders in use
//!   written by first dirtying, write-back  dirty blocks and blocks under write-back: one word
//!   under a leaf lock, slow paths          folios by page; folios with dirty blocks
//! ```

pub(crate) mod borrow;
pub(crate) mod dirty;
mod discard;
mod errors;
mod read;
mod write;

use crate::frames::{ORDERS, PAGE_LOG2};
use crate::index::place;
use crate::interface::Use;
use crate::readahead::Request;
use crate::reclaim::From;
use crate::shared::{HasFolios, Shared};
use crate::slots::UNUSED;
use crate::writeback::{DirtyFile, FileState};
use crate::{folio, slots};
use extant_base::lock::{Mutex, Rank, ReadGuard, WriteGuard};
use extant_base::{Error, Ino, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Range, RangeInclusive};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Weak};

type Folio = folio::Folio<FileCache>;
type Slot = slots::Slot<FileCache>;

/// The cached bytes of one file.
pub struct FileCache {
    ino: Ino,
    id: u64,
    shared: Arc<Shared<FileCache>>,
    this: Weak<FileCache>,
    len: AtomicU64,
    orders: AtomicU32,
    hits: AtomicBool,
    /// Write-back state that is read without a lock.
    writeback: Arc<FileState>,
    changing: Changing,
}

impl std::fmt::Debug for FileCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileCache").field("ino", &self.ino).finish_non_exhaustive()
    }
}

/// Fields that change while other threads hit; on a cache line of their own.
#[repr(align(128))]
struct Changing {
    /// Dirty blocks in the low 32 bits, blocks under write-back in the high 32 bits. One load reads
    /// both counts of the same moment.
    blocks: AtomicU64,
    /// Count of write-back errors above bit 16; errno of the last error in the low 16 bits.
    errors: AtomicU64,
    index: Mutex<FileIndex>,
}

#[derive(Default)]
struct FileIndex {
    /// First page → slot and order. Folios do not overlap.
    folios: BTreeMap<u64, (u32, u32)>,
    /// First pages of folios that have dirty blocks.
    dirty: BTreeSet<u64>,
    orders: [u32; ORDERS as usize],
    closed: bool,
}

/// Result of [`FileCache::make`].
enum Made<'a> {
    /// The slot of a folio that exists already.
    Present(u32),
    /// A new folio under its exclusive lock; no block of it is up to date.
    New(Held<'a>),
}

/// A folio under its exclusive lock.
struct Held<'a> {
    number: u32,
    slot: &'a Slot,
    folio: WriteGuard<'a, Folio>,
}

impl FileCache {
    pub(crate) fn new(ino: Ino, id: u64, shared: Arc<Shared<FileCache>>) -> Arc<FileCache> {
        Arc::new_cyclic(|this| FileCache {
            ino,
            id,
            shared,
            this: this.clone(),
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

    /// The inode that these bytes belong to.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// The file's length in bytes. Hits do not pass it.
    #[inline]
    pub fn len(&self) -> u64 {
        self.len.load(Acquire)
    }

    /// Whether the file has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sets the length. The caller holds the inode lock. When a file shrinks, the caller sets the
    /// length before it discards or zeroes folios.
    pub fn set_len(&self, len: u64) {
        self.len.store(len.min(write::LONGEST), Release);
    }

    /// Enables hits, or disables them while the file changes its storage format.
    pub fn set_hits(&self, on: bool) {
        self.hits.store(on, Release);
    }

    /// Whether any folio is in the cache.
    pub fn has_folios(&self) -> bool {
        self.orders.load(Acquire) != 0
    }

    /// Requests that the read-ahead thread read `range`.
    fn request_read_ahead(&self, range: Range<u64>, how: Use) {
        if let Some(file) = self.this.upgrade() {
            self.shared.read_ahead.request(Request { file, range, how });
        }
    }

    fn block(&self) -> u64 {
        1 << self.shared.block_log2
    }

    /// The slot that held byte `offset` at the time of the lookup. Takes no lock; the caller checks
    /// the result under the folio's lock.
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

    /// The folio that contains `offset`, under its shared lock, if it is in the cache.
    #[inline]
    fn hit(&self, offset: u64) -> Option<(u32, &Slot, ReadGuard<'_, Folio>)> {
        let number = self.find(offset)?;
        let slot = self.shared.slots.get(number)?;
        let folio = slot.folio.read();
        folio.holds(self.id, offset).then_some((number, slot, folio))
    }

    /// The folio that contains `offset`, under its exclusive lock, if it is in slot `number`.
    #[inline]
    fn hold(&self, number: u32, offset: u64) -> Option<Held<'_>> {
        let slot = self.shared.slots.get(number)?;
        let folio = slot.folio.write();
        folio.holds(self.id, offset).then_some(Held { number, slot, folio })
    }

    /// The folio that contains `offset`, under its exclusive lock, and whether it is new. A new
    /// folio reaches at most to `end`, as alignment allows, but has at least one block.
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

    /// Clears the drop-behind mark when the user is an ordinary one.
    #[inline]
    fn used(&self, held: &mut Held<'_>, how: Use) {
        if how == Use::Keep {
            self.shared.unmark(held.number, held.slot, &held.folio);
        }
    }

    /// Makes a folio that contains `offset`, unless there is one.
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
            shared.reserve(size);
            let Some(frame) = shared.frames.take(order, shared.reclaim.free_bytes()) else {
                shared.reclaim.release(size);
                // A smaller frame is easier to get. At the smallest order, evict a folio and try
                // again.
                if order > *shared.orders.start() {
                    most = order - 1;
                } else if !shared.evict(From::Any) {
                    return Err(Error::NoMemory);
                }
                continue;
            };
            let undo = |frame, number| {
                shared.frames.give(frame, shared.reclaim.free_bytes());
                shared.reclaim.release(size);
                if let Some(number) = number {
                    shared.slots.give(number);
                }
            };
            let file = self.this.upgrade();
            let taken = shared.slots.take();
            let slot = taken.and_then(|number| Some((number, shared.slots.get(number)?)));
            let (Some(file), Some((number, slot))) = (file, slot) else {
                undo(frame, taken);
                return Err(Error::NoMemory);
            };
            // A thread that found this slot for its previous folio may hold the lock for a moment.
            let mut folio = slot.folio.write();
            {
                let mut index = self.changing.index.lock();
                if index.closed || shared.is_closed() {
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
            shared.account.cached(size.cast_signed());
            if marked {
                shared.account.marked(size);
            }
            shared.index.insert(&shared.slots, number, self.id, place(start, order));
            shared.reclaim.enter(&shared.slots, number, size, marked, self.ghost(start));
            shared.tally.missed();
            return Ok(Made::New(Held { number, slot, folio }));
        }
    }

    /// Slots and first bytes of the folios that overlap the bytes `start..end`.
    fn folios_in(&self, start: u64, end: u64) -> Vec<(u32, u64)> {
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

    /// Removes all folios and refuses new ones.
    pub(crate) fn close(&self) {
        self.changing.index.lock().closed = true;
        self.set_hits(false);
        self.discard(0..u64::MAX);
    }
}

impl HasFolios for FileCache {
    fn ghost(&self, page: u64) -> u64 {
        self.id.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ page
    }

    fn unlist(&self, page: u64, order: u32, dirty: u32, writing: u32) {
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
}

impl DirtyFile for FileCache {
    fn is_dirty(&self) -> bool {
        FileCache::is_dirty(self)
    }

    fn dirty_bytes(&self) -> u64 {
        FileCache::dirty_bytes(self)
    }

    fn note_error(&self, error: &Error) {
        FileCache::note_error(self, error);
    }

    fn state(&self) -> &Arc<FileState> {
        &self.writeback
    }
}

enum Plan {
    Present(u32),
    New { start: u64, order: u32 },
}

impl FileIndex {
    /// The first page of the folio that contains `page`.
    fn covering(&self, page: u64) -> Option<u64> {
        let (start, (_, order)) = self.folios.range(..=page).next_back()?;
        (page - start < 1 << order).then_some(*start)
    }

    fn overlaps(&self, start: u64, order: u32) -> bool {
        let end = start + (1 << order);
        self.covering(start).is_some() || self.folios.range(start..end).next().is_some()
    }

    /// The largest new folio that starts at `page` (aligned down to the smallest order), ends at
    /// byte `end` or before, and overlaps no other folio; or the folio that contains `page`
    /// already.
    fn plan(&self, page: u64, end: u64, most: u32, orders: &RangeInclusive<u32>) -> Plan {
        if let Some(start) = self.covering(page)
            && let Some((number, _)) = self.folios.get(&start)
        {
            return Plan::Present(*number);
        }
        let least = *orders.start();
        let start = page >> least << least;
        let end = end.div_ceil(1 << PAGE_LOG2).div_ceil(1 << least) << least;
        let limit = self.folios.range(start..).next().map_or(end, |(next, _)| end.min(*next));
        let most_order = limit.saturating_sub(start).max(1).ilog2();
        let aligned = if start == 0 { ORDERS } else { start.trailing_zeros() };
        Plan::New { start, order: aligned.min(most_order).min(most).max(least) }
    }
}
