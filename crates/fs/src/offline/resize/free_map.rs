//! The free clusters that may be used while a volume becomes smaller.
//!
//! ```text
//!   bitmaps of the remaining groups, with everything from the new end on marked used
//!   take ──► the first run that is long enough, from the last group used on; else the longest
//!   give ──► waits until the step that frees it is committed: until then the old content is needed
//! ```

use crate::volume::Volume;
use extant_base::narrow::{fits_u32, fits_usize, len_u32};
use extant_base::{BlockNr, Error, GroupNr, Result};
use extant_ondisk::bitmap;
use extant_ondisk::geometry::Geometry;

/// The free clusters below the new end.
pub(super) struct FreeMap {
    geometry: Geometry,
    end: u64,
    groups: Vec<Box<[u8]>>,
    free: Vec<u32>,
    cursor: usize,
    /// Freed by the step that is in progress.
    freed: Vec<(BlockNr, u64)>,
}

impl FreeMap {
    /// Reads the bitmaps of all groups that start before block `end`.
    pub(super) fn read(volume: &Volume, end: u64) -> Result<FreeMap> {
        let geometry = volume.geometry();
        let (mut groups, mut free) = (Vec::new(), Vec::new());
        for nr in geometry.groups() {
            let Some(blocks) = geometry.blocks_of_group(nr).filter(|blocks| blocks.start < end)
            else {
                break;
            };
            let mut bytes: Box<[u8]> =
                volume.space().block_bitmap(nr)?.with(|bytes| Box::from(bytes));
            let clusters = geometry.clusters_in_group(nr).unwrap_or(0);
            let stay = (end.min(blocks.end) - blocks.start) >> geometry.log_cluster_ratio();
            bitmap::set_range(&mut bytes, fits_u32(stay).min(clusters)..clusters);
            free.push(bitmap::count_zeros(&bytes, 0..clusters));
            groups.push(bytes);
        }
        Ok(FreeMap { geometry: *geometry, end, groups, free, cursor: 0, freed: Vec::new() })
    }

    /// Takes up to `want` adjacent clusters. Returns the first block and the number of clusters.
    ///
    /// Errors: `NoSpace`.
    pub(super) fn take(&mut self, want: u32) -> Result<(BlockNr, u32)> {
        let mut best: Option<(usize, u32, u32)> = None;
        for n in 0..self.groups.len() {
            let g = (self.cursor + n) % self.groups.len();
            if self.free[g] == 0 || best.is_some_and(|(_, _, len)| self.free[g] <= len) {
                continue;
            }
            let clusters = self.geometry.clusters_in_group(GroupNr(len_u32(g))).unwrap_or(0);
            for run in bitmap::zero_runs(&self.groups[g], 0..clusters) {
                let len = (run.end - run.start).min(want);
                if best.is_none_or(|(_, _, most)| len > most) {
                    best = Some((g, run.start, len));
                }
                if len == want {
                    break;
                }
            }
            if best.is_some_and(|(_, _, len)| len == want) {
                break;
            }
        }
        let (g, start, len) = best.ok_or(Error::NoSpace)?;
        bitmap::set_range(&mut self.groups[g], start..start + len);
        self.free[g] -= len;
        self.cursor = g;
        let first = self.geometry.block_of_bit(GroupNr(len_u32(g)), start).ok_or(Error::NoSpace)?;
        Ok((first, len))
    }

    /// Takes exactly `want` adjacent clusters.
    ///
    /// Errors: `NoSpace` if there is no such run.
    pub(super) fn take_whole(&mut self, want: u32) -> Result<BlockNr> {
        let (first, len) = self.take(want)?;
        if len < want {
            return Err(Error::NoSpace);
        }
        Ok(first)
    }

    /// Records that `blocks` blocks from `first` on are free after the next commit.
    pub(super) fn add_freed(&mut self, first: BlockNr, blocks: u64) {
        self.freed.push((first, blocks));
    }

    /// The step is committed, so the blocks that it freed may be used.
    pub(super) fn step_committed(&mut self) {
        for (first, blocks) in std::mem::take(&mut self.freed) {
            let ratio = u64::from(self.geometry.cluster_ratio());
            let end = (first.0 + blocks).min(self.end);
            for block in (first.0 / ratio * ratio..end).step_by(fits_usize(ratio)) {
                let place = self.geometry.bit_of_block(BlockNr(block));
                let Some((nr, bit)) = place.filter(|(nr, _)| (nr.0 as usize) < self.groups.len())
                else {
                    continue;
                };
                if bitmap::clear(&mut self.groups[nr.0 as usize], bit) {
                    self.free[nr.0 as usize] += 1;
                }
            }
        }
    }
}
