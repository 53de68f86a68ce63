//! Inodes in use: one object per inode number, however many threads hold it.
//!
//! ```text
//!   InodeTable   64 shards: number → Arc<Inode>       without a holder: may leave the table
//!                                     │
//!                  Inode ─ body (Rank::Inode) ─ Body ┬ disk   the fields, decoded
//!                                                    └ raw    the whole slot, for attributes
//!
//!   table block ──check──► Body ──change under a handle──► store ──► table block
//! ```
//!
//! An inode is checked when it is read from its table. The kind of caller ([`Ask`]) decides which
//! numbers are allowed. `store` writes to the table block at once, so an inode that leaves the
//! table loses nothing.

mod body;
mod table;

use crate::cached::Cached;
use crate::context::role::Role;
use crate::dir::moves::Moves;
use crate::direct::in_flight::Directs;
use crate::file::synced::Synced;
use crate::metadata::Metadata;
use crate::orphan::OrphanPlace;
use crate::space::held_runs::HeldBehind;
use crate::volume::Volume;
use extant_base::lock::{Mutex, MutexGuard, Rank, ReadGuard, RwLock, WriteGuard};
use extant_base::{BlockNr, Error, Ino, Result, Site, What};
use extant_journal::{MetaBlock, Worth};
use extant_ondisk::features::{Compat, RoCompat};
use extant_ondisk::geometry::InodePlace;
use extant_ondisk::group_desc::GroupDesc;
use extant_ondisk::inode::{
    FileKind, Inode as DiskInode, InodeFlags, checksum_is_right, is_zero_slot,
};
use extant_ondisk::superblock::VolumeState;
use std::cell::OnceCell;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

pub(crate) use body::{Body, Counted};
pub(crate) use table::InodeTable;

/// One inode in use.
pub(crate) struct Inode {
    /// Its number.
    pub(crate) ino: Ino,
    /// Its content in memory. The lock guards the inode's fields, its map and its names.
    pub(crate) body: RwLock<Body>,
    /// It was looked up since the table was last swept.
    recent: AtomicBool,
    /// It holds the value of an attribute. This never changes.
    is_value: bool,
    /// It had no links when it was read: an orphan, which never gets a name again.
    was_unlinked: bool,
    /// The number of users that work with it by number or name now, see
    /// [`Held`](crate::names::hold::Held).
    pub(crate) users: AtomicU32,
    /// Its last name was removed: the last user releases it.
    pub(crate) unlinked: AtomicBool,
    /// It was made without a name and may get one.
    pub(crate) nameable: AtomicBool,
    /// Its folios, once there are any. Set under the inode's lock, like `Body::cached`.
    pub(crate) cached: OnceLock<Arc<Cached>>,
    /// Until this time, in nanoseconds since 1970, fast overwrites are enabled: writes over its
    /// folios need not change the inode. 0: disabled. Set under the inode's lock.
    pub(crate) quiet_until: AtomicU64,
    /// Its flags demand that changes are durable when a call returns: `SYNC`, for a directory also
    /// `DIRSYNC`. Set under the inode's lock.
    pub(crate) syncs: AtomicBool,
    /// It was truncated to size 0: data written afterwards goes to the device when the file is
    /// closed.
    pub(crate) write_back_at_close: AtomicBool,
    /// How often an opening was closed while the file had dirty bytes.
    pub(crate) closed_dirty: AtomicU64,
    /// The value of `closed_dirty` before the last write-back of all its dirty bytes.
    pub(crate) closed_written: AtomicU64,
    /// Held by a call that changes size or map, or that writes more than folios.
    pub(crate) writing: Mutex<()>,
    /// Held during write-back of dirty data. While it is held, the data keeps its blocks.
    pub(crate) writing_back: Mutex<()>,
    /// The number of threads that wait for `writing_back`. The holder then ends its work soon.
    pub(crate) write_back_wanted: AtomicU32,
    /// Direct transfers in flight. Their blocks stay in place.
    pub(crate) directs: Directs,
}

impl Inode {
    pub(crate) fn new(ino: Ino, body: Body) -> Inode {
        Inode {
            ino,
            recent: AtomicBool::new(true),
            is_value: body.disk.flags.contains(InodeFlags::EA_INODE),
            was_unlinked: false,
            users: AtomicU32::new(0),
            unlinked: AtomicBool::new(false),
            nameable: AtomicBool::new(false),
            cached: body.cached.clone().map_or_else(OnceLock::new, OnceLock::from),
            quiet_until: AtomicU64::new(0),
            syncs: AtomicBool::new(body.asks_for_sync()),
            write_back_at_close: AtomicBool::new(false),
            closed_dirty: AtomicU64::new(0),
            closed_written: AtomicU64::new(0),
            writing: Mutex::new(Rank::Write, ()),
            writing_back: Mutex::new(Rank::WriteBack, ()),
            write_back_wanted: AtomicU32::new(0),
            directs: Directs::new(),
            body: RwLock::new(Rank::Inode, body),
        }
    }

    /// Waits until no dirty data of the file is in flight to the device. No write-back starts while
    /// the guard is held.
    pub(crate) fn hold_write_back(&self) -> MutexGuard<'_, ()> {
        self.write_back_wanted.fetch_add(1, Ordering::Relaxed);
        let guard = self.writing_back.lock();
        self.write_back_wanted.fetch_sub(1, Ordering::Relaxed);
        guard
    }

    fn as_read(ino: Ino, body: Body) -> Inode {
        let was_unlinked = body.disk.links == 0;
        Inode { was_unlinked, ..Inode::new(ino, body) }
    }

    /// Shared access to the fields. Locks: takes `Inode`.
    #[track_caller]
    pub(crate) fn read(&self) -> ReadGuard<'_, Body> {
        self.body.read()
    }

    /// Exclusive access to the fields. Locks: takes `Inode`.
    #[track_caller]
    pub(crate) fn write(&self) -> WriteGuard<'_, Body> {
        let mut body = self.body.write();
        self.be_loud();
        self.note_sync(&body);
        if body.cached.is_none() {
            body.cached = self.cached.get().cloned();
        }
        body
    }

    /// Whether an opening was closed with bytes that may still be dirty.
    pub(crate) fn was_closed_dirty(&self) -> bool {
        self.closed_dirty.load(Ordering::Acquire) != self.closed_written.load(Ordering::Acquire)
    }

    /// Updates `syncs` from the flags of `body`.
    pub(crate) fn note_sync(&self, body: &Body) {
        let syncs = body.asks_for_sync();
        if self.syncs.load(Ordering::Relaxed) != syncs {
            self.syncs.store(syncs, Ordering::Relaxed);
        }
    }

    /// Disables fast overwrites: the next write over its folios takes the inode's lock. The write's
    /// permission, or the time that it sets, may have changed.
    pub(crate) fn be_loud(&self) {
        if self.quiet_until.load(Ordering::Relaxed) != 0 {
            self.quiet_until.store(0, Ordering::Release);
        }
    }

    /// Its metadata now. A later change sets another time, if the clock's resolution allows.
    pub(crate) fn look(&self, volume: &Volume) -> Metadata {
        let body = self.read();
        self.be_loud();
        Metadata::of(volume, self.ino, &body)
    }

    /// Whether it has data that is not yet on the device.
    pub(crate) fn is_dirty(&self) -> bool {
        self.cached.get().is_some_and(|cached| cached.pages.is_dirty())
    }
}

/// A block of an inode table, and the bytes of one inode in it.
pub(crate) type Slot = (MetaBlock, Range<usize>);

/// The kind of caller that looks up an inode. It decides which numbers and states are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// A directory entry or a caller: the root or an ordinary number, in use.
    Name,
    /// The engine itself: any number, those of journal and quota files included; links may be zero.
    Internal,
    /// Orphan processing: as `Name`, but links may be zero.
    Orphan,
}

impl Volume {
    /// The inode for a name or for a caller's number.
    ///
    /// Errors: `InodeNumber` for a number that is out of range or hidden, `InodeUnlinked` for an
    /// inode without links, `RootDirectory`, and those of `Inode::check`. Locks: takes `Leaf`.
    pub(crate) fn inode(&self, ino: Ino) -> Result<Arc<Inode>> {
        self.inode_as(ino, Ask::Name)
    }

    /// Any inode, for the engine's own use: the journal, quota files, the orphan file.
    pub(crate) fn inode_internal(&self, ino: Ino) -> Result<Arc<Inode>> {
        self.inode_as(ino, Ask::Internal)
    }

    /// The inode `ino`, with the checks that `ask` demands.
    pub(crate) fn inode_as(&self, ino: Ino, ask: Ask) -> Result<Arc<Inode>> {
        if ask != Ask::Internal && self.is_hidden(ino) {
            return Err(Site::of_ino(ino).corrupt(What::InodeNumber));
        }
        let inode = match self.inodes().find(ino) {
            Some(inode) => inode,
            None => self.load_inode(ino)?,
        };
        // This never waits for the inode's lock, since the caller may hold the locks of other
        // inodes.
        match ask {
            Ask::Name | Ask::Orphan if inode.is_value => {
                Err(Site::of_ino(ino).corrupt(What::InodeFlags))
            }
            Ask::Name if inode.was_unlinked => Err(Site::of_ino(ino).corrupt(What::InodeUnlinked)),
            _ => Ok(inode),
        }
    }

    /// The value inode `ino` that an attribute names, read without the table: a thread that holds
    /// an inode's lock never waits for that of another inode, whatever a damaged volume names.
    ///
    /// Errors: `XattrInode` for an inode that holds no value.
    pub(crate) fn value_inode(&self, ino: Ino) -> Result<Body> {
        let wrong = || Site::of_ino(ino).corrupt(What::XattrInode);
        if self.is_hidden(ino) {
            return Err(wrong());
        }
        let body = self.read_inode(ino)?;
        match body.disk.flags.contains(InodeFlags::EA_INODE) {
            true => Ok(body),
            false => Err(wrong()),
        }
    }

    /// The error for an inode number that a caller kept. While other threads change the volume, an
    /// inode without links is no damage: then it is `NotFound`.
    pub(crate) fn stale(&self, error: Error) -> Error {
        match error {
            Error::Corrupt { what: What::InodeUnlinked, .. }
                if self.context().is_open_to_write() =>
            {
                Error::NotFound
            }
            error => error,
        }
    }

    /// The fields of the inode that a listing named, for one use.
    ///
    /// Errors: `NotFound` if the name was removed since; those of [`Volume::peek_inode`].
    pub(crate) fn peek_listed(&self, ino: Ino) -> Result<Body> {
        self.peek_inode(ino, Ask::Name).map_err(|error| self.stale(error))
    }

    /// The inode's fields for one use. Does not keep the inode in the table: for scans of many
    /// inodes.
    ///
    /// Checks as [`Volume::inode_as`] does. Locks: takes `Inode` (shared): the caller holds none.
    pub(crate) fn peek_inode(&self, ino: Ino, ask: Ask) -> Result<Body> {
        if let Some(inode) = self.inodes().find(ino) {
            return Ok(inode.body.read().clone());
        }
        if ask != Ask::Internal && self.is_hidden(ino) {
            return Err(Site::of_ino(ino).corrupt(What::InodeNumber));
        }
        let body = self.read_inode(ino)?;
        if ask != Ask::Internal && body.disk.flags.contains(InodeFlags::EA_INODE) {
            return Err(Site::of_ino(ino).corrupt(What::InodeFlags));
        }
        if ask == Ask::Name && body.disk.links == 0 {
            return Err(Site::of_ino(ino).corrupt(What::InodeUnlinked));
        }
        Ok(body)
    }

    /// Whether a number belongs to the engine: reserved numbers except the root, quota and orphan
    /// files.
    pub(crate) fn is_hidden(&self, ino: Ino) -> bool {
        let number = ino.get();
        if number < self.at_open().first_ino {
            return ino != Ino::ROOT;
        }
        let quota = self.has_ro_compat(RoCompat::QUOTA)
            && (number == self.at_open().prj_quota_inum
                || number == self.at_open().usr_quota_inum
                || number == self.at_open().grp_quota_inum);
        let orphans =
            self.has_compat(Compat::ORPHAN_FILE) && number == self.at_open().orphan_file_inum;
        quota || orphans
    }

    /// The table block of `ino` and the range of its slot there.
    ///
    /// Errors: `InodeNumber` for a number out of range; those of the descriptor's check; `Device`.
    pub(crate) fn inode_slot(&self, ino: Ino) -> Result<Slot> {
        let place = self.geometry().inode_place(ino);
        let place = place.ok_or_else(|| Site::of_ino(ino).corrupt(What::InodeNumber))?;
        let table = self.space().inode_table(place.group)?;
        let block = self.inode_block(table, &place)?;
        Ok((block, place.offset..place.offset + self.geometry().inode_size()))
    }

    /// The block with an inode, of a group's inode table that begins at `table`.
    fn inode_block(&self, table: BlockNr, place: &InodePlace) -> Result<MetaBlock> {
        let block = self.journal().cache().get(BlockNr(table.0 + u64::from(place.table_block)))?;
        let (size, count) = (self.geometry().inode_size(), self.geometry().inodes_per_block());
        let checksums = self.inode_format().checksums();
        let used = OnceCell::new();
        let slots = |desc: GroupDesc| desc.used_slots(self.geometry(), self.checksums());
        let used =
            || *used.get_or_init(|| self.space().descriptor(place.group).map_or(u32::MAX, slots));
        let worth = |bytes: &[u8], n: usize| {
            let slot = &bytes[n * size..][..size];
            let nr = place.table_block * count + n as u32;
            let Some(ino) = self.geometry().ino_of_slot(place.group, nr) else {
                return Worth::Right;
            };
            match is_zero_slot(slot) {
                // Never used, or lost: another copy of the block decides.
                true if checksums.seed().is_some() && nr < used() => Worth::Empty,
                true => Worth::Right,
                false => checksum_is_right(slot, ino, checksums).into(),
            }
        };
        self.journal().cache().take_best(&block, Role::Inodes.kind(), count as usize, &worth);
        Ok(block)
    }

    /// Reads and checks the inode in its table block, without the table of inodes in use.
    pub(crate) fn read_inode(&self, ino: Ino) -> Result<Body> {
        let at = Site::of_ino(ino);
        let place =
            self.geometry().inode_place(ino).ok_or_else(|| at.corrupt(What::InodeNumber))?;
        let desc = self.space().descriptor(place.group)?;
        // Slots that were never used hold garbage. But a volume without a journal that was not
        // unmounted has descriptors that are older than its inodes, and so are all copies of the
        // descriptors. A reader of such a volume trusts the inodes.
        let is_open = !self.has_compat(Compat::HAS_JOURNAL)
            && !self.at_open().state.contains(VolumeState::VALID);
        let stale =
            self.context().is_opened_read_only() && (is_open || self.space().reads_backup());
        if !stale && place.slot >= desc.used_slots(self.geometry(), self.checksums()) {
            return Err(at.group(place.group).corrupt(What::InodeNotMarked));
        }
        self.space().prefetch_inodes(place.group, place.slot, &desc);
        let block = self.inode_block(desc.inode_table, &place)?;
        let raw: Box<[u8]> = {
            let bytes = block.read();
            Box::from(&bytes[place.offset..place.offset + self.geometry().inode_size()])
        };
        let disk = DiskInode::check(&raw, ino, self.inode_format())?;
        if let Some(acl) = disk.file_acl
            && ino.get() >= self.at_open().first_ino
            && self.space().is_system(acl, 1)
        {
            return Err(at.block(acl).corrupt(What::InodeFileAcl));
        }
        let synced = Synced::default();
        Ok(Body {
            disk,
            raw,
            counted: Counted::Kept,
            orphan: OrphanPlace::None,
            synced,
            no_capability: false,
            moves: Moves::default(),
            cached: None,
            size_on_disk: None,
            times_changed: false,
            times_kept: false,
            held_behind: HeldBehind::default(),
        })
    }

    #[cold]
    fn load_inode(&self, ino: Ino) -> Result<Arc<Inode>> {
        loop {
            let sweeps = self.inodes().sweeps(ino);
            let mut body = self.read_inode(ino)?;
            if ino == Ino::ROOT && body.file_kind() != FileKind::Directory {
                return Err(Site::of_ino(ino).corrupt(What::RootDirectory));
            }
            body.cached = self.cached_before(ino);
            if let Some(inode) = self.inodes().insert_read(ino, body, sweeps) {
                return Ok(inode);
            }
        }
    }
}
