//! Blocks of a file whose data goes to other blocks at the next write-back.

use crate::space::reservations::Reservation;
use rangemap::RangeSet;
use std::ops::Range;

/// Blocks of one file whose next write-back needs another block.
#[derive(Debug, Default)]
pub(crate) struct Rewrites {
    /// One cluster is reserved for each.
    blocks: RangeSet<u32>,
    len: u64,
    reservation: Option<Reservation>,
    /// Unwritten blocks to which data is in flight.
    in_flight: RangeSet<u32>,
    /// A folio was lent for changes, so bytes can become dirty that this set does not know.
    lent: bool,
}

/// How many blocks the ranges have.
pub(crate) fn count<'a>(ranges: impl Iterator<Item = &'a Range<u32>>) -> u64 {
    ranges.map(|range| u64::from(range.end - range.start)).sum()
}

impl Rewrites {
    /// Whether no block is in the set.
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Adds `range`. `reservation` has at least one cluster for each of its blocks that is not in
    /// the set yet.
    pub(crate) fn add(&mut self, range: Range<u32>, mut reservation: Reservation, clusters: u64) {
        let new: u64 = self.blocks.gaps(&range).map(|gap| u64::from(gap.end - gap.start)).sum();
        reservation.give_back(clusters.saturating_sub(new));
        self.blocks.insert(range);
        self.len += new;
        reservation.join_to(&mut self.reservation);
    }

    /// How many blocks.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// In how many runs.
    pub(crate) fn runs(&self) -> usize {
        self.blocks.len()
    }

    /// Removes `range` and returns its reservation.
    pub(crate) fn take(&mut self, range: Range<u32>) {
        if self.blocks.is_empty() || range.is_empty() {
            return;
        }
        let parts: Vec<Range<u32>> = self
            .blocks
            .overlapping(range.clone())
            .map(|part| part.start.max(range.start)..part.end.min(range.end))
            .collect();
        let less = count(parts.iter());
        self.len -= less;
        if let Some(reservation) = &mut self.reservation {
            reservation.give_back(less);
        }
        self.blocks.remove(range);
    }

    /// The parts of `range` that are not in the set.
    pub(crate) fn missing(&self, range: &Range<u32>) -> Vec<Range<u32>> {
        self.blocks.gaps(range).collect()
    }

    /// Whether the block at `at` is in the set, and for how many blocks (at most `limit`) the
    /// answer is the same.
    pub(crate) fn run_at(&self, at: u32, limit: u32) -> (bool, u32) {
        match self.blocks.get(&at) {
            Some(part) => (true, (part.end - at).min(limit)),
            None => {
                let gap = self.blocks.gaps(&(at..at.saturating_add(limit))).next();
                (false, gap.map_or(limit, |gap| gap.end - at))
            }
        }
    }

    /// A folio of the file is about to be lent for changes in place.
    pub(crate) fn note_lent(&mut self) {
        self.lent = true;
    }

    /// Whether a folio was lent, so that bytes may be dirty that this set does not know.
    pub(crate) fn was_lent(&self) -> bool {
        self.lent
    }

    /// The parts of `range` that are unwritten blocks to which data is in flight.
    pub(crate) fn in_flight(&self, range: &Range<u32>) -> Vec<Range<u32>> {
        let parts = self.in_flight.overlapping(range.clone());
        parts.map(|part| part.start.max(range.start)..part.end.min(range.end)).collect()
    }

    /// Data is in flight to the unwritten blocks `range`.
    pub(crate) fn start_write(&mut self, range: Range<u32>) {
        self.in_flight.insert(range);
    }

    /// The write to the blocks `range` succeeded or failed.
    pub(crate) fn end_write(&mut self, range: Range<u32>) {
        self.in_flight.remove(range);
    }
}
