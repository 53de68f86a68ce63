//! What the bitmaps say about one inode or block.

use super::RawVolume;
use extant::{Result, What};
use extant_base::{BlockNr, Ino, Site};
use extant_ondisk::bitmap;

impl RawVolume {
    /// Whether an inode is in use.
    pub(in crate::compat) fn inode_in_use(&self, ino: Ino) -> Result<bool> {
        let missing = || Site::of_ino(ino).corrupt(What::DirentInode);
        let place = self.geometry.inode_place(ino).ok_or_else(missing)?;
        let map = self.inode_bitmap(&self.descriptor(place.group)?)?;
        Ok(bitmap::test(&map, place.slot))
    }

    /// Whether a block is in use. `None` for a block that no bitmap has.
    pub(in crate::compat) fn block_in_use(&self, block: BlockNr) -> Result<Option<bool>> {
        let Some((group, bit)) = self.geometry.bit_of_block(block) else { return Ok(None) };
        let map = self.block_bitmap(group, &self.descriptor(group)?)?;
        Ok(Some(bitmap::test(&map, bit)))
    }
}
