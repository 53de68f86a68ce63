//! Attributes that several inodes may share: blocks of them, and values in inodes of their own.

use crate::xattr::block::KnownBlocks;
use crate::xattr::value_inode::KnownValues;
use extant_base::lock::{Mutex, Rank};

/// What is known of attributes that may be shared.
pub(crate) struct SharedXattrs {
    blocks: Mutex<KnownBlocks>,
    values: Mutex<KnownValues>,
}

impl SharedXattrs {
    /// Nothing is known yet.
    pub(crate) fn new() -> SharedXattrs {
        SharedXattrs {
            blocks: Mutex::new(Rank::Leaf, KnownBlocks::default()),
            values: Mutex::new(Rank::Shared, KnownValues::default()),
        }
    }

    /// Attribute blocks that new inodes may share.
    pub(super) fn blocks(&self) -> &Mutex<KnownBlocks> {
        &self.blocks
    }

    /// Attribute values in inodes of their own; the lock guards the counts of all of them.
    pub(super) fn values(&self) -> &Mutex<KnownValues> {
        &self.values
    }
}
