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
    let geometry = &switch.new;
    let bs = geometry.block_size();
    let per_block = pointers_per_block(bs);
    let table = geometry.desc_blocks();
    let reserved = u32::from(switch.sb.reserved_gdt_blocks);
    let base = geometry.desc_block(0).ok_or(Error::NoSpace)?.0 + u64::from(table);
    let mut bytes = vec![0; bs.bytes()];
    for n in 0..reserved {
        let block = BlockNr(base + u64::from(n));
        put_pointer(&mut bytes, ((table + n) % per_block) as usize, block)?;
    }
    switch.write(list, &bytes)?;
    for n in 0..reserved {
        let block = BlockNr(base + u64::from(n));
        bytes.fill(0);
        for (slot, copy) in geometry.reserved_copies(block).enumerate() {
            put_pointer(&mut bytes, slot, copy)?;
        }
        switch.write(block, &bytes)?;
    }
    Ok(1 + u64::from(reserved) * geometry.super_groups().count() as u64)
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
