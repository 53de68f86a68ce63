//! Marking blocks, whatever their bits were, and reading bits: for replay, repair and mkfs.
//!
//! ```text
//!   bits before   1 0 0 1      mark used ─►  1 1 1 1     counters change by 2, new full checksum
//! ```

use crate::space::free_space::FreeSpace;
use crate::space::group_edit::{GroupBlocks, GroupEdit, Map};
use extant_base::{BlockNr, Result, Site, What};
use extant_journal::Handle;

impl FreeSpace {
    /// Marks blocks as used or free, whatever they were. Counts only the bits that change. For
    /// replay.
    ///
    /// Errors: `Corrupt` for a range outside the volume or on metadata at fixed places; `Device`.
    /// Locks: takes `Group`.
    pub(super) fn mark_blocks(
        &self,
        handle: &Handle<'_>,
        start: BlockNr,
        len: u64,
        used: bool,
    ) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        if !self.context().geometry().holds(start, len) || self.groups().is_system(start, len) {
            return Err(Site::of_block(start).corrupt(What::ExtentRange));
        }
        for (nr, span) in self.groups().spans(start, len) {
            let blocks = GroupBlocks::fetch(self, nr, Map::Blocks)?;
            let mut edit = GroupEdit::begin(self, &blocks, handle)?;
            let flipped = edit.force(span, used, handle)?;
            if used {
                edit.count_used(flipped);
            } else {
                edit.count_free(flipped);
            }
            edit.finish(&blocks, handle)?;
        }
        Ok(())
    }

    /// The free blocks among the `len` blocks from `start` on, as whole clusters, as (first, how
    /// many).
    ///
    /// Errors: `Corrupt` for a range outside the volume or on metadata at fixed places, and for a
    /// damaged bitmap; `Device`.
    pub(super) fn free_runs(&self, start: BlockNr, len: u64) -> Result<Vec<(BlockNr, u64)>> {
        if !self.context().geometry().holds(start, len) || self.groups().is_system(start, len) {
            return Err(Site::of_block(start).corrupt(What::ExtentRange));
        }
        let ratio = u64::from(self.context().geometry().cluster_ratio());
        let mut runs: Vec<(BlockNr, u64)> = Vec::new();
        for (nr, span) in self.groups().spans(start, len) {
            let free: Vec<u32> = self.groups().block_bitmap(nr)?.with(|bytes| {
                let is_free =
                    |bit: &u32| extant_ondisk::bitmap::count_set(bytes, *bit..*bit + 1) == 0;
                (span.start..span.end()).filter(is_free).collect()
            });
            for block in
                free.into_iter().filter_map(|bit| self.context().geometry().block_of_bit(nr, bit))
            {
                match runs.last_mut() {
                    Some((first, len)) if first.0 + *len == block.0 => *len += ratio,
                    _ => runs.push((block, ratio)),
                }
            }
        }
        // A volume may end inside its last cluster.
        for (first, len) in &mut runs {
            *len = (*len).min(self.context().geometry().blocks_count() - first.0);
        }
        Ok(runs)
    }
}
