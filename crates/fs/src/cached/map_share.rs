//! Space for the map of dirty data: nodes of an extent tree, or blocks of pointers.
//!
//! ```text
//!   write       hole, unwritten block, block to be moved ──► the bound grows ──reserve──► share
//!                                                                      no space: ENOSPC now
//!   write-back  a leaf is split: its new block comes out of the share
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

use crate::cached::Cached;
use crate::inode::Body;
use crate::map::extent::node;
use crate::space::claims::{For, Reservation};
use crate::volume::Volume;
use extant_base::Result;
use extant_ondisk::block_map::pointers_per_block;
use rangemap::RangeSet;
use std::ops::Range;

/// The header of a node with its checksum; one entry.
const HEAD_BYTES: usize = 16;
const ENTRY_BYTES: usize = 12;
/// Levels of pointer blocks that lead to one block.
const LEVELS: u64 = 3;

/// What is reserved for the map of one file.
#[derive(Debug, Default)]
pub(crate) struct MapShare {
    /// Mapped blocks whose mapping will change: unwritten blocks with dirty data, and blocks whose
    /// data moves.
    splits: RangeSet<u32>,
    blocks: u64,
    promise: Option<Reservation>,
    /// Write-back is changing the map; blocks that the map needs come out of the reservation.
    spending: bool,
}

/// Runs of dirty blocks, and map entries that they may add.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Need {
    pub(super) runs: u64,
    pub(super) entries: u64,
}

impl Need {
    /// What `blocks` blocks in `runs` runs add when the mapping of each block changes on its own.
    pub(super) fn of_splits(runs: usize, blocks: u64) -> Need {
        Need { runs: runs as u64, entries: 2 * blocks }
    }

    fn plus(self, other: Need) -> Need {
        Need { runs: self.runs + other.runs, entries: self.entries + other.entries }
    }
}

impl MapShare {
    fn clusters(&self) -> u64 {
        self.promise.as_ref().map_or(0, Reservation::clusters)
    }

    fn insert(&mut self, range: Range<u32>) {
        self.blocks +=
            self.splits.gaps(&range).map(|gap| u64::from(gap.end - gap.start)).sum::<u64>();
        self.splits.insert(range);
    }

    fn remove(&mut self, range: Range<u32>) {
        let parts = self.splits.overlapping(range.clone());
        let gone =
            parts.map(|part| u64::from(part.end.min(range.end) - part.start.max(range.start)));
        self.blocks -= gone.sum::<u64>();
        self.splits.remove(range);
    }

    /// Gives everything back.
    pub(super) fn clear(&mut self) {
        *self = MapShare { spending: self.spending, ..MapShare::default() };
    }

    /// The parts of `range` that are not in the set.
    pub(super) fn missing(&self, range: Range<u32>) -> Vec<Range<u32>> {
        self.splits.gaps(&range).collect()
    }

    /// Whether the block at `at` is in the set, and for how many blocks (at most `limit`) the
    /// answer is the same.
    pub(super) fn run_at(&self, at: u32, limit: u32) -> (bool, u32) {
        match self.splits.get(&at) {
            Some(part) => (true, (part.end - at).min(limit)),
            None => {
                let gap = self.splits.gaps(&(at..at.saturating_add(limit))).next();
                (false, gap.map_or(limit, |gap| gap.end - at))
            }
        }
    }
}

/// While it exists, new blocks of the file's map come out of its share. The inode is held
/// exclusively.
pub(super) struct Spending<'a>(&'a Cached);

impl Cached {
    /// Write-back is about to change the map of the file for dirty data.
    pub(super) fn spend_share(&self) -> Spending<'_> {
        self.map_share.lock().spending = true;
        Spending(self)
    }
}

impl Drop for Spending<'_> {
    fn drop(&mut self) {
        self.0.map_share.lock().spending = false;
    }
}

impl Volume {
    /// Blocks that the map of a file needs at worst for its dirty data and `more`.
    fn map_bound(&self, body: &Body, cached: &Cached, more: Need) -> u64 {
        let ratio = u64::from(self.geometry().cluster_ratio());
        let delayed = {
            let delayed = cached.delayed.lock();
            let (runs, blocks) = (delayed.runs(), delayed.len());
            Need { runs, entries: blocks.min(blocks / ratio + 2 * runs) }
        };
        let moved = {
            let rewrites = cached.rewrites.lock();
            Need::of_splits(rewrites.runs(), rewrites.len())
        };
        let splits = {
            let share = cached.map_share.lock();
            Need::of_splits(share.splits.len(), share.blocks)
        };
        let Need { runs, entries } = delayed.plus(moved).plus(splits).plus(more);
        if entries == 0 {
            return 0;
        }
        if !body.disk.has_extents() {
            let pointers = u64::from(pointers_per_block(self.block_size()));
            return (LEVELS + 1) * runs + entries / pointers;
        }
        let in_leaf = ((self.block_size().bytes() - HEAD_BYTES) / ENTRY_BYTES) as u64;
        let (root, depth) = (&body.disk.i_block, u64::from(node::depth(&body.disk.i_block)));
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

    /// How many blocks the share lacks if `more` becomes dirty, too.
    pub(super) fn map_shortage(&self, body: &Body, cached: &Cached, more: Need) -> u64 {
        let bound = self.map_bound(body, cached, more);
        bound.saturating_sub(cached.map_share.lock().clusters())
    }

    /// Adds `promise` to the share of the file's map.
    pub(super) fn join_share(&self, cached: &Cached, promise: Reservation) {
        if promise.clusters() > 0 {
            promise.join_to(&mut cached.map_share.lock().promise);
        }
    }

    /// Gives back what the map of a file can no longer need.
    pub(super) fn trim_share(&self, body: &Body, cached: &Cached) {
        if cached.map_share.lock().promise.is_none() {
            return;
        }
        let bound = self.map_bound(body, cached, Need::default());
        let mut share = cached.map_share.lock();
        let over = share.clusters().saturating_sub(bound);
        match &mut share.promise {
            Some(promise) if bound > 0 => promise.give_back(over),
            all => *all = None,
        }
    }

    /// Makes sure that space is reserved to map dirty data in the unwritten blocks `ranges`.
    ///
    /// Errors: `NoSpace`, and nothing more is reserved. Locks: the caller holds the inode's,
    /// exclusively.
    pub(super) fn promise_splits(
        &self,
        body: &Body,
        cached: &Cached,
        ranges: &[Range<u32>],
    ) -> Result<()> {
        if ranges.is_empty() {
            return Ok(());
        }
        let blocks = ranges.iter().map(|range| u64::from(range.end - range.start)).sum();
        let short = self.map_shortage(body, cached, Need::of_splits(ranges.len(), blocks));
        let (_, map) = self.space().reserve_with_map(0, short)?;
        self.join_share(cached, map);
        self.note_splits(cached, ranges);
        Ok(())
    }

    /// The data of these blocks has its blocks; only the map's last change is still to come.
    pub(super) fn note_splits(&self, cached: &Cached, ranges: &[Range<u32>]) {
        let mut share = cached.map_share.lock();
        ranges.iter().for_each(|range| share.insert(range.clone()));
    }

    /// The blocks of `range` have their final mapping, or none.
    pub(crate) fn forget_splits(&self, body: &Body, range: Range<u32>) {
        let Some(cached) = &body.cached else { return };
        if range.is_empty() {
            return;
        }
        cached.map_share.lock().remove(range);
        self.trim_share(body, cached);
    }

    /// Blocks with data were freed or removed from the map, and the data is dirty again: part of
    /// what was freed goes to the share of its map.
    pub(super) fn share_again(&self, body: &Body, cached: &Cached) {
        let short = self.map_shortage(body, cached, Need::default());
        self.join_share(cached, self.space().reserve_freed(For::Map, short));
    }
}

impl Body {
    /// Whether space is reserved to map dirty data in the unwritten block at `at`, and for how many
    /// blocks (at most `limit`) the answer is the same.
    pub(super) fn split_run(&self, at: u32, limit: u32) -> (bool, u32) {
        match &self.cached {
            Some(cached) => cached.map_share.lock().run_at(at, limit),
            None => (false, limit),
        }
    }

    /// Whether a block for the file's map comes out of its share now.
    pub(crate) fn has_share(&self) -> bool {
        self.cached.as_ref().is_some_and(|cached| {
            let share = cached.map_share.lock();
            share.spending && share.clusters() > 0
        })
    }

    /// Such a block was allocated.
    pub(crate) fn spend_share(&self) {
        if let Some(cached) = &self.cached
            && let Some(promise) = &mut cached.map_share.lock().promise
        {
            promise.give_back(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_count_once() {
        let mut share = MapShare::default();
        share.insert(3..8);
        share.insert(5..10);
        assert_eq!((share.blocks, share.splits.len()), (7, 1));
        share.remove(4..6);
        share.remove(0..4);
        assert_eq!((share.blocks, share.splits.len()), (4, 1));
        assert_eq!(share.missing(0..12), [0..6, 10..12]);
        assert_eq!(
            (share.run_at(0, 9), share.run_at(6, 9), share.run_at(6, 2)),
            ((false, 6), (true, 4), (true, 2))
        );
        share.clear();
        assert_eq!((share.blocks, share.splits.len()), (0, 0));
    }
}
