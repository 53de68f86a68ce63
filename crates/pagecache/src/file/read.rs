//! Reading through the cache.

use super::FileCache;
use crate::owner::{Fill, Use};
use crate::readahead::ReadStream;
use extant_base::Result;
use std::ops::Range;

impl FileCache {
    /// Copies bytes from `offset` on that are in the cache, up to the first that is not or the
    /// file's end. How many; no lock but the folios' is taken.
    pub fn read_hit(&self, _offset: u64, _buf: &mut [u8], _how: Use) -> usize {
        unimplemented!("follows")
    }

    /// Reads from `offset` on, up to the file's end; what is not in the cache comes from `fill`.
    /// With a `stream` bytes are read ahead.
    pub fn read(
        &self,
        _offset: u64,
        _buf: &mut [u8],
        _how: Use,
        _stream: Option<&ReadStream>,
        _fill: &dyn Fill,
    ) -> Result<usize> {
        unimplemented!("follows")
    }

    /// Brings `range` into the cache: the work of read-ahead.
    pub fn populate(&self, _range: Range<u64>, _how: Use, _fill: &dyn Fill) -> Result<()> {
        unimplemented!("follows")
    }
}
