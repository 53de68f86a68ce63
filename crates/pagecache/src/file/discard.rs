//! Folios that leave because their bytes are no longer the file's.

use super::FileCache;
use std::ops::Range;

impl FileCache {
    /// Every block that touches `range` leaves, dirty or not. The caller holds the inode alone and
    /// the file's write-back lock. A reader or writer that waits for a folio's lock then misses.
    pub fn discard(&self, _range: Range<u64>) {
        unimplemented!("follows")
    }

    /// Clean folios that touch `range` leave. `false`: some are dirty; write back and ask again.
    pub fn drop_clean(&self, _range: Range<u64>) -> bool {
        unimplemented!("follows")
    }
}
