//! What a cache is told when it is made.

use extant_base::BlockSize;
use std::time::Duration;

/// When drop-behind ("don't cache") data is written back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DontCachePolicy {
    /// Every write call writes its own range back before it returns. The smallest peaks, the
    /// slowest calls: each one waits for the device, and nothing is gathered into larger writes.
    Inline,
    /// A write call writes back as much as it has written, unless write-back of its file is in
    /// flight; then it returns at once and what it wrote is owed by whoever is writing back.
    RateLimited,
    /// A write call sets one flag and wakes the flusher, which writes as many bytes as are dirty
    /// and marked from the files that became dirty first. Writers wait, smoothly, only when the
    /// device does not keep up with [`CacheConfig::dont_cache_cap`].
    #[default]
    Flusher,
}

/// Sizes and times of a [`PageCache`](crate::PageCache).
#[derive(Clone, Debug)]
pub struct CacheConfig {
    /// The filesystem's block size.
    pub block_size: BlockSize,
    /// Bytes that the folios may take. Held but for folios in the making, and for dirty ones
    /// beyond it while their writers wait.
    pub limit: u64,
    /// Dirty bytes at which writers wait; `None` is two fifths of `limit`.
    pub dirty_limit: Option<u64>,
    /// Bytes of drop-behind data that may be dirty or on their way to the device, and as many
    /// that may be clean.
    pub dont_cache_cap: u64,
    /// When drop-behind data is written back.
    pub policy: DontCachePolicy,
    /// The age at which dirty data is written back without need.
    pub expire: Duration,
}

impl CacheConfig {
    /// The defaults for a volume of `block_size`: a quarter of the memory that this process may
    /// have, 64 MiB of drop-behind data, the flusher, 3 seconds.
    pub fn new(block_size: BlockSize) -> CacheConfig {
        CacheConfig {
            block_size,
            limit: crate::memory::available() / 4,
            dirty_limit: None,
            dont_cache_cap: 64 << 20,
            policy: DontCachePolicy::default(),
            expire: Duration::from_secs(3),
        }
    }

    /// Dirty bytes at which writers wait.
    pub fn dirty_limit(&self) -> u64 {
        self.dirty_limit.unwrap_or(self.limit / 5 * 2)
    }
}
