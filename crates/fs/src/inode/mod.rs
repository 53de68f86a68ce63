//! Inodes in use: one object per inode number, however many threads hold it.
//!
//! ```text
//!   InodeTable   64 shards: number → Arc<Inode>       nobody holds it any more: may leave
//!                                     │
//!                  Inode ─ body (Rank::Inode) ─ Body ┬ disk   the fields, in meaning
//!                                                    └ raw    the whole slot, for attributes
//!
//!   table block ──check──► Body ──change under a handle──► store ──► table block
//! ```
//!
//! An inode is checked when it is read from its table; who asks decides which numbers are allowed
//! ([`Ask`]). What is stored goes to the table block at once: an inode that left the table loses
//! nothing.

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
    /// What it holds. Guards the inode's fields, its mapping and its names.
    pub(crate) body: RwLock<Body>,
    /// Somebody asked for it since the table was last swept.
    recent: AtomicBool,
    /// It holds the value of an attribute; that never changes.
    is_value: bool,
    /// It had no links when it was read: an orphan, which gets no name again.
    was_unlinked: bool,
    /// Who works with it by number or name right now, see [`Held`](crate::names::hold::Held).
    pub(crate) users: AtomicU32,
    /// Its last name is gone: the last user releases it.
    pub(crate) unlinked: AtomicBool,
    /// It was made without a name and may get one.
    pub(crate) nameable: AtomicBool,
    /// Its folios, once there are any. Set under the inode's lock, as `Body::cached`.
    pub(crate) cached: OnceLock<Arc<Cached>>,
    /// Until when, in nanoseconds since 1970, writes over its folios leave nothing to do in the inode; 0: they
    /// all do. Set under the inode's lock.
    pub(crate) quiet_until: AtomicU64,
    /// Its flags ask for changes that are durable when a call returns: `SYNC`, for a directory also `DIRSYNC`. Set under
    /// the inode's lock.
    pub(crate) syncs: AtomicBool,
    /// It was cut to nothing: what is written then goes to the device when it is closed.
    pub(crate) write_back_at_close: AtomicBool,
    /// How often an opening of it ended while it had dirty bytes.
    pub(crate) closed_dirty: AtomicU64,
    /// The value of `closed_dirty` that a write-back of all its dirty bytes followed last.
    pub(crate) closed_written: AtomicU64,
    /// Held by a call that writes where folios alone do not do, or that changes size or map.
    pub(crate) writing: Mutex<()>,
    /// Held while dirty data is on its way to the device: its blocks keep their place.
    pub(crate) writing_back: Mutex<()>,
    /// How many wait for that: whoever holds it comes to an end.
    pub(crate) write_back_wanted: AtomicU32,
    /// Direct transfers under way: their blocks keep their place.
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

    /// Waits until no dirty data of the file is on its way to the device.
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

    /// Whether an opening ended with bytes that may be dirty still.
    pub(crate) fn was_closed_dirty(&self) -> bool {
        self.closed_dirty.load(Ordering::Acquire) != self.closed_written.load(Ordering::Acquire)
    }

    /// Its flags are those of `body`.
    pub(crate) fn note_sync(&self, body: &Body) {
        let syncs = body.asks_for_sync();
        if self.syncs.load(Ordering::Relaxed) != syncs {
            self.syncs.store(syncs, Ordering::Relaxed);
        }
    }

    /// The next write over its folios comes to the inode: what it may do there, or the time it leaves, can be
    /// another one.
    pub(crate) fn be_loud(&self) {
        if self.quiet_until.load(Ordering::Relaxed) != 0 {
            self.quiet_until.store(0, Ordering::Release);
        }
    }

    /// What is known of it now. Whoever changes it afterwards leaves another time, as far as the clock tells them
    /// apart.
    pub(crate) fn look(&self, volume: &Volume) -> Metadata {
        let body = self.read();
        self.be_loud();
        Metadata::of(volume, self.ino, &body)
    }

    /// Whether it has data that is not on the device yet.
    pub(crate) fn is_dirty(&self) -> bool {
        self.cached.get().is_some_and(|cached| cached.pages.is_dirty())
    }
}

/// A block of an inode table, and the bytes of one inode in it.
pub(crate) type Slot = (MetaBlock, Range<usize>);

/// Who asks for an inode, and so which numbers and states are right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// A directory entry or a caller: the root or an ordinary number, in use.
    Name,
    /// The engine itself: any number, journal and quota files included; links may be zero.
    Internal,
    /// Orphan processing: as `Name`, but links may be zero.
    Orphan,
}

impl Volume {
    /// The inode that a name or a caller asks for.
    ///
    /// Errors: `InodeNumber` for a number out of range or hidden, `InodeUnlinked` for one without
    /// links, `RootDirectory`, and every check of `Inode::check`. Locks: takes `Leaf`.
    pub(crate) fn inode(&self, ino: Ino) -> Result<Arc<Inode>> {
        self.inode_as(ino, Ask::Name)
    }

    /// Any inode, for the engine's own use: the journal, quota files, the orphan file.
    pub(crate) fn inode_internal(&self, ino: Ino) -> Result<Arc<Inode>> {
        self.inode_as(ino, Ask::Internal)
    }

    /// The inode `ino` as `ask` wants it.
    pub(crate) fn inode_as(&self, ino: Ino, ask: Ask) -> Result<Arc<Inode>> {
        if ask != Ask::Internal && self.is_hidden(ino) {
            return Err(Site::of_ino(ino).corrupt(What::InodeNumber));
        }
        let inode = match self.inodes().find(ino) {
            Some(inode) => inode,
            None => self.load_inode(ino)?,
        };
        // Nothing here waits for the inode's lock: the caller may hold others.
        match ask {
            Ask::Name | Ask::Orphan if inode.is_value => {
                Err(Site::of_ino(ino).corrupt(What::InodeFlags))
            }
            Ask::Name if inode.was_unlinked => Err(Site::of_ino(ino).corrupt(What::InodeUnlinked)),
            _ => Ok(inode),
        }
    }

    /// The inode `ino` that an attribute names as its value's, read past the table: who holds an
    /// inode's lock waits for no other, whatever a damaged volume names.
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

    /// What is told of an inode number that a caller kept: while others change the volume, one
    /// without links is no damage.
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

    /// The inode that a listing named, for one look.
    ///
    /// Errors: `NotFound` where its name went away since; those of [`Volume::peek_inode`].
    pub(crate) fn peek_listed(&self, ino: Ino) -> Result<Body> {
        self.peek_inode(ino, Ask::Name).map_err(|error| self.stale(error))
    }

    /// The inode's fields for one look, without keeping it in the table: for scans of many.
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

    /// Whether a number is the engine's own: reserved ones but the root, quota and orphan files.
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

    /// The table block of `ino` and the bytes of its slot there.
    ///
    /// Errors: `InodeNumber` out of range; what the descriptor's check gives; `Device`.
    pub(crate) fn inode_slot(&self, ino: Ino) -> Result<Slot> {
        let place = self.geometry().inode_place(ino);
        let place = place.ok_or_else(|| Site::of_ino(ino).corrupt(What::InodeNumber))?;
        let table = self.space().inode_table(place.group)?;
        let block = self.inode_block(table, &place)?;
        Ok((block, place.offset..place.offset + self.geometry().inode_size()))
    }

    /// The block of a group's inode table, which begins at `table`, where an inode is.
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
                // Never used, or lost: another copy says.
                true if checksums.seed().is_some() && nr < used() => Worth::Empty,
                true => Worth::Right,
                false => checksum_is_right(slot, ino, checksums).into(),
            }
        };
        self.journal().cache().take_best(&block, Role::Inodes.kind(), count as usize, &worth);
        Ok(block)
    }

    /// Reads and checks the inode in its table, past the table of inodes in use.
    pub(crate) fn read_inode(&self, ino: Ino) -> Result<Body> {
        let at = Site::of_ino(ino);
        let place =
            self.geometry().inode_place(ino).ok_or_else(|| at.corrupt(What::InodeNumber))?;
        let desc = self.space().descriptor(place.group)?;
        // Slots that were never used hold garbage; but a volume without a journal that was not
        // unmounted has descriptors older than its inodes, and so has every copy of them: a reader
        // believes the inodes.
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
