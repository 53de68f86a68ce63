//! The configuration of a page cache.

use extant_base::BlockSize;
use std::time::Duration;

/// When drop-behind ("don't cache") data is written back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DontCachePolicy {
    /// Each write call writes its own range back before it returns. Peaks are smallest and calls
    /// are slowest: each call waits for the device, and the cache does not merge the data of
    /// several calls into larger writes.
    Inline,
    /// A write call writes back as many bytes as it has written, unless write-back of its file is
    /// already in flight. In that case the call returns at once, and the thread that writes the
    /// file back, or the flusher, writes its bytes.
    RateLimited,
    /// A write call sets one flag and wakes the flusher. The flusher writes as many bytes as are
    /// dirty in drop-behind folios, from the files that became dirty first. Writers are throttled
    /// only when the device cannot keep dirty data below [`CacheConfig::dont_cache_cap`].
    #[default]
    Flusher,
}

/// Sizes and times of a [`PageCache`](crate::PageCache).
#[derive(Clone, Debug)]
pub struct CacheConfig {
    /// The filesystem's block size.
    pub block_size: BlockSize,
    /// Bytes that folios may occupy. The cache exceeds the limit only for folios under
    /// construction, and for dirty folios while their writers wait.
    pub limit: u64,
    /// Dirty bytes at which writers wait; `None` means two fifths of `limit`.
    pub dirty_limit: Option<u64>,
    /// Bytes of drop-behind data that may be dirty or under write-back. The same number of bytes
    /// may be clean.
    pub dont_cache_cap: u64,
    /// When drop-behind data is written back.
    pub policy: DontCachePolicy,
    /// The age at which dirty data is written back, even when no limit is exceeded.
    pub expire: Duration,
}

impl CacheConfig {
    /// The defaults for a volume of `block_size`: a quarter of the memory available to this
    /// process, 64 MiB of drop-behind data, the policy [`DontCachePolicy::Flusher`], an expiry age
    /// of 3 seconds.
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
