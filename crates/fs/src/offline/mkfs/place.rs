//! Where a new volume's bitmaps and inode tables go.
//!
//! ```text
//!   flex group of 4      ┌──────┬───────┬─────────┬─────────┬────────────────────────┐
//!   first group          │ base │ b b b b│ i i i i │ table 0 │ table 1 │ table 2 │ 3   │
//!                        └──────┴───────┴─────────┴─────────┴────────────────────────┘
//!   without flex_bg each group keeps its own:   base │ b │ i │ table
//! ```
//!
//! No run crosses a group's base metadata (superblock copy, descriptors, reserved descriptor
//! blocks). A run continues in the next group when a small group cannot hold it.

use extant_base::{BlockNr, Error, GroupNr, Result};
use extant_ondisk::geometry::Geometry;
use std::ops::Range;

/// The three places that a descriptor names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Places {
    pub(crate) block_bitmap: BlockNr,
    pub(crate) inode_bitmap: BlockNr,
    pub(crate) inode_table: BlockNr,
}

/// Places for every group, in order. `packed`: those of all groups lie together.
///
/// Errors: `Invalid` when the volume is too small for its own metadata.
pub(crate) fn place(geometry: &Geometry, packed: bool) -> Result<Vec<Places>> {
    match packed {
        true => place_in_runs(geometry, 0, geometry.groups_count().max(1)),
        false => place_from(geometry, 0),
    }
}

/// Places for group `from` and all groups after it, in order, none of them before that group.
///
/// Errors: `Invalid` when they have no space for their own metadata.
pub(crate) fn place_from(geometry: &Geometry, from: u32) -> Result<Vec<Places>> {
    place_in_runs(geometry, from, geometry.groups_per_flex().max(1))
}

/// The same, with the places of `flex` groups together.
fn place_in_runs(geometry: &Geometry, from: u32, flex: u32) -> Result<Vec<Places>> {
    let groups = geometry.groups_count();
    let itable = u64::from(geometry.itable_blocks());
    let mut places = vec![Places::default(); groups.saturating_sub(from) as usize];
    let mut first = from;
    while first < groups {
        let last = (first / flex * flex).saturating_add(flex).min(groups);
        let start = geometry.first_block(GroupNr(first)).ok_or(TOO_SMALL)?;
        let mut cursor = start.0;
        let members = (first - from) as usize..(last - from) as usize;
        for group in &mut places[members.clone()] {
            group.block_bitmap = take(geometry, &mut cursor, 1)?;
        }
        for group in &mut places[members.clone()] {
            group.inode_bitmap = take(geometry, &mut cursor, 1)?;
        }
        for group in &mut places[members] {
            group.inode_table = take(geometry, &mut cursor, itable)?;
        }
        first = last;
    }
    Ok(places)
}

const TOO_SMALL: Error = Error::Invalid("the device is too small for the volume's own metadata");

/// The first `len` blocks at or after the cursor that hold no base metadata.
fn take(geometry: &Geometry, cursor: &mut u64, len: u64) -> Result<BlockNr> {
    let mut start = *cursor;
    'search: loop {
        let end = start.checked_add(len).ok_or(TOO_SMALL)?;
        if end > geometry.block_range().end {
            return Err(TOO_SMALL);
        }
        let first = geometry.group_of_block(BlockNr(start)).ok_or(TOO_SMALL)?;
        let last = geometry.group_of_block(BlockNr(end - 1)).ok_or(TOO_SMALL)?;
        for group in first.0..=last.0 {
            if let Some(base) = geometry.base_blocks(GroupNr(group))
                && base.start < end
                && start < base.end
            {
                start = base.end;
                continue 'search;
            }
        }
        *cursor = end;
        return Ok(BlockNr(start));
    }
}

/// Everything at a fixed place, sorted: base metadata, bitmaps, tables.
pub(crate) fn static_runs(geometry: &Geometry, places: &[Places]) -> Vec<Range<u64>> {
    static_runs_from(geometry, 0, places)
}

/// The same for the groups from `first` on, which have `places`.
pub(crate) fn static_runs_from(
    geometry: &Geometry,
    first: u32,
    places: &[Places],
) -> Vec<Range<u64>> {
    let itable = u64::from(geometry.itable_blocks());
    let mut runs: Vec<Range<u64>> = Vec::with_capacity(places.len() * 4);
    for (nr, group) in (first..).zip(places) {
        if let Some(base) = geometry.base_blocks(GroupNr(nr)).filter(|base| !base.is_empty()) {
            runs.push(base);
        }
        for (start, len) in
            [(group.block_bitmap, 1), (group.inode_bitmap, 1), (group.inode_table, itable)]
        {
            runs.push(start.0..start.0 + len);
        }
    }
    runs.sort_unstable_by_key(|run| run.start);
    runs
}
