//! Extended attributes of an inode, in all the places where they are stored.
//!
//! ```text
//!   inode tail ──┬─ name = value                    small values, inline data
//!                └─ name ─► value inode ──┐
//!   block ───────┬─ name = value          ├─► the value's bytes      (feature ea_inode)
//!   (shared)     └─ name ─► value inode ──┘
//! ```
//!
//! Reading and changing are in `read.rs` and `change.rs`. Callers get names with their prefix, and
//! pass names as prefix and rest.

pub(crate) mod block;
pub(crate) mod by_name;
pub(crate) mod change;
mod credits;
pub(crate) mod list;
pub(crate) mod read;
mod release;
pub(crate) mod value_inode;

use crate::state::inode::Body;
use crate::volume::Volume;
use extant_base::Ino;
/// The extended attributes of one inode, to read them.
#[derive(Clone, Copy)]
pub(crate) struct Xattrs<'a> {
    /// The volume.
    pub(crate) volume: &'a Volume,
    /// The inode's content. The caller holds the inode's lock.
    pub(crate) body: &'a Body,
}

impl Volume {
    /// The attributes of this inode.
    pub(crate) fn xattrs<'a>(&'a self, body: &'a Body) -> Xattrs<'a> {
        Xattrs { volume: self, body }
    }
}

/// The extended attributes of one inode, to change them.
pub(crate) struct XattrsMut<'a> {
    /// The volume.
    pub(crate) volume: &'a Volume,
    /// The inode's content. The caller holds the inode's lock, exclusively.
    pub(crate) body: &'a mut Body,
}

impl Volume {
    /// The attributes of this inode, to change them.
    pub(crate) fn xattrs_mut<'a>(&'a self, body: &'a mut Body) -> XattrsMut<'a> {
        XattrsMut { volume: self, body }
    }
}

/// The attribute blocks and value inodes, which inodes may share.
#[derive(Clone, Copy)]
pub(crate) struct XattrStore<'a> {
    volume: &'a Volume,
}

impl Volume {
    /// The blocks and inodes that hold attributes.
    pub(crate) fn xattr_store(&self) -> XattrStore<'_> {
        XattrStore { volume: self }
    }
}

impl XattrsMut<'_> {
    /// The same attributes, to read them.
    pub(crate) fn as_ref(&self) -> Xattrs<'_> {
        Xattrs { volume: self.volume, body: self.body }
    }
}

impl Xattrs<'_> {
    /// The inode's number.
    fn ino(&self) -> Ino {
        self.body.ino()
    }
}

impl XattrsMut<'_> {
    /// The inode's number.
    fn ino(&self) -> Ino {
        self.body.ino()
    }
}
