//! The cache of one volume: its files by inode number, and its threads.
//!
//! ```text
//!   PageCache ──► Shared ◄── FileCache ◄── folio (a file object exists while it has folios)
//!      │ dropping the last clone joins the threads and removes every folio, which breaks the
//!      │ reference cycle FileCache → Shared → folio → FileCache
//! ```

use crate::config::CacheConfig;
use crate::content::Content;
use crate::file::FileCache;
use crate::interface::Use;
use crate::owner::Owner;
use crate::readahead::Request;
use crate::shared::Shared;
use crate::stats::CacheStats;
use crate::writeback::WritePermit;
use extant_base::lock::{Mutex, Rank};
use extant_base::{Ino, Result};
use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
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
    shared: Arc<Shared<FileCache>>,
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
        let handle = Handle {
            shared: Arc::new(Shared::new(&config)),
            next_id: AtomicU64::new(1),
            files: Mutex::new(Rank::Leaf, Files::default()),
        };
        PageCache { handle: Arc::new(handle) }
    }

    fn shared(&self) -> &Arc<Shared<FileCache>> {
        &self.handle.shared
    }

    /// Starts the cache's threads: the flusher and the read-ahead thread.
    ///
    /// # Errors
    /// `Device` when the system cannot create a thread.
    pub fn start(&self, owner: Arc<dyn Owner>) -> Result<()> {
        let shared = self.shared();
        shared.flusher.start(Arc::new(owner.clone()))?;
        let read = move |Request { file, range, how }| owner.read_ahead(&file, range, how);
        shared.read_ahead.start(read).inspect_err(|_| shared.flusher.stop())
    }

    /// Stops and joins the threads and drops the owner. Further calls have no effect.
    pub fn stop(&self) {
        self.handle.stop();
    }

    /// The file object of inode `ino`. It is the same object for as long as it has folios or users.
    pub fn file(&self, ino: Ino) -> Arc<FileCache> {
        let mut files = self.handle.files.lock();
        if let Some(file) = files.by_ino.get(&ino).and_then(Weak::upgrade) {
            return file;
        }
        if files.by_ino.len() >= files.sweep_at {
            files.by_ino.retain(|_, file| file.strong_count() > 0);
            files.sweep_at = 2 * files.by_ino.len() + 64;
        }
        let id = self.handle.next_id.fetch_add(1, Relaxed);
        let file = FileCache::new(ino, id, self.shared().clone());
        files.by_ino.insert(ino, Arc::downgrade(&file));
        file
    }

    /// The file object of inode `ino`, if it has folios or users.
    pub fn find(&self, ino: Ino) -> Option<Arc<FileCache>> {
        self.handle.files.lock().by_ino.get(&ino).and_then(Weak::upgrade)
    }

    /// Removes the folios of a deleted inode, dirty or not. The next [`PageCache::file`] of `ino`
    /// creates a new object.
    pub fn forget(&self, ino: Ino) {
        let file = self.handle.files.lock().by_ino.remove(&ino);
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

    /// Overwrites bytes of `file` that are in the cache, as [`FileCache::overwrite_hit`], with the
    /// limits of [`PageCache::acquire_permit`] and [`PageCache::wrote`]. `enabled` is read while
    /// the folios are held: 0 forbids the write. Returns whether all of `content` was written;
    /// after `false` the caller writes all of it in another way. The caller holds no lock except
    /// `Rank::Write`. May sleep.
    ///
    /// # Errors
    /// As [`PageCache::acquire_permit`] and [`PageCache::wrote`].
    pub fn overwrite(
        &self,
        file: &Arc<FileCache>,
        offset: u64,
        content: Content<'_>,
        how: Use,
        enabled: &AtomicU64,
    ) -> Result<bool> {
        // A thread that holds the inode to change what may be written either is seen by this check
        // or waits for the folio.
        let is_enabled = || enabled.load(Acquire) != 0;
        let permit = self.acquire_permit(content.len() as u64, how)?;
        let n = file.overwrite_hit(offset, &mut { content }, how, &is_enabled);
        drop(permit);
        if n < content.len() {
            return Ok(false);
        }
        self.wrote(file, offset, n as u64, how)?;
        Ok(true)
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
        self.shared.close();
        let files: Vec<_> = {
            let mut files = self.files.lock();
            files.by_ino.drain().filter_map(|(_, file)| file.upgrade()).collect()
        };
        files.iter().for_each(|file| file.close());
    }
}
