//! The cache of one volume: the state that its files share.
//!
//! ```text
//!   PageCache ──► Shared ◄── FileCache ◄── folio (a file object exists while it has folios)
//!      │ dropping the last clone joins the threads and removes every folio, which breaks the
//!      │ reference cycle FileCache → Shared → folio → FileCache
//! ```

use crate::config::CacheConfig;
use crate::file::FileCache;
use crate::folio::Folio;
use crate::frames::{Frames, ORDERS, PAGE_LOG2};
use crate::index::Index;
use crate::owner::{Owner, Use};
use crate::readahead::ReadAhead;
use crate::reclaim::{From, Reclaim};
use crate::slots::{Slot, Slots};
use crate::stats::{CacheStats, Tally};
use crate::writeback::{Account, Flusher, WritePermit};
use extant_base::lock::{Mutex, Rank, WriteGuard};
use extant_base::{Ino, Result};
use std::collections::HashMap;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Weak};

/// The page cache of one volume. Clones share it. Dropping the last clone ends its threads and
/// discards all folios, dirty ones included: sync first.
#[derive(Clone)]
pub struct PageCache {
    handle: Arc<Handle>,
}

impl std::fmt::Debug for PageCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PageCache").finish_non_exhaustive()
    }
}

struct Handle {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub block_log2: u32,
    /// Folio orders in use: from one block or page up to the largest that the limit allows.
    pub orders: std::ops::RangeInclusive<u32>,
    pub account: Arc<Account>,
    pub flusher: Arc<Flusher>,
    pub read_ahead: Arc<ReadAhead>,
    pub slots: Slots,
    pub index: Index,
    pub frames: Frames,
    pub reclaim: Reclaim,
    pub tally: Tally,
    marked_cap: u64,
    closed: AtomicBool,
    next_id: AtomicU64,
    files: Mutex<Files>,
}

#[derive(Default)]
struct Files {
    by_ino: HashMap<Ino, Weak<FileCache>>,
    /// Number of entries at which the map removes those whose file no longer exists.
    sweep_at: usize,
}

impl PageCache {
    /// An empty cache. [`PageCache::start`] starts its threads.
    pub fn new(config: CacheConfig) -> PageCache {
        let account = Arc::new(Account::new(config.dirty_limit(), config.dont_cache_cap));
        let flusher = Flusher::new(&config, account.clone());
        let least = config.block_size.log2().saturating_sub(PAGE_LOG2);
        // A folio takes at most a sixteenth of the limit.
        let most = (config.limit >> (PAGE_LOG2 + 4)).max(1).ilog2().min(ORDERS - 1).max(least);
        let pages = config.limit >> PAGE_LOG2;
        let shared = Shared {
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
            next_id: AtomicU64::new(1),
            files: Mutex::new(Rank::Leaf, Files::default()),
        };
        PageCache { handle: Arc::new(Handle { shared: Arc::new(shared) }) }
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.handle.shared
    }

    /// Starts the cache's threads: the flusher and the read-ahead thread.
    ///
    /// # Errors
    /// `Device` when the system cannot create a thread.
    pub fn start(&self, owner: Arc<dyn Owner>) -> Result<()> {
        self.shared().flusher.start(owner.clone())?;
        self.shared().read_ahead.start(owner).inspect_err(|_| self.shared().flusher.stop())
    }

    /// Stops and joins the threads and drops the owner. Further calls have no effect.
    pub fn stop(&self) {
        self.handle.stop();
    }

    /// The file object of inode `ino`. It is the same object for as long as it has folios or users.
    pub fn file(&self, ino: Ino) -> Arc<FileCache> {
        let shared = self.shared();
        let mut files = shared.files.lock();
        if let Some(file) = files.by_ino.get(&ino).and_then(Weak::upgrade) {
            return file;
        }
        if files.by_ino.len() >= files.sweep_at {
            files.by_ino.retain(|_, file| file.strong_count() > 0);
            files.sweep_at = 2 * files.by_ino.len() + 64;
        }
        let id = shared.next_id.fetch_add(1, Relaxed);
        let file = FileCache::new(ino, id, shared.clone());
        files.by_ino.insert(ino, Arc::downgrade(&file));
        file
    }

    /// The file object of inode `ino`, if it has folios or users.
    pub fn find(&self, ino: Ino) -> Option<Arc<FileCache>> {
        self.shared().files.lock().by_ino.get(&ino).and_then(Weak::upgrade)
    }

    /// Removes the folios of a deleted inode, dirty or not. The next [`PageCache::file`] of `ino`
    /// creates a new object.
    pub fn forget(&self, ino: Ino) {
        let file = self.shared().files.lock().by_ino.remove(&ino);
        if let Some(file) = file.and_then(|file| file.upgrade()) {
            file.close();
        }
    }

    /// Files with dirty bytes; the file that became dirty first comes first.
    pub fn dirty_files(&self) -> Vec<Arc<FileCache>> {
        self.shared().flusher.dirty_files()
    }

    /// Requests that the flusher write all bytes that are dirty now, oldest files first. Does not
    /// wait.
    pub fn write_everything(&self) {
        self.shared().flusher.write_everything();
    }

    /// The cache's counters.
    pub fn stats(&self) -> CacheStats {
        let mut stats = CacheStats::default();
        self.shared().account.fill_in(&mut stats);
        self.shared().tally.fill_in(&mut stats);
        stats
    }

    /// Waits, before a write of `len` bytes, until don't-cache bytes fit under
    /// [`CacheConfig::dont_cache_cap`]. The caller holds no lock except `Rank::Write`. It drops the
    /// permit after the write and before [`PageCache::wrote`]. Does nothing for [`Use::Keep`].
    ///
    /// # Errors
    /// The write-back error, when every dirty file fails and waiting cannot succeed.
    pub fn acquire_permit(&self, len: u64, how: Use) -> Result<WritePermit<'_>> {
        self.shared().flusher.acquire_permit(len, how)
    }

    /// Applies the don't-cache policy and throttling after a write of `len` bytes at `offset`. The
    /// caller holds no lock except `Rank::Write`. May sleep.
    ///
    /// # Errors
    /// The write-back error, when every dirty file fails and waiting cannot succeed. The bytes are
    /// in the cache nevertheless.
    pub fn wrote(&self, file: &Arc<FileCache>, offset: u64, len: u64, how: Use) -> Result<()> {
        self.shared().flusher.wrote(file, offset, len, how)
    }
}

impl Handle {
    fn stop(&self) {
        self.shared.flusher.stop();
        self.shared.read_ahead.stop();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.stop();
        self.shared.closed.store(true, Release);
        let files: Vec<_> = {
            let mut files = self.shared.files.lock();
            files.by_ino.drain().filter_map(|(_, file)| file.upgrade()).collect()
        };
        files.iter().for_each(|file| file.close());
    }
}

impl Shared {
    /// Whether the last [`PageCache`] was dropped; the cache then accepts no more folios.
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
    pub fn remove(&self, number: u32, slot: &Slot, mut folio: WriteGuard<'_, Folio>) {
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
        self.account.cached(-(bytes as i64));
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
    pub fn unmark(&self, number: u32, slot: &Slot, folio: &Folio) {
        if slot.marked.load(Relaxed) && slot.marked.swap(false, Relaxed) {
            let block = folio.block_size();
            let dirty = u64::from(folio.dirty_count()) * block;
            let writing = u64::from(folio.writing_count()) * block;
            self.account.unmarked(folio.size(), dirty, writing);
            self.reclaim.unmark(&self.slots, number, folio.size());
        }
    }
}
