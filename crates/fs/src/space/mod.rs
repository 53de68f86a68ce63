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
pub(crate) mod free_extents;
pub(crate) mod group;
pub(crate) mod group_edit;
pub(crate) mod group_index;
pub(crate) mod group_search;
pub(crate) mod held_runs;
pub(crate) mod inodes;
pub(crate) mod loaded;
pub(crate) mod mark;
pub(crate) mod pending;
pub(crate) mod preallocation;
mod recount;
pub(crate) mod reservations;
pub(crate) mod stripes;
mod trim;

use crate::context::Context;
use crate::space::bulk::BulkCursor;
use crate::space::group::GroupTable;
use crate::space::group_index::GroupIndex;
use crate::space::loaded::LoadedTrees;
use crate::space::pending::PendingGroups;
use crate::space::preallocation::Preallocations;
use crate::space::reservations::Reserved;
use crate::space::stripes::stripe_clusters;
use extant_base::lock::{Mutex, Rank};
use extant_base::{BlockNr, CachePadded, GroupNr};
use rangemap::RangeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

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
pub(crate) struct Space {
    context: Arc<Context>,
    /// All block groups; see [`Space::group`].
    groups: GroupTable,
    /// The longest free run of each group, by size.
    group_index: GroupIndex,
    /// Groups whose free extents are in memory.
    loaded_trees: LoadedTrees,
    /// Groups with freed clusters that wait for a commit.
    pending_groups: PendingGroups,
    /// The groups that hold preallocated clusters for growing files.
    preallocations: Preallocations,
    /// Clusters reserved for data that is not allocated yet.
    reserved: Arc<Reserved>,
    /// Free clusters of all groups. The superblock's count until [`Space::recount_free`].
    free_clusters: CachePadded<AtomicI64>,
    /// Free inodes of all groups. The superblock's count until [`Space::recount_free`].
    free_inodes: CachePadded<AtomicI64>,
    /// Directories of all groups. 0 until [`Space::recount_free`].
    used_dirs: CachePadded<AtomicI64>,
    /// Blocks freed so far that stay marked as used, as (first, how many). While recovery applies
    /// fast commits, no block that was in use before may be allocated.
    freed_later: Option<Mutex<Vec<(BlockNr, u64)>>>,
    /// Clusters of a stripe. Large files start at the start of one.
    stripe: Option<u32>,
    /// Progress of a bulk load.
    bulk: BulkCursor,
    /// The blocks of the volume's own log, if the log is a file of the volume.
    own_log: RangeSet<u64>,
    options: SpaceOptions,
}

impl Space {
    /// The space of the volume that `context` belongs to. The counters start with the superblock's
    /// values.
    pub(crate) fn new(context: Arc<Context>, options: SpaceOptions) -> Space {
        let (groups, ratio_log2, at_open) = {
            let geometry = context.geometry();
            (geometry.groups_count(), geometry.log_cluster_ratio(), context.at_open())
        };
        let free_clusters = i64::try_from(at_open.free_blocks >> ratio_log2).unwrap_or(i64::MAX);
        let free_inodes = i64::from(at_open.free_inodes);
        Space {
            groups: GroupTable::new(groups),
            group_index: GroupIndex::new(groups),
            loaded_trees: LoadedTrees::new(),
            pending_groups: PendingGroups::new(),
            preallocations: Preallocations::new(),
            reserved: Arc::default(),
            free_clusters: CachePadded::new(AtomicI64::new(free_clusters)),
            free_inodes: CachePadded::new(AtomicI64::new(free_inodes)),
            used_dirs: CachePadded::default(),
            freed_later: options.free_later.then(|| Mutex::new(Rank::Leaf, Vec::new())),
            stripe: stripe_clusters(options.stripe, at_open, context.geometry()),
            bulk: BulkCursor::default(),
            own_log: RangeSet::new(),
            options,
            context,
        }
    }

    /// From now on the blocks of `runs` belong to the volume's own log.
    pub(crate) fn set_own_log(&mut self, runs: Vec<Range<u64>>) {
        // Runs of a damaged inode may overlap.
        self.own_log = runs.into_iter().collect();
    }

    /// Whether freed clusters are discarded once their transaction is durable.
    pub(crate) fn discards(&self) -> bool {
        self.options.discard
    }

    /// See [`SpaceOptions::short_cuts`].
    pub(crate) fn short_cuts(&self) -> bool {
        self.options.short_cuts
    }

    /// Whether copies of the descriptors are read instead of the primary ones.
    pub(crate) fn reads_backup(&self) -> bool {
        self.options.descriptors_from.is_some()
    }

    /// Progress of a bulk load.
    pub(crate) fn bulk(&self) -> &BulkCursor {
        &self.bulk
    }

    /// Free clusters of all groups, those reserved included; never below 0.
    pub(crate) fn free_clusters(&self) -> u64 {
        u64::try_from(self.free_clusters.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Free clusters of all groups minus the reserved ones, as other users see them; never below 0.
    pub(crate) fn unreserved_clusters(&self) -> u64 {
        let reserved = self.reserved.beyond(self.pool());
        u64::try_from(self.free_clusters.load(Ordering::Relaxed) - reserved).unwrap_or(0)
    }

    /// Free inodes of all groups.
    pub(crate) fn free_inodes(&self) -> u32 {
        self.free_inodes.load(Ordering::Relaxed).max(0) as u32
    }

    /// The freed blocks that stay marked as used, as (first, how many). None without
    /// [`SpaceOptions::free_later`].
    pub(crate) fn take_freed_later(&self) -> Vec<(BlockNr, u64)> {
        self.freed_later
            .as_ref()
            .map(|freed| std::mem::take(&mut *freed.lock()))
            .unwrap_or_default()
    }

    /// Clusters that are reserved and not yet allocated.
    #[cfg(test)]
    pub(crate) fn reserved_clusters(&self) -> i64 {
        self.reserved.clusters()
    }

    /// Turns [`SpaceOptions::short_cuts`] on or off.
    #[cfg(test)]
    pub(crate) fn set_short_cuts(&mut self, on: bool) {
        self.options.short_cuts = on;
    }
}
