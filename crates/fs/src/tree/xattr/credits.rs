//! Credits for changing attributes: which blocks a change may dirty, counted before it starts.
//!
//! ```text
//!   the inode │ old block, new block, each with bitmap and descriptor │ counts of all values
//!   a new value: slot, bitmaps, map, blocks │ a freed value: the same, and a revoke for each block
//! ```

use crate::context::superblock::SUPERBLOCK_CREDITS;
use crate::state::inode::Body;
use crate::tree::xattr::list::{Attribute, Stored};
use crate::volume::Volume;
use extant_base::{Ino, Result};
use extant_journal::Credits;
use extant_ondisk::features::Incompat;

/// An attribute block, its bitmap and its group descriptor.
const BLOCK: u32 = 3;

impl Volume {
    /// Credits for setting or removing one attribute, with a value of `len` bytes.
    ///
    /// Errors: `Corrupt` for malformed attributes; `Device`.
    pub(crate) fn xattr_credits(&self, ino: Ino, body: &Body, len: usize) -> Result<Credits> {
        let mut credits =
            Credits { blocks: self.store_credits() + 2 * BLOCK + SUPERBLOCK_CREDITS, revokes: 1 };
        if self.has_incompat(Incompat::EA_INODE) {
            let sizes = self.value_sizes(ino, body)?;
            credits.blocks += sizes.len() as u32 + self.quota_credits(1);
            // At most one value is created and one is freed.
            let freed = self.value_credits(sizes.into_iter().max().unwrap_or(0));
            let made = self.value_credits(len as u64);
            credits.blocks += made.blocks + freed.blocks;
            credits.revokes += made.revokes + freed.revokes;
        }
        Ok(credits)
    }

    /// Credits for freeing everything that the attributes hold outside the inode, except values.
    pub(crate) fn xattr_release_credits(&self) -> Credits {
        Credits { blocks: BLOCK + self.quota_credits(1), revokes: 1 }
    }

    /// Credits for creating or freeing a value inode with a value of `len` bytes.
    fn value_credits(&self, len: u64) -> Credits {
        if len == 0 {
            return Credits::default();
        }
        let blocks = self.block_size().blocks_for(len) as u32; // at most 16 MiB
        let groups = self.geometry().groups_count();
        // Slot, inode bitmap, descriptor, and a block bitmap that was uninitialized; a node or a
        // pointer block; and the bitmap and descriptor of each block, wherever it is.
        let nodes = 2;
        Credits {
            blocks: 1 + 3 + blocks + 2 * nodes + 2 * (blocks + nodes).min(groups),
            revokes: blocks + nodes,
        }
    }

    fn value_sizes(&self, ino: Ino, body: &Body) -> Result<Vec<u64>> {
        let size = |attribute: &Attribute| match attribute.value {
            Stored::InInode { size, .. } => Some(u64::from(size)),
            Stored::Here(_) => None,
        };
        let tail = self.xattr_tail_list(ino, body)?;
        Ok(tail.iter().chain(&self.xattr_block_list(ino, body)?).filter_map(size).collect())
    }
}
