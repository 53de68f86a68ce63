//! Write-back: how many bytes are in which state, and who writes them when.

use crate::config::CacheConfig;
use crate::file::FileCache;
use crate::owner::{Owner, Use};
use crate::stats::CacheStats;
use extant_base::Result;
use std::sync::Arc;

/// How many bytes of the cache are in which state, exactly at any time.
///
/// ```text
///                dirtied            taken             written
///     clean ───────────────► dirty ────────► writing ────────► clean
///                              │  ◄──────────────┘
///                              ▼     redirtied
///                          discarded
/// ```
/// `marked`: the folio is drop-behind. Each call is made under the folio's lock, so it sees the
/// mark as it is: a folio that loses its mark moves all its bytes by `unmarked`. A block that is
/// dirtied while it is being written counts in both states.
pub(crate) struct Account {}

impl Account {
    pub fn new() -> Account {
        Account {}
    }

    /// Folios came (or left, negative).
    pub fn cached(&self, _bytes: i64) {}

    /// A folio of `bytes`, all clean, became drop-behind (when it was made).
    pub fn marked(&self, _bytes: u64) {}

    /// A folio of `bytes` is not drop-behind any more: an ordinary user found it, or it leaves.
    /// `dirty` and `writing` are its bytes in these states.
    pub fn unmarked(&self, _bytes: u64, _dirty: u64, _writing: u64) {}

    /// Clean bytes became dirty.
    pub fn dirtied(&self, _bytes: u64, _marked: bool) {}

    /// Dirty bytes are on their way to the device.
    pub fn taken(&self, _bytes: u64, _marked: bool) {}

    /// They arrived.
    pub fn written(&self, _bytes: u64, _marked: bool) {}

    /// They did not and are dirty again.
    pub fn redirtied(&self, _bytes: u64, _marked: bool) {}

    /// Dirty bytes left with their blocks.
    pub fn discarded(&self, _bytes: u64, _marked: bool) {}

    /// Puts the byte counts and their peaks into `stats`.
    pub fn fill_in(&self, _stats: &mut CacheStats) {}
}

/// The one who writes back: a list of dirty files, a thread, and the writers' brakes.
pub(crate) struct Flusher {}

impl Flusher {
    pub fn new(_config: &CacheConfig, _account: Arc<Account>) -> Arc<Flusher> {
        Arc::new(Flusher {})
    }

    /// Starts the thread. Called once between two `stop`s.
    pub fn start(self: &Arc<Self>, _owner: Arc<dyn Owner>) -> Result<()> {
        Ok(())
    }

    /// Wakes all who wait, joins the thread, drops the owner. Again is fine.
    pub fn stop(&self) {}

    /// `file` has dirty bytes and had none. Called under a folio's lock (`Rank::Folio`).
    pub fn file_dirtied(&self, _file: &Arc<FileCache>) {}

    /// See `PageCache::dirty_files`.
    pub fn dirty_files(&self) -> Vec<Arc<FileCache>> {
        Vec::new()
    }

    /// See `PageCache::wrote`.
    pub fn wrote(&self, _file: &Arc<FileCache>, _offset: u64, _len: u64, _how: Use) -> Result<()> {
        Ok(())
    }
}
