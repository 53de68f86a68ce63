//! Laying down the groups behind the old end.
//!
//! ```text
//!   old end │ rest of the flex group: bitmaps, tables │ … │ next flex group: base, bitmaps, tables │ …
//! ```
//!
//! Placed as mkfs places them; a flex group that was begun goes on with what is new of it.

use super::switch::Switch;
use crate::mkfs::format::lay_down_group;
use crate::mkfs::place::{Places, place_from, static_runs};
use extant_base::{BlockNr, GroupNr, Result};
use extant_blockdev::BlockDevice;
use std::ops::Range;

/// Writes the metadata of the groups that are new, and appends their descriptors.
///
/// Errors: `Invalid` when they have no room for it; `Device`.
pub(super) fn lay_down(switch: &mut Switch<'_>) -> Result<()> {
    let (old, new) = (switch.old.groups_count(), switch.new.groups_count());
    if new <= old {
        return Ok(());
    }
    let geometry = switch.new;
    let bs = geometry.block_size();
    let places = place_from(&geometry, old)?;
    // The runs of new groups only: the others' are in their bitmaps.
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
        let desc = lay_down_group(&home, &geometry, &switch.csum, (nr, new), place, &fixed)?;
        switch.after.push(desc);
    }
    Ok(())
}
