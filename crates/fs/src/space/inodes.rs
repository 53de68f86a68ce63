//! Allocating and freeing inode numbers.
//!
//! ```text
//!   directory    spread: a group with at least the average of free inodes and blocks
//!   other        near its directory: the directory's group, then the groups after it
//!   in order     the lowest free number: a bulk load fills the tables from front to back
//! ```
//!
//! Source: ext4 documentation, "Block and Inode Allocation Policy"; Orlov's directory placement.

use crate::space::bulk::BulkCursor;
use crate::space::free_extents::Span;
use crate::space::free_space::FreeSpace;
use crate::space::group_edit::{GroupBlocks, GroupEdit, Map};
use extant_base::narrow::fits_u32;
use extant_base::{Error, GroupNr, Ino, Result, Site, What};
use extant_journal::{Change, Handle, Ineligible};

/// Where a new inode should be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum InodeGoal {
    /// A directory below `parent`.
    Directory {
        /// The directory that will hold its name.
        parent: Ino,
    },
    /// Anything else in directory `parent`.
    Other {
        /// The directory that will hold its name.
        parent: Ino,
    },
    /// The lowest free number.
    InOrder,
}

/// The inode numbers of a volume.
#[derive(Clone, Copy)]
pub(super) struct InodeNumbers<'a> {
    space: &'a FreeSpace,
    bulk: &'a BulkCursor,
}

impl<'a> InodeNumbers<'a> {
    pub(super) fn new(space: &'a FreeSpace, bulk: &'a BulkCursor) -> InodeNumbers<'a> {
        InodeNumbers { space, bulk }
    }

    /// Allocates a free inode number. With `directory` it counts as a directory.
    ///
    /// The slot in the table stays as it is: the caller writes a whole inode. Spends 2 credits (3
    /// if the group's block bitmap must be created). Errors: `NoSpace`, `Device`. Locks: takes
    /// `Group`.
    pub(super) fn allocate(
        &self,
        handle: &Handle<'_>,
        goal: InodeGoal,
        directory: bool,
    ) -> Result<Ino> {
        let groups = self.space.usable_groups();
        let first = match goal {
            InodeGoal::InOrder => self.bulk.inode_group().0,
            InodeGoal::Other { parent } => self.space.groups().of_inode(parent).0,
            InodeGoal::Directory { parent } => self.directory_group(parent).0,
        };
        for n in 0..groups {
            let nr = group_after(first, n, groups);
            match self.allocate_in(handle, nr, directory) {
                Ok(Some(ino)) => {
                    if matches!(goal, InodeGoal::InOrder) {
                        self.bulk.advance_inodes(nr);
                    }
                    return Ok(ino);
                }
                Ok(None) => {}
                Err(error @ Error::Corrupt { .. }) => self.space.context().note_error(&error),
                Err(error) => return Err(error),
            }
        }
        Err(Error::NoSpace)
    }

    /// The group for a directory below `parent`: for a child of the root the one with the fewest
    /// directories, otherwise the first one, from the parent's on; in both cases among groups that
    /// are no worse than the average.
    fn directory_group(&self, parent: Ino) -> GroupNr {
        let groups = self.space.usable_groups();
        let inodes = self.space.counters().inodes() / i64::from(groups);
        let clusters = self.space.counters().clusters() / i64::from(groups);
        let dirs = self.space.counters().dirs() / i64::from(groups);
        let spread = parent == Ino::ROOT;
        let slack = if spread {
            0
        } else {
            i64::from(self.space.context().geometry().inodes_per_group()) / 16
        };
        let start = self.space.groups().of_inode(parent).0;
        let mut best: Option<(u32, GroupNr)> = None;
        // A bounded number of descriptors keeps the cost constant on huge volumes.
        for n in 0..groups.min(256) {
            let nr = group_after(start, n, groups);
            let Ok(desc) = self.space.groups().descriptor(nr) else { continue };
            let fits = i64::from(desc.free_inodes) >= (inodes - slack * 4).max(1)
                && i64::from(desc.free_clusters) >= clusters - slack * 4
                && (spread || i64::from(desc.used_dirs) <= dirs + slack);
            if !fits {
                continue;
            }
            if !spread {
                return nr;
            }
            if best.is_none_or(|(used, _)| desc.used_dirs < used) {
                best = Some((desc.used_dirs, nr));
            }
        }
        best.map_or(GroupNr(start), |(_, nr)| nr)
    }

    fn allocate_in(
        &self,
        handle: &Handle<'_>,
        nr: GroupNr,
        directory: bool,
    ) -> Result<Option<Ino>> {
        let Some(blocks) = GroupBlocks::fetch_with_inodes(self.space, nr)? else { return Ok(None) };
        let inodes = self.space.context().geometry().inodes_per_group();
        let mut edit = GroupEdit::begin(self.space, &blocks, handle)?;
        if edit.desc.free_inodes == 0 {
            return Ok(None);
        }
        let from = edit.state.inode_hint.min(inodes);
        let slot = edit.next_clear(from..inodes).or_else(|| edit.next_clear(0..from));
        let ino = slot.and_then(|slot| self.space.context().geometry().ino_of_slot(nr, slot));
        let (Some(slot), Some(ino)) = (slot, ino) else {
            edit.set_bad();
            return Err(Site::of_group(nr).corrupt(What::FreeInodesCount));
        };
        if ino.get() < self.space.context().geometry().first_ino() {
            edit.set_bad();
            return Err(Site::of_group(nr).ino(ino).corrupt(What::InodeNotMarked));
        }
        edit.flip(Span { start: slot, len: 1 }, true, handle)?;
        self.space.context().record(handle, Change::InodeAllocated(ino));
        edit.state.inode_hint = slot + 1;
        self.count_inode(&mut edit, slot, directory);
        let uninit = edit.desc.block_uninit(self.space.context().checksums());
        edit.finish(&blocks, handle)?;
        if uninit {
            // A group that holds an inode has its block bitmap on disk.
            let blocks = GroupBlocks::fetch(self.space, nr, Map::Blocks)?;
            GroupEdit::begin(self.space, &blocks, handle)?.finish(&blocks, handle)?;
        }
        Ok(Some(ino))
    }

    /// Counts an inode whose bit was clear.
    fn count_inode(&self, edit: &mut GroupEdit<'_>, slot: u32, directory: bool) {
        edit.desc.free_inodes = edit.desc.free_inodes.saturating_sub(1);
        self.space.counters().add_inodes(-1);
        self.count_use(edit, slot, directory);
    }

    /// Counts an inode that is created in `slot`, whatever its bit was.
    fn count_use(&self, edit: &mut GroupEdit<'_>, slot: u32, directory: bool) {
        let inodes = self.space.context().geometry().inodes_per_group();
        let desc = &mut edit.desc;
        if self.space.context().checksums().groups_may_be_uninit()
            && slot + 1 > inodes - desc.itable_unused.min(inodes)
        {
            desc.itable_unused = inodes - (slot + 1);
        }
        if directory {
            desc.used_dirs = desc.used_dirs.saturating_add(1).min(inodes);
            self.space.counters().add_dirs(1);
        }
    }

    /// Frees an inode number. Its blocks are already freed and its slot is cleared.
    ///
    /// If its bit is already clear, the group's map is marked bad and no counter changes. In a
    /// group that was marked bad before, the number stays allocated. Errors: `Corrupt`, `Device`.
    /// Locks: takes `Group`.
    pub(super) fn free(&self, handle: &Handle<'_>, ino: Ino, directory: bool) -> Result<()> {
        let at = Site::of_ino(ino);
        let place = self
            .space
            .context()
            .geometry()
            .inode_place(ino)
            .ok_or(at.corrupt(What::InodeNumber))?;
        let nr = place.group;
        if self.space.groups().get(nr).is_bad(Map::Inodes) {
            // Leaking the number is safe. The damage was noted when it was found.
            self.space.context().require_full_commit(handle, Ineligible::LastLink);
            return Ok(());
        }
        let blocks = GroupBlocks::fetch(self.space, nr, Map::Inodes)?;
        let mut edit = GroupEdit::begin(self.space, &blocks, handle)?;
        let span = Span { start: place.slot, len: 1 };
        if !edit.all(span, true) {
            edit.set_bad();
            self.space.context().require_full_commit(handle, Ineligible::LastLink);
            return Err(at.group(nr).corrupt(What::InodeAlreadyFree));
        }
        edit.flip(span, false, handle)?;
        self.space.context().record(handle, Change::InodeFreed(ino));
        edit.state.inode_hint = edit.state.inode_hint.min(place.slot);
        let inodes = self.space.context().geometry().inodes_per_group();
        edit.desc.free_inodes = edit.desc.free_inodes.saturating_add(1).min(inodes);
        self.space.counters().add_inodes(1);
        if directory {
            edit.desc.used_dirs = edit.desc.used_dirs.saturating_sub(1);
            self.space.counters().add_dirs(-1);
        }
        edit.finish(&blocks, handle)
    }

    /// Marks an inode as used, whatever its bit was. Returns whether it was free. For replay and
    /// mkfs: the slot holds no inode yet, so a directory always adds one to the count.
    ///
    /// Errors: `Corrupt`, `Device`. Locks: takes `Group`.
    pub(super) fn mark(&self, handle: &Handle<'_>, ino: Ino, directory: bool) -> Result<bool> {
        let at = Site::of_ino(ino);
        let place = self
            .space
            .context()
            .geometry()
            .inode_place(ino)
            .ok_or(at.corrupt(What::InodeNumber))?;
        let blocks = GroupBlocks::fetch(self.space, place.group, Map::Inodes)?;
        let mut edit = GroupEdit::begin(self.space, &blocks, handle)?;
        let fresh = edit.force(Span { start: place.slot, len: 1 }, true, handle)? == 1;
        if fresh {
            self.count_inode(&mut edit, place.slot, directory);
        } else {
            self.count_use(&mut edit, place.slot, directory);
        }
        edit.finish(&blocks, handle)?;
        if self
            .space
            .groups()
            .descriptor(place.group)?
            .block_uninit(self.space.context().checksums())
        {
            let blocks = GroupBlocks::fetch(self.space, place.group, Map::Blocks)?;
            GroupEdit::begin(self.space, &blocks, handle)?.finish(&blocks, handle)?;
        }
        Ok(fresh)
    }
}

/// The `n`th group after `first`; group 0 follows the last of `groups`.
fn group_after(first: u32, n: u32, groups: u32) -> GroupNr {
    GroupNr(fits_u32((u64::from(first) + u64::from(n)) % u64::from(groups)))
}
