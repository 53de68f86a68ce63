//! Giving a file blocks and freeing them: one interface for extent trees and block maps.
//!
//! ```text
//!   fill    hole [a, b) → allocate a run, record it in the map, repeat until the range is full
//!   unmap   [a, b)      → removed from the map, then bits cleared; a shared cluster stays while
//!                         any block of it is mapped
//!
//!   bigalloc, 4 blocks a cluster:     logical   │0 1 2 3│4 5 6 7│
//!                                     unmap 2..6    └─┬─┘         frees no cluster: 0, 1 and 6, 7
//!                                                                 still use both
//! ```

use crate::inodes::file::{FileMut, FileRef};
use crate::inodes::map::extent::path::Path;
use crate::inodes::map::{Run, Target, block_map, extent};
use crate::space::blocks::{Request, Search};
use crate::space::preallocation::Growth;
use crate::space::reservations::Allowance;
use crate::state::inode::Body;
use crate::volume::Volume;
use extant_base::narrow::fits_u32;
use extant_base::{BlockNr, Error, Ino, LogicalBlock, Result, Site, What};
use extant_journal::Handle;
use extant_ondisk::extent::{Extent, ExtentState, MAX_LEN};
use extant_ondisk::inode::FileKind;
use std::ops::Range;

impl Volume {
    /// How this volume searches for blocks at present.
    pub(crate) fn search(&self) -> Search {
        if self.space().bulk().is_on() { Search::Next } else { Search::Near }
    }
}

impl FileMut<'_> {
    /// Adds `extent` to the map of the inode. Its logical blocks were a hole.
    ///
    /// The caller stores the inode afterwards and counts the data blocks in it. Errors: `NoSpace`
    /// (map unchanged), `FileTooLarge`, `Corrupt`. Locks: the inode's is held; takes `Group`.
    pub(crate) fn map_insert(&mut self, handle: &Handle<'_>, extent: Extent) -> Result<()> {
        self.body.synced.map_changed = true;
        let blocks = extent.logical.0..extent.logical.0 + extent.len;
        self.volume.notes().note_mapped(handle, self.body, blocks);
        if self.body.disk.has_extents() {
            extent::insert::insert(self, handle, extent)
        } else {
            block_map::change::insert(self, handle, extent)
        }
    }

    /// Allocates blocks for the holes of `range`, as near the inode's group as possible. Calls
    /// `found` for each run that is now mapped, in order, runs that were mapped before included.
    ///
    /// New runs get `state`; block maps know only written ones. The caller stores the inode. After
    /// an error the runs recorded so far stay. Errors: `NoSpace`, `FileTooLarge`, `Corrupt`,
    /// `Device`. Locks: the inode's is held; takes `Group`.
    pub(crate) fn fill(
        &mut self,
        handle: &Handle<'_>,
        range: Range<u32>,
        state: ExtentState,
        found: &mut dyn FnMut(Run) -> Result<()>,
    ) -> Result<()> {
        let goal = self.volume.space().group_start(self.ino());
        self.fill_from(goal, handle, range, state, found)
    }

    /// As [`FileMut::fill`], near `first_goal` if no block of the file comes right before the
    /// range.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn fill_from(
        &mut self,
        first_goal: BlockNr,
        handle: &Handle<'_>,
        range: Range<u32>,
        state: ExtentState,
        found: &mut dyn FnMut(Run) -> Result<()>,
    ) -> Result<()> {
        if !self.body.disk.has_extents() && state != ExtentState::Written {
            return Err(Error::Invalid(
                "blocks past the longest file, or unwritten blocks in a block map",
            ));
        }
        let mut at = range.start;
        while at < range.end {
            let (run, way) = self.as_ref().map_with_way(LogicalBlock(at), range.end - at)?;
            let run = match run.target {
                Target::Hole => self.fill_hole(first_goal, handle, run, way, state)?,
                _ => run,
            };
            found(run)?;
            at = run.end().0;
        }
        Ok(())
    }

    /// Allocates blocks for the start of a hole and records them in the map. Returns the run that
    /// is mapped now. `way` is the path to the hole, if the caller has it and the map has not
    /// changed since.
    ///
    /// Errors and locks as [`FileMut::fill`].
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn fill_hole(
        &mut self,
        first_goal: BlockNr,
        handle: &Handle<'_>,
        mut hole: Run,
        way: Option<Path>,
        state: ExtentState,
    ) -> Result<Run> {
        let (reserved, len) = self.body.reserved_run(hole.logical.0, hole.len);
        hole.len = len;
        // For reserved blocks there is space, and the owner's quota was checked before.
        let allowance = if reserved { Allowance::Reserved } else { Allowance::Data };
        let got = self.fill_with(allowance, first_goal, handle, hole, way, state)?;
        self.volume.reservations(self.body).filled(got.logical.0..got.end().0, state);
        Ok(got)
    }

    /// Allocates blocks for the start of `range`, a hole at the end of a file of the engine's own,
    /// as near the inode's group as possible. They may take the pool. Returns the run.
    ///
    /// Errors and locks as [`FileMut::fill`].
    pub(crate) fn append_from_pool(
        &mut self,
        handle: &Handle<'_>,
        range: Range<u32>,
    ) -> Result<Run> {
        let goal = self.volume.space().group_start(self.ino());
        let len = range.end - range.start;
        let (hole, way) = self.as_ref().map_with_way(LogicalBlock(range.start), len)?;
        self.fill_with(Allowance::Metadata, goal, handle, hole, way, ExtentState::Written)
    }

    #[allow(clippy::too_many_arguments)]
    fn fill_with(
        &mut self,
        allowance: Allowance,
        first_goal: BlockNr,
        handle: &Handle<'_>,
        hole: Run,
        way: Option<Path>,
        state: ExtentState,
    ) -> Result<Run> {
        let ratio = self.volume.geometry().cluster_ratio();
        let logical = hole.logical;
        let skip = logical.0 % ratio;
        let limit = max_len(state);
        if ratio > 1
            && let Some(cluster) = self.as_ref().cluster_of(logical)?
        {
            // The file already owns this cluster, for a neighbouring block: no allocation.
            let physical = BlockNr(cluster.0 + u64::from(skip));
            // The volume may end inside its last cluster.
            let most = self.volume.geometry().blocks_count().saturating_sub(physical.0);
            let most = u32::try_from(most).unwrap_or(u32::MAX);
            let len = hole.len.min(ratio - skip).min(limit).min(most);
            if len == 0 {
                return Err(Error::NoSpace);
            }
            self.map_insert(handle, Extent { logical, len, physical, state })?;
            return Ok(Run { logical, len, target: Target::of(physical, state) });
        }
        let way = match way {
            None if self.body.disk.has_extents() => Some(Path::to(self.as_ref(), logical)?),
            way => way,
        };
        let goal = self.as_ref().goal(first_goal, logical, way.as_ref())?;
        let below = if self.body.disk.has_extents() { u64::MAX } else { 1 << 32 };
        // If the file already owns the run's last cluster, for a block to the right, that cluster
        // is left out below; the next call handles it.
        let want = hole.len.min(limit);
        let growth = self.as_ref().growth(logical.0..logical.0 + want);
        let request = Request {
            goal,
            want: want + skip,
            below,
            search: self.volume.search(),
            allowance,
            growth,
        };
        if allowance == Allowance::Data {
            self.volume
                .quota_accounting()
                .check(self.body, self.volume.context().sectors(want.into()))?;
        }
        let got = self.volume.space().allocate(handle, request)?;
        let Some(usable) = got.len.checked_sub(skip).filter(|&len| len > 0) else {
            // The volume ends inside its last cluster, before the place of this block.
            self.volume.space().free(handle, got.start, got.len.into())?;
            return Err(Error::NoSpace);
        };
        let mut len = want.min(usable);
        if ratio > 1 && !(logical.0 + len).is_multiple_of(ratio) && len > ratio - skip {
            let tail = LogicalBlock((logical.0 + len) / ratio * ratio);
            if self.as_ref().cluster_of(tail)?.is_some() {
                let spare = BlockNr(got.start.0 + u64::from(skip + (tail.0 - logical.0)));
                self.volume.space().free(handle, spare, u64::from(ratio))?;
                len = tail.0 - logical.0;
            }
        }
        let physical = BlockNr(got.start.0 + u64::from(skip));
        let extent = Extent { logical, len, physical, state };
        self.body.synced.map_changed = true;
        self.volume.notes().note_mapped(handle, self.body, logical.0..logical.0 + len);
        let recorded = match way {
            Some(way) => extent::insert::insert_at(way, self, handle, extent),
            None => block_map::change::insert(self, handle, extent),
        };
        if let Err(error) = recorded {
            let clusters = (skip + len).div_ceil(ratio);
            self.volume.space().free(handle, got.start, u64::from(clusters * ratio))?;
            return Err(error);
        }
        let clusters = (skip + len).div_ceil(ratio);
        self.body.disk.sectors +=
            self.volume.context().sectors(u64::from(clusters) * u64::from(ratio));
        Ok(Run { logical, len, target: Target::of(physical, state) })
    }
}

impl FileRef<'_> {
    /// How a regular file grows when it gets `blocks`.
    fn growth(self, blocks: Range<u32>) -> Option<Growth> {
        if self.volume.search() == Search::Next || self.body.file_kind() != FileKind::Regular {
            return None;
        }
        let size = self.volume.block_size().blocks_for(self.body.disk.size);
        let end = blocks.end.max(u32::try_from(size).unwrap_or(u32::MAX));
        Some(Growth { ino: self.ino(), end, is_first: blocks.start == 0 })
    }

    /// The best place for the next blocks of a file: after the block before them, else
    /// `first_goal`. A bulk load continues at its own position.
    fn goal(
        self,
        first_goal: BlockNr,
        logical: LogicalBlock,
        way: Option<&Path>,
    ) -> Result<BlockNr> {
        if self.volume.search() == Search::Next {
            return Ok(self.volume.space().bulk().goal());
        }
        if let Some(way) = way {
            return Ok(way.block_after(self.volume, self.ino(), logical)?.unwrap_or(first_goal));
        }
        if let Some(before) = logical.0.checked_sub(1)
            && let Some(block) = self.map(LogicalBlock(before), 1)?.target.block()
        {
            return Ok(BlockNr(block.0 + 1));
        }
        Ok(first_goal)
    }

    /// The first block of the cluster that the file owns for `logical`, if any block of that
    /// logical cluster is mapped.
    fn cluster_of(self, logical: LogicalBlock) -> Result<Option<BlockNr>> {
        let ratio = self.volume.geometry().cluster_ratio();
        let start = logical.0 / ratio * ratio;
        for run in self.runs(start..start.saturating_add(ratio)) {
            let run = run?;
            if let Some(block) = run.target.block() {
                return Ok(Some(BlockNr(block.0 / u64::from(ratio) * u64::from(ratio))));
            }
        }
        Ok(None)
    }
}

impl FileMut<'_> {
    /// Unmaps `range` and frees its blocks. The caller changes the file's size and stores the
    /// inode.
    ///
    /// Errors: `NoSpace` when a hole in the middle of an extent needs a block and none is free (map
    /// unchanged there); `Corrupt`; `Device`. Locks: the inode's is held; takes `Group`.
    pub(crate) fn unmap(&mut self, handle: &Handle<'_>, range: Range<u32>) -> Result<()> {
        self.volume.space().discard_preallocation(self.ino());
        self.body.synced.map_changed = true;
        self.volume.notes().note_mapped(handle, self.body, range.clone());
        if self.body.disk.has_extents() {
            let mut free =
                |body: &mut Body, gone: Extent| self.volume.file_mut(body).free_data(handle, gone);
            extent::truncate::remove(self, handle, range, &mut free)
        } else {
            block_map::change::remove(self, handle, range)
        }
    }

    /// Converts the mapped blocks of `range` to `state`: written, or unwritten, which reads as
    /// zeros.
    ///
    /// The caller stores the inode. Errors: `NotSupported` for a block map, which knows no
    /// unwritten blocks; otherwise errors and locks as [`FileMut::unmap`].
    pub(crate) fn convert(
        &mut self,
        handle: &Handle<'_>,
        range: Range<u32>,
        state: ExtentState,
    ) -> Result<()> {
        if !self.body.disk.has_extents() {
            return Err(Error::NotSupported("unwritten blocks in a block map"));
        }
        self.body.synced.map_changed = true;
        self.volume.notes().note_mapped(handle, self.body, range.clone());
        extent::truncate::convert(self, handle, range.clone(), state)?;
        if state == ExtentState::Written {
            self.volume.reservations(self.body).forget_splits(range);
        }
        Ok(())
    }

    /// Maps the logical blocks of `new` to its blocks, which are marked as used and belong to no
    /// file. One extent maps these logical blocks to other blocks now; those are freed.
    ///
    /// The caller stores the inode. Errors: `NoSpace` when the map needs a block and none is free
    /// (map unchanged); `Corrupt`; `Device`. Locks: the inode's is held; takes `Group`.
    pub(crate) fn swap_blocks(&mut self, handle: &Handle<'_>, new: Extent) -> Result<()> {
        self.body.synced.map_changed = true;
        self.volume.notes().note_mapped(handle, self.body, new.logical.0..new.logical.0 + new.len);
        let old = extent::truncate::replace(self, handle, new)?;
        self.volume.reservations(self.body).forget_splits(new.logical.0..new.logical.0 + new.len);
        self.volume.free_of(self.ino(), handle, old.physical, old.len.into())
    }

    /// Frees the clusters of `gone` that no other block of the file uses. `gone` has just left the
    /// map.
    pub(super) fn free_data(&mut self, handle: &Handle<'_>, gone: Extent) -> Result<()> {
        let ratio = u64::from(self.volume.geometry().cluster_ratio());
        let logical = u64::from(gone.logical.0);
        let (mut start, mut end) = (logical, logical + u64::from(gone.len));
        if gone.physical.0 % ratio != logical % ratio {
            return Err(Site::of_ino(self.ino()).block(gone.physical).corrupt(What::ExtentCluster));
        }
        if ratio > 1 {
            // Whole clusters, without those at either end that are still in use.
            let first = start / ratio * ratio;
            let last = (end - 1) / ratio * ratio;
            let in_use = |cluster: u64, body: &Body| {
                // At most 2^32 - 2, since the cluster starts at or before a block of the file.
                Ok::<_, Error>(
                    self.volume.file(body).cluster_of(LogicalBlock(fits_u32(cluster)))?.is_some(),
                )
            };
            start = if in_use(first, self.body)? { first + ratio } else { first };
            end = if last > first && in_use(last, self.body)? { last } else { last + ratio };
            if start >= end {
                return Ok(());
            }
        }
        let physical = BlockNr(gone.physical.0 + start - logical);
        let len = end - start;
        self.volume.free_of(self.ino(), handle, physical, len)?;
        self.body.disk.sectors =
            self.body.disk.sectors.saturating_sub(self.volume.context().sectors(len));
        Ok(())
    }
}

impl Volume {
    /// As [`Space::free`](crate::space::Space::free), for blocks of a file: an error names it.
    pub(super) fn free_of(
        &self,
        ino: Ino,
        handle: &Handle<'_>,
        start: BlockNr,
        len: u64,
    ) -> Result<()> {
        self.space().free(handle, start, len).map_err(|error| match error {
            Error::Corrupt { what, at } if at.ino.is_none() => {
                Error::Corrupt { what, at: Site { ino: Some(ino), ..at } }
            }
            error => error,
        })
    }
}

/// The most blocks of one extent in `state`.
pub(crate) fn max_len(state: ExtentState) -> u32 {
    match state {
        ExtentState::Written => MAX_LEN,
        ExtentState::Unwritten => MAX_LEN - 1,
    }
}
