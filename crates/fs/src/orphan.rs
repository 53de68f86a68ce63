//! Orphan records: the inodes that recovery must release or truncate after a crash.
//!
//! ```text
//!   list   superblock ─last_orphan─► newest ─dtime─► older ─dtime─► 0         one lock
//!   file   │ 0 │ 12 │ 0 │ 40 │ … │   block by block, slots in any order       one lock a block
//! ```
//!
//! An inode gets a record in the handle that removes its last name, unless that handle also
//! releases it; in the first handle of a truncation that takes several; and when it is created
//! without a name. The record is in the orphan file if the volume has one with a free slot,
//! otherwise on the orphan list. A volume without a journal keeps no records.
//!
//! On the list, an inode's `dtime` is the number of its successor, which changes when the successor
//! leaves the list. So a thread that stores an inode takes its `dtime` from the list
//! ([`Body::store_in`]). A thread that removes an inode writes the new successor into its
//! neighbour's slot in the table block, under the list's lock.

use crate::inode::{Body, Inode};
use crate::map::LOGICAL_END;
use crate::volume::Volume;
use extant_base::lock::{Mutex, MutexGuard, Rank};
use extant_base::{BlockNr, Error, Ino, LogicalBlock, Result, Site, What};
use extant_journal::{Handle, Ineligible, MetaBlock};
use extant_ondisk::features::{Compat, RoCompat};
use extant_ondisk::inode::{FileKind, set_checksum};
use extant_ondisk::orphan_file;
use extant_ondisk::superblock::Superblock;
use hashbrown::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Blocks that adding or removing a record dirties, besides the inode's own: a block of the file
/// and the superblock, or the superblock or a neighbour's table block.
pub(crate) const ORPHAN_CREDITS: u32 = 2;

/// Where `i_dtime` lies in an inode's slot.
const DTIME: std::ops::Range<usize> = 0x14..0x18;

/// The record that names an inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OrphanPlace {
    /// None.
    #[default]
    None,
    /// The list.
    List,
    /// A slot of the orphan file.
    File {
        /// Block of the file.
        block: u32,
        /// Slot in it.
        slot: u32,
    },
}

/// The orphan records of one volume.
pub(crate) struct Orphans {
    /// A volume without a journal has no records.
    kept: bool,
    list: Mutex<OrphanList>,
    file: OnceLock<Option<OrphanFile>>,
}

impl Orphans {
    pub(crate) fn new(at_open: &Superblock) -> Orphans {
        let list = OrphanList { head: at_open.last_orphan, members: HashMap::new() };
        Orphans {
            kept: at_open.features.compat.contains(Compat::HAS_JOURNAL),
            list: Mutex::new(Rank::Orphan, list),
            file: OnceLock::new(),
        }
    }

    /// The list. Locks: takes `Orphan`.
    #[track_caller]
    pub(crate) fn list(&self) -> MutexGuard<'_, OrphanList> {
        self.list.lock()
    }

    /// Whether no slot of the orphan file is in use.
    pub(crate) fn file_is_empty(&self) -> bool {
        match self.file.get() {
            Some(Some(file)) => file.blocks.iter().all(|block| block.state.lock().used == 0),
            _ => true,
        }
    }
}

/// The list as it is on disk.
#[derive(Debug, Default)]
pub(crate) struct OrphanList {
    head: u32,
    members: HashMap<u32, Member>,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    newer: Option<Ino>,
    older: u32,
}

impl OrphanList {
    /// The `dtime` of `ino`: its successor on the list.
    pub(crate) fn after(&self, ino: Ino) -> u32 {
        self.members.get(&ino.get()).map_or(0, |member| member.older)
    }

    fn push(&mut self, ino: Ino) {
        if let Some(next) = self.members.get_mut(&self.head) {
            next.newer = Some(ino);
        }
        self.members.insert(ino.get(), Member { newer: None, older: self.head });
        self.head = ino.get();
    }

    fn take(&mut self, ino: Ino) {
        let Some(gone) = self.members.remove(&ino.get()) else { return };
        if let Some(older) = self.members.get_mut(&gone.older) {
            older.newer = gone.newer;
        }
        match gone.newer.and_then(|newer| self.members.get_mut(&newer.get())) {
            Some(newer) => newer.older = gone.older,
            None => self.head = gone.older,
        }
    }
}

/// The orphan file. Its blocks keep their places while the volume is open.
struct OrphanFile {
    seed: Option<u32>,
    blocks: Box<[FileBlock]>,
    next: AtomicUsize,
}

struct FileBlock {
    nr: BlockNr,
    state: Mutex<FileBlockState>,
}

#[derive(Debug)]
struct FileBlockState {
    used: usize,
    /// No slot below this one is free.
    hint: usize,
}

impl OrphanFile {
    /// Reads and checks the whole file.
    fn load(volume: &Volume) -> Result<OrphanFile> {
        let number = volume.at_open().orphan_file_inum;
        let file = Ino::new(number).ok_or(Site::NOWHERE.corrupt(What::OrphanFile))?;
        // Read without the table of inodes in use, because the caller holds an inode's lock.
        let body = volume.read_inode(file)?;
        let at = Site::of_ino(file);
        let count = body.disk.size >> volume.block_size().log2();
        if body.file_kind() != FileKind::Regular || count > u64::from(orphan_file::MAX_BLOCKS) {
            return Err(at.corrupt(What::OrphanFile));
        }
        let seed = body.seed(volume, file);
        let mut blocks = Vec::new();
        for logical in 0..count as u32 {
            let block = volume.content_block(file, &body, LogicalBlock(logical))?;
            let block = block.ok_or(at.corrupt(What::OrphanFile))?;
            let bytes = block.read();
            let inodes = volume.geometry().inodes_count();
            let used = orphan_file::check(&bytes, block.nr(), seed, inodes)?.count();
            let state = Mutex::new(Rank::Orphan, FileBlockState { used, hint: 0 });
            blocks.push(FileBlock { nr: block.nr(), state });
        }
        Ok(OrphanFile { seed, blocks: blocks.into(), next: AtomicUsize::new(0) })
    }
}

impl Volume {
    /// Records an inode as an orphan, in this handle. The caller stores it afterwards.
    ///
    /// Does nothing if it has a record. Spends [`ORPHAN_CREDITS`]. Errors: `Device`, `Aborted`
    /// (then nothing changed). Locks: the inode's is held; takes `Orphan`, `Superblock`.
    pub(crate) fn orphan_add(&self, handle: &Handle<'_>, ino: Ino, body: &mut Body) -> Result<()> {
        if !self.orphans().kept || body.orphan != OrphanPlace::None {
            return Ok(());
        }
        self.context().require_full_commit(handle, Ineligible::Orphan);
        if let Some(place) = self.orphan_file_add(handle, ino)? {
            body.orphan = place;
            return Ok(());
        }
        let mut list = self.orphans().list();
        self.set_last_orphan(handle, ino.get())?;
        list.push(ino);
        body.orphan = OrphanPlace::List;
        Ok(())
    }

    /// Removes an inode's record, in this handle. The caller stores the inode afterwards.
    ///
    /// Does nothing if it has no record. Otherwise as [`Volume::orphan_add`].
    pub(crate) fn orphan_remove(
        &self,
        handle: &Handle<'_>,
        ino: Ino,
        body: &mut Body,
    ) -> Result<()> {
        self.context().require_full_commit(handle, Ineligible::Orphan);
        match body.orphan {
            OrphanPlace::None => return Ok(()),
            OrphanPlace::File { block, slot } => self.orphan_file_clear(handle, block, slot)?,
            OrphanPlace::List => {
                let mut list = self.orphans().list();
                let older = list.after(ino);
                match list.members.get(&ino.get()).and_then(|member| member.newer) {
                    Some(newer) => self.patch_dtime(handle, newer, older)?,
                    None => self.set_last_orphan(handle, older)?,
                }
                list.take(ino);
                body.disk.dtime = 0;
            }
        }
        body.orphan = OrphanPlace::None;
        Ok(())
    }

    fn set_last_orphan(&self, handle: &Handle<'_>, number: u32) -> Result<()> {
        self.context().change_superblock(handle, |sb| sb.last_orphan = number)
    }

    /// Changes the successor of another inode in its slot. This does not need that inode's lock,
    /// because a thread that stores it takes the successor from the list.
    fn patch_dtime(&self, handle: &Handle<'_>, ino: Ino, dtime: u32) -> Result<()> {
        let (block, place) = self.inode_slot(ino)?;
        let block = block.write(handle)?;
        let mut bytes = block.bytes_mut();
        let slot = &mut bytes[place];
        slot[DTIME].copy_from_slice(&dtime.to_le_bytes());
        set_checksum(slot, ino, self.inode_format().checksums());
        Ok(())
    }

    fn orphan_file(&self) -> Option<&OrphanFile> {
        let load = || match OrphanFile::load(self) {
            Ok(file) => Some(file),
            Err(error) => {
                self.context().note_error(&error);
                None
            }
        };
        match self.has_compat(Compat::ORPHAN_FILE) {
            true => self.orphans().file.get_or_init(load).as_ref(),
            false => None,
        }
    }

    /// Fills a slot of the orphan file; `None` if there is no file, or no free slot in it.
    fn orphan_file_add(&self, handle: &Handle<'_>, ino: Ino) -> Result<Option<OrphanPlace>> {
        let Some(file) = self.orphan_file() else { return Ok(None) };
        let count = file.blocks.len();
        let start = file.next.fetch_add(1, Ordering::Relaxed);
        for n in 0..count {
            let index = (start + n) % count;
            let block = self.journal().cache().get(file.blocks[index].nr)?;
            if let Some(slot) = file.fill_slot(handle, index, &block, ino)? {
                self.context().add_ro_compat(handle, RoCompat::ORPHAN_PRESENT)?;
                return Ok(Some(OrphanPlace::File { block: index as u32, slot: slot as u32 }));
            }
        }
        Ok(None)
    }

    fn orphan_file_clear(&self, handle: &Handle<'_>, index: u32, slot: u32) -> Result<()> {
        let file = self.orphan_file().ok_or(Error::Invalid("a record in no orphan file"))?;
        let at = &file.blocks[index as usize];
        let block = self.journal().cache().get(at.nr)?;
        let block = block.write(handle)?;
        let mut state = at.state.lock();
        let slot = slot as usize;
        orphan_file::set_slot(&mut block.bytes_mut(), slot, None, at.nr, file.seed);
        state.used -= 1;
        state.hint = state.hint.min(slot);
        Ok(())
    }

    /// Releases an inode after its last user has released it.
    ///
    /// No caller is left to get an error: it is noted, and the record stays for the next open.
    /// Locks: takes `Inode`, then a handle.
    pub(crate) fn orphan_finish(&self, inode: &Inode) {
        let mut body = self.quiesce(inode);
        // Another thread may have given it a name meanwhile.
        if body.disk.links != 0 || inode.users.load(Ordering::Acquire) != 0 {
            return;
        }
        self.drop_folios(inode, &mut body);
        if let Err(error) = self.release_orphan(inode.ino, &mut body) {
            self.context().note_error(&error);
        }
    }
}

impl Volume {
    /// Frees all blocks of an orphan, its number and its record.
    fn release_orphan(&self, ino: Ino, body: &mut Body) -> Result<()> {
        let end = self.release_end_credits();
        let mut handle = self.journal().start(end)?;
        let range = if self.has_map(body) { 0..LOGICAL_END } else { 0..0 };
        let mut done = self.unmap_in_steps(ino, body, &mut handle, range, end, &mut |_, _| Ok(()));
        if let Err(error @ Error::Corrupt { .. }) = &done {
            // The rest of the map stays allocated until a checker frees it.
            self.context().note_error(error);
            self.init_map(&mut body.disk);
            done = Ok(());
        }
        let mut done = done.and_then(|()| self.xattr_drop_values(ino, body, &mut handle, end));
        if let Err(error @ Error::Corrupt { .. }) = &done {
            self.context().note_error(error);
            body.disk.file_acl = None;
            body.xattr_tail_mut(self).fill(0);
            done = Ok(());
        }
        if let Err(error) = done {
            body.store(self, ino, &handle)?;
            return Err(error);
        }
        self.orphan_remove(&handle, ino, body)?;
        if let Err(error) = self.release_inode(&handle, ino, body) {
            // The next open of the volume finds the rest of it.
            self.orphan_add(&handle, ino, body)?;
            body.store(self, ino, &handle)?;
            return Err(error);
        }
        handle.stop()
    }
}

impl OrphanFile {
    /// Writes `ino` into block `index`, if it has a free slot.
    fn fill_slot(
        &self,
        handle: &Handle<'_>,
        index: usize,
        block: &MetaBlock,
        ino: Ino,
    ) -> Result<Option<usize>> {
        let at = &self.blocks[index];
        let block_mut = block.write(handle)?;
        let mut state = at.state.lock();
        let slots = orphan_file::slots_per_block(block.read().len());
        if state.used >= slots {
            return Ok(None);
        }
        let mut bytes = block_mut.bytes_mut();
        let free = orphan_file::free_slot_from(&bytes, state.hint);
        let Some(slot) = free else { return Ok(None) };
        orphan_file::set_slot(&mut bytes, slot, Some(ino), at.nr, self.seed);
        state.used += 1;
        state.hint = slot + 1;
        Ok(Some(slot))
    }
}
