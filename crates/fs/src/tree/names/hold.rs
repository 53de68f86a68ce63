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

use crate::state::inode::Inode;
use crate::tree::names::Names;
use crate::volume::Volume;
use extant_base::{Error, Ino, Result};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Inode {
    /// Adds a holder. The caller guarantees that the inode is in use at this moment.
    pub(crate) fn hold(&self) {
        self.users.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes a holder. Whether it was the last one of an inode without names, which the caller
    /// then releases.
    pub(crate) fn release_hold(&self) -> bool {
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

    /// The inode, which the caller then holds in its own right.
    pub(crate) fn share(&self) -> Arc<Inode> {
        self.inode.hold();
        Arc::clone(&self.inode)
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
        if self.inode.release_hold() && !std::thread::panicking() {
            self.volume.orphan_records().orphan_finish(&self.inode);
        }
    }
}

impl<'a> Names<'a> {
    /// Looks up `name` in directory `dir`.
    ///
    /// Errors: `NotFound`; `NotADirectory`; those of reading. Locks: takes `Inode` (shared).
    pub(crate) fn lookup(self, dir: &Inode, name: &[u8]) -> Result<Held<'a>> {
        let body = dir.read();
        let view = self.volume.file(&body).dir()?;
        if body.disk.links == 0 && name != b"." {
            return Err(Error::NotFound);
        }
        let found = view.lookup(name)?;
        Ok(Held::new(self.volume, self.volume.inodes().get(found.ino)?))
    }

    /// The inode `ino`, which must have a name.
    ///
    /// Errors: `Corrupt` naming the inode if it is not in use; `NotFound` if it has lost its last
    /// name. Locks: takes `Inode` (shared).
    pub(crate) fn hold_ino(self, ino: Ino) -> Result<Held<'a>> {
        let inode =
            self.volume.inodes().get(ino).map_err(|error| self.volume.inodes().stale(error))?;
        let body = inode.read();
        if body.disk.links == 0 {
            return Err(Error::NotFound);
        }
        let held = Held::new(self.volume, Arc::clone(&inode));
        drop(body);
        Ok(held)
    }
}
