//! One inode and its volume, as one argument.
//!
//! ```text
//!   FileRef { volume, body }       for reading: the map, the content, the checksums
//!   FileMut { volume, body }       for changing; what changes metadata also takes a handle
//! ```
//!
//! Every stratum above adds the methods of its subject: what a map does is in `map/`, what a
//! file's content does is in `files/`.

use crate::state::inode::Body;
use crate::volume::Volume;
use extant_base::Ino;

/// An inode, to read it.
#[derive(Clone, Copy)]
pub(crate) struct FileRef<'a> {
    /// The volume.
    pub(crate) volume: &'a Volume,
    /// The inode's content. The caller holds the inode's lock.
    pub(crate) body: &'a Body,
}

impl Volume {
    /// The inode with this content, to read it.
    pub(crate) fn file<'a>(&'a self, body: &'a Body) -> FileRef<'a> {
        FileRef { volume: self, body }
    }
}

impl FileRef<'_> {
    /// The inode's number.
    pub(crate) fn ino(&self) -> Ino {
        self.body.ino()
    }
}

/// An inode, to change it.
pub(crate) struct FileMut<'a> {
    /// The volume.
    pub(crate) volume: &'a Volume,
    /// The inode's content. The caller holds the inode's lock, exclusively.
    pub(crate) body: &'a mut Body,
}

impl Volume {
    /// The inode with this content, to change it.
    pub(crate) fn file_mut<'a>(&'a self, body: &'a mut Body) -> FileMut<'a> {
        FileMut { volume: self, body }
    }
}

impl FileMut<'_> {
    /// The inode's number.
    pub(crate) fn ino(&self) -> Ino {
        self.body.ino()
    }

    /// The same inode, to read it.
    pub(crate) fn as_ref(&self) -> FileRef<'_> {
        FileRef { volume: self.volume, body: self.body }
    }
}
