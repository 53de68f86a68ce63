//! Writing into the cache.

use super::FileCache;
use crate::owner::{Fill, Source, Use};
use extant_base::Result;

impl FileCache {
    /// Overwrites bytes that are in the cache, all or nothing: every block that is touched is up
    /// to date and backed, the end is not past the file's, `may` (asked under the folios' locks)
    /// agrees, and there are at most 16 folios. Bytes done: all, fewer after a short copy, or 0:
    /// go the slow way, nothing was changed.
    pub fn overwrite_hit(
        &self,
        _offset: u64,
        _source: &mut dyn Source,
        _how: Use,
        _may: &dyn Fn() -> bool,
    ) -> usize {
        unimplemented!("follows")
    }

    /// Writes bytes, the slow way. The caller holds the inode alone, and every block of the range
    /// is allocated or reserved. Bytes past the file's end are fine; its length stays. Bytes
    /// written: fewer than the source has only after a short copy, or an error after the first
    /// folio.
    pub fn write(
        &self,
        _offset: u64,
        _source: &mut dyn Source,
        _how: Use,
        _fill: &dyn Fill,
    ) -> Result<usize> {
        unimplemented!("follows")
    }

    /// Makes the block around `offset` up to date and dirty: an unaligned old end of file that a
    /// later write leaves behind.
    pub fn dirty_block(&self, _offset: u64, _fill: &dyn Fill) -> Result<()> {
        unimplemented!("follows")
    }
}
