//! Covered blocks that are to be written again: they go to other blocks, for which space is promised first (rule S5).
//!
//! ```text
//!   write       over a written block ──promise──► dirty          no space: ENOSPC now, never later
//!   write-back  run held in memory; the promise goes with it ──► data ──► [ mapping, sums ]
//!   failed      run let go, promised again
//! ```
//!
//! Who writes to a block whose older bytes are on their way promises it anew: what is in the set here belongs to
//! bytes that no run is held for. A block that is written in place (it was unwritten) needs no promise for that, but
//! will for the next bytes: such blocks are noted while their data is on its way.

use crate::cached::Cached;
use crate::cached::map_share::Need;
use crate::file::pieces::Piece;
use crate::inode::Body;
use crate::map::Target;
use crate::space::claims::{For, Reservation};
use crate::volume::Volume;
use extant_base::{Ino, Result};
use rangemap::RangeSet;
use std::ops::Range;

/// Blocks of one file that need another block with their next write-back.
#[derive(Debug, Default)]
pub(crate) struct Rewrites {
    /// A cluster is promised for each.
    blocks: RangeSet<u32>,
    len: u64,
    promise: Option<Reservation>,
    /// Unwritten blocks that data is on its way to.
    in_flight: RangeSet<u32>,
    /// Bytes were lent to be changed: which are about to become dirty is not known here.
    lent: bool,
}

fn count<'a>(ranges: impl Iterator<Item = &'a Range<u32>>) -> u64 {
    ranges.map(|range| u64::from(range.end - range.start)).sum()
}

impl Rewrites {
    fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Adds `range`, for whose blocks that are not in yet `promise` has a cluster at least.
    fn add(&mut self, range: Range<u32>, mut promise: Reservation, clusters: u64) {
        let new: u64 = self.blocks.gaps(&range).map(|gap| u64::from(gap.end - gap.start)).sum();
        promise.give_back(clusters.saturating_sub(new));
        self.blocks.insert(range);
        self.len += new;
        promise.join_to(&mut self.promise);
    }

    /// How many blocks.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// In how many runs.
    pub(super) fn runs(&self) -> usize {
        self.blocks.len()
    }

    /// Takes `range` out; what was promised for it is given back.
    pub(super) fn take(&mut self, range: Range<u32>) {
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
        if let Some(promise) = &mut self.promise {
            promise.give_back(less);
        }
        self.blocks.remove(range);
    }
}

impl Volume {
    /// Makes sure that every block of `blocks`, which are about to be dirty, has a promise where it needs another block.
    ///
    /// Errors: `NoSpace`, and nothing more is promised; what the map gives. Locks: the inode's is held, exclusively.
    pub(super) fn promise_rewrites(
        &self,
        ino: Ino,
        body: &Body,
        cached: &Cached,
        blocks: Range<u32>,
    ) -> Result<()> {
        let missing: Vec<Range<u32>> = cached.rewrites.lock().blocks.gaps(&blocks).collect();
        let mut wanted: Vec<Range<u32>> = Vec::new();
        for range in missing {
            for run in self.runs(ino, body, range) {
                let run = run?;
                let range = run.logical.0..run.end().0;
                match run.target {
                    Target::Written(_) => wanted.push(range),
                    Target::Unwritten(_) => {
                        let rewrites = cached.rewrites.lock();
                        let parts = rewrites.in_flight.overlapping(range.clone());
                        wanted.extend(
                            parts.map(|part| part.start.max(range.start)..part.end.min(range.end)),
                        );
                    }
                    Target::Hole => {}
                }
            }
        }
        let clusters = count(wanted.iter());
        if clusters == 0 {
            return Ok(());
        }
        let short = self.map_shortage(body, cached, Need::of_splits(wanted.len(), clusters));
        let (mut promise, map) = self.space().reserve_with_map(clusters, short)?;
        self.join_share(cached, map);
        let mut rewrites = cached.rewrites.lock();
        for range in wanted {
            let len = u64::from(range.end - range.start);
            rewrites.add(range, promise.split(len), len);
        }
        Ok(())
    }

    /// Bytes of the file are about to be lent, to be changed in place.
    pub(super) fn note_lent(&self, cached: &Cached) {
        cached.rewrites.lock().lent = true;
    }

    /// Whether a block is promised in the place of the one at `at`, and for how many blocks, at most `limit`, the answer
    /// is the same.
    pub(crate) fn promised_rewrites(&self, body: &Body, at: u32, limit: u32) -> (bool, u32) {
        let Some(cached) = &body.cached else { return (false, limit) };
        let rewrites = cached.rewrites.lock();
        match rewrites.blocks.get(&at) {
            Some(part) => (true, (part.end - at).min(limit)),
            None => {
                let gap = rewrites.blocks.gaps(&(at..at.saturating_add(limit))).next();
                (false, gap.map_or(limit, |gap| gap.end - at))
            }
        }
    }

    /// Blocks of `range` got what was promised for them, but in the map.
    pub(crate) fn moved_rewrites(&self, body: &Body, range: Range<u32>) {
        if let Some(cached) = &body.cached {
            self.note_splits(cached, std::slice::from_ref(&range));
            cached.rewrites.lock().take(range);
            self.trim_share(body, cached);
        }
    }

    /// Nothing of the file is dirty, and the inode is held alone: nothing is promised any more.
    pub(crate) fn forget_settled_rewrites(&self, cached: &Cached) {
        let mut rewrites = cached.rewrites.lock();
        if !rewrites.is_empty() && !rewrites.lent && !cached.pages.is_dirty() {
            rewrites.take(0..u32::MAX);
            drop(rewrites);
            if cached.delayed.lock().is_empty() {
                cached.map_share.lock().clear();
            }
        }
    }

    /// Data is on its way to these blocks, which no map shows yet.
    pub(super) fn note_in_flight(&self, cached: &Cached, pieces: &[Piece]) {
        let mut rewrites = cached.rewrites.lock();
        for piece in pieces.iter().filter(|piece| piece.fresh && !piece.moved) {
            rewrites.in_flight.insert(piece.logical..piece.logical + piece.len);
        }
    }

    /// It is there, or will not be. Locks: the inode's is held where the map shows them.
    pub(super) fn note_landed(&self, cached: &Cached, pieces: &[Piece]) {
        let mut rewrites = cached.rewrites.lock();
        for piece in pieces.iter().filter(|piece| piece.fresh && !piece.moved) {
            rewrites.in_flight.remove(piece.logical..piece.logical + piece.len);
        }
    }

    /// Data did not come to be shown in these blocks and is dirty again: what is held is let go and promised to it.
    pub(super) fn promise_failed(&self, cached: &Cached, pieces: &[Piece]) {
        self.note_landed(cached, pieces);
        for piece in pieces.iter().filter(|piece| piece.moved) {
            let clusters = u64::from(piece.len);
            // Before others can have them.
            let promise = self.space().reserve_freed(For::Data, clusters);
            self.space().let_go_held(piece.block, piece.len);
            let range = piece.logical..piece.logical + piece.len;
            cached.rewrites.lock().add(range, promise, clusters);
        }
    }

    /// As [`Volume::promise_failed`], of blocks that are shown and whose data is dirty all the same.
    pub(super) fn promise_shown_again(&self, cached: &Cached, range: Range<u32>) {
        let clusters = u64::from(range.end.saturating_sub(range.start));
        if clusters > 0 {
            let promise = self.space().reserve_freed(For::Data, clusters);
            cached.rewrites.lock().add(range, promise, clusters);
        }
    }
}
