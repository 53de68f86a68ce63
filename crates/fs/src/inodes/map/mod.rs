//! Where a file's blocks are: one interface for extent trees, block maps and holes.
//!
//! ```text
//!   logical  0        8     12             40
//!            ├────────┼─────┼──────────────┤
//!   Run      │Written │Hole │ Unwritten    │      one call gives one run, cut at `limit`
//!            └────────┴─────┴──────────────┘
//! ```
//!
//! A run is always correct: `Written` blocks are inside the volume, and a hole is only as long as
//! the map proves. A run may be shorter than the file's whole run: the caller then calls again from
//! its end.

pub(crate) mod block_map;
mod blocks;
pub(crate) mod change;
pub(crate) mod credits;
pub(crate) mod extent;
mod migrate;
mod steps;
pub(crate) mod used;

use crate::inodes::file::FileRef;
use crate::inodes::map::extent::path::Path;
use crate::state::inode::Body;
use crate::volume::Volume;
use extant_base::{BlockNr, LogicalBlock, Result};
use extant_ondisk::extent::ExtentState;

/// One past the last logical block a file can have.
pub(crate) const LOGICAL_END: u32 = u32::MAX;

/// The place of a run's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// No blocks; reads as zeros.
    Hole,
    /// On disk, from this block on.
    Written(BlockNr),
    /// Allocated on disk from this block on; reads as zeros.
    Unwritten(BlockNr),
}

impl Target {
    /// The target for blocks from `block` on in this state.
    pub(crate) fn of(block: BlockNr, state: ExtentState) -> Target {
        match state {
            ExtentState::Written => Target::Written(block),
            ExtentState::Unwritten => Target::Unwritten(block),
        }
    }

    /// The first block on disk, written or not.
    pub(crate) fn block(self) -> Option<BlockNr> {
        match self {
            Target::Hole => None,
            Target::Written(block) | Target::Unwritten(block) => Some(block),
        }
    }
}

/// Neighbouring logical blocks with one kind of target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The first logical block.
    pub(crate) logical: LogicalBlock,
    /// How many blocks, at least 1.
    pub(crate) len: u32,
    /// Where they are.
    pub(crate) target: Target,
}

impl Run {
    /// The logical block after the run. Runs end at [`LOGICAL_END`] at the latest.
    pub(crate) fn end(&self) -> LogicalBlock {
        LogicalBlock(self.logical.0 + self.len)
    }
}

impl<'a> FileRef<'a> {
    /// The run at logical block `at` of an inode, at most `limit` (≥ 1) blocks of it.
    ///
    /// Not for inline data, fast symlinks and devices, whose `i_block` holds no map. Errors:
    /// `Corrupt` when the map is damaged; `Invalid` at [`LOGICAL_END`]. Locks: the caller holds the
    /// inode's; takes `Leaf`.
    pub(crate) fn map(self, at: LogicalBlock, limit: u32) -> Result<Run> {
        if at.0 == LOGICAL_END || limit == 0 {
            return Err(extant_base::Error::Invalid("logical block out of range"));
        }
        let limit = limit.min(LOGICAL_END - at.0);
        if self.body.has_extents() {
            extent::tree::map(self, at, limit)
        } else {
            block_map::map(self, at, limit)
        }
    }

    /// As [`FileRef::map`], with the path to the run; `None` in a block map.
    ///
    /// Use it when a hole found here will be filled: cheaper than `map` followed by a second
    /// descent.
    pub(crate) fn map_with_way(self, at: LogicalBlock, limit: u32) -> Result<(Run, Option<Path>)> {
        if !self.body.has_extents() || at.0 == LOGICAL_END || limit == 0 {
            return Ok((self.map(at, limit)?, None));
        }
        let way = Path::to(self, at)?;
        let run = way.run(self.volume, self.ino(), at, limit.min(LOGICAL_END - at.0))?;
        debug_assert!(
            self.map(at, limit).map_or(true, |same| same == run),
            "map and Path::run agree on {at:?}: {run:?}"
        );
        Ok((run, Some(way)))
    }

    /// The runs of `range`, in order and without gaps. The iterator ends after the first error.
    pub(crate) fn runs(self, range: std::ops::Range<u32>) -> Runs<'a> {
        Runs { volume: self.volume, body: self.body, at: range.start, end: range.end }
    }
}

/// See [`FileRef::runs`].
pub(crate) struct Runs<'a> {
    volume: &'a Volume,
    body: &'a Body,
    at: u32,
    end: u32,
}

impl Iterator for Runs<'_> {
    type Item = Result<Run>;

    fn next(&mut self) -> Option<Result<Run>> {
        if self.at >= self.end {
            return None;
        }
        let limit = self.end - self.at;
        let run = self.volume.file(self.body).map(LogicalBlock(self.at), limit);
        self.at = match &run {
            Ok(run) => run.end().0,
            Err(_) => self.end,
        };
        Some(run)
    }
}
