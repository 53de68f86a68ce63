//! Folios lent to embedders: access to a file's bytes in place, without a copy.

use super::fill::FromDevice;
use crate::files::file::write::{block_after, block_of, check_writable_file};
use crate::state::inode::Inode;
use crate::volume::Volume;
use extant_base::{Error, Result};
use extant_pagecache::{FolioMut, FolioRef, Use};
use std::ops::Range;

const NOT_CACHED: Error = Error::NotSupported("borrowing bytes of a file that is not cached");

impl Volume {
    pub(crate) fn borrow_folio<'a>(
        &self,
        inode: &'a Inode,
        offset: u64,
        how: Use,
    ) -> Result<FolioRef<'a>> {
        let body = inode.read();
        let file_cache = self.file_cache(inode, &body).ok_or(NOT_CACHED)?;
        let fill = FromDevice { volume: self, ino: inode.ino, body: &body };
        file_cache.pages.borrow(offset, how, &fill)
    }

    pub(crate) fn borrow_folio_mut<'a>(
        &self,
        inode: &'a Inode,
        range: Range<u64>,
    ) -> Result<FolioMut<'a>> {
        self.context().check_writable()?;
        // Throttle before the change: a borrower pays here for what it changed earlier.
        let len = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
        self.wrote(inode, range.start, len, Use::Keep)?;
        let _writing = inode.writing.lock();
        let mut body = self.write_after_transfers(inode, range.clone());
        check_writable_file(&body)?;
        if body.flags.contains(extant_ondisk::inode::InodeFlags::APPEND) {
            return Err(Error::NotPermitted);
        }
        self.drop_capability(inode.ino, &mut body)?;
        let file_cache = self.file_cache(inode, &body).ok_or(NOT_CACHED)?;
        body.file_cache.get_or_insert_with(|| file_cache.clone());
        if range.is_empty() || range.end > body.size {
            return Err(Error::Invalid("a range that is empty or past the file's end"));
        }
        let size = self.block_size();
        let blocks = block_of(size, range.start)?..block_after(size, range.end)?;
        self.space().with_space_retry(|| self.reserve_blocks(inode.ino, &body, blocks.clone()))?;
        let now = self.environment().now();
        body.content_changed(now);
        body.times_changed = true;
        let fill = FromDevice { volume: self, ino: inode.ino, body: &body };
        let lent = file_cache.pages.borrow_mut(range, &fill);
        match &lent {
            Ok(_) => self.note_lent(file_cache),
            Err(_) => self.forget_unused(&body, blocks),
        }
        lent
    }
}
