//! Covered blocks that will be rewritten. Their data goes to other blocks, and space for those is
//! reserved first (rule S5).
//!
//! ```text
//!   write       over a written block ──reserve──► dirty         no space: ENOSPC now, never later
//!   write-back  takes a held run and its reservation ──► data ──► [ mapping, checksums ]
//!   failed      held run released, reserved again
//! ```
//!
//! A writer that changes a block while older bytes of it are in flight reserves once more. So each
//! block in this set has newer bytes for which no run is held. A write in place (to a block that
//! was unwritten) needs no reservation itself, but the next bytes will: such blocks are noted while
//! their data is in flight.

use crate::files::cached::{CacheReservations, FileReservations};
use crate::files::file::pieces::Piece;
use crate::inodes::map::Target;
use crate::space::reservations::ReservedFor;
use crate::state::file_cache::FileCacheState;
use crate::state::file_cache::map_reservation::Need;
use crate::state::file_cache::rewrites::count;
use extant_base::Result;
use std::ops::Range;

impl FileReservations<'_> {
    /// Reserves space for those blocks of `blocks`, which are about to become dirty, that will need
    /// another block.
    ///
    /// Errors: `NoSpace`, and nothing more is reserved; what the map gives. Locks: the caller holds
    /// the inode's, exclusively.
    pub(super) fn reserve_rewrites(
        self,
        file_cache: &FileCacheState,
        blocks: Range<u32>,
    ) -> Result<()> {
        let missing: Vec<Range<u32>> = file_cache.rewrites.lock().missing(&blocks);
        let mut wanted: Vec<Range<u32>> = Vec::new();
        for range in missing {
            for run in self.volume.file(self.body).runs(range) {
                let run = run?;
                let range = run.logical.0..run.end().0;
                match run.target {
                    Target::Written(_) => wanted.push(range),
                    Target::Unwritten(_) => {
                        wanted.extend(file_cache.rewrites.lock().in_flight(&range));
                    }
                    Target::Hole => {}
                }
            }
        }
        let clusters = count(wanted.iter());
        if clusters == 0 {
            return Ok(());
        }
        let short = self.map_shortage(file_cache, Need::of_splits(wanted.len(), clusters));
        let (mut reservation, map) = self.volume.space().reserve_with_map(clusters, short)?;
        self.volume.cache_reservations(file_cache).add_map_reservation(map);
        let mut rewrites = file_cache.rewrites.lock();
        for range in wanted {
            let len = u64::from(range.end - range.start);
            rewrites.add(range, reservation.split(len), len);
        }
        Ok(())
    }
}

impl CacheReservations<'_> {
    /// A folio of the file is about to be lent for changes in place.
    pub(super) fn note_lent(self) {
        self.file_cache.rewrites.lock().note_lent();
    }
}

impl FileReservations<'_> {
    /// Whether space is reserved to rewrite the block at `at`, and for how many blocks (at most
    /// `limit`) the answer is the same.
    pub(crate) fn reserved_rewrites(self, at: u32, limit: u32) -> (bool, u32) {
        let Some(file_cache) = &self.body.file_cache else { return (false, limit) };
        file_cache.rewrites.lock().run_at(at, limit)
    }

    /// Blocks of `range` have their new blocks, but the map does not show them yet.
    pub(crate) fn moved_rewrites(self, range: Range<u32>) {
        if let Some(file_cache) = &self.body.file_cache {
            self.volume.cache_reservations(file_cache).note_splits(std::slice::from_ref(&range));
            file_cache.rewrites.lock().take(range);
            self.trim_map_reservation(file_cache);
        }
    }
}

impl CacheReservations<'_> {
    /// Returns all reservations when nothing of the file is dirty. The caller holds the inode
    /// exclusively.
    pub(crate) fn forget_settled_rewrites(self) {
        let mut rewrites = self.file_cache.rewrites.lock();
        if !rewrites.is_empty() && !rewrites.was_lent() && !self.file_cache.pages.is_dirty() {
            rewrites.take(0..u32::MAX);
            drop(rewrites);
            if self.file_cache.delayed.lock().is_empty() {
                self.file_cache.map_reservation.lock().clear();
            }
        }
    }

    /// Data is in flight to these blocks, which the map does not show yet.
    pub(super) fn note_in_flight(self, pieces: &[Piece]) {
        let mut rewrites = self.file_cache.rewrites.lock();
        for piece in pieces.iter().filter(|piece| piece.fresh && !piece.moved) {
            rewrites.start_write(piece.logical..piece.logical + piece.len);
        }
    }

    /// The write to these blocks succeeded or failed. Locks: the caller holds the inode's where the
    /// map shows the blocks.
    pub(super) fn note_write_ended(self, pieces: &[Piece]) {
        let mut rewrites = self.file_cache.rewrites.lock();
        for piece in pieces.iter().filter(|piece| piece.fresh && !piece.moved) {
            rewrites.end_write(piece.logical..piece.logical + piece.len);
        }
    }

    /// The data of these blocks could not be shown and is dirty again. Releases the held blocks and
    /// reserves space for the data.
    pub(super) fn reserve_failed(self, pieces: &[Piece]) {
        self.note_write_ended(pieces);
        for piece in pieces.iter().filter(|piece| piece.moved) {
            let clusters = u64::from(piece.len);
            // Reserve first: another file could take the released clusters.
            let reservation = self.volume.space().reserve_freed(ReservedFor::Data, clusters);
            self.volume.space().release_held(piece.block, piece.len);
            let range = piece.logical..piece.logical + piece.len;
            self.file_cache.rewrites.lock().add(range, reservation, clusters);
        }
    }

    /// As [`CacheReservations::reserve_failed`], for blocks that the map shows already and whose
    /// data is dirty again.
    pub(super) fn reserve_mapped_again(self, range: Range<u32>) {
        let clusters = u64::from(range.end.saturating_sub(range.start));
        if clusters > 0 {
            let reservation = self.volume.space().reserve_freed(ReservedFor::Data, clusters);
            self.file_cache.rewrites.lock().add(range, reservation, clusters);
        }
    }
}
