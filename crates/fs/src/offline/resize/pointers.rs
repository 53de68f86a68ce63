//! Moving the blocks of a block map: pointers are changed in place, a few at a time.
//!
//! ```text
//!   i_block[0..12] ─► data        i_block[12..15] ─► block of pointers ─► … ─► data
//!        a data block to move:        copied, its pointer changed
//!        a block of pointers:         copied, the pointer to it changed, then its own
//! ```

use super::shrink::{CREDITS, Shrink};
use crate::state::inode::Body;
use extant_base::narrow::{fits_u32, len_u32};
use extant_base::{BlockNr, Error, Ino, Result, Site};
use extant_ondisk::block_map::{DIRECT, ROOT_SLOTS, check_pointer, pointers_per_block};

impl Shrink<'_> {
    /// Moves the blocks of an inode with a block map that are beyond the new end.
    pub(super) fn move_pointers(&mut self, body: &mut Body) -> Result<()> {
        let ino = body.ino();
        for slot in 0..len_u32(ROOT_SLOTS) {
            let range = self.volume.geometry().block_range();
            let at = Site::of_ino(ino);
            let Some(block) = check_pointer(&body.disk.i_block, slot, &range, at)? else {
                continue;
            };
            let levels = (slot + 1).saturating_sub(DIRECT);
            let stays = match self.is_past_end(block) {
                true => self.move_block(ino, block, levels == 0)?,
                false => block,
            };
            if stays != block {
                put(&mut body.disk.i_block, slot, stays);
                self.store(body)?;
                self.commit_if_large()?;
            }
            // The reserved descriptor blocks do not move.
            if levels > 0 && ino != Ino::RESIZE {
                self.move_pointers_in(ino, stays, levels - 1)?;
            }
        }
        self.commit_if_large()
    }

    /// Moves the blocks below a block of pointers that has `levels` more levels of them below it.
    fn move_pointers_in(&mut self, ino: Ino, holder: BlockNr, levels: u32) -> Result<()> {
        let range = self.volume.geometry().block_range();
        let at = Site::of_ino(ino).block(holder);
        let bytes = self.volume.journal().cache().get(holder)?.read().to_vec();
        for slot in 0..pointers_per_block(self.volume.block_size()) {
            let Some(block) = check_pointer(&bytes, slot, &range, at)? else { continue };
            let stays = match self.is_past_end(block) {
                true => self.move_block(ino, block, levels == 0)?,
                false => block,
            };
            if stays != block {
                let handle = self.volume.journal().start(CREDITS)?;
                let holder = self.volume.journal().cache().get(holder)?;
                put(&mut holder.write(&handle)?.bytes_mut(), slot, stays);
                handle.stop()?;
                self.commit_if_large()?;
            }
            if levels > 0 {
                self.move_pointers_in(ino, stays, levels - 1)?;
            }
        }
        Ok(())
    }

    /// Copies one block of data or pointers to a free block, marks that used and the old one free.
    pub(super) fn move_block(
        &mut self,
        ino: Ino,
        block: BlockNr,
        is_data: bool,
    ) -> Result<BlockNr> {
        // Changes in memory must be on the staged device before the block is copied there.
        self.volume.journal().sync()?;
        let (to, _) = self.free.take(1)?;
        if to.0 >> 32 != 0 {
            return Err(Error::NoSpace);
        }
        self.copy(block, to, 1)?;
        self.mark_used(to, 1)?;
        self.mark_free(block, 1)?;
        self.done.moved_blocks += 1;
        if is_data && self.is_orphan_file(ino) {
            let body = self.volume.inodes().read(ino)?;
            self.renew_orphan_blocks(to, 1, body.seed(self.volume.context()))?;
        }
        Ok(to)
    }
}

fn put(bytes: &mut [u8], slot: u32, block: BlockNr) {
    let at = slot as usize * 4;
    // `move_block` returns no block number that does not fit.
    bytes[at..at + 4].copy_from_slice(&fits_u32(block.0).to_le_bytes());
}
