//! Writing the groups after the old end.
//!
//! ```text
//!   old end │ rest of flex group: bitmaps, tables │ … │ next flex group: base, bitmaps, tables │ …
//! ```
//!
//! The layout is that of mkfs. In a flex group that exists in part, the new groups continue its
//! layout.

use crate::offline::mkfs::format::write_group_bitmaps;
use crate::offline::mkfs::place::{place_from, static_runs_from};
use extant_base::{BlockNr, GroupNr, Result};
use extant_blockdev::BlockDevice;
use extant_ondisk::checksum::Checksums;
use extant_ondisk::geometry::Geometry;
use extant_ondisk::group_desc::GroupDesc;

/// Writes the metadata of the groups of `new` that `old` does not have. Returns their descriptors.
/// Nothing before the first of these groups is written.
///
/// Errors: `Invalid` if the new groups have no space for it; `Device`.
pub(super) fn write_new_groups(
    device: &dyn BlockDevice,
    (old, new): (&Geometry, &Geometry),
    csum: &Checksums,
) -> Result<Vec<GroupDesc>> {
    let (first, count) = (old.groups_count(), new.groups_count());
    let bs = new.block_size();
    let places = place_from(new, first)?;
    let fixed = static_runs_from(new, first, &places);
    for run in &fixed {
        device.zero(bs.start_of(BlockNr(run.start)), (run.end - run.start) << bs.log2())?;
    }
    let each = places.iter().zip((first..count).map(GroupNr));
    each.map(|(place, nr)| write_group_bitmaps(device, new, csum, (nr, count), place, &fixed))
        .collect()
}
