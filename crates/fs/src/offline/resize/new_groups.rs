//! Writing the groups after the old end.
//!
//! ```text
//!   old end │ rest of flex group: bitmaps, tables │ … │ next flex group: base, bitmaps, tables │ …
//! ```
//!
//! The layout is that of mkfs. In a flex group that exists in part, the new groups continue its
//! layout.

use super::switch::Switch;
use crate::offline::mkfs::format::write_group_bitmaps;
use crate::offline::mkfs::place::{Places, place_from, static_runs};
use extant_base::{BlockNr, GroupNr, Result};
use extant_blockdev::BlockDevice;
use std::ops::Range;

/// Writes the metadata of the new groups, and appends their descriptors.
///
/// Errors: `Invalid` if the new groups have no space for it; `Device`.
pub(super) fn write_new_groups(switch: &mut Switch<'_>) -> Result<()> {
    let (old, new) = (switch.old.groups_count(), switch.new.groups_count());
    if new <= old {
        return Ok(());
    }
    let geometry = switch.new;
    let bs = geometry.block_size();
    let places = place_from(&geometry, old)?;
    // Only the runs in new groups: the others are in their bitmaps already.
    let fixed: Vec<Range<u64>> = {
        let mut all = vec![Places::default(); old as usize];
        all.extend_from_slice(&places);
        let start = geometry.first_block(GroupNr(old)).unwrap_or_default().0;
        static_runs(&geometry, &all).into_iter().filter(|run| run.start >= start).collect()
    };
    let home = switch.exclusive.staged.home().clone();
    for run in &fixed {
        home.zero(bs.start_of(BlockNr(run.start)), (run.end - run.start) << bs.log2())?;
    }
    for (place, nr) in places.iter().zip((old..new).map(GroupNr)) {
        let desc = write_group_bitmaps(&home, &geometry, &switch.csum, (nr, new), place, &fixed)?;
        switch.after.push(desc);
    }
    Ok(())
}
