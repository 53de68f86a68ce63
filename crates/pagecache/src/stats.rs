//! What a cache says of itself.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

/// Figures of a [`PageCache`](crate::PageCache); bytes where nothing else is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// In folios.
    pub cached: u64,
    /// Changed and not on their way to the device.
    pub dirty: u64,
    /// On their way to the device.
    pub writing: u64,
    /// In folios marked as drop-behind, dirty or not.
    pub drop_behind: u64,
    /// In marked folios, dirty or on their way.
    pub drop_behind_dirty: u64,
    /// The most `cached` ever was.
    pub cached_peak: u64,
    /// The most `dirty` and `writing` ever were together.
    pub dirty_peak: u64,
    /// The most `drop_behind` ever was.
    pub drop_behind_peak: u64,
    /// The most `drop_behind_dirty` ever was.
    pub drop_behind_dirty_peak: u64,
    /// Calls served from the cache alone (times, not bytes).
    pub hits: u64,
    /// Folios that had to be made or filled for a reader or writer (times, not bytes).
    pub misses: u64,
    /// Folios that left to make room (times, not bytes).
    pub evicted: u64,
    /// Read ahead of a reader.
    pub read_ahead: u64,
}

const SHARDS: usize = 16;

/// Counters that threads seldom share.
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
        // A thread that is going away has no number any more.
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
