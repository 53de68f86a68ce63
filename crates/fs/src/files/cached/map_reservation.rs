//! Space for the map of dirty data: nodes of an extent tree, or blocks of pointers.
//!
//! ```text
//!   write       hole, unwritten block, block to be moved ──► the bound grows ──reserve──► kept
//!                                                                      no space: ENOSPC now
//!   write-back  a leaf is split: its new block comes out of the reservation
//!   shown       what is written needs no more ──► the bound shrinks ──► the rest is given back
//! ```
//!
//! The bound holds for any tree:
//! - A run of dirty blocks lies in one gap of the map: in one leaf, and in the leaves that splits
//!   make of it. That leaf may be full, and so may every node above it.
//! - After that, splits halve leaves (except the last leaf, to which entries are appended). Half a
//!   leaf of entries fills a halved leaf again, and each such split may meet a full node above. So
//!   the bound counts one block for each quarter leaf of entries.
//! - A delayed run becomes at worst one extent for each cluster. A block whose state or place
//!   changes adds two entries.

use crate::files::cached::{CacheReservations, FileReservations};
use crate::inodes::map::extent::node;
use crate::space::reservations::{Reservation, ReservedFor};
use crate::state::file_cache::FileCacheState;
use crate::state::file_cache::map_reservation::Need;
use crate::state::inode::Body;
use extant_base::Result;
use extant_ondisk::block_map::pointers_per_block;
use std::ops::Range;

/// The header of a node with its checksum; one entry.
const HEAD_BYTES: usize = 16;
const ENTRY_BYTES: usize = 12;
/// Levels of pointer blocks that lead to one block.
const LEVELS: u64 = 3;

impl FileReservations<'_> {
    /// Blocks that the map of a file needs at worst for its dirty data and `more`.
    fn map_bound(self, file_cache: &FileCacheState, more: Need) -> u64 {
        let ratio = u64::from(self.volume.geometry().cluster_ratio());
        let delayed = {
            let delayed = file_cache.delayed.lock();
            let (runs, blocks) = (delayed.runs(), delayed.len());
            Need { runs, entries: blocks.min(blocks / ratio + 2 * runs) }
        };
        let moved = {
            let rewrites = file_cache.rewrites.lock();
            Need::of_splits(rewrites.runs(), rewrites.len())
        };
        let splits = file_cache.map_reservation.lock().need();
        let Need { runs, entries } = delayed.plus(moved).plus(splits).plus(more);
        if entries == 0 {
            return 0;
        }
        if !self.body.disk.has_extents() {
            let pointers = u64::from(pointers_per_block(self.volume.block_size()));
            return (LEVELS + 1) * runs + entries / pointers;
        }
        let in_leaf = ((self.volume.block_size().bytes() - HEAD_BYTES) / ENTRY_BYTES) as u64;
        let (root, depth) =
            (&self.body.disk.i_block, u64::from(node::depth(&self.body.disk.i_block)));
        if depth == 0 {
            let all = node::entries(root) as u64 + entries;
            if all <= node::ROOT_CAPACITY as u64 {
                return 0;
            }
            if all <= in_leaf {
                return 1;
            }
        }
        2 + (1 + depth) * runs + entries / (in_leaf / 4)
    }

    /// How many blocks the reservation lacks if `more` becomes dirty, too.
    pub(super) fn map_shortage(self, file_cache: &FileCacheState, more: Need) -> u64 {
        let bound = self.map_bound(file_cache, more);
        bound.saturating_sub(file_cache.map_reservation.lock().clusters())
    }
}

impl CacheReservations<'_> {
    /// Adds `reservation` to that of the file's map.
    pub(super) fn add_map_reservation(self, reservation: Reservation) {
        if reservation.clusters() > 0 {
            self.file_cache.map_reservation.lock().join(reservation);
        }
    }
}

impl FileReservations<'_> {
    /// Gives back what the map of a file can no longer need.
    pub(super) fn trim_map_reservation(self, file_cache: &FileCacheState) {
        if file_cache.map_reservation.lock().is_empty() {
            return;
        }
        let bound = self.map_bound(file_cache, Need::default());
        file_cache.map_reservation.lock().shrink_to(bound);
    }

    /// Makes sure that space is reserved to map dirty data in the unwritten blocks `ranges`.
    ///
    /// Errors: `NoSpace`, and nothing more is reserved. Locks: the caller holds the inode's,
    /// exclusively.
    pub(super) fn reserve_splits(
        self,
        file_cache: &FileCacheState,
        ranges: &[Range<u32>],
    ) -> Result<()> {
        if ranges.is_empty() {
            return Ok(());
        }
        let blocks = ranges.iter().map(|range| u64::from(range.end - range.start)).sum();
        let short = self.map_shortage(file_cache, Need::of_splits(ranges.len(), blocks));
        let (_, map) = self.volume.space().reserve_with_map(0, short)?;
        self.volume.cache_reservations(file_cache).add_map_reservation(map);
        self.volume.cache_reservations(file_cache).note_splits(ranges);
        Ok(())
    }
}

impl CacheReservations<'_> {
    /// The data of these blocks has its blocks; only the map's last change is still to come.
    pub(super) fn note_splits(self, ranges: &[Range<u32>]) {
        let mut reservation = self.file_cache.map_reservation.lock();
        ranges.iter().for_each(|range| reservation.insert(range.clone()));
    }
}

impl FileReservations<'_> {
    /// The blocks of `range` have their final mapping, or none.
    pub(crate) fn forget_splits(self, range: Range<u32>) {
        let Some(file_cache) = &self.body.file_cache else { return };
        if range.is_empty() {
            return;
        }
        file_cache.map_reservation.lock().remove(range);
        self.trim_map_reservation(file_cache);
    }

    /// Blocks with data were freed or removed from the map, and the data is dirty again: part of
    /// what was freed is reserved for its map.
    pub(super) fn reserve_map_again(self, file_cache: &FileCacheState) {
        let short = self.map_shortage(file_cache, Need::default());
        self.volume
            .cache_reservations(file_cache)
            .add_map_reservation(self.volume.space().reserve_freed(ReservedFor::Map, short));
    }
}

impl Body {
    /// Whether space is reserved to map dirty data in the unwritten block at `at`, and for how many
    /// blocks (at most `limit`) the answer is the same.
    pub(super) fn split_run(&self, at: u32, limit: u32) -> (bool, u32) {
        match &self.file_cache {
            Some(file_cache) => file_cache.map_reservation.lock().run_at(at, limit),
            None => (false, limit),
        }
    }

    /// Whether a block for the file's map comes out of its reservation now.
    pub(crate) fn has_map_reservation(&self) -> bool {
        self.file_cache
            .as_ref()
            .is_some_and(|file_cache| file_cache.map_reservation.lock().is_in_use())
    }

    /// Such a block was allocated.
    pub(crate) fn use_reserved_map_block(&self) {
        if let Some(file_cache) = &self.file_cache {
            file_cache.map_reservation.lock().use_one();
        }
    }
}
