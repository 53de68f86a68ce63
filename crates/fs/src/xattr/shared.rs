//! Attributes that several inodes may share: attribute blocks, and values in value inodes.

use crate::xattr::block::KnownBlocks;
use crate::xattr::value_inode::KnownValues;
use extant_base::lock::{Mutex, Rank};

/// The known attribute blocks and value inodes that may be shared.
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

    /// The known attribute blocks.
    pub(super) fn blocks(&self) -> &Mutex<KnownBlocks> {
        &self.blocks
    }

    /// The known value inodes. The lock guards the reference counts of all value inodes.
    pub(super) fn values(&self) -> &Mutex<KnownValues> {
        &self.values
    }
}
