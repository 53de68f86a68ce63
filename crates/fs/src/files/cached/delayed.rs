//! Blocks that dirty data will need: reserved when it is written, allocated when it is written
//! back.
//!
//! ```text
//!   write       hole ──reserve──► delayed; space for data and map (`map_reservation`) reserved,
//!                                 quota checked
//!   write-back                    delayed ──fill_hole──► allocated out of the reservation
//!   truncate                      delayed ──forget────► the reservation is returned
//!   failed write                  not dirty yet ──forget────► the same; blocks that another
//!                                 write made dirty stay reserved
//! ```

use crate::files::cached::FileReservations;
use crate::inodes::map::Target;
use crate::space::reservations::ReservedFor;
use crate::state::file_cache::FileCacheState;
use crate::state::file_cache::map_reservation::Need;
use extant_base::Result;
use extant_base::narrow::fits_u32;
use extant_ondisk::extent::ExtentState;
use std::ops::Range;

/// Runs of blocks of a file.
type Ranges = Vec<Range<u32>>;

impl FileReservations<'_> {
    /// Makes sure that every block of `blocks` is allocated or reserved, and so is its map.
    ///
    /// Errors: `NoSpace`, `QuotaExceeded`; what the map gives. After an error nothing more is
    /// reserved.
    /// Locks: the caller holds the inode's, exclusively.
    pub(crate) fn reserve_blocks(self, blocks: Range<u32>) -> Result<()> {
        let Some(file_cache) = &self.body.file_cache else { return Ok(()) };
        let done = self.reserve_missing(file_cache, blocks.clone());
        if done.is_err() {
            // The write ends before it reaches the blocks for which there was no space, so none of
            // these becomes dirty.
            self.forget_unused(blocks);
        }
        done
    }

    fn reserve_missing(self, file_cache: &FileCacheState, blocks: Range<u32>) -> Result<()> {
        if self.volume.file(self.body).has_data_checksums() {
            self.reserve_rewrites(file_cache, blocks.clone())?;
        }
        let (holes, unwritten) = self.unreserved(file_cache, blocks)?;
        self.reserve_splits(file_cache, &unwritten)?;
        holes.into_iter().try_for_each(|hole| self.reserve_hole(file_cache, hole))
    }

    /// After a write to `blocks` failed or ended early: returns the reservations of those blocks
    /// that are not dirty.
    ///
    /// Locks: the caller holds the inode's, exclusively; takes `Folio`.
    pub(super) fn forget_unused(self, blocks: Range<u32>) {
        let Some(file_cache) = &self.body.file_cache else { return };
        let log2 = self.volume.block_size().log2();
        let bytes = u64::from(blocks.start) << log2..u64::from(blocks.end) << log2;
        for clean in file_cache.pages.forget_clean(bytes) {
            self.forget_delayed(fits_u32(clean.start >> log2)..fits_u32(clean.end >> log2));
        }
    }

    /// Reserves space for a hole of which nothing is reserved.
    fn reserve_hole(self, file_cache: &FileCacheState, hole: Range<u32>) -> Result<()> {
        let ratio = self.volume.geometry().cluster_ratio();
        let blocks = u64::from(hole.end - hole.start);
        let (reserved, more) = {
            let delayed = file_cache.delayed.lock();
            (delayed.len(), delayed.clusters_only_in(&hole, ratio))
        };
        self.volume
            .quota_accounting()
            .check(self.body, self.volume.context().sectors(reserved + blocks))?;
        // A hole next to reserved blocks is no run of its own, so this counts at most one run too
        // many.
        let need = Need { runs: 1, entries: blocks.min(more + 1) };
        let short = self.map_shortage(file_cache, need);
        let (data, map) = self.volume.space().reserve_with_map(more, short)?;
        self.volume.cache_reservations(file_cache).add_map_reservation(map);
        let mut delayed = file_cache.delayed.lock();
        delayed.join(data);
        delayed.add(hole, ratio);
        Ok(())
    }

    /// The parts of `blocks` that are not reserved: holes, and unwritten blocks.
    fn unreserved(
        self,
        file_cache: &FileCacheState,
        blocks: Range<u32>,
    ) -> Result<(Ranges, Ranges)> {
        // A write over blocks that are reserved does not need the map.
        let missing = file_cache.delayed.lock().missing(blocks);
        let (mut holes, mut unwritten) = (Vec::new(), Vec::new());
        for range in missing {
            for run in self.volume.file(self.body).runs(range) {
                let run = run?;
                let range = run.logical.0..run.end().0;
                match run.target {
                    Target::Hole => holes.push(range),
                    Target::Unwritten(_) => {
                        unwritten.extend(file_cache.map_reservation.lock().missing(range));
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
    pub(super) fn reserve_freed_again(self, blocks: Range<u32>) -> Result<()> {
        let Some(file_cache) = &self.body.file_cache else { return Ok(()) };
        let ratio = self.volume.geometry().cluster_ratio();
        let (holes, unwritten) = self.unreserved(file_cache, blocks)?;
        for hole in holes {
            let mut delayed = file_cache.delayed.lock();
            let clusters = delayed.add(hole, ratio);
            delayed.join(self.volume.space().reserve_freed(ReservedFor::Data, clusters));
        }
        self.volume.cache_reservations(file_cache).note_splits(&unwritten);
        self.reserve_map_again(file_cache);
        Ok(())
    }

    /// The reserved blocks of a file in units of 512 bytes.
    pub(crate) fn reserved_sectors(self) -> u64 {
        let blocks =
            self.body.file_cache.as_ref().map_or(0, |file_cache| file_cache.delayed.lock().len());
        self.volume.context().sectors(blocks)
    }

    /// The blocks of `range`, reserved or not, are allocated: returns their reservations. Blocks
    /// that were allocated unwritten will change in the map once more.
    pub(crate) fn filled(self, range: Range<u32>, state: ExtentState) {
        let Some(file_cache) = &self.body.file_cache else { return };
        if state == ExtentState::Unwritten {
            let parts: Vec<_> = file_cache.delayed.lock().within(&range).collect();
            self.volume.cache_reservations(file_cache).note_splits(&parts);
        }
        self.forget_reservations(file_cache, range);
    }

    /// The blocks of `range` are no longer needed: returns their reservations.
    pub(crate) fn forget_delayed(self, range: Range<u32>) {
        let Some(file_cache) = &self.body.file_cache else { return };
        self.forget_reservations(file_cache, range.clone());
        self.forget_splits(range);
    }

    fn forget_reservations(self, file_cache: &FileCacheState, range: Range<u32>) {
        // A block that was a hole, or is cut off, will not be rewritten either.
        file_cache.rewrites.lock().take(range.clone());
        let mut delayed = file_cache.delayed.lock();
        if !delayed.is_empty() && !range.is_empty() {
            let clusters = delayed.take(range, self.volume.geometry().cluster_ratio());
            delayed.release(clusters);
        }
        drop(delayed);
        self.trim_map_reservation(file_cache);
    }
}
