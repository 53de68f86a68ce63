//! Laying down the groups behind the old end.
//!
//! ```text
//!   old end │ rest of the flex group: bitmaps, tables │ … │ next flex group: base, bitmaps, tables │ …
//! ```
//!
//! Placed as mkfs places them; a flex group that was begun goes on with what is new of it.

use super::switch::Switch;
use crate::mkfs::format::{block_bitmap, group_flags};
use crate::mkfs::place::{Places, place_from, static_runs};
use extant_base::{BlockNr, GroupNr, Result};
use extant_blockdev::BlockDevice;
use extant_crc32c::crc32c;
use extant_ondisk::bitmap;
use extant_ondisk::group_desc::{GroupDesc, GroupFlags};
use std::ops::Range;

/// Writes the metadata of the groups that are new, and appends their descriptors.
///
/// Errors: `Invalid` when they have no room for it; `Device`.
pub(super) fn lay_down(switch: &mut Switch) -> Result<()> {
    let (old, new) = (switch.old.groups_count(), switch.new.groups_count());
    if new <= old {
        return Ok(());
    }
    let layout = switch.new;
    let bs = layout.block_size();
    let places = place_from(&layout, old)?;
    // The runs of new groups only: the others' are in their bitmaps.
    let fixed: Vec<Range<u64>> = {
        let mut all = vec![Places::default(); old as usize];
        all.extend_from_slice(&places);
        let start = layout.first_block(GroupNr(old)).unwrap_or_default().0;
        static_runs(&layout, &all).into_iter().filter(|run| run.start >= start).collect()
    };
    let home = switch.exclusive.staged.home().clone();
    for run in &fixed {
        home.zero(bs.start_of(BlockNr(run.start)), (run.end - run.start) << bs.log2())?;
    }
    for (place, nr) in places.iter().zip((old..new).map(GroupNr)) {
        let blocks = layout.blocks_of_group(nr).unwrap_or(0..0);
        let from = fixed.partition_point(|run| run.end <= blocks.start);
        let here: Vec<Range<u64>> = fixed[from..]
            .iter()
            .take_while(|run| run.start < blocks.end)
            .map(|run| run.start.max(blocks.start)..run.end.min(blocks.end))
            .collect();
        let (bytes, free) = block_bitmap(&layout, nr, &blocks, &here);
        let flags = group_flags(&switch.csum, &layout, nr, new, place, &here);
        let ipg = layout.inodes_per_group();
        let mut desc = GroupDesc {
            block_bitmap: place.block_bitmap,
            inode_bitmap: place.inode_bitmap,
            inode_table: place.inode_table,
            free_clusters: free,
            free_inodes: ipg,
            flags,
            itable_unused: if switch.csum.groups_may_be_uninit() { ipg } else { 0 },
            ..GroupDesc::default()
        };
        let seed = switch.csum.seed();
        if !flags.contains(GroupFlags::BLOCK_UNINIT) {
            let covered = layout.clusters_per_group() as usize / 8;
            desc.block_bitmap_csum = seed.map_or(0, |seed| crc32c(seed, &bytes[..covered]));
            home.write_at(bs.start_of(place.block_bitmap), &bytes)?;
        }
        if !flags.contains(GroupFlags::INODE_UNINIT) {
            let mut bytes = vec![0; bs.bytes()];
            bitmap::fill_padding(&mut bytes, ipg);
            desc.inode_bitmap_csum =
                seed.map_or(0, |seed| crc32c(seed, &bytes[..ipg as usize / 8]));
            home.write_at(bs.start_of(place.inode_bitmap), &bytes)?;
        }
        switch.after.push(desc);
    }
    Ok(())
}
