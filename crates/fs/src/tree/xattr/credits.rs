//! Credits for changing attributes: which blocks a change may dirty, counted before it starts.
//!
//! ```text
//!   the inode │ old block, new block, each with bitmap and descriptor │ counts of all values
//!   a new value: slot, bitmaps, map, blocks │ a freed value: the same, and a revoke for each block
//! ```

use crate::context::superblock::SUPERBLOCK_CREDITS;
use crate::tree::xattr::list::{Attribute, Stored};
use crate::tree::xattr::{XattrStore, Xattrs};
use extant_base::Result;
use extant_base::narrow::{fits_u32, len_u32};
use extant_journal::Credits;
use extant_ondisk::features::Incompat;

/// An attribute block, its bitmap and its group descriptor.
const BLOCK: u32 = 3;

impl Xattrs<'_> {
    /// Credits for setting or removing one attribute, with a value of `len` bytes.
    ///
    /// Errors: `Corrupt` for malformed attributes; `Device`.
    pub(crate) fn credits(self, len: usize) -> Result<Credits> {
        let mut credits = Credits {
            blocks: self.volume.credits().store() + 2 * BLOCK + SUPERBLOCK_CREDITS,
            revokes: 1,
        };
        if self.volume.has_incompat(Incompat::EA_INODE) {
            let sizes = self.value_sizes()?;
            credits.blocks += len_u32(sizes.len()) + self.volume.quota_accounting().credits(1);
            // At most one value is created and one is freed.
            let freed =
                self.volume.xattr_store().value_credits(sizes.into_iter().max().unwrap_or(0));
            let made = self.volume.xattr_store().value_credits(len as u64);
            credits.blocks += made.blocks + freed.blocks;
            credits.revokes += made.revokes + freed.revokes;
        }
        Ok(credits)
    }
}

impl XattrStore<'_> {
    /// Credits for freeing everything that the attributes hold outside the inode, except values.
    pub(crate) fn release_credits(self) -> Credits {
        Credits { blocks: BLOCK + self.volume.quota_accounting().credits(1), revokes: 1 }
    }

    /// Credits for creating or freeing a value inode with a value of `len` bytes.
    fn value_credits(self, len: u64) -> Credits {
        if len == 0 {
            return Credits::default();
        }
        let blocks = fits_u32(self.volume.block_size().blocks_for(len)); // at most 16 MiB
        let groups = self.volume.context().groups_to_reach();
        // Slot, inode bitmap, descriptor, and a block bitmap that was uninitialized; a node or a
        // pointer block; and the bitmap and descriptor of each block, wherever it is.
        let nodes = 2;
        Credits {
            blocks: 1 + 3 + blocks + 2 * nodes + 2 * (blocks + nodes).min(groups),
            revokes: blocks + nodes,
        }
    }
}

impl Xattrs<'_> {
    fn value_sizes(self) -> Result<Vec<u64>> {
        let size = |attribute: &Attribute| match attribute.value {
            Stored::InInode { size, .. } => Some(u64::from(size)),
            Stored::Here(_) => None,
        };
        let tail = self.tail_list()?;
        Ok(tail.iter().chain(&self.block_list()?).filter_map(size).collect())
    }
}
