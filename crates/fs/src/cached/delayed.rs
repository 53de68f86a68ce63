//! Blocks that dirty data will need: reserved when it is written, allocated when it is written
//! back.
//!
//! ```text
//!   write       hole ──reserve──► delayed; space for data and map (`map_share`) reserved,
//!                                 quota checked
//!   write-back                    delayed ──fill_hole──► allocated out of the reservation
//!   truncate                      delayed ──forget────► the reservation is returned
//!   failed write                  not dirty yet ──forget────► the same; blocks that another
//!                                 write made dirty stay reserved
//! ```

use crate::cached::Cached;
use crate::cached::map_share::Need;
use crate::inode::Body;
use crate::map::Target;
use crate::space::claims::{For, Reservation};
use crate::volume::Volume;
use extant_base::{Ino, Result};
use extant_ondisk::extent::ExtentState;
use rangemap::RangeSet;
use std::ops::Range;

/// Blocks of one file that are reserved and not allocated yet.
#[derive(Debug, Default)]
pub(crate) struct Delayed {
    blocks: RangeSet<u32>,
    /// How many. Counted, so that a write need not walk the ranges of a file in very many pieces.
    len: u64,
    /// Clusters for them.
    promise: Option<Reservation>,
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
    pub(super) fn runs(&self) -> u64 {
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
    fn missing(&self, range: Range<u32>) -> Vec<Range<u32>> {
        self.blocks.gaps(&range).collect()
    }

    /// The parts of `range` that are reserved.
    fn within<'a>(&'a self, range: &Range<u32>) -> impl Iterator<Item = Range<u32>> + 'a {
        let (start, end) = (range.start, range.end);
        let parts = self.blocks.overlapping(start..end);
        parts.map(move |part| part.start.max(start)..part.end.min(end))
    }

    /// Adds `range`, of which nothing is reserved. Returns how many clusters it needs beyond those
    /// reserved already.
    fn add(&mut self, range: Range<u32>, ratio: u32) -> u64 {
        let more = self.clusters_only_in(&range, ratio);
        self.len += u64::from(range.end - range.start);
        self.blocks.insert(range);
        more
    }

    /// Removes `range`. Returns how many clusters no longer hold a reserved block.
    fn take(&mut self, range: Range<u32>, ratio: u32) -> u64 {
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
    fn clusters_only_in(&self, range: &Range<u32>, ratio: u32) -> u64 {
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

    fn join(&mut self, promise: Reservation) {
        promise.join_to(&mut self.promise);
    }

    /// Returns `clusters` of the reservation, or all of it once no block is left.
    fn release(&mut self, clusters: u64) {
        if self.blocks.is_empty() {
            self.promise = None;
        } else if let Some(promise) = &mut self.promise {
            promise.give_back(clusters);
        }
    }
}

/// Runs of blocks of a file.
type Ranges = Vec<Range<u32>>;

impl Volume {
    /// Makes sure that every block of `blocks` is allocated or reserved, and so is its map.
    ///
    /// Errors: `NoSpace`, `QuotaExceeded`; what the map gives. After an error nothing more is
    /// reserved.
    /// Locks: the caller holds the inode's, exclusively.
    pub(crate) fn reserve_blocks(&self, ino: Ino, body: &Body, blocks: Range<u32>) -> Result<()> {
        let Some(cached) = &body.cached else { return Ok(()) };
        let done = self.promise_all(ino, body, cached, blocks.clone());
        if done.is_err() {
            // The write ends before it reaches the blocks for which there was no space, so none of
            // these becomes dirty.
            self.forget_unused(body, blocks);
        }
        done
    }

    fn promise_all(
        &self,
        ino: Ino,
        body: &Body,
        cached: &Cached,
        blocks: Range<u32>,
    ) -> Result<()> {
        if self.covers(ino, body) {
            self.promise_rewrites(ino, body, cached, blocks.clone())?;
        }
        let (holes, unwritten) = self.unpromised(ino, body, cached, blocks)?;
        self.promise_splits(body, cached, &unwritten)?;
        holes.into_iter().try_for_each(|hole| self.promise(ino, body, cached, hole))
    }

    /// After a write to `blocks` failed or ended early: returns the reservations of those blocks
    /// that are not dirty.
    ///
    /// Locks: the caller holds the inode's, exclusively; takes `Folio`.
    pub(super) fn forget_unused(&self, body: &Body, blocks: Range<u32>) {
        let Some(cached) = &body.cached else { return };
        let log2 = self.block_size().log2();
        let bytes = u64::from(blocks.start) << log2..u64::from(blocks.end) << log2;
        for clean in cached.pages.forget_clean(bytes) {
            self.forget_delayed(body, (clean.start >> log2) as u32..(clean.end >> log2) as u32);
        }
    }

    /// Reserves space for a hole of which nothing is reserved.
    fn promise(&self, ino: Ino, body: &Body, cached: &Cached, hole: Range<u32>) -> Result<()> {
        let ratio = self.geometry().cluster_ratio();
        let blocks = u64::from(hole.end - hole.start);
        let (promised, more) = {
            let delayed = cached.delayed.lock();
            (delayed.len(), delayed.clusters_only_in(&hole, ratio))
        };
        self.quota_check(ino, body, self.context().sectors(promised + blocks))?;
        // A hole next to reserved blocks is no run of its own, so this counts at most one run too
        // many.
        let need = Need { runs: 1, entries: blocks.min(more + 1) };
        let short = self.map_shortage(body, cached, need);
        let (data, map) = self.space().reserve_with_map(more, short)?;
        self.join_share(cached, map);
        let mut delayed = cached.delayed.lock();
        delayed.join(data);
        delayed.add(hole, ratio);
        Ok(())
    }

    /// The parts of `blocks` that are not reserved: holes, and unwritten blocks.
    fn unpromised(
        &self,
        ino: Ino,
        body: &Body,
        cached: &Cached,
        blocks: Range<u32>,
    ) -> Result<(Ranges, Ranges)> {
        // A write over blocks that are reserved does not need the map.
        let missing = cached.delayed.lock().missing(blocks);
        let (mut holes, mut unwritten) = (Vec::new(), Vec::new());
        for range in missing {
            for run in self.runs(ino, body, range) {
                let run = run?;
                let range = run.logical.0..run.end().0;
                match run.target {
                    Target::Hole => holes.push(range),
                    Target::Unwritten(_) => {
                        unwritten.extend(cached.map_share.lock().missing(range));
                    }
                    Target::Written(_) => {}
                }
            }
        }
        Ok((holes, unwritten))
    }

    /// Blocks under dirty data were freed: they are reserved again.
    ///
    /// Errors: what the map gives.
    pub(super) fn promise_again(&self, ino: Ino, body: &Body, blocks: Range<u32>) -> Result<()> {
        let Some(cached) = &body.cached else { return Ok(()) };
        let ratio = self.geometry().cluster_ratio();
        let (holes, unwritten) = self.unpromised(ino, body, cached, blocks)?;
        for hole in holes {
            let mut delayed = cached.delayed.lock();
            let clusters = delayed.add(hole, ratio);
            delayed.join(self.space().reserve_freed(For::Data, clusters));
        }
        self.note_splits(cached, &unwritten);
        self.share_again(body, cached);
        Ok(())
    }

    /// The reserved blocks of a file in units of 512 bytes.
    pub(crate) fn promised_sectors(&self, body: &Body) -> u64 {
        let blocks = body.cached.as_ref().map_or(0, |cached| cached.delayed.lock().len());
        self.context().sectors(blocks)
    }

    /// The blocks of `range`, reserved or not, are allocated: returns their reservations. Blocks
    /// that were allocated unwritten will change in the map once more.
    pub(crate) fn filled(&self, body: &Body, range: Range<u32>, state: ExtentState) {
        let Some(cached) = &body.cached else { return };
        if state == ExtentState::Unwritten {
            let parts: Vec<_> = cached.delayed.lock().within(&range).collect();
            self.note_splits(cached, &parts);
        }
        self.forget_promises(body, cached, range);
    }

    /// The blocks of `range` are no longer needed: returns their reservations.
    pub(crate) fn forget_delayed(&self, body: &Body, range: Range<u32>) {
        let Some(cached) = &body.cached else { return };
        self.forget_promises(body, cached, range.clone());
        self.forget_splits(body, range);
    }

    fn forget_promises(&self, body: &Body, cached: &Cached, range: Range<u32>) {
        // A block that was a hole, or is cut off, will not be rewritten either.
        cached.rewrites.lock().take(range.clone());
        let mut delayed = cached.delayed.lock();
        if !delayed.is_empty() && !range.is_empty() {
            let clusters = delayed.take(range, self.geometry().cluster_ratio());
            delayed.release(clusters);
        }
        drop(delayed);
        self.trim_share(body, cached);
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
