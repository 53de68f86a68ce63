//! Handing out blocks and taking them back.
//!
//! ```text
//!   Near   the goal itself → the shortest run that holds the request in the goal's group
//!          → the same in the groups behind it, once round
//!          → the longest run of the first group that has any
//!   Next   the first free blocks behind the goal, whatever their number: a bulk load fills the
//!          volume from front to back and leaves no gap
//! ```
//!
//! A run lies in one group, may be shorter than asked for, and is never empty. With bigalloc whole
//! clusters change hands. Source: ext4 documentation, "Block and Inode Allocation Policy".

use crate::alloc::free_extents::Span;
use crate::alloc::group_edit::{GroupBlocks, GroupEdit, Map};
use crate::inode::Body;
use crate::volume::Volume;
use extant_base::{BlockNr, Error, GroupNr, Ino, Result, Site, What};
use extant_journal::Handle;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// How to look for blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Search {
    /// Close to the goal and in as long a run as can be had.
    Near,
    /// The first free blocks at or behind the goal.
    Next,
}

/// A wish for blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// Where the blocks would be best.
    pub(crate) goal: BlockNr,
    /// How many blocks, at least 1.
    pub(crate) want: u32,
    /// Blocks from here on cannot be used (2^32 for block maps).
    pub(crate) below: u64,
    /// How to look.
    pub(crate) search: Search,
}

/// Blocks that were handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockRun {
    pub(crate) start: BlockNr,
    pub(crate) len: u32,
}

impl Volume {
    /// Allocates blocks and marks them used.
    ///
    /// The run lies in one group, starts at a cluster boundary and ends at one, or at the volume's
    /// end. Spends 2 credits: the
    /// bitmap and its descriptor. A group whose maps are damaged is noted and passed over. Errors:
    /// `NoSpace`, `Device`. Locks: takes `Group`.
    pub(crate) fn allocate(&self, handle: &Handle<'_>, request: Request) -> Result<BlockRun> {
        let ratio = self.layout.cluster_ratio();
        let want = request.want.div_ceil(ratio).max(1);
        let groups = self.layout.groups_count();
        let (first, bit) = self.layout.bit_of_block(request.goal).unwrap_or((GroupNr(0), 0));
        let passes: &[bool] = match request.search {
            Search::Near => &[true, false],
            Search::Next => &[false],
        };
        for &whole in passes {
            // The goal's group comes again at the end, from its start.
            for n in 0..=groups {
                let nr =
                    GroupNr((u64::from(first.0) + u64::from(n)).rem_euclid(groups.into()) as u32);
                let goal = if n == 0 { bit } else { 0 };
                let pick = Pick { goal, want, whole, search: request.search };
                // A group that crosses the limit is left out whole.
                if self.layout.blocks_of_group(nr).is_none_or(|blocks| blocks.end > request.below) {
                    continue;
                }
                match self.allocate_in(handle, nr, pick) {
                    Ok(Some(span)) => {
                        let run = self.run_of(nr, span);
                        if request.search == Search::Next {
                            self.bulk.advance(BlockNr(run.start.0 + u64::from(run.len)));
                        }
                        return Ok(run);
                    }
                    Ok(None) => {}
                    Err(error @ Error::Corrupt { .. }) => self.note_error(&error),
                    Err(error) => return Err(error),
                }
            }
        }
        Err(Error::NoSpace)
    }

    fn run_of(&self, nr: GroupNr, span: Span) -> BlockRun {
        let start = self
            .layout
            .block_of_bit(nr, span.start)
            .expect("a cluster of a group's bitmap has a block");
        // A volume may end inside its last cluster.
        let most = u32::try_from(self.layout.blocks_count() - start.0).unwrap_or(u32::MAX);
        BlockRun { start, len: (span.len * self.layout.cluster_ratio()).min(most) }
    }

    fn allocate_in(&self, handle: &Handle<'_>, nr: GroupNr, pick: Pick) -> Result<Option<Span>> {
        let free = self.descriptor(nr)?.free_clusters;
        if free == 0 || (pick.whole && free < pick.want) {
            return Ok(None);
        }
        let blocks = GroupBlocks::fetch(self, nr, Map::Blocks)?;
        let mut edit = GroupEdit::begin(self, &blocks, handle)?;
        let found = edit.free_extents()?;
        let Some(span) = pick.from(found) else {
            edit.finish(&blocks, handle)?;
            return Ok(None);
        };
        found.take(span);
        edit.flip(span, true, handle)?;
        edit.desc.free_clusters -= span.len;
        self.free_clusters.fetch_sub(i64::from(span.len), Ordering::Relaxed);
        edit.finish(&blocks, handle)?;
        Ok(Some(span))
    }

    /// Gives blocks back: `len` blocks from `start`, whole clusters. The last may reach past the
    /// volume's end.
    ///
    /// Metadata at fixed places is never freed, and a bit that is clear already marks the group's
    /// map bad and changes no counter. Spends 2 credits a group. Errors: `Corrupt`, `Device`.
    /// Locks: takes `Group`.
    pub(crate) fn free(&self, handle: &Handle<'_>, start: BlockNr, len: u64) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        let ratio = u64::from(self.layout.cluster_ratio());
        let len = match self.layout.blocks_count().checked_sub(start.0) {
            Some(left) if left < len && len - left < ratio => left,
            _ => len,
        };
        if !self.layout.holds(start, len) || self.is_system(start, len) {
            return Err(Site::of_block(start).corrupt(What::ExtentRange));
        }
        if let Some(freed) = &self.freed_later {
            freed.lock().push((start, len));
            return Ok(());
        }
        for (nr, span) in self.spans(start, len) {
            let blocks = GroupBlocks::fetch(self, nr, Map::Blocks)?;
            let mut edit = GroupEdit::begin(self, &blocks, handle)?;
            if edit.state.block_map_bad || !edit.all(span, true) {
                edit.state.block_map_bad = true;
                return Err(Site::of_group(nr).block(start).corrupt(What::BlockAlreadyFree));
            }
            edit.flip(span, false, handle)?;
            if let Some(free) = edit.state.free.as_mut() {
                free.release(span);
            }
            edit.count_free(span.len);
            edit.finish(&blocks, handle)?;
        }
        Ok(())
    }

    /// Marks blocks used or free whatever they were, counting only bits that change: for replay.
    ///
    /// Errors: `Corrupt` when the range leaves the volume; `Device`. Locks: takes `Group`.
    pub(crate) fn mark_blocks(
        &self,
        handle: &Handle<'_>,
        start: BlockNr,
        len: u64,
        used: bool,
    ) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        if !self.layout.holds(start, len) || self.is_system(start, len) {
            return Err(Site::of_block(start).corrupt(What::ExtentRange));
        }
        for (nr, span) in self.spans(start, len) {
            let blocks = GroupBlocks::fetch(self, nr, Map::Blocks)?;
            let mut edit = GroupEdit::begin(self, &blocks, handle)?;
            let flipped = edit.force(span, used, handle)?;
            if used {
                edit.desc.free_clusters = edit.desc.free_clusters.saturating_sub(flipped);
                self.free_clusters.fetch_sub(i64::from(flipped), Ordering::Relaxed);
            } else {
                edit.count_free(flipped);
            }
            edit.finish(&blocks, handle)?;
        }
        Ok(())
    }

    /// The free blocks among `len` from `start` on, whole clusters, as (first, how many).
    ///
    /// Errors: `Corrupt` when the range leaves the volume or touches metadata at fixed places, and
    /// for a damaged bitmap; `Device`.
    pub(crate) fn free_runs(&self, start: BlockNr, len: u64) -> Result<Vec<(BlockNr, u64)>> {
        if !self.layout.holds(start, len) || self.is_system(start, len) {
            return Err(Site::of_block(start).corrupt(What::ExtentRange));
        }
        let ratio = u64::from(self.layout.cluster_ratio());
        let mut runs: Vec<(BlockNr, u64)> = Vec::new();
        for (nr, span) in self.spans(start, len) {
            let free: Vec<u32> = self.block_bitmap(nr)?.with(|bytes| {
                let is_free =
                    |bit: &u32| extant_ondisk::bitmap::count_set(bytes, *bit..*bit + 1) == 0;
                (span.start..span.end()).filter(is_free).collect()
            });
            for block in free.into_iter().filter_map(|bit| self.layout.block_of_bit(nr, bit)) {
                match runs.last_mut() {
                    Some((first, len)) if first.0 + *len == block.0 => *len += ratio,
                    _ => runs.push((block, ratio)),
                }
            }
        }
        // A volume may end inside its last cluster.
        for (first, len) in &mut runs {
            *len = (*len).min(self.layout.blocks_count() - first.0);
        }
        Ok(runs)
    }

    /// The clusters that `len` blocks from `start` touch, group by group.
    fn spans(&self, start: BlockNr, len: u64) -> impl Iterator<Item = (GroupNr, Span)> + '_ {
        let mut left: Range<u64> = start.0..start.0 + len;
        std::iter::from_fn(move || {
            if left.is_empty() {
                return None;
            }
            let (nr, bit) = self.layout.bit_of_block(BlockNr(left.start))?;
            let group = self.layout.blocks_of_group(nr)?;
            let end = left.end.min(group.end);
            let (_, last) = self.layout.bit_of_block(BlockNr(end - 1))?;
            left.start = end;
            Some((nr, Span { start: bit, len: last - bit + 1 }))
        })
    }

    /// Allocates one metadata block for `ino` (with bigalloc, a cluster of its own) and counts it
    /// in the inode.
    ///
    /// Errors: `NoSpace`, `Device`. Locks: takes `Group`.
    pub(crate) fn allocate_metadata(
        &self,
        _ino: Ino,
        body: &mut Body,
        handle: &Handle<'_>,
        goal: BlockNr,
    ) -> Result<BlockNr> {
        let below = if body.disk.has_extents() { u64::MAX } else { 1 << 32 };
        let search = self.search();
        let goal = if search == Search::Next { self.bulk.goal() } else { goal };
        let run = self.allocate(handle, Request { goal, want: 1, below, search })?;
        body.disk.sectors += self.sectors(u64::from(run.len));
        Ok(run.start)
    }

    /// Gives a metadata block of `ino` back.
    ///
    /// Errors: `Corrupt`, `Device`. Locks: takes `Group`.
    pub(crate) fn free_metadata(
        &self,
        _ino: Ino,
        body: &mut Body,
        handle: &Handle<'_>,
        block: BlockNr,
    ) -> Result<()> {
        handle.forget(block);
        let ratio = u64::from(self.layout.cluster_ratio());
        self.free(handle, block, 1)?;
        body.disk.sectors = body.disk.sectors.saturating_sub(self.sectors(ratio));
        Ok(())
    }

    /// The first block of the group that holds `ino`.
    pub(crate) fn group_start(&self, ino: Ino) -> BlockNr {
        let place = self.layout.inode_place(ino);
        place.and_then(|place| self.layout.first_block(place.group)).unwrap_or_default()
    }

    /// 512-byte sectors in `blocks` filesystem blocks.
    pub(crate) fn sectors(&self, blocks: u64) -> u64 {
        blocks << (self.layout.block_size().log2() - 9)
    }
}

/// A search inside one group.
#[derive(Clone, Copy)]
struct Pick {
    goal: u32,
    want: u32,
    /// Only a run that holds all of `want`.
    whole: bool,
    search: Search,
}

impl Pick {
    fn from(self, free: &super::free_extents::FreeExtents) -> Option<Span> {
        let Pick { goal, want, whole, search } = self;
        match search {
            Search::Next => free.next_from(goal, want),
            Search::Near if whole => {
                free.at(goal, want).filter(|span| span.len == want).or_else(|| free.best_fit(want))
            }
            Search::Near => free.longest(want),
        }
    }
}
