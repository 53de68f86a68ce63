//! The attributes of one place, read into memory to be changed and encoded again.
//!
//! ```text
//!   inode tail or block ──► Vec<Attribute> ── edit ──► encoded again, without gaps
//! ```

use crate::tree::xattr::{Xattrs, XattrsMut};
use extant_base::{Ino, Result, Site};
use extant_ondisk::features::Incompat;
use extant_ondisk::xattr::{
    NameIndex, NewValue, NewXattr, ValueRef, XattrArea, XattrEntry, encode_in_inode,
    entry_hash_of_inode_value,
};

/// One attribute, read into memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attribute {
    /// The prefix.
    pub(crate) index: NameIndex,
    /// The name without the prefix.
    pub(crate) name: Vec<u8>,
    /// The value.
    pub(crate) value: Stored,
    /// The change in progress put it here, and owns a reference to its value inode.
    pub(crate) fresh: bool,
}

/// How a value is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    /// Next to the entry.
    Here(Vec<u8>),
    /// In an inode of its own.
    InInode {
        /// The value inode.
        ino: Ino,
        /// Size of the value in bytes.
        size: u32,
        /// The value that makes the entry's hash: the value's crc, unless an old writer hashed
        /// differently.
        crc: u32,
    },
}

impl Attribute {
    fn of(entry: &XattrEntry<'_>) -> Attribute {
        let value = match entry.value {
            ValueRef::Here(value) => Stored::Here(value.to_vec()),
            // The hash is that of the name, with the crc mixed in last. Removing the name's part
            // keeps the rest as it was stored.
            ValueRef::InInode { ino, size } => {
                let crc = entry.hash ^ entry_hash_of_inode_value(entry.name, 0);
                Stored::InInode { ino, size, crc }
            }
        };
        Attribute { index: entry.index, name: entry.name.to_vec(), value, fresh: false }
    }

    /// Whether this is the attribute with that name.
    pub(crate) fn is(&self, index: NameIndex, name: &[u8]) -> bool {
        self.index == index && self.name == name
    }

    /// The same attribute, in the form for encoding.
    pub(crate) fn to_new(&self) -> NewXattr<'_> {
        let value = match &self.value {
            Stored::Here(value) => NewValue::Here(value),
            Stored::InInode { ino, size, crc } => {
                NewValue::InInode { ino: *ino, size: *size, crc: *crc }
            }
        };
        NewXattr { index: self.index, name: &self.name, value }
    }
}

impl Xattrs<'_> {
    /// The attributes in the inode's tail, in stored order.
    ///
    /// Errors: `Corrupt` if the tail is malformed.
    pub(crate) fn tail_list(self) -> Result<Vec<Attribute>> {
        let ea_inode = self.volume.has_incompat(Incompat::EA_INODE);
        let area = XattrArea::in_inode(
            self.body.xattr_tail(self.volume.context()),
            ea_inode,
            Site::of_ino(self.ino()),
        )?;
        Ok(area.map_or(Vec::new(), |area| area.entries().map(|e| Attribute::of(&e)).collect()))
    }

    /// The attributes in the inode's block, in stored order.
    ///
    /// Errors: `Corrupt` if the block is malformed; `Device`.
    pub(crate) fn block_list(self) -> Result<Vec<Attribute>> {
        let Some(nr) = self.body.disk.file_acl else { return Ok(Vec::new()) };
        let block = self.volume.xattr_store().block(self.ino(), nr)?;
        let bytes = block.read();
        let ea_inode = self.volume.has_incompat(Incompat::EA_INODE);
        let (_, area) = XattrArea::in_block(&bytes, ea_inode, Site::of_ino(self.ino()).block(nr))?;
        Ok(area.entries().map(|entry| Attribute::of(&entry)).collect())
    }
}

impl XattrsMut<'_> {
    /// Encodes `list` into the inode's tail.
    ///
    /// Errors: `NoSpace` (the tail is unchanged).
    pub(crate) fn store_tail(&mut self, list: &[Attribute]) -> Result<()> {
        let new: Vec<_> = list.iter().map(Attribute::to_new).collect();
        encode_in_inode(&new, self.body.xattr_tail_mut(self.volume.context()))
    }
}
