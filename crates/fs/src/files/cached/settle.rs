//! A settled file: nothing is in flight, so the caller may change its map or size and works on the
//! device alone.

use crate::files::FileIo;
use crate::inodes::map::LOGICAL_END;
use crate::state::inode::Body;
use extant_base::Result;
use extant_base::lock::{MutexGuard, WriteGuard};
use std::ops::{Deref, DerefMut, Range};

/// No folio is larger.
const FOLIO_MAX: u64 = 2 << 20;

/// An inode held exclusively, with no data in flight and no writer.
pub(crate) struct Settled<'a> {
    // The locks are released in the order of the fields.
    body: WriteGuard<'a, Body>,
    _writing_back: MutexGuard<'a, ()>,
    _writing: MutexGuard<'a, ()>,
}

impl Deref for Settled<'_> {
    type Target = Body;
    fn deref(&self) -> &Body {
        &self.body
    }
}

impl DerefMut for Settled<'_> {
    fn deref_mut(&mut self) -> &mut Body {
        &mut self.body
    }
}

impl<'a> FileIo<'a> {
    /// Holds an inode. Its data stays where it is, in folios or on the device. Direct transfers
    /// have ended.
    ///
    /// Locks: takes `Write`, `WriteBack`, `Inode`.
    pub(crate) fn quiesce(self) -> Settled<'a> {
        let _closed = self.inode.transfers.close();
        let writing = self.inode.writing.lock();
        let writing_back = self.inode.hold_write_back();
        Settled { body: self.inode.write(), _writing_back: writing_back, _writing: writing }
    }

    /// Holds an inode whose bytes in `range` are on the device and only there.
    ///
    /// Errors: what writing back gives; the data stays dirty. Locks: as [`FileIo::quiesce`].
    pub(crate) fn settle(self, range: Range<u64>) -> Result<Settled<'a>> {
        let range = range.start / FOLIO_MAX * FOLIO_MAX
            ..range.end.checked_next_multiple_of(FOLIO_MAX).unwrap_or(u64::MAX);
        let _closed = self.inode.transfers.close();
        let writing = self.inode.writing.lock();
        let writing_back = self.inode.hold_write_back();
        loop {
            let body = self.inode.write();
            let is_settled = match self.inode.file_cache.get() {
                Some(file_cache) => file_cache.pages.drop_clean(range.clone()),
                None => true,
            };
            if is_settled {
                if let Some(file_cache) = self.inode.file_cache.get() {
                    self.volume.cache_reservations(file_cache).forget_settled_rewrites();
                }
                return Ok(Settled { body, _writing_back: writing_back, _writing: writing });
            }
            // Meanwhile only a fast overwrite can make bytes dirty, and it needs the state that
            // holding the inode disables.
            drop(body);
            self.write_back_held(range.clone(), &u64::MAX)?;
        }
    }

    /// Drops all folios of an inode whose content is no longer needed, and returns their
    /// reservations.
    pub(crate) fn drop_folios(self, body: &mut Body) {
        if let (Some(cache), Some(_)) = (self.volume.page_cache(), self.inode.file_cache.get()) {
            cache.forget(self.inode.ino);
            self.volume.reservations(body).forget_delayed(0..LOGICAL_END);
            body.size_on_disk = None;
        }
    }
}
