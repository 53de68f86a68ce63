//! Blocks of a file that are reserved for dirty data and not allocated yet.

use crate::space::reservations::Reservation;
use rangemap::RangeSet;
use std::ops::Range;

/// Blocks of one file that are reserved and not allocated yet.
#[derive(Debug, Default)]
pub(crate) struct Delayed {
    blocks: RangeSet<u32>,
    /// How many. Counted, so that a write need not walk the ranges of a file in very many pieces.
    len: u64,
    /// Clusters for them.
    reservation: Option<Reservation>,
}

impl Delayed {
    /// Whether nothing is reserved.
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// How many blocks of data.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// In how many runs.
    pub(crate) fn runs(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// How many blocks from `at` on are reserved, at most `limit`; 0 when `at` is not.
    pub(crate) fn run_at(&self, at: u32, limit: u32) -> u32 {
        self.blocks.get(&at).map_or(0, |range| (range.end - at).min(limit))
    }

    /// How many blocks from `at` on are not reserved, at most `limit`.
    pub(crate) fn gap_at(&self, at: u32, limit: u32) -> u32 {
        let end = at.saturating_add(limit);
        self.blocks
            .gaps(&(at..end))
            .next()
            .filter(|gap| gap.start == at)
            .map_or(0, |gap| gap.end - at)
    }

    /// The parts of `range` that are not reserved.
    pub(crate) fn missing(&self, range: Range<u32>) -> Vec<Range<u32>> {
        self.blocks.gaps(&range).collect()
    }

    /// The parts of `range` that are reserved.
    pub(crate) fn within<'a>(
        &'a self,
        range: &Range<u32>,
    ) -> impl Iterator<Item = Range<u32>> + 'a {
        let (start, end) = (range.start, range.end);
        let parts = self.blocks.overlapping(start..end);
        parts.map(move |part| part.start.max(start)..part.end.min(end))
    }

    /// Adds `range`, of which nothing is reserved. Returns how many clusters it needs beyond those
    /// reserved already.
    pub(crate) fn add(&mut self, range: Range<u32>, ratio: u32) -> u64 {
        let more = self.clusters_only_in(&range, ratio);
        self.len += u64::from(range.end - range.start);
        self.blocks.insert(range);
        more
    }

    /// Removes `range`. Returns how many clusters no longer hold a reserved block.
    pub(crate) fn take(&mut self, range: Range<u32>, ratio: u32) -> u64 {
        let mut less = 0;
        let parts: Vec<_> = self.within(&range).collect();
        for part in parts {
            self.len -= u64::from(part.end - part.start);
            self.blocks.remove(part.clone());
            less += self.clusters_only_in(&part, ratio);
        }
        less
    }

    /// Clusters of `range` that hold no reserved block.
    pub(crate) fn clusters_only_in(&self, range: &Range<u32>, ratio: u32) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let (first, last) = (range.start / ratio, (range.end - 1) / ratio);
        let is_free = |cluster: u32| {
            let start = cluster * ratio;
            !self.blocks.overlaps(&(start..start.saturating_add(ratio)))
        };
        // Every block of the clusters between the first and the last is in the range.
        let inner = u64::from(last - first).saturating_sub(1);
        let ends = u64::from(is_free(first)) + u64::from(last != first && is_free(last));
        inner + ends
    }

    /// Adds clusters to the reservation.
    pub(crate) fn join(&mut self, reservation: Reservation) {
        reservation.join_to(&mut self.reservation);
    }

    /// Returns `clusters` of the reservation, or all of it once no block is left.
    pub(crate) fn release(&mut self, clusters: u64) {
        if self.blocks.is_empty() {
            self.reservation = None;
        } else if let Some(reservation) = &mut self.reservation {
            reservation.give_back(clusters);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_counts_once_however_many_of_its_blocks_are_reserved() {
        let mut delayed = Delayed::default();
        assert_eq!(delayed.add(3..5, 4), 2);
        assert_eq!(delayed.add(5..8, 4), 0, "cluster 1 is there");
        assert_eq!(delayed.add(8..9, 4), 1);
        assert_eq!(delayed.take(4..6, 4), 0, "7 is left in cluster 1");
        assert_eq!(delayed.take(0..8, 4), 2);
        assert_eq!(delayed.take(0..100, 4), 1);
        assert!(delayed.is_empty());
    }

    #[test]
    fn runs_and_gaps_are_distinguished() {
        let mut delayed = Delayed::default();
        delayed.add(10..20, 1);
        assert_eq!(
            (delayed.run_at(12, 100), delayed.run_at(12, 3), delayed.run_at(20, 9)),
            (8, 3, 0)
        );
        assert_eq!(
            (delayed.gap_at(5, 100), delayed.gap_at(5, 2), delayed.gap_at(12, 9)),
            (5, 2, 0)
        );
        assert_eq!(delayed.missing(0..30), [0..10, 20..30]);
        assert_eq!(delayed.len(), 10);
    }

    #[test]
    fn the_count_is_that_of_the_ranges() {
        let mut delayed = Delayed::default();
        let mut random = 7u32;
        for _ in 0..2000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let range = random >> 20..(random >> 20) + (random >> 8) % 50 + 1;
            match random & 1 {
                0 => {
                    delayed.take(range, 4);
                }
                _ => {
                    for gap in delayed.missing(range) {
                        delayed.add(gap, 4);
                    }
                }
            }
            let walked: u64 = delayed.blocks.iter().map(|r| u64::from(r.end - r.start)).sum();
            assert_eq!(delayed.len(), walked);
        }
    }
}
