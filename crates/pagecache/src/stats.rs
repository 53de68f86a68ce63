//! The cache's counters.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

/// Counters of a [`PageCache`](crate::PageCache), in bytes unless noted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    /// Bytes in folios.
    pub cached: u64,
    /// Dirty bytes that are not under write-back.
    pub dirty: u64,
    /// Bytes under write-back.
    pub writing: u64,
    /// Bytes in drop-behind folios, dirty or not.
    pub drop_behind: u64,
    /// Bytes in drop-behind folios that are dirty or under write-back.
    pub drop_behind_dirty: u64,
    /// Maximum of `cached`.
    pub cached_peak: u64,
    /// Maximum of `dirty` + `writing`.
    pub dirty_peak: u64,
    /// Maximum of `drop_behind`.
    pub drop_behind_peak: u64,
    /// Maximum of `drop_behind_dirty`.
    pub drop_behind_dirty_peak: u64,
    /// Calls served from the cache alone (a count, not bytes).
    pub hits: u64,
    /// Folios created or filled for a reader or writer (a count, not bytes).
    pub misses: u64,
    /// Folios evicted for memory (a count, not bytes).
    pub evicted: u64,
    /// Bytes read ahead.
    pub read_ahead: u64,
}

const SHARDS: usize = 16;

/// Counters in shards, so that threads seldom share a cache line.
#[derive(Default)]
pub(crate) struct Tally {
    shards: [Shard; SHARDS],
}

#[derive(Default)]
#[repr(align(128))]
struct Shard {
    hits: AtomicU64,
    misses: AtomicU64,
    evicted: AtomicU64,
    read_ahead: AtomicU64,
}

thread_local! {
    static SHARD: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Relaxed) % SHARDS
    };
}

impl Tally {
    #[inline]
    fn mine(&self) -> &Shard {
        // A thread that is ending has no shard number any more.
        &self.shards[SHARD.try_with(|n| *n).unwrap_or(0)]
    }

    #[inline]
    pub fn hit(&self) {
        self.mine().hits.fetch_add(1, Relaxed);
    }

    pub fn missed(&self) {
        self.mine().misses.fetch_add(1, Relaxed);
    }

    pub fn evicted(&self) {
        self.mine().evicted.fetch_add(1, Relaxed);
    }

    pub fn read_ahead(&self, bytes: u64) {
        self.mine().read_ahead.fetch_add(bytes, Relaxed);
    }

    pub fn fill_in(&self, stats: &mut CacheStats) {
        let sum = |of: fn(&Shard) -> &AtomicU64| {
            self.shards.iter().map(|shard| of(shard).load(Relaxed)).sum()
        };
        stats.hits = sum(|shard| &shard.hits);
        stats.misses = sum(|shard| &shard.misses);
        stats.evicted = sum(|shard| &shard.evicted);
        stats.read_ahead = sum(|shard| &shard.read_ahead);
    }
}
