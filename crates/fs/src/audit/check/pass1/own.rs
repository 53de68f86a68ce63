//! Internal files of the volume: the structure of the resize inode, and reading the others.
//!
//! ```text
//!   resize inode ─[13]─► slot k ──► reserved descriptor block k of group 0, as a pointer block:
//!                                   the same block in every group with a backup, in order
//! ```

use super::journal;
use crate::audit::check::map::{Buffers, Gather, Map, walk};
use crate::audit::check::view::View;
use extant_base::narrow::len_u32;
use extant_base::{BlockNr, Ino, Site, What};
use extant_ondisk::block_map::pointers;
use extant_ondisk::features::{Compat, Incompat};
use extant_ondisk::inode::Inode as DiskInode;
use extant_ondisk::mmp::Mmp;

/// How many runs such a file has at most.
const RUNS_MAX: usize = 1 << 20;

/// The inode `ino`, without a check of its checksum; `None` if it cannot be read.
pub(super) fn read_inode(view: &View<'_>, ino: Ino) -> Option<(DiskInode, Vec<u8>)> {
    let place = view.geometry.inode_place(ino)?;
    let group = view.group(place.group);
    if !group.itable_ok {
        return None;
    }
    let first = BlockNr(group.desc.inode_table.0 + u64::from(place.table_block));
    let mut block = vec![0; view.block_bytes()];
    let start = view.geometry.block_size().start_of(first);
    view.device.read_at(start, &mut block).ok()?;
    let slot = block[place.offset..place.offset + view.geometry.inode_size()].to_vec();
    DiskInode::parse_unverified(&slot, ino, &view.format).ok().map(|inode| (inode, slot))
}

/// The inode `ino` and the runs of its blocks.
pub(in crate::audit) fn open(view: &View<'_>, ino: Ino) -> Option<(DiskInode, Gather)> {
    let (inode, _) = read_inode(view, ino)?;
    let map = Map {
        ino,
        extents: inode.has_extents(),
        i_block: &inode.i_block,
        seed: inode.seed(ino, &view.format),
    };
    let mut runs = Gather::new(RUNS_MAX);
    walk(view, &map, &mut Buffers::default(), &mut runs);
    Some((inode, runs))
}

/// Checks the content of internal inodes.
pub(super) fn check(view: &View<'_>) {
    journal::check(view);
    if view.has_compat(Compat::RESIZE_INODE) {
        check_resize(view);
    }
    if view.has_incompat(Incompat::MMP) && view.geometry.holds(view.sb.mmp_block, 1) {
        let at = Site::of_block(view.sb.mmp_block);
        let mut bytes = vec![0; view.block_bytes()];
        if view.read_blocks(view.sb.mmp_block, &mut bytes, at)
            && let Err(error) = Mmp::check(&bytes, &view.csum, at)
        {
            view.corrupt(&error, "");
        }
    }
}

fn check_resize(view: &View<'_>) {
    let geometry = &view.geometry;
    let at = Site::of_ino(Ino::RESIZE);
    let Some((inode, _)) = read_inode(view, Ino::RESIZE) else { return };
    let wrong = |at: Site, detail: &str| view.error_with(What::ResizeInode, at, detail);
    let pointer = |n: usize| pointers(&inode.i_block).nth(n).unwrap_or(0);
    let dind = pointer(13);
    if dind == 0 {
        // A volume that has grown to its limit has no reserved blocks left.
        if view.sb.reserved_gdt_blocks != 0 {
            wrong(at, "names no blocks");
        }
        return;
    }
    if inode.links == 0 || !inode.is_file() {
        return wrong(at, "is no file");
    }
    if (0..15).any(|n| n != 13 && pointer(n) != 0) || inode.has_extents() {
        wrong(at, "maps blocks besides its double-indirect one");
    }
    let dind = BlockNr(u64::from(dind));
    if !geometry.holds(dind, 1) {
        return view.error(What::MapBlockRange, at.offset(0x28 + 13 * 4));
    }
    let mut bytes = vec![0; view.block_bytes()];
    if !view.read_blocks(dind, &mut bytes, at) {
        return;
    }
    let slots: Vec<u32> = pointers(&bytes).collect();
    let Some(base) = geometry.base_blocks(extant_base::GroupNr(0)) else { return };
    let reserved = u32::from(view.sb.reserved_gdt_blocks);
    // The reserved blocks follow the descriptors. A reserved block's index in the table of all
    // descriptor blocks is its slot.
    let first = base.end.saturating_sub(u64::from(reserved));
    let per_block = len_u32(view.block_bytes()) / 4;
    let mut inner = vec![0; view.block_bytes()];
    for k in 0..reserved {
        let slot = (geometry.desc_blocks() + k) % per_block;
        let block = first + u64::from(k);
        if slots.get(slot as usize).copied().map(u64::from) != Some(block) {
            return wrong(at.block(dind).offset(slot as usize * 4), "names another block");
        }
        if !view.read_blocks(BlockNr(block), &mut inner, at) {
            return;
        }
        let mut found = pointers(&inner);
        for copy in geometry.reserved_copies(BlockNr(block)) {
            match found.next() {
                Some(there) if u64::from(there) == copy.0 => {}
                // Pointers have 32 bits; backups beyond their range are not listed.
                _ if copy.0 > u64::from(u32::MAX) => break,
                _ => return wrong(at.block(BlockNr(block)), "lacks a backup descriptor block"),
            }
        }
    }
}
