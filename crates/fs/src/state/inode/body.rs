//! The content of an inode in memory.

use crate::context::Context;
use crate::space::held_runs::HeldGoal;
use crate::state::file_cache::FileCacheState;
use crate::state::inode::moves::Moves;
use crate::state::inode::orphans::OrphanPlace;
use crate::state::inode::synced::Synced;
use extant_base::Ino;
use extant_ondisk::inode::{FileKind, Inode as DiskInode, InodeFlags};
use extant_ondisk::time::Timestamp;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// The content of an inode in memory: its fields (accessible directly through `Deref`) and the
/// bytes of its slot.
#[derive(Clone, Debug)]
pub(crate) struct Body {
    /// The inode's number.
    ino: Ino,
    /// The fields.
    pub(crate) disk: DiskInode,
    /// The slot, `inode_size` bytes. Out of date where `disk` has fields; valid after them, where
    /// the attributes are.
    pub(crate) raw: Box<[u8]>,
    /// Which orphan record names the inode.
    pub(crate) orphan: OrphanPlace,
    /// How the inode counts in the quota files.
    pub(crate) counted: Counted,
    /// The changes that must be durable for the inode to be durable.
    pub(crate) synced: Synced,
    /// The file is known to have no capabilities, which a change of its content would remove.
    pub(crate) no_capability: bool,
    /// The moves of its names, if it is a directory.
    pub(crate) moves: Moves,
    /// Its folios, and the reservations for them.
    pub(crate) file_cache: Option<Arc<FileCacheState>>,
    /// The size that the slot gets while data before `size` is not on the device. `None`: the slot
    /// gets `size`.
    pub(crate) size_on_disk: Option<u64>,
    /// Times changed since the inode was last stored.
    pub(crate) times_changed: bool,
    /// A change of content does not set the times: the caller sets them.
    pub(crate) times_kept: bool,
    /// The goal of its next held run.
    pub(crate) held_goal: HeldGoal,
}

/// How an inode counts in the quota files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    /// Not yet: it counts from its first store on.
    New,
    /// With the content of its slot.
    Kept,
    /// No more after its next store: it is being released.
    Released,
    /// Not at all: it is being released and was never stored, or its release is stored already.
    Never,
}

impl Deref for Body {
    type Target = DiskInode;
    fn deref(&self) -> &DiskInode {
        &self.disk
    }
}

impl DerefMut for Body {
    fn deref_mut(&mut self) -> &mut DiskInode {
        &mut self.disk
    }
}

impl Body {
    /// Whether its flags demand that changes are durable when a call returns.
    pub(crate) fn requires_sync(&self) -> bool {
        let of_names = InodeFlags::SYNC | InodeFlags::DIRSYNC;
        match self.file_kind() {
            FileKind::Directory => self.flags.intersects(of_names),
            _ => self.flags.contains(InodeFlags::SYNC),
        }
    }

    /// The inode's number.
    pub(crate) fn ino(&self) -> Ino {
        self.ino
    }

    /// The body of the new inode `ino`, without attributes.
    pub(crate) fn fresh(context: &Context, ino: Ino, disk: DiskInode) -> Body {
        let raw = vec![0; context.geometry().inode_size()].into_boxed_slice();
        Body { counted: Counted::New, ..Body::read_from(ino, disk, raw) }
    }

    /// The body of inode `ino`, which was read from its slot `raw`.
    pub(crate) fn read_from(ino: Ino, disk: DiskInode, raw: Box<[u8]>) -> Body {
        Body {
            ino,
            disk,
            raw,
            counted: Counted::Kept,
            orphan: OrphanPlace::None,
            synced: Synced::default(),
            no_capability: false,
            moves: Moves::default(),
            file_cache: None,
            size_on_disk: None,
            times_changed: false,
            times_kept: false,
            held_goal: HeldGoal::default(),
        }
    }

    /// The same body as inode `ino`.
    pub(crate) fn renumbered(self, ino: Ino) -> Body {
        Body { ino, ..self }
    }

    /// The kind of file. An inode that was checked has one.
    pub(crate) fn file_kind(&self) -> FileKind {
        self.disk.kind().unwrap_or(FileKind::Regular)
    }

    /// Sets the times for a change of content at `now`, unless the caller keeps them itself. For an
    /// append-only file they are always set: a caller that writes to it past its own cache expects
    /// that the times are set here.
    pub(crate) fn content_changed(&mut self, now: Timestamp) {
        if !self.times_kept || self.flags.contains(InodeFlags::APPEND) {
            (self.mtime, self.ctime) = (now, now);
        }
    }

    /// Sets the size that every reader sees. The size on disk follows at once, or when all data
    /// that is dirty or in flight is on the device.
    pub(crate) fn resize(&mut self, size: u64) {
        self.disk.size = size;
        let Some(file_cache) = &self.file_cache else { return };
        file_cache.pages.set_len(size);
        self.size_on_disk =
            self.size_on_disk.filter(|on_disk| *on_disk < size && file_cache.pages.is_dirty());
    }

    /// Whether a reservation of dirty data covers the block at `at`, and for how many blocks, at
    /// most `limit`, the answer is the same.
    pub(crate) fn reserved_run(&self, at: u32, limit: u32) -> (bool, u32) {
        let Some(file_cache) = &self.file_cache else { return (false, limit) };
        let delayed = file_cache.delayed.lock();
        match delayed.run_at(at, limit) {
            0 => (false, delayed.gap_at(at, limit)),
            len => (true, len),
        }
    }

    /// The bytes that may hold attributes, magic included; empty without space for any.
    pub(crate) fn xattr_tail(&self, context: &Context) -> &[u8] {
        self.raw.get(self.disk.xattr_area(context.inode_format())).unwrap_or_default()
    }

    /// The same bytes, to change them.
    pub(crate) fn xattr_tail_mut(&mut self, context: &Context) -> &mut [u8] {
        let area = self.disk.xattr_area(context.inode_format());
        self.raw.get_mut(area).unwrap_or_default()
    }

    /// The checksum seed of all metadata of this inode; `None` without `metadata_csum`.
    pub(crate) fn seed(&self, context: &Context) -> Option<u32> {
        context.checksums().inode_seed(self.ino, self.disk.generation)
    }
}
