//! Folios lent to embedders: access to a file's bytes in place, without a copy.

use super::fill::FromDevice;
use crate::files::FileIo;
use crate::files::file::write::{block_after, block_of, check_writable_file};
use extant_base::{Error, Result};
use extant_pagecache::{FolioMut, FolioRef, Use};
use std::ops::Range;

const NOT_CACHED: Error = Error::NotSupported("borrowing bytes of a file that is not cached");

impl<'a> FileIo<'a> {
    pub(crate) fn borrow_folio(self, offset: u64, how: Use) -> Result<FolioRef<'a>> {
        let body = self.inode.read();
        let file_cache = self.file_cache(&body).ok_or(NOT_CACHED)?;
        let fill = FromDevice { volume: self.volume, body: &body };
        file_cache.pages.borrow(offset, how, &fill)
    }

    pub(crate) fn borrow_folio_mut(self, range: Range<u64>) -> Result<FolioMut<'a>> {
        self.volume.context().check_writable()?;
        // Throttle before the change: a borrower pays here for what it changed earlier.
        let len = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
        self.wrote(range.start, len, Use::Keep)?;
        let _writing = self.inode.writing.lock();
        let mut body = self.volume.direct(self.inode).write_after_transfers(range.clone());
        check_writable_file(&body)?;
        if body.flags.contains(extant_ondisk::inode::InodeFlags::APPEND) {
            return Err(Error::NotPermitted);
        }
        self.volume.xattrs_mut(&mut body).drop_capability()?;
        let file_cache = self.file_cache(&body).ok_or(NOT_CACHED)?;
        body.file_cache.get_or_insert_with(|| file_cache.clone());
        if range.is_empty() || range.end > body.size {
            return Err(Error::Invalid("a range that is empty or past the file's end"));
        }
        let size = self.volume.block_size();
        let blocks = block_of(size, range.start)?..block_after(size, range.end)?;
        self.volume
            .space()
            .with_space_retry(|| self.volume.reservations(&body).reserve_blocks(blocks.clone()))?;
        let now = self.volume.environment().now();
        body.content_changed(now);
        body.times_changed = true;
        let fill = FromDevice { volume: self.volume, body: &body };
        let lent = file_cache.pages.borrow_mut(range, &fill);
        match &lent {
            Ok(_) => self.volume.cache_reservations(file_cache).note_lent(),
            Err(_) => self.volume.reservations(&body).forget_unused(blocks),
        }
        lent
    }
}
