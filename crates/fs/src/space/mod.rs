//! Which blocks and inodes are free, and their allocation.
//!
//! ```text
//!   request (goal, want) ─► search ──group index──► one group, under its lock:
//!                                                     free extents   find, take
//!                                                     bitmap         set bits        ┐ one unit:
//!                                                     descriptor     count, checksum ┘ all or none
//!                └ growing file: from its preallocation first ── preallocation
//!   free                 ─► one group ─► pending ──its transaction is durable──► free extents
//! ```
//!
//! A thread reads the blocks and gets permission to change them before it takes the group lock, so
//! it never waits for a device under that lock. If every bit of the range is known to change, the
//! bitmap's checksum follows by `flip_delta`; otherwise the whole bitmap is checksummed again.
//! Source: ext4 documentation, "Block and Inode Allocation Policy". `docs/FORMAT.md` lists what
//! must hold on disk.

pub(crate) mod blocks;
pub(crate) mod bulk;
mod counters;
pub(crate) mod free_extents;
mod free_space;
pub(crate) mod group;
pub(crate) mod group_edit;
pub(crate) mod group_index;
pub(crate) mod group_search;
pub(crate) mod growth;
pub(crate) mod held_runs;
pub(crate) mod inodes;
pub(crate) mod loaded;
pub(crate) mod mark;
pub(crate) mod pending;
pub(crate) mod preallocation;
pub(crate) mod reservations;
pub(crate) mod stripes;
mod trim;

use crate::context::Context;
use crate::space::blocks::Request;
use crate::space::bulk::BulkCursor;
use crate::space::free_space::FreeSpace;
use crate::space::group::{Bitmap, Groups};
use crate::space::group_search::GroupSearch;
use crate::space::inodes::{InodeGoal, InodeNumbers};
use crate::space::preallocation::Preallocations;
use crate::space::reservations::{Reservation, Reservations, ReservedFor};
use crate::space::stripes::stripe_clusters;
use extant_base::lock::{Mutex, Rank};
use extant_base::{BlockNr, GroupNr, Ino, Result};
use extant_journal::Handle;
use extant_ondisk::group_desc::GroupDesc;
use std::ops::Range;
use std::sync::Arc;

/// How the space of a volume is managed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpaceOptions {
    /// Data may take the blocks that are reserved for root.
    pub(crate) privileged: bool,
    /// Freed clusters are discarded when their transaction is durable.
    pub(crate) discard: bool,
    /// Blocks of a stripe; overrides the superblock's hints.
    pub(crate) stripe: Option<u32>,
    /// Freed blocks are only noted, see [`Space::take_freed_later`].
    pub(crate) free_later: bool,
    /// Free clusters are found by a tree, and checksums follow by `flip_delta`. Without this, every
    /// search reads the bitmap and every change checksums the whole bitmap: for comparison.
    pub(crate) short_cuts: bool,
    /// The group whose descriptor copies are read instead of the primary ones.
    pub(crate) descriptors_from: Option<GroupNr>,
}

/// The blocks and inode numbers of a volume: which are free, which are reserved.
///
/// Each part knows only those below it:
///
/// ```text
///   Space              allocate, free: what the rest of the crate calls
///   ├ preallocations   clusters kept for growing files
///   ├ reservations     how many clusters a request may take
///   └ free_space       what is free in the groups
///       └ groups       descriptors and bitmaps
/// ```
pub(crate) struct Space {
    context: Arc<Context>,
    free_space: FreeSpace,
    preallocations: Preallocations,
    reservations: Reservations,
    /// Blocks freed so far that stay marked as used, as (first, how many). While recovery applies
    /// fast commits, no block that was in use before may be allocated.
    freed_later: Option<Mutex<Vec<(BlockNr, u64)>>>,
    /// Clusters of a stripe. Large files start at the start of one.
    stripe: Option<u32>,
    /// Progress of a bulk load.
    bulk: BulkCursor,
}

impl Space {
    /// The space of the volume that `context` belongs to. The counters start with the superblock's
    /// values.
    pub(crate) fn new(context: Arc<Context>, options: SpaceOptions) -> Space {
        Space {
            free_space: FreeSpace::new(Arc::clone(&context), &options),
            preallocations: Preallocations::new(),
            reservations: Reservations::new(Arc::clone(&context), options.privileged),
            freed_later: options.free_later.then(|| Mutex::new(Rank::Leaf, Vec::new())),
            stripe: stripe_clusters(options.stripe, context.at_open(), context.geometry()),
            bulk: BulkCursor::default(),
            context,
        }
    }

    /// From now on the blocks of `runs` belong to the volume's own log.
    pub(crate) fn set_own_log(&mut self, runs: Vec<Range<u64>>) {
        self.free_space.groups_mut().set_own_log(runs);
    }

    /// The groups: their descriptors and bitmaps, as they are now.
    pub(crate) fn groups(&self) -> &Groups {
        self.free_space.groups()
    }

    /// The clusters that are reserved for data that is not allocated yet.
    pub(crate) fn reservations(&self) -> &Reservations {
        &self.reservations
    }

    /// Progress of a bulk load.
    pub(crate) fn bulk(&self) -> &BulkCursor {
        &self.bulk
    }

    /// Whether freed clusters are discarded once their transaction is durable.
    pub(crate) fn discards(&self) -> bool {
        self.free_space.discards()
    }

    /// See [`SpaceOptions::short_cuts`].
    pub(crate) fn short_cuts(&self) -> bool {
        self.free_space.short_cuts()
    }

    /// Computes the free counters from all descriptors, before anything is allocated.
    ///
    /// Errors: as [`Groups::count`].
    pub(crate) fn recount_free(&self) -> Result<()> {
        self.free_space.counters().set(&self.free_space.groups().count()?);
        Ok(())
    }

    /// Free clusters of all groups, those reserved included; never below 0.
    pub(crate) fn free_clusters(&self) -> u64 {
        u64::try_from(self.free_space.counters().clusters()).unwrap_or(0)
    }

    /// Free clusters of all groups minus the reserved ones, as other users see them; never below 0.
    pub(crate) fn unreserved_clusters(&self) -> u64 {
        let reserved = self.reservations.beyond_pool();
        u64::try_from(self.free_space.counters().clusters() - reserved).unwrap_or(0)
    }

    /// Free inodes of all groups; never below 0.
    pub(crate) fn free_inodes(&self) -> u32 {
        u32::try_from(self.free_space.counters().inodes().max(0)).unwrap_or(u32::MAX)
    }

    /// The freed blocks that stay marked as used, as (first, how many). None without
    /// [`SpaceOptions::free_later`].
    pub(crate) fn take_freed_later(&self) -> Vec<(BlockNr, u64)> {
        self.freed_later
            .as_ref()
            .map(|freed| std::mem::take(&mut *freed.lock()))
            .unwrap_or_default()
    }

    /// As [`Groups::descriptor`].
    pub(crate) fn descriptor(&self, nr: GroupNr) -> Result<GroupDesc> {
        self.groups().descriptor(nr)
    }

    /// As [`Groups::block_bitmap`].
    pub(crate) fn block_bitmap(&self, nr: GroupNr) -> Result<Bitmap> {
        self.groups().block_bitmap(nr)
    }

    /// As [`Groups::inode_bitmap`].
    pub(crate) fn inode_bitmap(&self, nr: GroupNr) -> Result<Bitmap> {
        self.groups().inode_bitmap(nr)
    }

    /// As [`Groups::is_system`].
    pub(crate) fn is_system(&self, block: BlockNr, len: u64) -> bool {
        self.groups().is_system(block, len)
    }

    /// As [`FreeSpace::mark_blocks`]. Locks: takes `Group`.
    pub(crate) fn mark_blocks(
        &self,
        handle: &Handle<'_>,
        start: BlockNr,
        len: u64,
        used: bool,
    ) -> Result<()> {
        self.free_space.mark_blocks(handle, start, len, used)
    }

    /// As [`FreeSpace::free_runs`].
    pub(crate) fn free_runs(&self, start: BlockNr, len: u64) -> Result<Vec<(BlockNr, u64)>> {
        self.free_space.free_runs(start, len)
    }

    /// As [`FreeSpace::release_durable`]. Locks: takes `Group`.
    pub(crate) fn release_durable(&self, most: usize) -> usize {
        self.free_space.release_durable(most)
    }

    /// As [`InodeNumbers::allocate`]. Locks: takes `Group`.
    pub(crate) fn allocate_inode(
        &self,
        handle: &Handle<'_>,
        goal: InodeGoal,
        directory: bool,
    ) -> Result<Ino> {
        self.inode_numbers().allocate(handle, goal, directory)
    }

    /// As [`InodeNumbers::free`]; also releases what was preallocated for the inode. Locks: takes
    /// `Group`.
    pub(crate) fn free_inode(&self, handle: &Handle<'_>, ino: Ino, directory: bool) -> Result<()> {
        self.discard_preallocation(ino);
        self.inode_numbers().free(handle, ino, directory)
    }

    /// As [`InodeNumbers::mark`]. Locks: takes `Group`.
    pub(crate) fn mark_inode(
        &self,
        handle: &Handle<'_>,
        ino: Ino,
        directory: bool,
    ) -> Result<bool> {
        self.inode_numbers().mark(handle, ino, directory)
    }

    fn inode_numbers(&self) -> InodeNumbers<'_> {
        InodeNumbers::new(&self.free_space, &self.bulk)
    }

    /// Reserves `clusters` clusters for data that is written later.
    ///
    /// Errors: `NoSpace` when fewer are free now.
    pub(crate) fn reserve_clusters(&self, clusters: u64) -> Result<Reservation> {
        self.reserve_with_map(clusters, 0).map(|(data, _)| data)
    }

    /// As [`Reservations::reserve`].
    pub(crate) fn reserve_with_map(
        &self,
        data: u64,
        map: u64,
    ) -> Result<(Reservation, Reservation)> {
        self.reservations.reserve(&self.free_space, data, map)
    }

    /// Reserves `clusters` clusters that the caller is about to free, so that no other request gets
    /// them.
    pub(crate) fn reserve_freed(&self, what: ReservedFor, clusters: u64) -> Reservation {
        self.reservations.reservation(what, clusters)
    }

    /// As [`Preallocations::discard`]. Locks: takes `Group`.
    pub(crate) fn discard_preallocation(&self, ino: Ino) {
        self.preallocations.discard(&self.free_space, ino);
    }

    /// As [`Preallocations::discard_all`]. Locks: takes `Group`.
    fn discard_all_preallocations(&self) -> bool {
        self.preallocations.discard_all(&self.free_space)
    }

    /// A search of the groups for up to `want` clusters.
    fn search<'a>(
        &'a self,
        handle: &'a Handle<'a>,
        request: &Request,
        want: u32,
    ) -> GroupSearch<'a> {
        GroupSearch::new(self, handle, request, want)
    }

    /// Clusters that are reserved and not yet allocated.
    #[cfg(test)]
    pub(crate) fn reserved_clusters(&self) -> i64 {
        self.reservations.clusters()
    }

    /// Turns [`SpaceOptions::short_cuts`] on or off.
    #[cfg(test)]
    pub(crate) fn set_short_cuts(&mut self, on: bool) {
        self.free_space.set_short_cuts(on);
    }
}
