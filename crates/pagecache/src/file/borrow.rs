//! Folios lent to embedders, memory-map style.

use super::FileCache;
use crate::owner::{Fill, Use};
use extant_base::Result;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};

/// Bytes of one folio, to read in place. Keeps the folio's writers out while it lives.
pub struct FolioRef<'a> {
    start: u64,
    file: PhantomData<&'a FileCache>,
}

impl FolioRef<'_> {
    /// Where the bytes start in the file.
    pub fn start(&self) -> u64 {
        self.start
    }
}

impl Deref for FolioRef<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        unimplemented!("follows")
    }
}

/// Bytes of one folio, to change in place: dirty when dropped. Keeps everyone else out.
pub struct FolioMut<'a> {
    start: u64,
    file: PhantomData<&'a FileCache>,
}

impl FolioMut<'_> {
    /// Where the bytes start in the file.
    pub fn start(&self) -> u64 {
        self.start
    }
}

impl Deref for FolioMut<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        unimplemented!("follows")
    }
}

impl DerefMut for FolioMut<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        unimplemented!("follows")
    }
}

impl FileCache {
    /// Lends the folio around `offset`, which is before the file's end.
    pub fn borrow(&self, _offset: u64, _how: Use, _fill: &dyn Fill) -> Result<FolioRef<'_>> {
        unimplemented!("follows")
    }

    /// Lends `range` to be changed: within one folio, before the file's end, every block allocated
    /// or reserved.
    pub fn borrow_mut(&self, _range: Range<u64>, _fill: &dyn Fill) -> Result<FolioMut<'_>> {
        unimplemented!("follows")
    }
}
