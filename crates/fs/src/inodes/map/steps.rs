//! Freeing any number of blocks with a journal of any size.
//!
//! ```text
//!   start ─► step ─► step ─► … transaction full ─► ready, store ─► restart ─► step ─► … ─► stop
//!            one extent, or few pointer blocks     the state on disk is consistent here
//! ```

use crate::inodes::file::{FileMut, FileRef};
use crate::inodes::map::block_map::change::Budget;
use crate::inodes::map::{block_map, extent};
use crate::state::inode::Body;
use extant_base::{BlockNr, Result};
use extant_journal::{Credits, Handle};
use extant_ondisk::extent::{Extent, ExtentState};
use extant_ondisk::inode::{FileKind, InodeFlags};
use std::ops::Range;

/// Most pointer blocks and runs of data blocks that one step removes from a block map.
pub(super) const STEP_RUNS: u32 = 16;
/// Most blocks that one step removes from a file whose content is metadata: each may need a revoke.
pub(super) const STEP_REVOKES: u32 = 64;

/// Makes the state consistent, so that recovery can continue from it. The inode is stored
/// afterwards.
pub(crate) type Ready<'a> = &'a mut dyn FnMut(&Handle<'_>, &mut Body) -> Result<()>;

impl FileRef<'_> {
    /// Whether the blocks of this inode's content go through the journal.
    pub(crate) fn content_is_metadata(self) -> bool {
        self.body.file_kind() != FileKind::Regular
            || self.body.flags.contains(InodeFlags::EA_INODE)
            || self.journals_data()
    }
}

impl FileMut<'_> {
    /// Unmaps `range` and frees its blocks, from the right. When the transaction is full, this
    /// calls `ready`, stores the inode and restarts the handle, with `keep` for the caller's work
    /// afterwards.
    ///
    /// The caller stores the inode in the end, even after an error: then a part of the range is
    /// still mapped. Errors and locks as [`FileMut::unmap`].
    pub(crate) fn unmap_in_steps(
        &mut self,
        handle: &mut Handle<'_>,
        range: Range<u32>,
        keep: Credits,
        ready: Ready<'_>,
    ) -> Result<()> {
        self.volume.space().discard_preallocation(self.ino());
        let mut end = Some(range.end).filter(|end| *end > range.start);
        while let Some(last) = end {
            let step = self.volume.credits_of(self.body).unmap();
            self.next_step(handle, step, keep, ready)?;
            end = self.unmap_step(handle, range.start..last)?;
        }
        Ok(())
    }

    /// Converts the mapped blocks of `range`. Restarts the handle as [`FileMut::unmap_in_steps`]
    /// does.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn convert_in_steps(
        &mut self,
        handle: &mut Handle<'_>,
        range: Range<u32>,
        state: ExtentState,
        keep: Credits,
        ready: Ready<'_>,
    ) -> Result<()> {
        let mut at = range.start;
        while at < range.end {
            let run = self.as_ref().map(extant_base::LogicalBlock(at), range.end - at)?;
            let run = run.logical.0..run.end().0;
            self.next_step(handle, self.volume.credits_of(self.body).convert(), keep, ready)?;
            at = run.end;
            self.convert(handle, run, state)?;
        }
        Ok(())
    }

    /// Reserves the credits of one more step and `keep`, in this transaction or in the next one.
    pub(crate) fn next_step(
        &mut self,
        handle: &mut Handle<'_>,
        step: Credits,
        keep: Credits,
        ready: Ready<'_>,
    ) -> Result<()> {
        let wanted = step.plus(keep);
        if handle.ensure(wanted)? {
            return Ok(());
        }
        ready(handle, self.body)?;
        self.body.store(self.volume, handle)?;
        handle.restart(wanted)
    }

    /// One step of removing `range` from the map. Returns the end of the part that is left.
    fn unmap_step(&mut self, handle: &Handle<'_>, range: Range<u32>) -> Result<Option<u32>> {
        self.body.synced.map_changed = true;
        self.volume.notes().note_mapped(handle, self.body, range.clone());
        let known = self.as_ref().content_is_metadata();
        let most = if known { STEP_REVOKES } else { u32::MAX };
        if self.body.disk.has_extents() {
            let mut free = |body: &mut Body, gone: Extent| {
                if known && gone.state == ExtentState::Written {
                    (0..u64::from(gone.len))
                        .for_each(|n| handle.forget(BlockNr(gone.physical.0 + n)));
                }
                self.volume.file_mut(body).free_data(handle, gone)
            };
            extent::truncate::remove_step(self, handle, range, most, &mut free)
        } else {
            let mut forget = |block| {
                if known {
                    handle.forget(block);
                }
            };
            let budget = Budget { runs: STEP_RUNS, blocks: most };
            let end = range.end;
            let done = block_map::change::remove_step(self, handle, range, budget, &mut forget)?;
            Ok((!done).then_some(end))
        }
    }
}
