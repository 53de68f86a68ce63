//! Held runs: blocks that receive data before they are marked as used.
//!
//! ```text
//!   hold_run      free extents ──► held, in memory          on disk: free    a crash loses nothing
//!                 data is written there, without a handle
//!   use_held      under the handle that maps them ──► bits, counters, checksum    on disk: used
//!   release_held  back to the free extents: the data did not arrive
//! ```
//!
//! The search for a file's next run starts after its last one and prefers a place where much is
//! free. So data that is written in sequence lies together, wherever in the file it belongs, and a
//! long range that is overwritten is contiguous again.
//!
//! Held blocks count as reserved. If the data comes from the page cache, they were reserved before:
//! see `files/cached/rewrites.rs`. Unlike preallocations of growing files, held runs are not
//! released when space runs out.

use crate::space::Space;
use crate::space::blocks::{BlockRun, Request, Search};
use crate::space::group_edit::{GroupBlocks, GroupEdit, Map, release_run};
use crate::space::reservations::Allowance;
use extant_base::{BlockNr, Result};
use extant_journal::Handle;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// The block after the last held run of a file; 0: it had none yet.
#[derive(Debug, Default)]
pub(crate) struct HeldGoal(AtomicU64);

impl Clone for HeldGoal {
    fn clone(&self) -> HeldGoal {
        HeldGoal(AtomicU64::new(self.0.load(Relaxed)))
    }
}

impl HeldGoal {
    /// The goal of the next held run, for blocks of a file that are at `old` now.
    pub(crate) fn goal(&self, old: BlockNr) -> BlockNr {
        match self.0.load(Relaxed) {
            0 => old,
            next => BlockNr(next),
        }
    }

    /// Notes that `run` is the file's last held run.
    pub(crate) fn advance(&self, run: BlockRun) {
        self.0.store(run.start.0 + u64::from(run.len), Relaxed);
    }
}

impl Space {
    /// Holds up to `want` free blocks near `goal`, in one run. `reserved`: the caller has a
    /// reservation for them. Spends 2 credits if the group was never used.
    ///
    /// Errors: as [`Space::allocate`]. Locks: takes `Group`.
    pub(crate) fn hold_run(
        &self,
        handle: &Handle<'_>,
        goal: BlockNr,
        want: u32,
        reserved: bool,
    ) -> Result<BlockRun> {
        let (search, allowance) = (Search::Near, Allowance::Held { reserved });
        let request = Request { goal, want, below: u64::MAX, search, allowance, growth: None };
        self.allocate(handle, request)
    }

    /// Holds exactly `len` blocks from `start` on, if all of them are free and lie in one group.
    /// Spends 2 credits if the group was never used. Returns whether they are held.
    ///
    /// Errors: as [`Space::allocate`]. Locks: takes `Group`.
    pub(crate) fn hold_exactly(
        &self,
        handle: &Handle<'_>,
        start: BlockNr,
        len: u32,
    ) -> Result<bool> {
        let run = self.hold_run(handle, start, len, false)?;
        let is_right = run == BlockRun { start, len };
        if !is_right {
            self.release_held(run.start, run.len);
        }
        Ok(is_right)
    }

    /// Marks `len` held blocks from `start` on as used. Spends 2 credits a group.
    ///
    /// Errors: `Corrupt` (then they stay held); `Device`. Locks: takes `Group`.
    pub(crate) fn use_held(&self, handle: &Handle<'_>, start: BlockNr, len: u32) -> Result<()> {
        for (nr, span) in self.free_space.groups().spans(start, len.into()) {
            let blocks = GroupBlocks::fetch(&self.free_space, nr, Map::Blocks)?;
            let mut edit = GroupEdit::begin(&self.free_space, &blocks, handle)?;
            edit.check_free(span)?;
            edit.flip(span, true, handle)?;
            edit.state.held.cut(span);
            edit.count_used(span.len);
            edit.finish(&blocks, handle)?;
        }
        self.reservations.forget_held(len.into());
        Ok(())
    }

    /// Releases `len` held blocks from `start` on. Does nothing for block 0, which is never held.
    /// Locks: takes `Group`.
    pub(crate) fn release_held(&self, start: BlockNr, len: u32) {
        for (nr, span) in self.free_space.groups().spans(start, len.into()) {
            if release_run(&self.free_space, nr, span) {
                self.reservations.forget_held(span.len.into());
            }
        }
    }
}
