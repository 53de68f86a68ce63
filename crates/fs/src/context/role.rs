//! The role in which a cached block was checked, and the block's owner, in one word.
//!
//! ```text
//!   63      56 55                                    0
//!   ┌─────────┬──────────────────────────────────────┐
//!   │ role    │ inode, group or descriptor block      │   0 = not checked
//!   └─────────┴──────────────────────────────────────┘
//! ```
//!
//! A damaged volume can name one block in two roles, or give it to two inodes whose checksums
//! differ. So a check in one role never counts for another role or owner.

use extant_base::{GroupNr, Ino};

/// The role in which a metadata block passed its check, and its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A group's block bitmap.
    BlockBitmap(GroupNr),
    /// A group's inode bitmap.
    InodeBitmap(GroupNr),
    /// A node of an inode's extent tree.
    ExtentNode(Ino),
    /// A leaf (or only block) of a directory.
    DirLeaf(Ino),
    /// The same, with every entry checked.
    DirNames(Ino),
    /// The htree root of a directory.
    DirRoot(Ino),
    /// An inner htree node of a directory.
    DirNode(Ino),
    /// A block of attributes, shared by any number of inodes.
    Xattrs,
    /// A block of the checksum file, by its number in that file.
    DataSums(u64),
    /// A block of inodes, each with a checksum of its own. The best copy of each inode was chosen.
    Inodes,
    /// A block of group descriptors. The best copy of each was chosen.
    Descriptors,
    /// The block that holds the superblock. The best copy was chosen.
    Superblock,
}

impl Role {
    /// The value for `MetaBlock::set_verified_as`; never 0.
    pub(crate) const fn kind(self) -> u64 {
        let (role, owner) = match self {
            Role::BlockBitmap(group) => (1, group.0),
            Role::InodeBitmap(group) => (2, group.0),
            Role::ExtentNode(ino) => (3, ino.get()),
            Role::DirLeaf(ino) => (4, ino.get()),
            Role::DirRoot(ino) => (5, ino.get()),
            Role::DirNode(ino) => (6, ino.get()),
            Role::Xattrs => (7, 0),
            Role::DirNames(ino) => (9, ino.get()),
            Role::DataSums(index) => return 10 << 56 | index,
            Role::Inodes => (11, 0),
            Role::Descriptors => (12, 0),
            Role::Superblock => (13, 0),
        };
        role << 56 | owner as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_and_owners_are_distinct() {
        let ino = |n| Ino::new(n).unwrap();
        assert_ne!(Role::DirLeaf(ino(12)).kind(), Role::DirNode(ino(12)).kind());
        assert_ne!(Role::DirLeaf(ino(12)).kind(), Role::DirLeaf(ino(13)).kind());
        assert_ne!(Role::Xattrs.kind(), 0);
    }
}
