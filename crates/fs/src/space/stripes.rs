//! Where the stripes of a RAID begin, so that large files begin there.
//!
//! ```text
//!   blocks     0              stripe         2·stripe       3·stripe
//!              ├──────────────┼──────────────┼──────────────┤
//!   group      ······┌────────────────────────────┐·········      first = next stripe − group's start
//!                    0        first          first + len
//! ```
//!
//! A RAID 5 or 6 that gets a whole stripe computes its parity without reading; one that gets a part reads the rest first. The
//! superblock says how long a stripe is (`mke2fs -E stride=…,stripe_width=…`, in blocks), or the mount does (`stripe=`). A run
//! that holds a stripe or more therefore begins at a stripe where space allows it. Contiguity goes first: the next blocks of a
//! file follow its last ones. Source: ext4(5) `stripe`, mke2fs(8) `stripe_width`.

use crate::space::Space;
use extant_base::GroupNr;
use extant_ondisk::geometry::Geometry;
use extant_ondisk::superblock::Superblock;

/// The stripes of one group, in clusters from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stripes {
    /// The first beginning of a stripe, less than `len`.
    first: u32,
    /// Clusters of a stripe, at least 2.
    len: u32,
}

impl Stripes {
    /// Stripes of `len` clusters from `first` on.
    #[cfg(test)]
    pub(super) fn of(first: u32, len: u32) -> Option<Stripes> {
        Some(Stripes { first, len })
    }

    /// The beginning of a stripe at or after `place`.
    pub(super) fn next(self, place: u32) -> u32 {
        let past = (place + self.len - self.first) % self.len;
        place + (self.len - past) % self.len
    }

    /// Clusters that a search adds to what it needs, so that what is found contains a beginning.
    pub(super) fn spare(self) -> u32 {
        self.len - 1
    }
}

/// Clusters of a stripe; `None` where nothing says so, or what says so cannot be.
///
/// `wanted` is in blocks and goes first, then the superblock's stripe width, then its stride; a value that is longer than a group
/// is passed over, as Linux does it.
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

impl Space {
    /// The stripes of group `nr`; `None` without stripes.
    pub(super) fn stripes_in(&self, nr: GroupNr) -> Option<Stripes> {
        let len = self.stripe?;
        let start = self.context.geometry().first_block(nr)?.0;
        let ratio = u64::from(self.context.geometry().cluster_ratio());
        // With clusters, groups begin at clusters; else no cluster of this one would begin a stripe.
        let start = start.is_multiple_of(ratio).then_some(start / ratio)?;
        // Less than a stripe.
        let past = (start % u64::from(len)) as u32;
        Some(Stripes { first: (len - past) % len, len })
    }
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
