//! The engine, as the cache's threads see it.

use crate::file::FileCache;
use crate::interface::{Demand, Use};
use crate::writeback::WriteBack;
use extant_base::Result;
use std::ops::Range;
use std::sync::Arc;

/// The engine, as the cache's threads see it. The cache calls it with no lock held.
pub trait Owner: Send + Sync {
    /// Writes dirty bytes of `range` of `file` back in file order, about as many as `demand`
    /// requests, and waits for them. Returns the number of bytes written.
    ///
    /// # Errors
    /// The first error of a write; the bytes that were not written are dirty again.
    fn write_back(
        &self,
        file: &Arc<FileCache>,
        range: Range<u64>,
        demand: &dyn Demand,
    ) -> Result<u64>;

    /// Reads `range` into the cache before a reader needs it ([`FileCache::populate`]). Ignores
    /// errors: the reader meets them again.
    fn read_ahead(&self, file: &Arc<FileCache>, range: Range<u64>, how: Use);
}

impl WriteBack<FileCache> for Arc<dyn Owner> {
    fn write_back(
        &self,
        file: &Arc<FileCache>,
        range: Range<u64>,
        demand: &dyn Demand,
    ) -> Result<u64> {
        Owner::write_back(self.as_ref(), file, range, demand)
    }
}
