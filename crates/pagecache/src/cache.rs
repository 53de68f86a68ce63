//! The cache of one volume.

use crate::config::CacheConfig;
use crate::file::FileCache;
use crate::owner::{Owner, Use};
use crate::stats::CacheStats;
use crate::writeback::{Account, Flusher};
use extant_base::{Ino, Result};
use std::sync::Arc;

/// The page cache of one volume. Clones share it.
#[derive(Clone)]
pub struct PageCache {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub account: Arc<Account>,
    pub flusher: Arc<Flusher>,
}

impl PageCache {
    /// An empty cache.
    pub fn new(config: CacheConfig) -> PageCache {
        let account = Arc::new(Account::new());
        let flusher = Flusher::new(&config, account.clone());
        PageCache { shared: Arc::new(Shared { account, flusher }) }
    }

    /// Starts the cache's threads: the flusher and the reader ahead.
    pub fn start(&self, owner: Arc<dyn Owner>) -> Result<()> {
        self.shared.flusher.start(owner)
    }

    /// Stops and joins the threads and lets the owner go. Again is fine.
    pub fn stop(&self) {
        self.shared.flusher.stop();
    }

    /// The file of inode `ino`: the same object for as long as it has folios or users.
    pub fn file(&self, _ino: Ino) -> Arc<FileCache> {
        unimplemented!("follows")
    }

    /// The inode is gone: its folios leave, dirty or not, and the next [`PageCache::file`] is a new
    /// object.
    pub fn forget(&self, _ino: Ino) {
        unimplemented!("follows")
    }

    /// Files with dirty bytes, the one first that became dirty first.
    pub fn dirty_files(&self) -> Vec<Arc<FileCache>> {
        self.shared.flusher.dirty_files()
    }

    /// What the cache says of itself.
    pub fn stats(&self) -> CacheStats {
        let mut stats = CacheStats::default();
        self.shared.account.fill_in(&mut stats);
        stats
    }

    /// A write of `len` bytes at `offset` has returned and no lock is held (but `Rank::Write`
    /// perhaps): don't-cache policy and throttling. May sleep.
    pub fn wrote(&self, file: &Arc<FileCache>, offset: u64, len: u64, how: Use) -> Result<()> {
        self.shared.flusher.wrote(file, offset, len, how)
    }
}
