//! What an inode holds.

use super::Slot;
use crate::cached::Cached;
use crate::dir::moves::Moves;
use crate::file::synced::Synced;
use crate::orphan::OrphanPlace;
use crate::quota::Holding;
use crate::space::held_runs::HeldBehind;
use crate::volume::Volume;
use extant_base::{Ino, Result};
use extant_journal::Handle;
use extant_ondisk::inode::{FileKind, Inode as DiskInode, InodeFlags};
use extant_ondisk::time::Timestamp;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// What an inode holds: its fields (reached directly, as if the body were the disk's inode) and the
/// bytes of its slot.
#[derive(Clone, Debug)]
pub(crate) struct Body {
    /// The fields.
    pub(crate) disk: DiskInode,
    /// The slot, `inode_size` bytes. Stale where `disk` has fields; right behind them, where the
    /// attributes are.
    pub(crate) raw: Box<[u8]>,
    /// Which orphan record names the inode.
    pub(crate) orphan: OrphanPlace,
    /// How its slot counts in the quota files.
    pub(crate) counted: Counted,
    /// What has to be durable for the inode to be.
    pub(crate) synced: Synced,
    /// It is known to have no file capabilities, which a change of its content would take away.
    pub(crate) no_capability: bool,
    /// Where its names went, if it is a directory.
    pub(crate) moves: Moves,
    /// Its folios, and what is promised for them.
    pub(crate) cached: Option<Arc<Cached>>,
    /// The size that the slot gets while data before `size` is not on the device; `None`: the size.
    pub(crate) size_on_disk: Option<u64>,
    /// Times changed since it was stored.
    pub(crate) times_changed: bool,
    /// A change of content leaves its times to whoever asked for it.
    pub(crate) times_kept: bool,
    /// Where its next held run is looked for.
    pub(crate) held_behind: HeldBehind,
}

/// How an inode counts in the quota files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    /// Not yet: from the first time it is stored.
    New,
    /// With what its slot says.
    Kept,
    /// No more, once it is stored: it is being released.
    Gone,
    /// Not at all: it is being released before it was ever stored.
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
    /// Whether its flags ask for changes that are durable when a call returns.
    pub(crate) fn asks_for_sync(&self) -> bool {
        let of_names = InodeFlags::SYNC | InodeFlags::DIRSYNC;
        match self.file_kind() {
            FileKind::Directory => self.flags.intersects(of_names),
            _ => self.flags.contains(InodeFlags::SYNC),
        }
    }

    /// The body of an inode that is being made: no attributes.
    pub(crate) fn fresh(volume: &Volume, disk: DiskInode) -> Body {
        let raw = vec![0; volume.geometry().inode_size()].into_boxed_slice();
        Body {
            disk,
            raw,
            counted: Counted::New,
            orphan: OrphanPlace::None,
            synced: Synced::default(),
            no_capability: false,
            moves: Moves::default(),
            cached: None,
            size_on_disk: None,
            times_changed: false,
            times_kept: false,
            held_behind: HeldBehind::default(),
        }
    }

    /// The kind of file. An inode that was checked has one.
    pub(crate) fn file_kind(&self) -> FileKind {
        self.disk.kind().unwrap_or(FileKind::Regular)
    }

    /// The content changed at `now`: so say its times, unless somebody else keeps them. Of a file that only grows
    /// nobody does: who writes to it past their own cache asks for the times here.
    pub(crate) fn content_changed(&mut self, now: Timestamp) {
        if !self.times_kept || self.flags.contains(InodeFlags::APPEND) {
            (self.mtime, self.ctime) = (now, now);
        }
    }

    /// Sets the size, as every reader sees it. The size on disk follows at once, or once all data that is dirty or
    /// on its way is there.
    pub(crate) fn resize(&mut self, size: u64) {
        self.disk.size = size;
        let Some(cached) = &self.cached else { return };
        cached.pages.set_len(size);
        self.size_on_disk =
            self.size_on_disk.filter(|on_disk| *on_disk < size && cached.pages.is_dirty());
    }

    /// Whether the block at `at` is promised to dirty data, and for how many blocks, at most `limit`, the answer
    /// is the same.
    pub(crate) fn promised_run(&self, at: u32, limit: u32) -> (bool, u32) {
        let Some(cached) = &self.cached else { return (false, limit) };
        let delayed = cached.delayed.lock();
        match delayed.run_at(at, limit) {
            0 => (false, delayed.gap_at(at, limit)),
            len => (true, len),
        }
    }

    /// The bytes that may hold attributes, magic included; empty without room for any.
    pub(crate) fn xattr_tail(&self, volume: &Volume) -> &[u8] {
        self.raw.get(self.disk.xattr_area(volume.inode_format())).unwrap_or_default()
    }

    /// The same bytes, for change.
    pub(crate) fn xattr_tail_mut(&mut self, volume: &Volume) -> &mut [u8] {
        let area = self.disk.xattr_area(volume.inode_format());
        self.raw.get_mut(area).unwrap_or_default()
    }

    /// The seed of everything that belongs to this inode; `None` without `metadata_csum`.
    pub(crate) fn seed(&self, volume: &Volume, ino: Ino) -> Option<u32> {
        volume.checksums().inode_seed(ino, self.disk.generation)
    }

    /// Writes the inode into its table block under `handle`, checksum included, and what changed in
    /// its use of space into the quota files.
    ///
    /// Spends one credit and [`Volume::quota_credits`]. Errors: `Device`, `Aborted`; `FileTooLarge` when the sectors do not fit.
    /// Locks: the caller holds the inode's; takes `Leaf`, then `Quota`.
    pub(crate) fn store(&mut self, volume: &Volume, ino: Ino, handle: &Handle<'_>) -> Result<()> {
        self.store_in(volume, ino, handle, &volume.inode_slot(ino)?)
    }

    /// As [`Body::store`], into the slot that [`Volume::inode_slot`] gave before.
    pub(crate) fn store_in(
        &mut self,
        volume: &Volume,
        ino: Ino,
        handle: &Handle<'_>,
        slot: &Slot,
    ) -> Result<()> {
        let block = slot.0.write(handle)?;
        // Who is on the list has its successor there, and others may change it.
        let list = (self.orphan == OrphanPlace::List).then(|| volume.orphans().list());
        if let Some(list) = &list {
            self.disk.dtime = list.after(ino);
        }
        let size = self.disk.size;
        self.disk.size = self.size_on_disk.unwrap_or(size);
        let written = self.disk.write(&mut self.raw, ino, volume.inode_format());
        self.disk.size = size;
        written?;
        self.times_changed = false;
        let held = {
            let mut bytes = block.bytes_mut();
            let slot = &mut bytes[slot.1.clone()];
            let held = match volume.quota() {
                Some(_) => Holding::of_slot(slot, ino, volume.inode_format()),
                None => None,
            };
            self.synced.note(handle.step(), slot, &self.raw);
            volume.note_stored(handle, ino, self, slot, &self.raw);
            slot.copy_from_slice(&self.raw);
            held
        };
        drop(list);
        volume.quota_stored(handle, ino, self, held)
    }
}
