//! Blocks that dirty data will need: promised when it is written, allocated when it goes to disk.
//!
//! ```text
//!   write     hole ──reserve──► delayed, space promised, quota asked
//!   write-back                  delayed ──fill_hole──► allocated out of the promise
//!   truncate                    delayed ──forget────► the promise given back
//! ```

use crate::alloc::claims::Reservation;
use crate::cached::Cached;
use crate::inode::Body;
use crate::map::Target;
use crate::volume::Volume;
use extant_base::{Ino, Result};
use extant_ondisk::block_map::DIRECT;
use rangemap::RangeSet;
use std::ops::Range;

/// Blocks of a file for which, in however many pieces they come, a promise has one block of its tree.
const LEAF_BLOCKS: u32 = 64;

/// Blocks of one file that are promised and not allocated yet.
#[derive(Debug, Default)]
pub(crate) struct Delayed {
    blocks: RangeSet<u32>,
    /// How many, so that a file in very many pieces is not walked through by each write.
    len: u64,
    /// Clusters for them, and, until nothing is promised, for what maps them where no pool stands behind that.
    promise: Option<Reservation>,
}

impl Delayed {
    /// Whether nothing is promised.
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// How many blocks of data.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// How many blocks from `at` on are promised, at most `limit`; 0 where `at` is not.
    pub(crate) fn run_at(&self, at: u32, limit: u32) -> u32 {
        self.blocks.get(&at).map_or(0, |range| (range.end - at).min(limit))
    }

    /// How many blocks from `at` on are not promised, at most `limit`.
    pub(crate) fn gap_at(&self, at: u32, limit: u32) -> u32 {
        let end = at.saturating_add(limit);
        self.blocks
            .gaps(&(at..end))
            .next()
            .filter(|gap| gap.start == at)
            .map_or(0, |gap| gap.end - at)
    }

    /// The parts of `range` that are not promised.
    fn missing(&self, range: Range<u32>) -> Vec<Range<u32>> {
        self.blocks.gaps(&range).collect()
    }

    /// Adds `range`, of which nothing is promised: clusters that it needs beyond those there are.
    fn add(&mut self, range: Range<u32>, ratio: u32) -> u64 {
        let more = self.clusters_only_in(&range, ratio);
        self.len += u64::from(range.end - range.start);
        self.blocks.insert(range);
        more
    }

    /// Takes `range` out: clusters that nothing is left in.
    fn take(&mut self, range: Range<u32>, ratio: u32) -> u64 {
        let mut less = 0;
        let parts: Vec<_> = self.blocks.overlapping(range.clone()).cloned().collect();
        for part in parts {
            let part = part.start.max(range.start)..part.end.min(range.end);
            self.len -= u64::from(part.end - part.start);
            self.blocks.remove(part.clone());
            less += self.clusters_only_in(&part, ratio);
        }
        less
    }

    /// Clusters of `range` that hold no promised block.
    fn clusters_only_in(&self, range: &Range<u32>, ratio: u32) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let (first, last) = (range.start / ratio, (range.end - 1) / ratio);
        let is_free = |cluster: u32| {
            let start = cluster * ratio;
            !self.blocks.overlaps(&(start..start.saturating_add(ratio)))
        };
        // Between the first and the last one every block is in the range.
        let inner = u64::from(last - first).saturating_sub(1);
        let ends = u64::from(is_free(first)) + u64::from(last != first && is_free(last));
        inner + ends
    }

    fn join(&mut self, promise: Reservation) {
        match &mut self.promise {
            Some(all) => all.join(promise),
            none => *none = Some(promise),
        }
    }

    /// Gives `clusters` back that were for data, and once nothing is left all there is.
    fn release(&mut self, clusters: u64) {
        if self.blocks.is_empty() {
            self.promise = None;
        } else if let Some(promise) = &mut self.promise {
            promise.give_back(clusters);
        }
    }
}

impl Volume {
    /// Makes sure that every block of `blocks` is allocated or promised.
    ///
    /// Errors: `NoSpace`, `QuotaExceeded`; what the map gives. Nothing more is promised then.
    /// Locks: the inode's is held, exclusively.
    pub(crate) fn reserve_blocks(&self, ino: Ino, body: &Body, blocks: Range<u32>) -> Result<()> {
        let Some(cached) = &body.cached else { return Ok(()) };
        if self.covers(ino, body) {
            self.promise_rewrites(ino, body, cached, blocks.clone())?;
        }
        let holes = self.unpromised_holes(ino, body, cached, blocks)?;
        for (n, hole) in holes.iter().enumerate() {
            if let Err(error) = self.promise(ino, body, cached, hole.clone()) {
                // Nobody will write to those before it.
                holes[..n].iter().for_each(|hole| self.forget_delayed(body, hole.clone()));
                return Err(error);
            }
        }
        Ok(())
    }

    /// Promises space for a hole of which nothing is promised.
    fn promise(&self, ino: Ino, body: &Body, cached: &Cached, hole: Range<u32>) -> Result<()> {
        let ratio = self.layout.cluster_ratio();
        let (promised, for_map, more) = {
            let delayed = cached.delayed.lock();
            let for_map = self.map_share(body, &hole, &delayed);
            (delayed.len(), for_map, delayed.clusters_only_in(&hole, ratio))
        };
        let wanted = promised + u64::from(hole.end - hole.start);
        self.quota_check(ino, body, self.sectors(wanted))?;
        let promise = self.reserve_clusters(more + for_map)?;
        let mut delayed = cached.delayed.lock();
        delayed.join(promise);
        delayed.add(hole, ratio);
        Ok(())
    }

    /// The holes of `blocks` that are not promised.
    fn unpromised_holes(
        &self,
        ino: Ino,
        body: &Body,
        cached: &Cached,
        blocks: Range<u32>,
    ) -> Result<Vec<Range<u32>>> {
        // A write behind what was promised, or over it, asks nobody.
        let missing = cached.delayed.lock().missing(blocks);
        let mut holes = Vec::new();
        for range in missing {
            for run in self.runs(ino, body, range) {
                let run = run?;
                if run.target == Target::Hole {
                    holes.push(run.logical.0..run.end().0);
                }
            }
        }
        Ok(holes)
    }

    /// Blocks that stand behind dirty data were freed: they are promised again.
    ///
    /// Errors: what the map gives.
    pub(super) fn promise_again(&self, ino: Ino, body: &Body, blocks: Range<u32>) -> Result<()> {
        let Some(cached) = &body.cached else { return Ok(()) };
        let ratio = self.layout.cluster_ratio();
        for hole in self.unpromised_holes(ino, body, cached, blocks)? {
            let mut delayed = cached.delayed.lock();
            let for_map = self.map_share(body, &hole, &delayed);
            let clusters = delayed.add(hole, ratio) + for_map;
            delayed.join(self.reserve_freed(clusters));
        }
        Ok(())
    }

    /// What the promises of a file come to in units of 512 bytes.
    pub(crate) fn promised_sectors(&self, body: &Body) -> u64 {
        let blocks = body.cached.as_ref().map_or(0, |cached| cached.delayed.lock().len());
        self.sectors(blocks)
    }

    /// Clusters for the map of a run where no pool stands behind it. One that goes on where blocks are promised
    /// already needs what they do not.
    fn map_share(&self, body: &Body, hole: &Range<u32>, delayed: &Delayed) -> u64 {
        let goes_on = hole.start > 0 && delayed.run_at(hole.start - 1, 1) > 0;
        if body.disk.has_extents() {
            if self.has_pool() {
                return 0;
            }
            let first = if delayed.is_empty() { 5 } else { 0 };
            let leaves = hole.end / LEAF_BLOCKS - hole.start / LEAF_BLOCKS;
            return u64::from(leaves) + if goes_on { 0 } else { 1 + first };
        }
        let per_block = extant_ondisk::block_map::pointers_per_block(self.block_size());
        let leaf =
            |block: u32| (block.saturating_sub(DIRECT) / per_block) + u32::from(block >= DIRECT);
        if goes_on {
            return match leaf(hole.end - 1) - leaf(hole.start - 1) {
                0 => 0,
                more => u64::from(more) + 2,
            };
        }
        u64::from((hole.end - hole.start) / per_block) + 4
    }

    /// The blocks of `range` were allocated, or are not needed any more: what was promised for them
    /// is given back.
    pub(crate) fn forget_delayed(&self, body: &Body, range: Range<u32>) {
        let Some(cached) = &body.cached else { return };
        // What was a hole, or is cut off, is not written over either.
        cached.rewrites.lock().take(range.clone());
        let mut delayed = cached.delayed.lock();
        if !delayed.is_empty() && !range.is_empty() {
            let clusters = delayed.take(range, self.layout.cluster_ratio());
            delayed.release(clusters);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_counts_once_whatever_part_of_it_is_promised() {
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
    fn runs_and_gaps_are_told_from_each_other() {
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
        let mut chance = 7u32;
        for _ in 0..2000 {
            chance = chance.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let range = chance >> 20..(chance >> 20) + (chance >> 8) % 50 + 1;
            match chance & 1 {
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
