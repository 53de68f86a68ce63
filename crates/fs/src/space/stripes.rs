//! The stripes of a RAID: large files start at the start of a stripe.
//!
//! ```text
//!   blocks     0              stripe         2·stripe       3·stripe
//!              ├──────────────┼──────────────┼──────────────┤
//!   group      ······┌────────────────────────────┐·········    first: next stripe − group's start
//!                    0        first          first + len
//! ```
//!
//! A RAID 5 or 6 that gets a whole stripe computes its parity without reading. If it gets a part,
//! it reads the rest first. The superblock gives the length of a stripe (`mke2fs -E
//! stride=…,stripe_width=…`, in blocks), or the mount does (`stripe=`). So a run of a stripe or
//! more starts at a stripe if space allows it. Contiguity matters more: the next blocks of a file
//! follow its last ones. Source: ext4(5) `stripe`, mke2fs(8) `stripe_width`.

use extant_base::GroupNr;
use extant_base::narrow::fits_u32;
use extant_ondisk::geometry::Geometry;
use extant_ondisk::superblock::Superblock;

/// The stripes of one group, in clusters from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stripes {
    /// The first cluster at which a stripe starts; less than `len`.
    first: u32,
    /// Clusters of a stripe, at least 2.
    len: u32,
}

impl Stripes {
    /// The stripes of group `nr`, with `len` clusters each; `None` if none starts at a cluster.
    pub(super) fn in_group(geometry: &Geometry, nr: GroupNr, len: u32) -> Option<Stripes> {
        let start = geometry.first_block(nr)?.0;
        let ratio = u64::from(geometry.cluster_ratio());
        // With bigalloc, groups start at clusters. Otherwise no cluster of this group would start a
        // stripe.
        let start = start.is_multiple_of(ratio).then_some(start / ratio)?;
        // Less than a stripe.
        let past = fits_u32(start % u64::from(len));
        Some(Stripes { first: (len - past) % len, len })
    }

    /// Stripes of `len` clusters from `first` on.
    #[cfg(test)]
    pub(super) fn of(first: u32, len: u32) -> Option<Stripes> {
        Some(Stripes { first, len })
    }

    /// The first start of a stripe at or after `place`.
    pub(super) fn next(self, place: u32) -> u32 {
        let past = (place + self.len - self.first) % self.len;
        place + (self.len - past) % self.len
    }

    /// Clusters that a search adds to its length, so that the run contains the start of a stripe.
    pub(super) fn spare(self) -> u32 {
        self.len - 1
    }
}

/// Clusters of a stripe; `None` if no source gives a valid length.
///
/// `wanted` is in blocks and comes first, then the superblock's stripe width, then its stride. A
/// value of 0, or one longer than a group, is skipped, as in Linux.
pub(crate) fn stripe_clusters(
    wanted: Option<u32>,
    superblock: &Superblock,
    geometry: &Geometry,
) -> Option<u32> {
    let stored = [superblock.raid_stripe_width, superblock.raid_stride.into()];
    let blocks = wanted
        .into_iter()
        .chain(stored)
        .find(|blocks| (1..=geometry.blocks_per_group()).contains(blocks))?;
    let ratio = geometry.cluster_ratio();
    (blocks.is_multiple_of(ratio) && blocks / ratio > 1).then_some(blocks / ratio)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_stripe_is_at_or_after_a_place() {
        let stripes = Stripes { first: 3, len: 8 };
        let places = [0, 3, 4, 10, 11, 12, 19];
        assert_eq!(places.map(|place| stripes.next(place)), [3, 3, 11, 11, 11, 19, 19]);
    }
}
