//! Access to a file's bytes in the page cache in place, without a copy.

use crate::api::file::File;
use extant_base::Result;
use extant_pagecache::{FolioMut, FolioRef};
use std::ops::Range;

impl File {
    /// Lends the cached bytes around `offset`, to be read in place: between 4 KiB and 2 MiB, as
    /// they lie in the cache, up to the file's end. No thread writes to them while they are lent.
    /// The thread that holds them must make no other call to the volume.
    ///
    /// # Errors
    /// `Invalid` at or past the end; `NotSupported` without a page cache, and for content that does
    /// not go through it (in the inode, through the journal, encrypted); as [`File::read_at`].
    ///
    /// # Examples
    ///
    /// ```
    /// # let _here = extant_guide_tests::with_image();
    /// let fs = extant::Filesystem::open("disk.img")?;
    /// let file = fs.open_file("/usr/bin/env")?;
    /// let start = file.borrow(0)?;
    /// println!("{} bytes, the first ones {:?}", start.len(), &start[..4]);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn borrow(&self, offset: u64) -> Result<FolioRef<'_>> {
        self.volume().context().recording_errors(|| {
            self.volume().io(self.held()).borrow_folio(offset, self.cache_use())
        })
    }

    /// Lends `range`, to be changed in place. It must lie before the file's end and within one
    /// folio. The bytes count as written when they are given back. No other thread reads or writes
    /// the folio meanwhile, and the thread that holds it must make no other call to the volume.
    /// Hold it only briefly: a commit may wait for it.
    ///
    /// # Errors
    /// As [`File::borrow`]; `Invalid` for a range that is empty or in several folios (only a
    /// multiple of 2 MiB is always a border between folios); as [`File::write_at`].
    pub fn borrow_mut(&self, range: Range<u64>) -> Result<FolioMut<'_>> {
        self.volume()
            .context()
            .recording_errors(|| self.volume().io(self.held()).borrow_folio_mut(range.clone()))
    }
}
