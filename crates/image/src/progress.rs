//! Progress of reading the sources.

/// Receives progress, often and from several threads at once. Implementations should only add to
/// atomic counters, and display them elsewhere.
pub trait Progress: Sync {
    /// `count` more entries were listed.
    fn entries(&self, count: u64) {
        let _ = count;
    }

    /// `count` more bytes of file data were listed, or read when an archive is spooled.
    fn bytes(&self, count: u64) {
        let _ = count;
    }
}

/// Ignores all progress.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProgress;

impl Progress for NoProgress {}
