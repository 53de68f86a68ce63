//! Allocating and freeing blocks.
//!
//! ```text
//!   allocate   search (which group) ─► one group: check, flip, count ─► a run
//!   free       group by group: check, flip, count ─► usable at once, or pending until the commit
//! ```
//!
//! A run lies in one group, may be shorter than requested, and is never empty. With bigalloc, whole
//! clusters are allocated and freed. Source: ext4 documentation, "Block and Inode Allocation
//! Policy".

use crate::space::Space;
use crate::space::free_extents::Span;
use crate::space::free_space::FreeSpace;
use crate::space::group_edit::{GroupBlocks, GroupEdit, Map};
use crate::space::preallocation::{Growth, Hold};
use crate::space::reservations::Allowance;
use extant_base::{BlockNr, Error, GroupNr, Ino, Result, Site, What};
use extant_journal::Handle;

/// How to search for blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Search {
    /// Close to the goal, and in a run as long as possible.
    Near,
    /// The first free blocks at or after the goal.
    Next,
}

/// A request for blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// The best place for the blocks.
    pub(crate) goal: BlockNr,
    /// How many blocks, at least 1.
    pub(crate) want: u32,
    /// Blocks from here on cannot be used (2^32 for block maps).
    pub(crate) below: u64,
    /// How to search.
    pub(crate) search: Search,
    /// Which free clusters the request may take.
    pub(crate) allowance: Allowance,
    /// The regular file that gets the blocks, and may grow further.
    pub(crate) growth: Option<Growth>,
}

/// Allocated blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockRun {
    pub(crate) start: BlockNr,
    pub(crate) len: u32,
}

/// Most groups whose freed clusters one allocation returns to the free extents.
const RELEASE_AT_ONCE: usize = 32;

impl Space {
    /// Allocates blocks and marks them as used.
    ///
    /// The run lies in one group, starts at a cluster boundary and ends at one, or at the volume's
    /// end. Spends 2 credits: the bitmap and its descriptor. A group with damaged maps is noted
    /// once and skipped. Errors: `NoSpace`, which [`Space::with_space_retry`] may cure; `Device`.
    /// Locks: takes `Group`.
    pub(crate) fn allocate(&self, handle: &Handle<'_>, request: Request) -> Result<BlockRun> {
        self.free_space.release_durable(RELEASE_AT_ONCE);
        self.free_space.drop_excess_trees();
        let ratio = self.context.geometry().cluster_ratio();
        let want = request.want.div_ceil(ratio).max(1);
        let (want, _own) = self.reservations.grant(&self.free_space, request.allowance, want);
        if want == 0 {
            return Err(Error::NoSpace);
        }
        let mut found = self.find_clusters(handle, &request, want)?;
        if found.is_none() {
            let released = self.free_space.release_durable(usize::MAX) > 0;
            if self.discard_all_preallocations() || released {
                found = self.search(handle, &request, want).near_goal(None)?;
            }
        }
        // By the counters some clusters are free. Other threads may be moving them between lists,
        // so search the groups themselves. During this search, clusters may become free in a group
        // that was already searched, while others take those in the groups not yet searched: then
        // search again. This ends: while the handle runs, no transaction that began after the
        // handle's becomes durable.
        let (nr, span) = loop {
            let releases = self.free_space.pending().releases();
            match found {
                Some(found) => break found,
                None => found = self.search(handle, &request, want).anywhere()?,
            }
            if found.is_none() && self.free_space.pending().releases() == releases {
                return Err(Error::NoSpace);
            }
        };
        if let Allowance::Held { .. } = request.allowance {
            // Counted while another reservation still covers the clusters, so that they are never
            // uncovered.
            self.reservations.reserve_held(span.len.into());
        }
        let run = self.free_space.run_of(nr, span);
        if request.search == Search::Next {
            self.bulk.advance(BlockNr(run.start.0 + u64::from(run.len)));
        }
        Ok(run)
    }

    /// Takes clusters from the file's preallocation, else from the free clusters.
    fn find_clusters(
        &self,
        handle: &Handle<'_>,
        request: &Request,
        want: u32,
    ) -> Result<Option<(GroupNr, Span)>> {
        let hold = Hold::after(&self.context, request, want);
        if let Some(hold) = hold
            && let Some(found) =
                self.preallocations.take(&self.free_space, handle, hold.owner, request, want)?
        {
            return Ok(Some(found));
        }
        self.search(handle, request, want).near_goal(hold)
    }

    /// Frees `len` blocks from `start` on, as whole clusters. The last cluster may reach past the
    /// volume's end.
    ///
    /// Metadata at fixed places is never freed. Blocks of a group with a damaged map stay allocated
    /// until a checker frees them. If a bit of the run is already clear, the group's map is marked
    /// bad, the run stays allocated, and the damage is noted; this is no error. With a log, the
    /// clusters are allocated again only when the handle's transaction is durable. Spends 2 credits
    /// a group. Errors: `Corrupt` for a range that no file can have; `Device`. Locks: takes
    /// `Group`.
    pub(crate) fn free(&self, handle: &Handle<'_>, start: BlockNr, len: u64) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        let ratio = u64::from(self.context.geometry().cluster_ratio());
        let len = match self.context.geometry().blocks_count().checked_sub(start.0) {
            Some(left) if left < len && len - left < ratio => left,
            _ => len,
        };
        if !self.context.geometry().holds(start, len)
            || self.free_space.groups().is_system(start, len)
        {
            return Err(Site::of_block(start).corrupt(What::ExtentRange));
        }
        if let Some(freed) = &self.freed_later {
            freed.lock().push((start, len));
            return Ok(());
        }
        for (nr, span) in self.free_space.groups().spans(start, len) {
            // Leaking blocks is safe if the map is not reliable. The damage was noted when it was
            // found.
            if self.free_space.groups().get(nr).is_bad(Map::Blocks) {
                continue;
            }
            self.context.skip_damage(self.free_space.free_in(handle, nr, span))?;
        }
        Ok(())
    }

    /// The first block of the group that holds `ino`.
    pub(crate) fn group_start(&self, ino: Ino) -> BlockNr {
        let place = self.context.geometry().inode_place(ino);
        place.and_then(|place| self.context.geometry().first_block(place.group)).unwrap_or_default()
    }
}

impl FreeSpace {
    fn run_of(&self, nr: GroupNr, span: Span) -> BlockRun {
        let geometry = self.context().geometry();
        let start = geometry
            .block_of_bit(nr, span.start)
            .expect("a cluster of a group's bitmap has a block");
        // A volume may end inside its last cluster.
        let most = u32::try_from(geometry.blocks_count() - start.0).unwrap_or(u32::MAX);
        BlockRun { start, len: (span.len * geometry.cluster_ratio()).min(most) }
    }

    fn free_in(&self, handle: &Handle<'_>, nr: GroupNr, span: Span) -> Result<()> {
        let blocks = GroupBlocks::fetch(self, nr, Map::Blocks)?;
        let mut edit = GroupEdit::begin(self, &blocks, handle)?;
        if !edit.all(span, true) {
            edit.set_bad();
            let (at, block) =
                (Site::of_group(nr), self.context().geometry().block_of_bit(nr, span.start));
            let at = block.map_or(at, |block| at.block(block));
            return Err(at.corrupt(What::BlockAlreadyFree));
        }
        edit.flip(span, false, handle)?;
        edit.release(span, handle);
        edit.count_free(span.len);
        edit.finish(&blocks, handle)
    }
}
