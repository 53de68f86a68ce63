//! What later steps need to know of an inode.

use crate::by_ino::ByIno;
use extant_ondisk::inode::{FileKind, InodeFlags};

/// An inode in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) mode: u16,
    /// The link count as it is stored.
    pub(crate) links: u16,
    pub(crate) flags: InodeFlags,
    /// It has no name: a reserved number, or an internal file.
    pub(crate) hidden: bool,
    /// Its checksum was wrong.
    pub(crate) suspect: bool,
    /// It has content, attributes or a map.
    pub(crate) has_content: bool,
}

impl Node {
    pub(crate) fn kind(&self) -> Option<FileKind> {
        FileKind::from_mode(self.mode)
    }

    pub(crate) fn is_dir(&self) -> bool {
        self.kind() == Some(FileKind::Directory) && !self.hidden
    }

    /// Whether it holds the value of an attribute.
    pub(crate) fn is_value(&self) -> bool {
        self.flags.contains(InodeFlags::EA_INODE)
    }
}

/// All inodes in use.
pub(crate) type Nodes = ByIno<Node>;

impl Nodes {
    /// Whether `ino` is a directory that may have a name.
    pub(crate) fn has_dir(&self, ino: u32) -> bool {
        self.get(ino).is_some_and(|node| node.is_dir())
    }
}
