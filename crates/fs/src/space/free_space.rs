//! What is free in the groups: counters, index and lists in memory, beside the bitmaps on disk.
//!
//! ```text
//!   FreeSpace ─┬ groups      descriptors, bitmaps; under a group's lock: its free extents
//!              ├ index       which groups have a free run of a length
//!              ├ loaded      which groups have their free extents in memory
//!              ├ pending     freed clusters that wait for a commit
//!              └ counters    free clusters and inodes of all groups, directories
//! ```
//!
//! [`GroupEdit`](crate::space::group_edit::GroupEdit) changes one group, and with it the parts here
//! that depend on that group. `FreeSpace` knows of no reservation and of no file.

use crate::context::Context;
use crate::space::SpaceOptions;
use crate::space::counters::FreeCounters;
use crate::space::group::Groups;
use crate::space::group_index::GroupIndex;
use crate::space::loaded::LoadedTrees;
use crate::space::pending::PendingGroups;
use extant_base::{GroupNr, Result};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// What is free in the groups of a volume. See the module's picture.
pub(crate) struct FreeSpace {
    groups: Groups,
    index: GroupIndex,
    loaded: LoadedTrees,
    pending: PendingGroups,
    counters: FreeCounters,
    /// Allocations use the groups before this one. The volume may have more, while it grows.
    usable_groups: AtomicU32,
    /// See [`SpaceOptions::discard`].
    discards: bool,
    /// See [`SpaceOptions::short_cuts`].
    short_cuts: bool,
}

impl FreeSpace {
    /// The free space of the volume that `context` belongs to. The counters start with the
    /// superblock's values.
    pub(super) fn new(context: Arc<Context>, options: &SpaceOptions) -> FreeSpace {
        FreeSpace {
            index: GroupIndex::new(context.geometry().groups_count()),
            loaded: LoadedTrees::new(),
            pending: PendingGroups::new(),
            usable_groups: AtomicU32::new(context.geometry().groups_count()),
            counters: FreeCounters::new(context.at_open(), context.geometry()),
            discards: options.discard,
            short_cuts: options.short_cuts,
            groups: Groups::new(context, options.descriptors_from),
        }
    }

    /// What the volume's components share.
    pub(super) fn context(&self) -> &Context {
        self.groups.context()
    }

    /// The groups.
    pub(super) fn groups(&self) -> &Groups {
        &self.groups
    }

    /// The groups, before other threads use the volume.
    pub(super) fn groups_mut(&mut self) -> &mut Groups {
        &mut self.groups
    }

    /// The longest free run of each group, by size.
    pub(super) fn index(&self) -> &GroupIndex {
        &self.index
    }

    /// The groups whose free extents are in memory.
    pub(super) fn loaded(&self) -> &LoadedTrees {
        &self.loaded
    }

    /// The groups with freed clusters that wait for a commit.
    pub(super) fn pending(&self) -> &PendingGroups {
        &self.pending
    }

    /// How many groups allocations use, from the first on.
    pub(super) fn usable_groups(&self) -> u32 {
        self.usable_groups.load(Ordering::Relaxed)
    }

    /// Lets allocations use the next `count` groups, which have entries in the index.
    pub(super) fn add_usable_groups(&self, count: u32) {
        self.usable_groups.fetch_add(count, Ordering::Release);
    }

    /// The counters of all groups together.
    pub(super) fn counters(&self) -> &FreeCounters {
        &self.counters
    }

    /// Whether freed clusters are discarded once their transaction is durable.
    pub(super) fn discards(&self) -> bool {
        self.discards
    }

    /// See [`SpaceOptions::short_cuts`].
    pub(super) fn short_cuts(&self) -> bool {
        self.short_cuts
    }

    /// Turns [`SpaceOptions::short_cuts`] on or off.
    #[cfg(test)]
    pub(super) fn set_short_cuts(&mut self, on: bool) {
        self.short_cuts = on;
    }

    /// Clusters that are free and wait for no commit. Preallocations of growing files are included.
    pub(super) fn clusters_free_now(&self) -> i64 {
        // Read in this order: a freed cluster counts as pending before it counts as free.
        self.counters.clusters() - self.pending.clusters()
    }

    /// As [`GroupIndex::next_on`]. Locks: takes `Group`.
    pub(super) fn next_group_on(&self, level: u8, range: Range<u32>) -> Result<Option<GroupNr>> {
        self.index.next_on(&self.groups, level, range)
    }

    /// Drops the free extents that were read first, while there are too many. Locks: takes `Group`.
    pub(super) fn drop_excess_trees(&self) {
        self.loaded.drop_excess(&self.groups);
    }
}
