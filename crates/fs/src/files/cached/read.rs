//! Reading through the page cache, and reading ahead.

use super::fill::FromDevice;
use crate::files::FileIo;
use crate::state::inode::Body;
use extant_base::Result;
use extant_base::narrow::fits_usize;
use extant_pagecache::{ReadStream, Use};
use std::ops::Range;

impl FileIo<'_> {
    /// Reads bytes of a regular file from `offset` on. Returns how many: fewer than `buf` holds
    /// only at the end of the file.
    ///
    /// Errors: as [`FileRef::read_file`](crate::inodes::file::FileRef::read_file). Locks: takes
    /// `Inode` (shared) when folios are missing, then `Folio`.
    pub(crate) fn read_through(
        self,
        offset: u64,
        buf: &mut [u8],
        how: Use,
        stream: Option<&ReadStream>,
    ) -> Result<usize> {
        let hit = match self.inode.file_cache.get() {
            Some(file_cache) => file_cache.pages.read_hit(offset, buf, how),
            None => 0,
        };
        if hit == buf.len() {
            return Ok(hit);
        }
        // A hit that ends within a block ended at the file's end of that moment. The file may have
        // grown since, and newer bytes of the same block must not follow older ones: read the whole
        // block again.
        let log2 = self.volume.block_size().log2();
        let reached = offset.saturating_add(hit as u64);
        let hit = fits_usize((reached >> log2 << log2).saturating_sub(offset));
        let (offset, buf) = (offset.saturating_add(hit as u64), &mut buf[hit..]);
        let more = self.volume.context().recording_errors(|| {
            let body = self.inode.read();
            self.read_missing(&body, offset, buf, how, stream)
        });
        // Report the bytes read so far; the caller's next call returns the error.
        match more {
            Ok(more) => Ok(hit + more),
            Err(_) if hit > 0 => Ok(hit),
            Err(error) => Err(error),
        }
    }

    /// As [`FileIo::read_through`]. The caller holds the inode lock.
    pub(crate) fn read_missing(
        self,
        body: &Body,
        offset: u64,
        buf: &mut [u8],
        how: Use,
        stream: Option<&ReadStream>,
    ) -> Result<usize> {
        if self.volume.reads_past_cache() && self.inode.file_cache.get().is_none() {
            return self.volume.file(body).read_file(offset, buf);
        }
        let Some(file_cache) = self.file_cache(body) else {
            return self.volume.file(body).read_file(offset, buf);
        };
        let fill = FromDevice { volume: self.volume, body };
        file_cache.pages.read(offset, buf, how, stream, &fill)
    }

    /// Brings a range of a file into the cache.
    pub(crate) fn populate(self, range: Range<u64>, how: Use) -> Result<()> {
        let body = self.inode.read();
        let Some(file_cache) = self.file_cache(&body) else { return Ok(()) };
        let range = range.start..range.end.min(body.size);
        let fill = FromDevice { volume: self.volume, body: &body };
        match range.is_empty() {
            true => Ok(()),
            false => file_cache.pages.populate(range, how, &fill),
        }
    }
}
