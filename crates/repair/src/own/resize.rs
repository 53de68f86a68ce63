//! The resize inode: it names the reserved descriptor blocks and their copies.
//!
//! ```text
//!   inode 7 ─► double-indirect block ─► reserved block k ─► its copies in the groups with copies
//! ```

use crate::report::Class;
use crate::scan::Table;
use crate::usage::Usage;
use crate::volume::{Role, Volume};
use extant_base::narrow::fits_u32;
use extant_base::{BlockNr, GroupNr, Result};
use extant_ondisk::block_map::{pointer, pointers_per_block, set_pointer};
use extant_ondisk::features::Compat;
use extant_ondisk::inode::{EXTRA_ISIZE, FileKind, Inode};

/// Takes the block away from the resize inode if it does not name the reserved blocks.
pub(super) fn forget_broken(volume: &mut Volume, table: &mut Table) -> Result<()> {
    let reserved = u64::from(volume.sb().reserved_gdt_blocks);
    let Some(base) = volume.geometry.base_blocks(GroupNr(0)) else { return Ok(()) };
    let Some(mut inode) = volume.inode(7)? else { return Ok(()) };
    let block = pointer(&inode.i_block, 13).map_or(0, u64::from);
    if volume.role(7) != Role::Resize || reserved == 0 || block == 0 {
        return Ok(());
    }
    let slot = volume.geometry.desc_blocks() % pointers_per_block(volume.geometry.block_size());
    let first = base.end.saturating_sub(reserved);
    let proven = volume.is_usable(block)
        && pointer(&volume.disk.read(block)?, slot).map(u64::from) == Some(first);
    if proven {
        return Ok(());
    }
    set_pointer(&mut inode.i_block, 13, None)?;
    table.broken_own.push(7);
    volume.put_inode(7, &inode)
}

/// Makes the resize inode again. Without a free block for it, the feature is dropped.
pub(super) fn run(volume: &mut Volume, usage: &mut Usage) -> Result<()> {
    let geometry = volume.geometry;
    let reserved = u32::from(volume.sb().reserved_gdt_blocks);
    let old = volume.inode(7)?;
    let first = geometry
        .base_blocks(GroupNr(0))
        .map_or(0, |base| base.end.saturating_sub(u64::from(reserved)));
    let there = old
        .as_ref()
        .and_then(|inode| pointer(&inode.i_block, 13))
        .map(u64::from)
        .filter(|block| *block != 0 && volume.is_usable(*block));
    let mut within = geometry.block_range();
    within.end = within.end.min(1 << 32);
    volume.report.add(Class::OwnFiles);
    let Some(double) = there.or_else(|| usage.take(first, &within)) else {
        volume.report.note("no block is free for the resize inode: resize_inode is turned off");
        return volume.change_superblock(|sb| {
            sb.features.compat.remove(Compat::RESIZE_INODE);
            sb.reserved_gdt_blocks = 0;
        });
    };
    let per_block = pointers_per_block(geometry.block_size());
    let mut bytes = vec![0; volume.block_bytes()];
    for n in 0..reserved {
        let block = BlockNr(first + u64::from(n));
        set_pointer(&mut bytes, (geometry.desc_blocks() + n) % per_block, Some(block))?;
        let mut list = vec![0; volume.block_bytes()];
        for (slot, copy) in geometry.reserved_copies(block).enumerate() {
            if copy.0 > u64::from(u32::MAX) {
                break;
            }
            set_pointer(&mut list, fits_u32(slot as u64), Some(copy))?;
        }
        volume.disk.put(block.0, &list)?;
    }
    volume.disk.put(double, &bytes)?;
    let p = u64::from(per_block);
    let mut inode = Inode {
        mode: FileKind::Regular.mode_bits() | 0o600,
        links: 1,
        size: (12 + p + p * p) << geometry.block_size().log2(),
        extra_isize: match geometry.inode_size() {
            128 => 0,
            _ => volume.format.want_extra_isize().max(EXTRA_ISIZE),
        },
        ..old.map_or_else(Inode::default, |old| Inode {
            atime: old.atime,
            mtime: old.mtime,
            ctime: old.ctime,
            generation: old.generation,
            ..Inode::default()
        })
    };
    let copies = geometry.super_groups().count() as u64;
    inode.sectors = (1 + u64::from(reserved) * copies) * volume.cluster_sectors();
    set_pointer(&mut inode.i_block, 13, Some(BlockNr(double)))?;
    volume.put_slot(7, &vec![0; geometry.inode_size()])?;
    volume.put_inode(7, &inode)
}
