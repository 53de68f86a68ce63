//! More blocks: the last group gets longer, and new groups come after it.
//!
//! ```text
//!   grow   in the caller's handle; the descriptors of the new groups are in their blocks already
//!          ── Rank::Group of the last group ──────────────────────────────────────────────
//!          geometry published                    the groups exist, nothing is allocated there
//!          bits past the old end cleared         last group: count, checksums; the run is held
//!          ───────────────────────────────────────────────────────────────────────────────
//!   the caller commits, and the superblock reaches its home
//!   open   run released; index, counters         searches and reservations find the new space
//! ```
//!
//! Nothing is allocated in the new space before the superblock at home has the new size. So no
//! record in the log, and above all no fast commit, names a block or an inode that a reader of the
//! log does not know from the superblock with which it started.
//!
//! The counters come after that: what they promise to reservations can be found by then. Last come
//! the blocks that are kept, for root and in the pool: they grow with the volume, and no writer may
//! miss them before the new space is there.

use crate::context::geometry::Growing;
use crate::space::Space;
use crate::space::free_extents::Span;
use crate::space::group_edit::{GroupBlocks, GroupEdit, Map, release_run};
use extant_base::narrow::len_u32;
use extant_base::{GroupNr, Result};
use extant_journal::Handle;
use extant_ondisk::geometry::Geometry;
use extant_ondisk::group_desc::GroupDesc;

/// Blocks that [`Space::grow`] dirties: bitmap and descriptor of the last group.
pub(crate) const LAST_GROUP_CREDITS: u32 = 2;

/// The last group of a volume that will grow, with its blocks in memory.
pub(crate) struct LastGroup {
    nr: GroupNr,
    blocks: GroupBlocks,
}

impl Space {
    /// Reads and checks what [`Space::grow`] changes.
    ///
    /// Errors: `Device`; `Corrupt` if the last group is damaged.
    pub(crate) fn last_group(&self) -> Result<LastGroup> {
        let nr = GroupNr(self.context.geometry().groups_count() - 1);
        let blocks = GroupBlocks::fetch(&self.free_space, nr, Map::Blocks)?;
        Ok(LastGroup { nr, blocks })
    }

    /// Changes the volume to the larger geometry `new`. The descriptors `added` of the new groups
    /// are in their blocks already, and what they describe is on the device. The new space can be
    /// used after [`Space::open_new_space`].
    ///
    /// Spends [`LAST_GROUP_CREDITS`] of `handle`. Errors: `Aborted`. Locks: takes `Group`.
    pub(crate) fn grow(
        &self,
        handle: &Handle<'_>,
        growing: &Growing<'_>,
        last: &LastGroup,
        new: Geometry,
        added: &[GroupDesc],
    ) -> Result<NewSpace> {
        let had = self.context.geometry().clusters_in_group(last.nr).unwrap_or(0);
        let has = new.clusters_in_group(last.nr).unwrap_or(had);
        let mut edit = GroupEdit::begin(&self.free_space, &last.blocks, handle)?;
        growing.publish(new);
        let more = (has > had).then(|| Span { start: had, len: has - had });
        if let Some(span) = more {
            edit.flip(span, false, handle)?;
            edit.desc.free_clusters += span.len;
            edit.state.held.hold_run(span);
        }
        edit.finish(&last.blocks, handle)?;
        let clusters = |desc: &GroupDesc| u64::from(desc.free_clusters);
        Ok(NewSpace {
            longer: more.map(|span| (last.nr, span)),
            groups: added.iter().map(|desc| desc.free_clusters).collect(),
            clusters: more.map_or(0, |span| span.len.into())
                + added.iter().map(clusters).sum::<u64>(),
            inodes: added.iter().map(|desc| desc.free_inodes).sum(),
        })
    }

    /// Makes searches and reservations find the space that a growth added. From now on
    /// `reserved_blocks` are reserved for root. Locks: takes `Group`.
    pub(crate) fn open_new_space(
        &self,
        growing: &Growing<'_>,
        new: &NewSpace,
        reserved_blocks: u64,
    ) {
        if let Some((nr, span)) = new.longer {
            release_run(&self.free_space, nr, span);
        }
        let first = self.free_space.usable_groups();
        for (nr, longest) in (first..).map(GroupNr).zip(&new.groups) {
            let _state = self.groups().get(nr).state.lock();
            self.free_space.index().set(nr, *longest);
        }
        self.free_space.add_usable_groups(len_u32(new.groups.len()));
        let clusters = i64::try_from(new.clusters).unwrap_or(i64::MAX);
        self.free_space.counters().add_clusters(clusters);
        self.free_space.counters().add_inodes(new.inodes.into());
        growing.open(reserved_blocks);
    }
}

/// The space that a growth adds, until it can be used.
#[derive(Debug, Default)]
pub(crate) struct NewSpace {
    /// The clusters that the last group got.
    longer: Option<(GroupNr, Span)>,
    /// The free clusters of each new group.
    groups: Vec<u32>,
    /// All free clusters.
    pub(crate) clusters: u64,
    /// All free inodes.
    pub(crate) inodes: u32,
}

impl NewSpace {
    /// Adds the space of the next step. Its last group is a whole one of this step.
    pub(crate) fn add(&mut self, next: NewSpace) {
        self.longer = self.longer.or(next.longer);
        self.groups.extend(next.groups);
        self.clusters += next.clusters;
        self.inodes += next.inodes;
    }
}
