//! The state that the files of one cache share, and the removal of folios.
//!
//! ```text
//!   reserve ──► evict: reclaim's candidate ─┬─ dirty ──► parked
//!                                            └─ clean ──► remove: index, queue, file, frame, slot
//! ```

use crate::config::CacheConfig;
use crate::folio::Folio;
use crate::frames::{Frames, ORDERS, PAGE_LOG2};
use crate::index::Index;
use crate::readahead::ReadAhead;
use crate::reclaim::{From, Reclaim};
use crate::slots::{Slot, Slots};
use crate::stats::{CacheStats, Tally};
use crate::writeback::{Account, DirtyFile, Writeback};
use extant_base::lock::WriteGuard;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// A file with an index of its folios.
pub(crate) trait HasFolios {
    /// The key under which reclaim remembers an evicted folio that started at `page`.
    fn ghost(&self, page: u64) -> u64;

    /// Removes a folio from the file's index and counts. The caller holds the folio's exclusive
    /// lock.
    fn unlist(&self, page: u64, order: u32, dirty: u32, writing: u32);
}

/// The state that the files of one cache share. `F` is the type of a file.
pub(crate) struct Shared<F> {
    pub block_log2: u32,
    /// Folio orders in use: from one block or page up to the largest that the limit allows.
    pub orders: std::ops::RangeInclusive<u32>,
    pub account: Arc<Account>,
    pub flusher: Arc<Writeback<F>>,
    pub read_ahead: Arc<ReadAhead<F>>,
    pub slots: Slots<F>,
    pub index: Index,
    pub frames: Frames,
    pub reclaim: Reclaim,
    pub tally: Tally,
    marked_cap: u64,
    closed: AtomicBool,
}

impl<F: HasFolios + DirtyFile> Shared<F> {
    /// The state of an empty cache.
    pub fn new(config: &CacheConfig) -> Shared<F> {
        let account = Arc::new(Account::new(config.dirty_limit(), config.dont_cache_cap));
        let flusher = Writeback::new(config, account.clone());
        let least = config.block_size.log2().saturating_sub(PAGE_LOG2);
        // A folio takes at most a sixteenth of the limit.
        let most = (config.limit >> (PAGE_LOG2 + 4)).max(1).ilog2().min(ORDERS - 1).max(least);
        let pages = config.limit >> PAGE_LOG2;
        Shared {
            block_log2: config.block_size.log2(),
            orders: least..=most,
            account,
            flusher,
            read_ahead: Arc::new(ReadAhead::new()),
            slots: Slots::new(pages.saturating_mul(2).saturating_add(1 << 20)),
            index: Index::new(pages / 4),
            frames: Frames::new((config.limit / 16).clamp(1 << 18, 64 << 20) as usize),
            reclaim: Reclaim::new(config.limit),
            tally: Tally::default(),
            marked_cap: config.dont_cache_cap,
            closed: AtomicBool::new(false),
        }
    }

    /// Refuses further folios.
    pub fn close(&self) {
        self.closed.store(true, Release);
    }

    /// Whether the cache accepts no more folios, because its last user dropped it.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Acquire)
    }

    /// Reserves `bytes` of the limit and evicts clean folios as needed. Exceeds the limit when no
    /// folio can be evicted.
    pub fn reserve(&self, bytes: u64) {
        while !self.reclaim.reserve(bytes) {
            if !self.evict(From::Any) {
                return self.reclaim.force(bytes);
            }
        }
    }

    /// Evicts clean drop-behind folios beyond their cap.
    pub fn limit_marked(&self) {
        let mut stats = CacheStats::default();
        self.account.fill_in(&mut stats);
        let mut clean = stats.drop_behind.saturating_sub(stats.drop_behind_dirty);
        while clean > self.marked_cap && self.evict(From::Marked) {
            self.account.fill_in(&mut stats);
            clean = stats.drop_behind.saturating_sub(stats.drop_behind_dirty);
        }
    }

    /// Evicts one folio; `false` when none can be evicted. Takes the locks of other folios by
    /// try-lock only, so it never waits for a folio.
    pub fn evict(&self, from: From) -> bool {
        for _ in 0..self.reclaim.len(from) {
            let Some((number, ghost)) = self.reclaim.candidate(&self.slots, from) else {
                return false;
            };
            let Some(slot) = self.slots.get(number) else { return false };
            let Some(folio) = slot.folio.try_write_second() else { continue };
            let Some(file) = &folio.file else { continue };
            if folio.dirty_count() + folio.writing_count() > 0 {
                self.reclaim.park(&self.slots, number, folio.size());
                continue;
            }
            if ghost {
                self.reclaim.remember(file.ghost(folio.page()));
            }
            self.tally.evicted();
            self.remove(number, slot, folio);
            return true;
        }
        false
    }

    /// Removes the folio in `slot`, in whatever state it is. The caller passes its exclusive lock.
    pub fn remove(&self, number: u32, slot: &Slot<F>, mut folio: WriteGuard<'_, Folio<F>>) {
        let bytes = folio.size();
        let block = folio.block_size();
        let marked = slot.marked.load(Relaxed);
        let all = 0..folio.blocks();
        let (dirty, writing) = folio.discard(all);
        let (dirty_bytes, writing_bytes) = (u64::from(dirty) * block, u64::from(writing) * block);
        if dirty > 0 {
            self.account.discarded(dirty_bytes, marked);
        }
        if writing > 0 {
            self.account.written(writing_bytes, marked);
        }
        if marked {
            slot.marked.store(false, Relaxed);
            self.account.unmarked(bytes, 0, 0);
        }
        self.index.remove(&self.slots, number);
        self.reclaim.leave(&self.slots, number, bytes);
        if let Some(file) = &folio.file {
            file.unlist(folio.page(), folio.order(), dirty, writing);
        }
        self.account.cached(-bytes.cast_signed());
        let (frame, file) = folio.take_apart();
        drop(folio);
        if let Some(frame) = frame {
            self.frames.give(frame, self.reclaim.free_bytes());
        }
        self.reclaim.release(bytes);
        self.slots.give(number);
        drop(file);
    }

    /// Clears the drop-behind mark of a folio that an ordinary reader or writer found. The caller
    /// holds the folio's lock, at least shared.
    #[inline]
    pub fn unmark(&self, number: u32, slot: &Slot<F>, folio: &Folio<F>) {
        if slot.marked.load(Relaxed) && slot.marked.swap(false, Relaxed) {
            let block = folio.block_size();
            let dirty = u64::from(folio.dirty_count()) * block;
            let writing = u64::from(folio.writing_count()) * block;
            self.account.unmarked(folio.size(), dirty, writing);
            self.reclaim.unmark(&self.slots, number, folio.size());
        }
    }
}
