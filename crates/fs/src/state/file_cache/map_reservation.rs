//! Clusters that are reserved for the map of a file's dirty data.

use crate::space::reservations::Reservation;
use crate::state::file_cache::FileCacheState;
use rangemap::RangeSet;
use std::ops::Range;

/// What is reserved for the map of one file.
#[derive(Debug, Default)]
pub(crate) struct MapReservation {
    /// Mapped blocks whose mapping will change: unwritten blocks with dirty data, and blocks whose
    /// data moves.
    splits: RangeSet<u32>,
    blocks: u64,
    reservation: Option<Reservation>,
    /// Write-back is changing the map; blocks that the map needs come out of the reservation.
    in_use: bool,
}

/// Runs of dirty blocks, and map entries that they may add.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Need {
    pub(crate) runs: u64,
    pub(crate) entries: u64,
}

impl Need {
    /// What `blocks` blocks in `runs` runs add when the mapping of each block changes on its own.
    pub(crate) fn of_splits(runs: usize, blocks: u64) -> Need {
        Need { runs: runs as u64, entries: 2 * blocks }
    }

    /// The sum of both.
    pub(crate) fn plus(self, other: Need) -> Need {
        Need { runs: self.runs + other.runs, entries: self.entries + other.entries }
    }
}

impl MapReservation {
    /// How many clusters are reserved.
    pub(crate) fn clusters(&self) -> u64 {
        self.reservation.as_ref().map_or(0, Reservation::clusters)
    }

    /// Adds `range` to the set.
    pub(crate) fn insert(&mut self, range: Range<u32>) {
        self.blocks +=
            self.splits.gaps(&range).map(|gap| u64::from(gap.end - gap.start)).sum::<u64>();
        self.splits.insert(range);
    }

    /// Removes `range` from the set.
    pub(crate) fn remove(&mut self, range: Range<u32>) {
        let parts = self.splits.overlapping(range.clone());
        let gone =
            parts.map(|part| u64::from(part.end.min(range.end) - part.start.max(range.start)));
        self.blocks -= gone.sum::<u64>();
        self.splits.remove(range);
    }

    /// What the blocks of the set add to the map.
    pub(crate) fn need(&self) -> Need {
        Need::of_splits(self.splits.len(), self.blocks)
    }

    /// Adds clusters to the reservation.
    pub(crate) fn join(&mut self, reservation: Reservation) {
        reservation.join_to(&mut self.reservation);
    }

    /// Whether nothing is reserved.
    pub(crate) fn is_empty(&self) -> bool {
        self.reservation.is_none()
    }

    /// Gives back what is reserved beyond `bound` clusters.
    pub(crate) fn shrink_to(&mut self, bound: u64) {
        let over = self.clusters().saturating_sub(bound);
        match &mut self.reservation {
            Some(reservation) if bound > 0 => reservation.give_back(over),
            all => *all = None,
        }
    }

    /// Whether a block for the map comes out of the reservation now.
    pub(crate) fn is_in_use(&self) -> bool {
        self.in_use && self.clusters() > 0
    }

    /// Such a block was allocated.
    pub(crate) fn use_one(&mut self) {
        if let Some(reservation) = &mut self.reservation {
            reservation.give_back(1);
        }
    }

    /// Gives everything back.
    pub(crate) fn clear(&mut self) {
        *self = MapReservation { in_use: self.in_use, ..MapReservation::default() };
    }

    /// The parts of `range` that are not in the set.
    pub(crate) fn missing(&self, range: Range<u32>) -> Vec<Range<u32>> {
        self.splits.gaps(&range).collect()
    }

    /// Whether the block at `at` is in the set, and for how many blocks (at most `limit`) the
    /// answer is the same.
    pub(crate) fn run_at(&self, at: u32, limit: u32) -> (bool, u32) {
        match self.splits.get(&at) {
            Some(part) => (true, (part.end - at).min(limit)),
            None => {
                let gap = self.splits.gaps(&(at..at.saturating_add(limit))).next();
                (false, gap.map_or(limit, |gap| gap.end - at))
            }
        }
    }
}

/// While it exists, new blocks of the file's map come out of the reservation. The inode is held
/// exclusively.
pub(crate) struct InUse<'a>(&'a FileCacheState);

impl FileCacheState {
    /// Write-back is about to change the map of the file for dirty data.
    pub(crate) fn use_map_reservation(&self) -> InUse<'_> {
        self.map_reservation.lock().in_use = true;
        InUse(self)
    }
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        self.0.map_reservation.lock().in_use = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_count_once() {
        let mut reservation = MapReservation::default();
        reservation.insert(3..8);
        reservation.insert(5..10);
        assert_eq!((reservation.blocks, reservation.splits.len()), (7, 1));
        reservation.remove(4..6);
        reservation.remove(0..4);
        assert_eq!((reservation.blocks, reservation.splits.len()), (4, 1));
        assert_eq!(reservation.missing(0..12), [0..6, 10..12]);
        assert_eq!(
            (reservation.run_at(0, 9), reservation.run_at(6, 9), reservation.run_at(6, 2)),
            ((false, 6), (true, 4), (true, 2))
        );
        reservation.clear();
        assert_eq!((reservation.blocks, reservation.splits.len()), (0, 0));
    }
}
