//! Dirty bytes on their way to the device.

use super::FileCache;
use extant_base::Result;
use std::io::IoSlice;
use std::marker::PhantomData;
use std::ops::Range;

/// Dirty bytes that are being written. Dropped before [`Taken::done`] they are dirty again.
pub struct Taken<'a> {
    range: Range<u64>,
    file: PhantomData<&'a FileCache>,
}

impl Taken<'_> {
    /// The bytes, in order; empty after [`Taken::let_go`].
    pub fn slices(&self) -> Vec<IoSlice<'_>> {
        unimplemented!("follows")
    }

    /// Where they are in the file: whole blocks, perhaps fewer than were asked for.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// Lets go of the folios' locks and of copies; the range stays on its way.
    pub fn let_go(&mut self) {
        unimplemented!("follows")
    }

    /// The bytes are on the device: clean now, and marked folios leave.
    pub fn done(self) {
        unimplemented!("follows")
    }
}

impl FileCache {
    /// Whether bytes are dirty or on their way to the device.
    pub fn is_dirty(&self) -> bool {
        unimplemented!("follows")
    }

    /// Dirty bytes, those on their way not counted.
    pub fn dirty_bytes(&self) -> u64 {
        unimplemented!("follows")
    }

    /// Whether any folio is in the cache.
    pub fn has_folios(&self) -> bool {
        unimplemented!("follows")
    }

    /// The first run of dirty blocks in `range`, across folios, block aligned, at most `max` bytes.
    pub fn next_dirty(&self, _range: Range<u64>, _max: u64) -> Option<Range<u64>> {
        unimplemented!("follows")
    }

    /// Takes the dirty run at the start of `range` to write it: its bytes stay as they are until
    /// [`Taken::let_go`], its folios stay in the cache. Fully dirty folios of 256 KiB and more are
    /// lent under their locks, everything else is copied; a copied block can become dirty again
    /// meanwhile.
    pub fn take_dirty(&self, _range: Range<u64>) -> Result<Taken<'_>> {
        unimplemented!("follows")
    }
}
