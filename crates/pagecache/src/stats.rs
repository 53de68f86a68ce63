//! What a cache says of itself.

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
