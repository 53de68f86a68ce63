//! A file with nothing under way: what may change its map or its size, and looks at the device alone.

use crate::inode::{Body, Inode};
use crate::map::LOGICAL_END;
use crate::volume::Volume;
use extant_base::Result;
use extant_base::lock::{MutexGuard, WriteGuard};
use std::ops::{Deref, DerefMut, Range};

/// No folio is larger.
const FOLIO_MAX: u64 = 2 << 20;

/// One inode, held exclusively; no data of it is on its way to the device, and nobody writes to it.
pub(crate) struct Settled<'a> {
    // In this order they are let go.
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

impl Volume {
    /// Holds an inode; data keeps being where it is, in folios or on the device. Direct transfers are over.
    ///
    /// Locks: takes `Write`, `WriteBack`, `Inode`.
    pub(crate) fn quiesce<'a>(&self, inode: &'a Inode) -> Settled<'a> {
        let _closed = inode.directs.close();
        let writing = inode.writing.lock();
        let writing_back = inode.hold_write_back();
        Settled { body: inode.write(), _writing_back: writing_back, _writing: writing }
    }

    /// Holds an inode whose bytes in `range` are on the device, and only there.
    ///
    /// Errors: what writing back gives; the data stays dirty. Locks: as [`Volume::quiesce`].
    pub(crate) fn settle<'a>(&self, inode: &'a Inode, range: Range<u64>) -> Result<Settled<'a>> {
        let range = range.start / FOLIO_MAX * FOLIO_MAX
            ..range.end.checked_next_multiple_of(FOLIO_MAX).unwrap_or(u64::MAX);
        let _closed = inode.directs.close();
        let writing = inode.writing.lock();
        let writing_back = inode.hold_write_back();
        loop {
            let body = inode.write();
            let is_settled = match inode.cached.get() {
                Some(cached) => cached.pages.drop_clean(range.clone()),
                None => true,
            };
            if is_settled {
                if let Some(cached) = inode.cached.get() {
                    self.forget_settled_rewrites(cached);
                }
                return Ok(Settled { body, _writing_back: writing_back, _writing: writing });
            }
            // Only what folios alone take can come in between, and that needs the inode's quiet.
            drop(body);
            self.write_back_held(inode, range.clone(), &u64::MAX)?;
        }
    }

    /// Takes all folios of an inode away whose content nobody needs any more, and what was promised for them.
    pub(crate) fn drop_folios(&self, inode: &Inode, body: &mut Body) {
        if let (Some(cache), Some(_)) = (self.page_cache(), inode.cached.get()) {
            cache.forget(inode.ino);
            self.forget_delayed(body, 0..LOGICAL_END);
            body.size_on_disk = None;
        }
    }
}
