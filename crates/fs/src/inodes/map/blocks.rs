//! Metadata blocks of a file: allocating them, counting them in its inode, and freeing them.
//!
//! ```text
//!   map, directory index, attributes ──► allocate_metadata ──► space.allocate
//!                                           │                  i_blocks
//!                                           └ quota, unless cached dirty data needs the block
//! ```

use crate::inodes::file::{FileMut, FileRef};
use crate::space::blocks::{BlockRun, Request, Search};
use crate::space::reservations::Allowance;
use extant_base::{BlockNr, Result};
use extant_journal::Handle;

impl FileMut<'_> {
    /// Allocates one metadata block for the inode (with bigalloc, a cluster of its own) and counts
    /// it in the inode.
    ///
    /// Errors: `NoSpace`, `QuotaExceeded`, `Device`. Locks: takes `Group`.
    pub(crate) fn allocate_metadata(
        &mut self,
        handle: &Handle<'_>,
        goal: BlockNr,
        allowance: Allowance,
    ) -> Result<BlockNr> {
        // Blocks that map dirty data in the cache are never refused: the data was accepted.
        if allowance == Allowance::Data || self.body.file_cache.is_none() {
            self.volume.quota_accounting().check(self.body, self.volume.context().sectors(1))?;
        }
        let below = if self.body.disk.has_extents() { u64::MAX } else { 1 << 32 };
        let search = self.volume.search();
        let goal = if search == Search::Next { self.volume.space().bulk().goal() } else { goal };
        let request = Request { goal, want: 1, below, search, allowance, growth: None };
        let run = self.volume.space().allocate(handle, request)?;
        self.body.disk.sectors += self.volume.context().sectors(u64::from(run.len));
        Ok(run.start)
    }

    /// As [`FileMut::allocate_metadata`], for a block of the file's map. Takes it from the file's
    /// reservation for map blocks, if the file has one.
    pub(crate) fn allocate_for_map(
        &mut self,
        handle: &Handle<'_>,
        goal: BlockNr,
    ) -> Result<BlockNr> {
        if !self.body.has_map_reservation() {
            return self.allocate_metadata(handle, goal, Allowance::Metadata);
        }
        let block = self.allocate_metadata(handle, goal, Allowance::Reserved)?;
        self.body.use_reserved_map_block();
        Ok(block)
    }

    /// Frees a metadata block of the inode.
    pub(crate) fn free_metadata(&mut self, handle: &Handle<'_>, block: BlockNr) -> Result<()> {
        handle.forget(block);
        let ratio = u64::from(self.volume.geometry().cluster_ratio());
        self.volume.space().free(handle, block, 1)?;
        self.body.disk.sectors =
            self.body.disk.sectors.saturating_sub(self.volume.context().sectors(ratio));
        Ok(())
    }
}

impl FileRef<'_> {
    /// Holds up to `want` free blocks, in one run after the file's last held run, for blocks of the
    /// file that are at `old` now. `reserved`: the caller has a reservation for them.
    ///
    /// Errors and locks as [`Space::hold_run`](crate::space::Space::hold_run).
    pub(crate) fn hold_run_of(
        self,
        handle: &Handle<'_>,
        old: BlockNr,
        want: u32,
        reserved: bool,
    ) -> Result<BlockRun> {
        let run =
            self.volume.space().hold_run(handle, self.body.held_goal.goal(old), want, reserved)?;
        self.body.held_goal.advance(run);
        Ok(run)
    }
}
