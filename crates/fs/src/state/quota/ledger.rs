//! One quota file in use: the place of each id's entry, and the changes of entries.
//!
//! ```text
//!   id ──► places (64 shards) ── known ──► the entry's 72 bytes in their block, under the handle
//!                │ unknown
//!                └──► tree (exclusive): look it up, or insert a new entry
//! ```
//!
//! The bytes in the cached block are the only copy of the usage. Entries are inserted and removed
//! only with the tree held exclusively. A thread that changes an entry holds the tree shared.

use crate::state::inode::Body;
use crate::state::quota::limits::{self, QuotaLimits, Wanted};
use crate::state::quota::{QuotaFile, QuotaHost, QuotaPolicy};
use extant_base::lock::{Mutex, Rank, RwLock};
use extant_base::{BlockNr, Error, Ino, Result, Site, What};
use extant_journal::{Credits, Handle, Ineligible};
use extant_ondisk::quota::{ENTRY_LEN, QuotaEntry, QuotaInfo, QuotaKind};
use hashbrown::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};

/// Most blocks that inserting a new entry dirties: pointer blocks, leaf, neighbour and header;
/// bitmaps, descriptors and the map of a file that grows.
pub(super) const INSERT_CREDITS: u32 = 24;
/// Most blocks that removing an entry dirties.
const REMOVE_CREDITS: u32 = 12;
const SHARDS: usize = 64;
/// Most places in a shard.
const SHARD_MAX: usize = 1024;
/// Most idle ids in memory.
const IDLE_MAX: usize = 4096;

/// The change of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delta {
    pub(crate) inodes: i64,
    pub(crate) bytes: i64,
}

/// One quota file in use.
pub(crate) struct Ledger {
    kind: QuotaKind,
    ino: Ino,
    policy: QuotaPolicy,
    /// The file, once it was needed.
    tree: RwLock<Option<Tree>>,
    places: Box<[Mutex<HashMap<u32, Place>>]>,
    /// Ids whose entry became idle: close removes it.
    idle: Mutex<HashSet<u32>>,
    /// The file is damaged and no longer used.
    off: AtomicBool,
}

struct Tree {
    info: QuotaInfo,
    body: Body,
}

/// The place of an entry: block, and byte in it.
#[derive(Clone, Copy)]
struct Place {
    block: BlockNr,
    at: usize,
}

impl Ledger {
    pub(super) fn new(kind: QuotaKind, ino: Ino, policy: QuotaPolicy) -> Ledger {
        Ledger {
            kind,
            ino,
            policy,
            tree: RwLock::new(Rank::Quota, None),
            places: (0..SHARDS).map(|_| Mutex::new(Rank::Leaf, HashMap::new())).collect(),
            idle: Mutex::new(Rank::Leaf, HashSet::new()),
            off: AtomicBool::new(false),
        }
    }

    /// Adds `delta` to the usage of `id`.
    ///
    /// Damage of the file, or no space for a new entry, is noted; then the file is no longer used.
    /// Spends 1 credit for an id that has an entry. Errors: `Device`, `Aborted`. Locks: takes
    /// `Quota`, for a new entry `Group`.
    pub(super) fn change(
        &self,
        host: &dyn QuotaHost,
        handle: &Handle<'_>,
        id: u32,
        delta: Delta,
    ) -> Result<()> {
        if self.off.load(Ordering::Relaxed) || delta == Delta::default() {
            return Ok(());
        }
        let changed = self.with_place(host, Some(handle), id, |tree, place| {
            self.add(host, handle, tree, place, id, delta)
        });
        self.stop_on_error(host, changed.map(|_| ()))
    }

    /// Makes sure that `id` has an entry. The caller holds no handle.
    ///
    /// Errors: `NoSpace` when the file must grow and cannot; `Device`, `Aborted`.
    pub(super) fn prepare(&self, host: &dyn QuotaHost, id: u32) -> Result<()> {
        if self.off.load(Ordering::Relaxed) || self.place(id).is_some() {
            return Ok(());
        }
        let handle = host.context().journal().start(Credits::blocks(INSERT_CREDITS))?;
        let there = self.with_place(host, Some(&handle), id, |_, _| Ok(()));
        handle.stop()?;
        match there {
            Err(Error::NoSpace) => Err(Error::NoSpace),
            there => self.stop_on_error(host, there.map(|_| ())),
        }
    }

    /// Checks that `id` may use `wanted` in addition. Errors: `QuotaExceeded`; `Device`.
    pub(super) fn check(&self, host: &dyn QuotaHost, id: u32, wanted: Wanted) -> Result<()> {
        if self.off.load(Ordering::Relaxed) {
            return Ok(());
        }
        let now = host.context().environment().now().sec;
        let verdict = self.with_place(host, None, id, |_, place| {
            Ok(limits::allows(&self.entry(host, place, id)?, wanted, now))
        });
        match verdict {
            Ok(Some(false)) => Err(Error::QuotaExceeded),
            Ok(_) => Ok(()),
            Err(error) => self.stop_on_error(host, Err(error)),
        }
    }

    /// All entries, by id.
    ///
    /// Errors: `QuotaFile`, those of the map, `Device`. Locks: takes `Quota`.
    pub(super) fn entries(&self, host: &dyn QuotaHost) -> Result<Vec<QuotaEntry>> {
        let _unchanged = self.tree.write();
        let mut body = host.read_inode(self.ino)?;
        let mut file = self.file(host, &mut body, None);
        let mut all = Vec::new();
        file.info(self.kind)?.for_each(&mut file, |entry| {
            all.push(entry);
            Ok(())
        })?;
        all.sort_unstable_by_key(|entry| entry.id);
        Ok(all)
    }

    /// Replaces the limits of `id`. A grace period starts or ends with them. The caller holds no
    /// handle.
    ///
    /// Errors: `QuotaFile` if the file is damaged and no longer used; `NoSpace`, `Device`,
    /// `Aborted`.
    pub(super) fn set_limits(
        &self,
        host: &dyn QuotaHost,
        id: u32,
        limits: &QuotaLimits,
    ) -> Result<()> {
        let context = host.context();
        self.prepare(host, id)?;
        if self.off.load(Ordering::Relaxed) {
            return Err(self.wrong());
        }
        let handle = context.journal().start(Credits::blocks(INSERT_CREDITS))?;
        // Fast commits do not record quota files.
        context.require_full_commit(&handle, Ineligible::Superblock);
        let now = context.environment().now().sec;
        let set = self.with_place(host, Some(&handle), id, |tree, place| {
            self.edit(host, &handle, place, id, &mut |entry| {
                limits.apply(entry);
                limits::update_grace(entry, &tree.info, now);
            })
        });
        handle.stop()?;
        set.map(|_| ())
    }

    /// Removes idle entries. The caller holds no handle.
    pub(super) fn sweep(&self, host: &dyn QuotaHost) -> Result<()> {
        let ids = std::mem::take(&mut *self.idle.lock());
        if self.off.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut ids: Vec<u32> = ids.into_iter().collect();
        ids.sort_unstable();
        for id in ids {
            let handle = host.context().journal().start(Credits::blocks(REMOVE_CREDITS))?;
            let removed = self.remove_idle(host, &handle, id);
            handle.stop()?;
            self.stop_on_error(host, removed)?;
        }
        Ok(())
    }

    fn remove_idle(&self, host: &dyn QuotaHost, handle: &Handle<'_>, id: u32) -> Result<()> {
        let mut guard = self.tree.write();
        let Some(place) = self.place(id) else { return Ok(()) };
        if !self.entry(host, place, id)?.is_idle() {
            return Ok(());
        }
        let Some(tree) = guard.as_mut() else { return Ok(()) };
        self.shard(id).lock().remove(&id);
        let mut file = self.file(host, &mut tree.body, Some(handle));
        let removed = tree.info.remove(&mut file, id);
        if removed.is_err() {
            *guard = None;
        }
        removed.map(|_| ())
    }

    /// Notes damage of the file, and stops using the file.
    fn stop_on_error(&self, host: &dyn QuotaHost, done: Result<()>) -> Result<()> {
        let error = match done {
            Err(error @ Error::Corrupt { .. }) => error,
            // The usage that could not be recorded is missing from now on.
            Err(Error::NoSpace | Error::FileTooLarge) => {
                Site::of_ino(self.ino).corrupt(What::QuotaUsage)
            }
            done => return done,
        };
        self.off.store(true, Ordering::Relaxed);
        host.context().note_error(&error);
        Ok(())
    }

    /// Runs `with` on the place of `id`'s entry. Without a handle no entry is inserted: `None` for
    /// an id that has none.
    fn with_place<T>(
        &self,
        host: &dyn QuotaHost,
        handle: Option<&Handle<'_>>,
        id: u32,
        with: impl FnOnce(&Tree, Place) -> Result<T>,
    ) -> Result<Option<T>> {
        {
            let guard = self.tree.read();
            if let (Some(tree), Some(place)) = (&*guard, self.place(id)) {
                return with(tree, place).map(Some);
            }
        }
        let mut guard = self.tree.write();
        let found = self.find(host, handle, &mut guard, id);
        match (&*guard, found) {
            (Some(tree), Ok(Some(place))) => {
                self.remember(id, place);
                with(tree, place).map(Some)
            }
            (_, Err(error)) => {
                // The state in memory may be ahead of the file.
                *guard = None;
                Err(error)
            }
            _ => Ok(None),
        }
    }

    fn find(
        &self,
        host: &dyn QuotaHost,
        handle: Option<&Handle<'_>>,
        tree: &mut Option<Tree>,
        id: u32,
    ) -> Result<Option<Place>> {
        let tree = match tree {
            Some(tree) => tree,
            None => tree.insert(self.load(host)?),
        };
        let mut file = self.file(host, &mut tree.body, handle);
        let mut found = tree.info.place(&mut file, id)?;
        if let (None, Some(handle)) = (found, handle) {
            if !handle.extend(Credits::blocks(INSERT_CREDITS))? {
                return Err(Error::NoSpace);
            }
            tree.info.put(&mut file, &QuotaEntry { id, ..QuotaEntry::default() })?;
            found = tree.info.place(&mut file, id)?;
        }
        let Some((block, at)) = found else { return Ok(None) };
        let (block, start) = file.block(block)?.ok_or_else(|| self.wrong())?;
        Ok(Some(Place { block: block.nr(), at: start + at }))
    }

    fn load(&self, host: &dyn QuotaHost) -> Result<Tree> {
        let mut body = host.read_inode(self.ino)?;
        let info = self.file(host, &mut body, None).info(self.kind)?;
        Ok(Tree { info, body })
    }

    fn file<'a>(
        &self,
        host: &'a dyn QuotaHost,
        body: &'a mut Body,
        handle: Option<&'a Handle<'a>>,
    ) -> QuotaFile<'a> {
        QuotaFile { host, ino: self.ino, body, handle }
    }

    fn add(
        &self,
        host: &dyn QuotaHost,
        handle: &Handle<'_>,
        tree: &Tree,
        place: Place,
        id: u32,
        delta: Delta,
    ) -> Result<()> {
        let mut exact = true;
        self.edit(host, handle, place, id, &mut |entry| {
            exact = delta.apply(entry);
            if self.policy == QuotaPolicy::Enforce {
                limits::update_grace(entry, &tree.info, host.context().environment().now().sec);
            }
        })?;
        if !exact {
            host.context().note_error(&Site::of_ino(self.ino).corrupt(What::QuotaUsage));
        }
        Ok(())
    }

    /// Changes the entry of `id`, which is at `place`.
    fn edit(
        &self,
        host: &dyn QuotaHost,
        handle: &Handle<'_>,
        place: Place,
        id: u32,
        change: &mut dyn FnMut(&mut QuotaEntry),
    ) -> Result<()> {
        let block = host.context().journal().cache().get(place.block)?;
        let block = block.write(handle)?;
        let entry = {
            let mut bytes = block.bytes_mut();
            let raw = bytes.get_mut(place.at..).and_then(|rest| rest.first_chunk_mut());
            let raw: &mut [u8; ENTRY_LEN] = raw.ok_or_else(|| self.wrong())?;
            let entry = QuotaEntry::from_bytes(raw).filter(|entry| entry.id == id);
            let mut entry = entry.ok_or_else(|| self.wrong())?;
            change(&mut entry);
            *raw = entry.to_bytes();
            entry
        };
        if entry.is_idle() && id != 0 {
            let mut idle = self.idle.lock();
            if idle.len() < IDLE_MAX {
                idle.insert(id);
            }
        }
        Ok(())
    }

    fn entry(&self, host: &dyn QuotaHost, place: Place, id: u32) -> Result<QuotaEntry> {
        let block = host.context().journal().cache().get(place.block)?;
        let bytes = block.read();
        let raw = bytes.get(place.at..).and_then(|rest| rest.first_chunk());
        let entry = raw.and_then(QuotaEntry::from_bytes).filter(|entry| entry.id == id);
        entry.ok_or_else(|| self.wrong())
    }

    fn wrong(&self) -> Error {
        Site::of_ino(self.ino).corrupt(What::QuotaFile)
    }

    fn shard(&self, id: u32) -> &Mutex<HashMap<u32, Place>> {
        &self.places[id as usize % SHARDS]
    }

    fn place(&self, id: u32) -> Option<Place> {
        self.shard(id).lock().get(&id).copied()
    }

    fn remember(&self, id: u32, place: Place) {
        let mut shard = self.shard(id).lock();
        if shard.len() >= SHARD_MAX {
            // All of them are in the file. The next change of an id finds its place again.
            shard.clear();
        }
        shard.insert(id, place);
    }
}

impl Delta {
    /// Changes the entry. `false` if it had less than what is subtracted now.
    fn apply(self, entry: &mut QuotaEntry) -> bool {
        let inodes = entry.inodes.checked_add_signed(self.inodes);
        let space = entry.space.checked_add_signed(self.bytes);
        entry.inodes = inodes.unwrap_or(0);
        entry.space = space.unwrap_or(0);
        inodes.is_some() && space.is_some()
    }
}
