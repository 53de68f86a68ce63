//! Holding an inode. While any holder exists, the content stays, with or without a name.
//!
//! ```text
//!   name found, under the directory's lock ──► users + 1 ──► Held, InodeHold
//!                                                                │ dropped
//!   last name gone: unlinked ──┐                                 ▼
//!                              └──► users = 0 and unlinked ──► released
//! ```
//!
//! The holder count is raised only while a name proves that the inode is in use: under the lock of
//! the directory that has the name, or under the inode's own lock with a link count above zero. So
//! no thread can start to hold an inode after its last holder has decided to release it.

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

    /// Whether the caller was the last holder of an inode without names.
    fn let_go(&self) -> bool {
        self.users.fetch_sub(1, Ordering::AcqRel) == 1 && self.unlinked.load(Ordering::Acquire)
    }
}

/// An inode held for the duration of one operation.
///
/// The last drop may release the inode, so the dropping thread must hold no lock and no handle.
pub(crate) struct Held<'v> {
    volume: &'v Volume,
    inode: Arc<Inode>,
}

impl<'v> Held<'v> {
    /// Holds `inode`. The caller guarantees that a name keeps it in use at this moment.
    pub(crate) fn new(volume: &'v Volume, inode: Arc<Inode>) -> Held<'v> {
        inode.hold();
        Held { volume, inode }
    }

    /// Holds the same inode beyond the operation.
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
        // A thread that panics may hold any lock, so the release is left to recovery: the orphan
        // record stays.
        if self.inode.let_go() && !std::thread::panicking() {
            self.volume.orphan_finish(&self.inode);
        }
    }
}

/// An inode held without a time limit.
///
/// The last drop may release the inode, so the dropping thread must hold no lock and no handle.
pub(crate) struct InodeHold {
    fs: Filesystem,
    inode: Arc<Inode>,
}

impl InodeHold {
    /// The volume of this inode.
    pub(crate) fn fs(&self) -> &Filesystem {
        &self.fs
    }
}

impl InodeHold {
    /// Ends one opening of the regular file.
    pub(crate) fn end_opening(&self) {
        let inode = &self.inode;
        // A program that replaced a file's content often does not sync it. Write-back at close lets
        // it find the new content after a crash.
        if inode.write_back_at_close.load(Ordering::Relaxed)
            && inode.write_back_at_close.swap(false, Ordering::Relaxed)
            && !inode.unlinked.load(Ordering::Relaxed)
            && !std::thread::panicking()
            && let Err(error) = self.fs.volume().write_back(inode, 0..u64::MAX, &u64::MAX)
            && let Some(cached) = inode.cached.get()
        {
            // The data stays dirty; the next sync of the file returns the error.
            cached.pages.note_error(&error);
        }
        match inode.cached.get().is_some_and(|cached| cached.pages.is_dirty()) {
            true => drop(inode.closed_dirty.fetch_add(1, Ordering::AcqRel)),
            // The bytes are on the device, but the map and size may not be committed.
            false => self.fs.volume().note_closed(inode),
        }
        // A writer that still extends the file through another opening loses only its
        // preallocation.
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
    /// Looks up `name` in directory `dir`.
    ///
    /// Errors: `NotFound`; `NotADirectory`; those of reading. Locks: takes `Inode` (shared).
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
    /// Errors: `Corrupt` naming the inode if it is not in use; `NotFound` if it has lost its last
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
