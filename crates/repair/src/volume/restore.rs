//! Damaged blocks and inodes, replaced by the copies that the log still holds.

use super::Volume;
use extant_base::narrow::fits_usize;
use extant_base::{Ino, Result};
use extant_ondisk::bitmap;
use extant_ondisk::inode::{Inode, checksum_is_right, is_zero_slot};

impl Volume {
    /// The log's newest copy of a block.
    fn older_copy(&self, block: u64) -> Result<Option<Vec<u8>>> {
        self.older.as_ref().map_or(Ok(None), |older| older.newest(block))
    }

    /// How many blocks were replaced by their copy.
    pub(crate) fn blocks_from_log(&self) -> usize {
        self.taken.borrow().len()
    }

    /// What a block is now if `is_right` accepts it, else the log's copy if `is_right` accepts
    /// that, which then replaces the block. If neither is right, what the block is now.
    ///
    /// Errors: `Device`.
    pub(crate) fn restored(
        &self,
        block: u64,
        now: Vec<u8>,
        is_right: impl Fn(&[u8]) -> bool,
    ) -> Result<Vec<u8>> {
        if is_right(&now) {
            return Ok(now);
        }
        match self.older_copy(block)? {
            Some(copy) if is_right(&copy) => {
                self.taken.borrow_mut().insert(block);
                self.disk.put(block, &copy)?;
                Ok(copy)
            }
            _ => Ok(now),
        }
    }

    /// The log's copy of an inode in use whose slot, `now`, is wrong: it has the wrong checksum, or
    /// it is empty though the bitmap says that it is used. The copy replaces the slot.
    ///
    /// Errors: `Device`.
    pub(crate) fn restored_slot(&self, ino: u32, now: &[u8]) -> Result<Option<Vec<u8>>> {
        let (Some(nr), Some(at)) = (Ino::new(ino), self.slot_at(ino)) else { return Ok(None) };
        let is_empty = is_zero_slot(now);
        if !is_empty && checksum_is_right(now, nr, &self.checksums) {
            return Ok(None);
        }
        let size = self.geometry.block_size();
        let Some(block) = self.older_copy(size.block_at(at).0)? else { return Ok(None) };
        let within = fits_usize(at.0) % size.bytes();
        let Some(copy) = block.get(within..within + now.len()) else { return Ok(None) };
        let in_use = Inode::parse_unverified(copy, nr, &self.format)
            .is_ok_and(|inode| inode.links > 0 && inode.kind().is_some());
        let right = in_use && checksum_is_right(copy, nr, &self.checksums);
        if !right || (is_empty && !self.is_marked(nr)?) {
            return Ok(None);
        }
        self.disk.put_bytes(at, copy)?;
        Ok(Some(copy.to_vec()))
    }

    /// Whether the bitmap says that an inode is in use.
    fn is_marked(&self, ino: Ino) -> Result<bool> {
        let Some(place) = self.geometry.inode_place(ino) else { return Ok(false) };
        let group = self.groups.get(place.group.0 as usize);
        let Some(group) = group.filter(|group| !group.inode_bitmap_lost) else { return Ok(false) };
        Ok(bitmap::test(&self.disk.read(group.desc.inode_bitmap.0)?, place.slot))
    }
}
