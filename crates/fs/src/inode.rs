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

use crate::alloc::held_runs::HeldBehind;
use crate::cached::Cached;
use crate::dir::moves::Moves;
use crate::direct::in_flight::Directs;
use crate::file::synced::Synced;
use crate::metadata::Metadata;
use crate::orphan::OrphanPlace;
use crate::quota::Holding;
use crate::verified::Role;
use crate::volume::Volume;
use extant_base::lock::{Mutex, MutexGuard, Rank, ReadGuard, RwLock, WriteGuard};
use extant_base::{BlockNr, Error, Ino, Result, Site, What};
use extant_journal::{Handle, MetaBlock, Worth};
use extant_ondisk::features::{Compat, RoCompat};
use extant_ondisk::group_desc::GroupDesc;
use extant_ondisk::inode::{
    FileKind, Inode as DiskInode, InodeFlags, checksum_is_right, is_zero_slot,
};
use extant_ondisk::layout::InodePlace;
use extant_ondisk::superblock::VolumeState;
use extant_ondisk::time::Timestamp;
use hashbrown::HashMap;
use std::cell::OnceCell;
use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

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
    /// It was cut to nothing: what is written then goes to the device when it is closed.
    pub(crate) write_back_at_close: AtomicBool,
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
            write_back_at_close: AtomicBool::new(false),
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
        if body.cached.is_none() {
            body.cached = self.cached.get().cloned();
        }
        body
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
    /// The body of an inode that is being made: no attributes.
    pub(crate) fn fresh(volume: &Volume, disk: DiskInode) -> Body {
        let raw = vec![0; volume.layout.inode_size()].into_boxed_slice();
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
        self.raw.get(self.disk.xattr_area(&volume.inode_format)).unwrap_or_default()
    }

    /// The same bytes, for change.
    pub(crate) fn xattr_tail_mut(&mut self, volume: &Volume) -> &mut [u8] {
        let area = self.disk.xattr_area(&volume.inode_format);
        self.raw.get_mut(area).unwrap_or_default()
    }

    /// The seed of everything that belongs to this inode; `None` without `metadata_csum`.
    pub(crate) fn seed(&self, volume: &Volume, ino: Ino) -> Option<u32> {
        volume.csum.inode_seed(ino, self.disk.generation)
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
        let list = (self.orphan == OrphanPlace::List).then(|| volume.orphans.list());
        if let Some(list) = &list {
            self.disk.dtime = list.after(ino);
        }
        let size = self.disk.size;
        self.disk.size = self.size_on_disk.unwrap_or(size);
        let written = self.disk.write(&mut self.raw, ino, &volume.inode_format);
        self.disk.size = size;
        written?;
        self.times_changed = false;
        let held = {
            let mut bytes = block.bytes_mut();
            let slot = &mut bytes[slot.1.clone()];
            let held = match &volume.quota {
                Some(_) => Holding::of_slot(slot, ino, &volume.inode_format),
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
        let inode = match self.inodes.find(ino) {
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
            Error::Corrupt { what: What::InodeUnlinked, .. } if self.mode.is_open_to_write() => {
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
        if let Some(inode) = self.inodes.find(ino) {
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
        if number < self.at_open.first_ino {
            return ino != Ino::ROOT;
        }
        let quota = self.has_ro_compat(RoCompat::QUOTA)
            && (number == self.at_open.prj_quota_inum
                || number == self.at_open.usr_quota_inum
                || number == self.at_open.grp_quota_inum);
        let orphans =
            self.has_compat(Compat::ORPHAN_FILE) && number == self.at_open.orphan_file_inum;
        quota || orphans
    }

    /// The table block of `ino` and the bytes of its slot there.
    ///
    /// Errors: `InodeNumber` out of range; what the descriptor's check gives; `Device`.
    pub(crate) fn inode_slot(&self, ino: Ino) -> Result<Slot> {
        let place = self.layout.inode_place(ino);
        let place = place.ok_or_else(|| Site::of_ino(ino).corrupt(What::InodeNumber))?;
        let table = self.inode_table(place.group)?;
        let block = self.inode_block(table, &place)?;
        Ok((block, place.offset..place.offset + self.layout.inode_size()))
    }

    /// The block of a group's inode table, which begins at `table`, where an inode is.
    fn inode_block(&self, table: BlockNr, place: &InodePlace) -> Result<MetaBlock> {
        let block = self.journal.cache().get(BlockNr(table.0 + u64::from(place.table_block)))?;
        let (size, count) = (self.layout.inode_size(), self.layout.inodes_per_block());
        let checksums = self.inode_format.checksums();
        let used = OnceCell::new();
        let slots = |desc: GroupDesc| desc.used_slots(&self.layout, &self.csum);
        let used = || *used.get_or_init(|| self.descriptor(place.group).map_or(u32::MAX, slots));
        let worth = |bytes: &[u8], n: usize| {
            let slot = &bytes[n * size..][..size];
            let nr = place.table_block * count + n as u32;
            let Some(ino) = self.layout.ino_of_slot(place.group, nr) else { return Worth::Right };
            match is_zero_slot(slot) {
                // Never used, or lost: another copy says.
                true if checksums.seed().is_some() && nr < used() => Worth::Empty,
                true => Worth::Right,
                false => checksum_is_right(slot, ino, checksums).into(),
            }
        };
        self.journal.cache().take_best(&block, Role::Inodes.kind(), count as usize, &worth);
        Ok(block)
    }

    /// Reads and checks the inode in its table, past the table of inodes in use.
    pub(crate) fn read_inode(&self, ino: Ino) -> Result<Body> {
        let at = Site::of_ino(ino);
        let place = self.layout.inode_place(ino).ok_or_else(|| at.corrupt(What::InodeNumber))?;
        let desc = self.descriptor(place.group)?;
        // Slots that were never used hold garbage; but a volume without a journal that was not
        // unmounted has descriptors older than its inodes, and so has every copy of them: a reader
        // believes the inodes.
        let is_open = !self.has_compat(Compat::HAS_JOURNAL)
            && !self.at_open.state.contains(VolumeState::VALID);
        let stale = self.read_only && (is_open || self.descriptors_from.is_some());
        if !stale && place.slot >= desc.used_slots(&self.layout, &self.csum) {
            return Err(at.group(place.group).corrupt(What::InodeNotMarked));
        }
        self.prefetch_inodes(place.group, place.slot, &desc);
        let block = self.inode_block(desc.inode_table, &place)?;
        let raw: Box<[u8]> = {
            let bytes = block.read();
            Box::from(&bytes[place.offset..place.offset + self.layout.inode_size()])
        };
        let disk = DiskInode::check(&raw, ino, &self.inode_format)?;
        if let Some(acl) = disk.file_acl
            && ino.get() >= self.at_open.first_ino
            && self.is_system(acl, 1)
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
            let sweeps = self.inodes.sweeps(ino);
            let mut body = self.read_inode(ino)?;
            if ino == Ino::ROOT && body.file_kind() != FileKind::Directory {
                return Err(Site::of_ino(ino).corrupt(What::RootDirectory));
            }
            body.cached = self.cached_before(ino);
            if let Some(inode) = self.inodes.insert_read(ino, body, sweeps) {
                return Ok(inode);
            }
        }
    }
}

/// Alone on its cache lines: neighbours are locked by other threads.
#[derive(Default)]
#[repr(align(128))]
struct Shard {
    inodes: HashMap<u32, Arc<Inode>>,
    /// How often inodes left this shard.
    sweeps: u64,
}

/// The inodes in use.
pub(crate) struct InodeTable {
    shards: Box<[Mutex<Shard>]>,
    /// Inodes a shard keeps before it is swept.
    limit: usize,
}

/// 2^6: the upper bits of a hash choose.
const SHARDS: usize = 64;

impl InodeTable {
    /// A table that keeps about `limit` inodes nobody holds.
    pub(crate) fn new(limit: usize) -> InodeTable {
        let shards = (0..SHARDS).map(|_| Mutex::new(Rank::Leaf, Shard::default())).collect();
        InodeTable { shards, limit: (limit / SHARDS).max(4) }
    }

    fn shard(&self, ino: Ino) -> &Mutex<Shard> {
        // The first inodes of all groups would meet in one shard if the number chose it.
        &self.shards[(ino.get().wrapping_mul(0x9E37_79B9) >> 26) as usize]
    }

    /// The inode, if it is in use.
    pub(crate) fn find(&self, ino: Ino) -> Option<Arc<Inode>> {
        let shard = self.shard(ino).lock();
        let inode = shard.inodes.get(&ino.get())?;
        if !inode.recent.load(Ordering::Relaxed) {
            inode.recent.store(true, Ordering::Relaxed);
        }
        Some(Arc::clone(inode))
    }

    fn sweeps(&self, ino: Ino) -> u64 {
        self.shard(ino).lock().sweeps
    }

    /// Puts in an inode that was just read from disk. Whoever was faster wins. `None`: inodes left
    /// the shard since `sweeps` was taken, so what was read may be older than what is on disk now.
    fn insert_read(&self, ino: Ino, body: Body, sweeps: u64) -> Option<Arc<Inode>> {
        let mut shard = self.shard(ino).lock();
        if let Some(inode) = shard.inodes.get(&ino.get()) {
            return Some(Arc::clone(inode));
        }
        if shard.sweeps != sweeps {
            return None;
        }
        let inode = Arc::new(Inode::as_read(ino, body));
        shard.inodes.insert(ino.get(), Arc::clone(&inode));
        self.sweep(&mut shard);
        Some(inode)
    }

    /// Puts in an inode that was just made, in place of whatever bore its number before.
    pub(crate) fn insert_new(&self, ino: Ino, body: Body) -> Arc<Inode> {
        let inode = Arc::new(Inode::new(ino, body));
        self.put(ino, &inode);
        inode
    }

    /// Puts in an inode that is being made, in place of whatever bore its number before. Its maker
    /// has it locked: who finds it by a stale number waits.
    pub(crate) fn put(&self, ino: Ino, inode: &Arc<Inode>) {
        let mut shard = self.shard(ino).lock();
        shard.inodes.insert(ino.get(), Arc::clone(inode));
        self.sweep(&mut shard);
    }

    /// Takes an inode out that was freed: whoever asks next reads it anew.
    pub(crate) fn forget(&self, ino: Ino) {
        let mut shard = self.shard(ino).lock();
        shard.inodes.remove(&ino.get());
        shard.sweeps += 1;
    }

    /// Lets inodes go that nobody holds: first those nobody asked for lately, then all.
    fn sweep(&self, shard: &mut Shard) {
        if shard.inodes.len() <= self.limit {
            return;
        }
        shard.sweeps += 1;
        let held = |inode: &Arc<Inode>| Arc::strong_count(inode) > 1 || inode.is_dirty();
        shard.inodes.retain(|_, inode| held(inode) || inode.recent.swap(false, Ordering::Relaxed));
        if shard.inodes.len() > self.limit {
            shard.inodes.retain(|_, inode| held(inode));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body() -> Body {
        Body {
            disk: DiskInode::default(),
            raw: Box::default(),
            counted: Counted::Kept,
            synced: Synced::default(),
            no_capability: false,
            moves: Moves::default(),
            orphan: OrphanPlace::None,
            cached: None,
            size_on_disk: None,
            times_changed: false,
            times_kept: false,
            held_behind: HeldBehind::default(),
        }
    }

    #[test]
    fn the_table_stays_bounded_and_keeps_what_is_held() {
        let table = InodeTable::new(SHARDS * 8);
        let held = table.insert_new(Ino::ROOT, body());
        for n in 1..5000 {
            let ino = Ino::new(Ino::ROOT.get() + n * SHARDS as u32).unwrap();
            table.insert_new(ino, body());
        }
        assert!(table.shards.iter().all(|shard| shard.lock().inodes.len() <= 10));
        assert!(Arc::ptr_eq(&held, &table.find(Ino::ROOT).unwrap()));
    }

    #[test]
    fn a_body_read_before_a_sweep_is_not_believed() {
        let table = InodeTable::new(64);
        let ino = Ino::new(12).unwrap();
        let sweeps = table.sweeps(ino);
        table.forget(ino);
        assert!(table.insert_read(ino, body(), sweeps).is_none());
        let sweeps = table.sweeps(ino);
        let first = table.insert_read(ino, body(), sweeps).unwrap();
        let second = table.insert_read(ino, body(), sweeps).unwrap();
        assert!(Arc::ptr_eq(&first, &second));
    }
}
