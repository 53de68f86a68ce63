//! The free clusters that may be used while a volume becomes smaller.
//!
//! ```text
//!   bitmaps of the groups that stay, with everything from the new end on taken
//!   take ──► the first run that holds the wish, from where the last one was; else the longest
//!   give ──► waits until the step that frees it is settled: until then the old content counts
//! ```

use crate::volume::Volume;
use extant_base::{BlockNr, Error, GroupNr, Result};
use extant_ondisk::bitmap;
use extant_ondisk::geometry::Geometry;

/// What is free below the new end.
pub(super) struct FreeMap {
    geometry: Geometry,
    end: u64,
    groups: Vec<Box<[u8]>>,
    free: Vec<u32>,
    cursor: usize,
    /// Freed by the step that is being made.
    given: Vec<(BlockNr, u64)>,
}

impl FreeMap {
    /// Reads the bitmaps of all groups that begin before block `end`.
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
            bitmap::set_range(&mut bytes, (stay as u32).min(clusters)..clusters);
            free.push(bitmap::count_zeros(&bytes, 0..clusters));
            groups.push(bytes);
        }
        Ok(FreeMap { geometry: *geometry, end, groups, free, cursor: 0, given: Vec::new() })
    }

    /// Takes up to `want` clusters side by side: (first block, clusters).
    ///
    /// Errors: `NoSpace`.
    pub(super) fn take(&mut self, want: u32) -> Result<(BlockNr, u32)> {
        let mut best: Option<(usize, u32, u32)> = None;
        for n in 0..self.groups.len() {
            let g = (self.cursor + n) % self.groups.len();
            if self.free[g] == 0 || best.is_some_and(|(_, _, len)| self.free[g] <= len) {
                continue;
            }
            let clusters = self.geometry.clusters_in_group(GroupNr(g as u32)).unwrap_or(0);
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
        let first = self.geometry.block_of_bit(GroupNr(g as u32), start).ok_or(Error::NoSpace)?;
        Ok((first, len))
    }

    /// Takes exactly `want` clusters side by side.
    ///
    /// Errors: `NoSpace` when there is no such run.
    pub(super) fn take_whole(&mut self, want: u32) -> Result<BlockNr> {
        let (first, len) = self.take(want)?;
        if len < want {
            return Err(Error::NoSpace);
        }
        Ok(first)
    }

    /// Notes `blocks` blocks from `first` on as free from the next settling on.
    pub(super) fn give(&mut self, first: BlockNr, blocks: u64) {
        self.given.push((first, blocks));
    }

    /// The step is settled: what it freed may be used.
    pub(super) fn settled(&mut self) {
        for (first, blocks) in std::mem::take(&mut self.given) {
            let ratio = u64::from(self.geometry.cluster_ratio());
            let behind = (first.0 + blocks).min(self.end);
            for block in (first.0 / ratio * ratio..behind).step_by(ratio as usize) {
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
