//! Metadata blocks of a file: allocating them, counting them in its inode, and freeing them.
//!
//! ```text
//!   map, directory index, attributes ──► allocate_metadata ──► space.allocate
//!                                           │                  i_blocks
//!                                           └ quota, unless cached dirty data needs the block
//! ```

use crate::space::blocks::{BlockRun, Request, Search};
use crate::space::reservations::Allowance;
use crate::state::inode::Body;
use crate::volume::Volume;
use extant_base::{BlockNr, Ino, Result};
use extant_journal::Handle;

impl Volume {
    /// Allocates one metadata block for `ino` (with bigalloc, a cluster of its own) and counts it
    /// in the inode.
    ///
    /// Errors: `NoSpace`, `QuotaExceeded`, `Device`. Locks: takes `Group`.
    pub(crate) fn allocate_metadata(
        &self,
        ino: Ino,
        body: &mut Body,
        handle: &Handle<'_>,
        goal: BlockNr,
        allowance: Allowance,
    ) -> Result<BlockNr> {
        // Blocks that map dirty data in the cache are never refused: the data was accepted.
        if allowance == Allowance::Data || body.file_cache.is_none() {
            self.quota_check(ino, body, self.context().sectors(1))?;
        }
        let below = if body.disk.has_extents() { u64::MAX } else { 1 << 32 };
        let search = self.search();
        let goal = if search == Search::Next { self.space().bulk().goal() } else { goal };
        let request = Request { goal, want: 1, below, search, allowance, growth: None };
        let run = self.space().allocate(handle, request)?;
        body.disk.sectors += self.context().sectors(u64::from(run.len));
        Ok(run.start)
    }

    /// As [`Volume::allocate_metadata`], for a block of the file's map. Takes it from the file's
    /// reservation for map blocks, if the file has one.
    pub(crate) fn allocate_for_map(
        &self,
        ino: Ino,
        body: &mut Body,
        handle: &Handle<'_>,
        goal: BlockNr,
    ) -> Result<BlockNr> {
        if !body.has_map_reservation() {
            return self.allocate_metadata(ino, body, handle, goal, Allowance::Metadata);
        }
        let block = self.allocate_metadata(ino, body, handle, goal, Allowance::Reserved)?;
        body.use_reserved_map_block();
        Ok(block)
    }

    /// Frees a metadata block of `ino`.
    pub(crate) fn free_metadata(
        &self,
        _ino: Ino,
        body: &mut Body,
        handle: &Handle<'_>,
        block: BlockNr,
    ) -> Result<()> {
        handle.forget(block);
        let ratio = u64::from(self.geometry().cluster_ratio());
        self.space().free(handle, block, 1)?;
        body.disk.sectors = body.disk.sectors.saturating_sub(self.context().sectors(ratio));
        Ok(())
    }

    /// Holds up to `want` free blocks, in one run after the file's last held run, for blocks of the
    /// file that are at `old` now. `reserved`: the caller has a reservation for them.
    ///
    /// Errors and locks as [`Space::hold_run`](crate::space::Space::hold_run).
    pub(crate) fn hold_run_of(
        &self,
        body: &Body,
        handle: &Handle<'_>,
        old: BlockNr,
        want: u32,
        reserved: bool,
    ) -> Result<BlockRun> {
        let run = self.space().hold_run(handle, body.held_goal.goal(old), want, reserved)?;
        body.held_goal.advance(run);
        Ok(run)
    }
}
