//! Holding an inode: while anybody does, its content stays, with or without a name.
//!
//! ```text
//!   name found, under the directory's lock ──► users + 1 ──► Held, InodeHold
//!                                                                │ dropped
//!   last name gone: unlinked ──┐                                 ▼
//!                              └──► users = 0 and unlinked ──► released
//! ```
//!
//! A number is only counted up where a name proves that it is in use: under the lock of the
//! directory that has it, or under its own with links above zero. So nobody can come to hold an
//! inode after its last holder saw that it is to be released.

use crate::filesystem::Filesystem;
use crate::inode::Inode;
use crate::volume::Volume;
use extant_base::{Error, Ino, Result};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Inode {
    fn hold(&self) {
        self.users.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the caller was the last to hold an inode without names.
    fn let_go(&self) -> bool {
        self.users.fetch_sub(1, Ordering::AcqRel) == 1 && self.unlinked.load(Ordering::Acquire)
    }
}

/// An inode held for the time of one operation.
///
/// Dropped last, it may release the inode: no lock and no handle may be held then.
pub(crate) struct Held<'v> {
    volume: &'v Volume,
    inode: Arc<Inode>,
}

impl<'v> Held<'v> {
    /// Holds `inode`, which a name keeps in use at this moment.
    pub(crate) fn new(volume: &'v Volume, inode: Arc<Inode>) -> Held<'v> {
        inode.hold();
        Held { volume, inode }
    }

    /// The same inode, held beyond the operation.
    pub(crate) fn keep(&self, fs: &Filesystem) -> InodeHold {
        self.inode.hold();
        InodeHold { fs: fs.clone(), inode: Arc::clone(&self.inode) }
    }
}

impl Deref for Held<'_> {
    type Target = Inode;
    fn deref(&self) -> &Inode {
        &self.inode
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // A thread that panics may hold any lock; the orphan's record stays.
        if self.inode.let_go() && !std::thread::panicking() {
            self.volume.orphan_finish(&self.inode);
        }
    }
}

/// An inode held for as long as its user likes.
///
/// Dropped last, it may release the inode: no lock and no handle may be held then.
pub(crate) struct InodeHold {
    fs: Filesystem,
    inode: Arc<Inode>,
}

impl InodeHold {
    /// The volume it belongs to.
    pub(crate) fn fs(&self) -> &Filesystem {
        &self.fs
    }
}

impl InodeHold {
    /// An opening of the regular file ends.
    pub(crate) fn end_opening(&self) {
        let inode = &self.inode;
        // Who replaced the content of a file, and seldom syncs it, finds the new one after a crash.
        if inode.write_back_at_close.load(Ordering::Relaxed)
            && inode.write_back_at_close.swap(false, Ordering::Relaxed)
            && !inode.unlinked.load(Ordering::Relaxed)
            && !std::thread::panicking()
            && let Err(error) = self.fs.volume().write_back(inode, 0..u64::MAX, &u64::MAX)
            && let Some(cached) = inode.cached.get()
        {
            // It stays dirty; the next one to sync the file is told.
            cached.pages.note_error(&error);
        }
        match inode.cached.get().is_some_and(|cached| cached.pages.is_dirty()) {
            true => drop(inode.closed_dirty.fetch_add(1, Ordering::AcqRel)),
            // Its bytes are on the device, but its map and size may not be committed.
            false => self.fs.volume().note_closed(inode),
        }
        // Who still grows the file through another opening only loses room that was kept.
        self.fs.volume().space().discard_preallocation(inode.ino);
    }
}

impl Deref for InodeHold {
    type Target = Inode;
    fn deref(&self) -> &Inode {
        &self.inode
    }
}

impl Clone for InodeHold {
    fn clone(&self) -> InodeHold {
        self.inode.hold();
        InodeHold { fs: self.fs.clone(), inode: Arc::clone(&self.inode) }
    }
}

impl Drop for InodeHold {
    fn drop(&mut self) {
        // A thread that panics may hold any lock; the orphan's record stays.
        if self.inode.let_go() && !std::thread::panicking() {
            self.fs.volume().orphan_finish(&self.inode);
        }
    }
}

impl Volume {
    /// The inode that `name` means in directory `dir`.
    ///
    /// Errors: `NotFound`; `NotADirectory`; what reading gives. Locks: takes `Inode` (shared).
    pub(crate) fn lookup(&self, dir: &Inode, name: &[u8]) -> Result<Held<'_>> {
        let body = dir.read();
        let view = self.dir(dir.ino, &body)?;
        if body.disk.links == 0 && name != b"." {
            return Err(Error::NotFound);
        }
        let found = view.lookup(name)?;
        Ok(Held::new(self, self.inode(found.ino)?))
    }

    /// The inode `ino`, which must have a name.
    ///
    /// Errors: `Corrupt` naming the inode when it is not in use; `NotFound` when it lost its last
    /// name. Locks: takes `Inode` (shared).
    pub(crate) fn hold_ino(&self, ino: Ino) -> Result<Held<'_>> {
        let inode = self.inode(ino).map_err(|error| self.stale(error))?;
        let body = inode.read();
        if body.disk.links == 0 {
            return Err(Error::NotFound);
        }
        let held = Held::new(self, Arc::clone(&inode));
        drop(body);
        Ok(held)
    }
}
