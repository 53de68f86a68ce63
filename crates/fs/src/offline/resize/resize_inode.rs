//! Inode 7: the blocks after the descriptor table that are reserved for its growth.
//!
//! ```text
//!   i_block[13] ──► list ──► reserved block of group 0 ──► its copies in the groups with backups
//! ```
//!
//! Its content follows from the layout, so a new size rewrites all of it.

use super::switch::Switch;
use extant_base::{BlockNr, Error, Ino, Result, Site, What};
use extant_ondisk::block_map::pointers_per_block;
use extant_ondisk::features::Compat;
use extant_ondisk::geometry::Geometry;
use extant_ondisk::inode::{Inode as DiskInode, InodeFormat};
use std::ops::Range;

/// The location of inode 7's slot: its table block, and the bytes in that block.
fn slot(switch: &Switch<'_>) -> Result<(BlockNr, Range<usize>)> {
    let place = switch.old.inode_place(Ino::RESIZE);
    let place = place.ok_or_else(|| Site::of_ino(Ino::RESIZE).corrupt(What::InodeNumber))?;
    let table = switch.after[place.group.0 as usize].inode_table;
    let block = BlockNr(table.0 + u64::from(place.table_block));
    Ok((block, place.offset..place.offset + switch.old.inode_size()))
}

fn read(switch: &Switch<'_>) -> Result<DiskInode> {
    let (block, place) = slot(switch)?;
    let mut bytes = vec![0; switch.old.block_size().bytes()];
    switch.read(block, &mut bytes)?;
    DiskInode::parse(&bytes[place], Ino::RESIZE, &format(switch))
}

fn format(switch: &Switch<'_>) -> InodeFormat {
    InodeFormat::new(&switch.exclusive.at_begin)
}

/// The block with the list of reserved blocks, if there is one.
///
/// Errors: `InodeBlocks` if it is outside the volume.
pub(super) fn list_block(switch: &Switch<'_>) -> Result<Option<BlockNr>> {
    let inode = read(switch)?;
    let word = inode.i_block[52..56].first_chunk().copied().unwrap_or_default();
    let block = BlockNr(u64::from(u32::from_le_bytes(word)));
    match block.0 {
        0 => Ok(None),
        _ if switch.old.holds(block, 1) => Ok(Some(block)),
        _ => Err(Site::of_ino(Ino::RESIZE).block(block).corrupt(What::InodeBlocks)),
    }
}

/// Makes inode 7 list the reserved blocks of the new size; without reserved blocks, the inode
/// becomes empty.
///
/// Errors: `Corrupt`, `Device`.
pub(super) fn rewrite(switch: &mut Switch<'_>) -> Result<()> {
    if !switch.exclusive.at_begin.features.compat.contains(Compat::RESIZE_INODE) {
        return Ok(());
    }
    let (block, place) = slot(switch)?;
    let mut bytes = vec![0; switch.old.block_size().bytes()];
    switch.read(block, &mut bytes)?;
    if switch.sb.features.compat.contains(Compat::RESIZE_INODE) {
        let Some(list) = list_block(switch)? else { return Ok(()) };
        let mut inode = read(switch)?;
        let blocks = write_lists(switch, list)?;
        let sectors = blocks << (switch.new.block_size().log2() - 9);
        inode.sectors = sectors << switch.new.log_cluster_ratio();
        inode.write(&mut bytes[place], Ino::RESIZE, &format(switch))?;
    } else {
        let gone = &mut bytes[place];
        gone.fill(0);
        DiskInode::default().write(gone, Ino::RESIZE, &format(switch))?;
    }
    switch.write(block, &bytes)
}

/// Writes the list and every reserved block of group 0. Returns how many blocks the inode has.
fn write_lists(switch: &Switch<'_>, list: BlockNr) -> Result<u64> {
    let lists = Lists::new(&switch.new, u32::from(switch.sb.reserved_gdt_blocks))?;
    switch.write(list, &lists.list()?)?;
    for block in lists.blocks() {
        switch.write(block, &lists.copies(block)?)?;
    }
    Ok(lists.inode_blocks())
}

/// The content of the blocks of inode 7.
pub(super) struct Lists<'a> {
    geometry: &'a Geometry,
    reserved: u32,
    /// The first reserved block.
    first: u64,
}

impl<'a> Lists<'a> {
    /// The content for a volume with `reserved` reserved blocks. Errors: `NoSpace` without a table.
    pub(super) fn new(geometry: &'a Geometry, reserved: u32) -> Result<Lists<'a>> {
        let table = geometry.desc_block(0).ok_or(Error::NoSpace)?.0;
        Ok(Lists { geometry, reserved, first: table + u64::from(geometry.desc_blocks()) })
    }

    /// The reserved blocks of group 0.
    pub(super) fn blocks(&self) -> impl Iterator<Item = BlockNr> + use<> {
        (self.first..self.first + u64::from(self.reserved)).map(BlockNr)
    }

    /// The list: one pointer to each of them. Errors: as [`put_pointer`].
    pub(super) fn list(&self) -> Result<Vec<u8>> {
        let per_block = pointers_per_block(self.geometry.block_size());
        let mut bytes = vec![0; self.geometry.block_size().bytes()];
        for (n, block) in (self.geometry.desc_blocks()..).zip(self.blocks()) {
            put_pointer(&mut bytes, (n % per_block) as usize, block)?;
        }
        Ok(bytes)
    }

    /// The reserved block `block`: one pointer to each of its copies. Errors: as [`put_pointer`].
    pub(super) fn copies(&self, block: BlockNr) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.geometry.block_size().bytes()];
        for (slot, copy) in self.geometry.reserved_copies(block).enumerate() {
            put_pointer(&mut bytes, slot, copy)?;
        }
        Ok(bytes)
    }

    /// How many blocks the inode has, the list included.
    pub(super) fn inode_blocks(&self) -> u64 {
        1 + u64::from(self.reserved) * self.geometry.super_groups().count() as u64
    }
}

/// Errors: `Invalid` for a block that a pointer cannot name: without `sparse_super`, groups past
/// block 2^32 have copies, too.
fn put_pointer(bytes: &mut [u8], slot: usize, block: BlockNr) -> Result<()> {
    let number = u32::try_from(block.0).map_err(|_| {
        Error::Invalid("copies of reserved descriptor blocks would be past block 2^32")
    })?;
    bytes[slot * 4..slot * 4 + 4].copy_from_slice(&number.to_le_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_past_2_32_gets_no_pointer() {
        let mut bytes = [0; 8];
        put_pointer(&mut bytes, 1, BlockNr(u32::MAX.into())).unwrap();
        assert_eq!(bytes, [0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF]);
        assert!(matches!(put_pointer(&mut bytes, 0, BlockNr(1 << 32)), Err(Error::Invalid(_))));
        assert_eq!(bytes[..4], [0; 4]);
    }
}
