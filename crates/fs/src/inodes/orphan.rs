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
//! ([`Body::store_in`](crate::state::inode::Body::store_in)). A thread that removes an inode writes
//! the new successor into its neighbour's slot in the table block, under the list's lock.

use crate::inodes::file::FileMut;
use crate::inodes::map::LOGICAL_END;
use crate::state::inode::Inode;
use crate::state::inode::orphans::{OrphanFile, OrphanPlace};
use crate::volume::Volume;
use extant_base::narrow::{fits_u32, len_u32};
use extant_base::{Error, Ino, LogicalBlock, Result, Site, What};
use extant_journal::{Handle, Ineligible};
use extant_ondisk::features::{Compat, RoCompat};
use extant_ondisk::inode::{FileKind, set_checksum};
use extant_ondisk::orphan_file;
use std::sync::atomic::Ordering;

/// The records of inodes that recovery must release or truncate.
#[derive(Clone, Copy)]
pub(crate) struct OrphanRecords<'a> {
    volume: &'a Volume,
}

impl Volume {
    /// The orphan records on disk.
    pub(crate) fn orphan_records(&self) -> OrphanRecords<'_> {
        OrphanRecords { volume: self }
    }
}

/// Blocks that adding or removing a record dirties, besides the inode's own: a block of the file
/// and the superblock, or the superblock or a neighbour's table block.
pub(crate) const ORPHAN_CREDITS: u32 = 2;

/// Where `i_dtime` lies in an inode's slot.
const DTIME: std::ops::Range<usize> = 0x14..0x18;

impl FileMut<'_> {
    /// Records an inode as an orphan, in this handle. The caller stores it afterwards.
    ///
    /// Does nothing if it has a record. Spends [`ORPHAN_CREDITS`]. Errors: `Device`, `Aborted`
    /// (then nothing changed). Locks: the inode's is held; takes `Orphan`, `Superblock`.
    pub(crate) fn orphan_add(&mut self, handle: &Handle<'_>) -> Result<()> {
        if !self.volume.orphans().are_kept() || self.body.orphan != OrphanPlace::None {
            return Ok(());
        }
        self.volume.context().require_full_commit(handle, Ineligible::Orphan);
        if let Some(place) = self.volume.orphan_records().orphan_file_add(handle, self.ino())? {
            self.body.orphan = place;
            return Ok(());
        }
        let mut list = self.volume.orphans().list();
        self.volume.orphan_records().set_last_orphan(handle, self.ino().get())?;
        list.push(self.ino());
        self.body.orphan = OrphanPlace::List;
        Ok(())
    }

    /// Removes an inode's record, in this handle. The caller stores the inode afterwards.
    ///
    /// Does nothing if it has no record. Otherwise as [`FileMut::orphan_add`].
    pub(crate) fn orphan_remove(&mut self, handle: &Handle<'_>) -> Result<()> {
        self.volume.context().require_full_commit(handle, Ineligible::Orphan);
        match self.body.orphan {
            OrphanPlace::None => return Ok(()),
            OrphanPlace::File { block, slot } => {
                self.volume.orphan_records().orphan_file_clear(handle, block, slot)?
            }
            OrphanPlace::List => {
                let mut list = self.volume.orphans().list();
                let older = list.after(self.ino());
                match list.newer(self.ino()) {
                    Some(newer) => {
                        self.volume.orphan_records().patch_dtime(handle, newer, older)?
                    }
                    None => self.volume.orphan_records().set_last_orphan(handle, older)?,
                }
                list.take(self.ino());
                self.body.disk.dtime = 0;
            }
        }
        self.body.orphan = OrphanPlace::None;
        Ok(())
    }
}

impl<'a> OrphanRecords<'a> {
    fn set_last_orphan(self, handle: &Handle<'_>, number: u32) -> Result<()> {
        self.volume.context().change_superblock(handle, |sb| sb.last_orphan = number)
    }

    /// Changes the successor of another inode in its slot. This does not need that inode's lock,
    /// because a thread that stores it takes the successor from the list.
    fn patch_dtime(self, handle: &Handle<'_>, ino: Ino, dtime: u32) -> Result<()> {
        let (block, place) = self.volume.inodes().slot(ino)?;
        let block = block.write(handle)?;
        let mut bytes = block.bytes_mut();
        let slot = &mut bytes[place];
        slot[DTIME].copy_from_slice(&dtime.to_le_bytes());
        set_checksum(slot, ino, self.volume.inode_format().checksums());
        Ok(())
    }

    fn orphan_file(self) -> Option<&'a OrphanFile> {
        let load = || match load_orphan_file(self.volume) {
            Ok(file) => Some(file),
            Err(error) => {
                self.volume.context().note_error(&error);
                None
            }
        };
        match self.volume.has_compat(Compat::ORPHAN_FILE) {
            true => self.volume.orphans().file(load),
            false => None,
        }
    }

    /// Fills a slot of the orphan file; `None` if there is no file, or no free slot in it.
    fn orphan_file_add(self, handle: &Handle<'_>, ino: Ino) -> Result<Option<OrphanPlace>> {
        let Some(file) = self.orphan_file() else { return Ok(None) };
        for index in file.block_order() {
            let block = self.volume.journal().cache().get(file.block(index))?;
            if let Some(slot) = file.fill_slot(handle, index, &block, ino)? {
                self.volume.context().add_ro_compat(handle, RoCompat::ORPHAN_PRESENT)?;
                return Ok(Some(OrphanPlace::File { block: len_u32(index), slot: len_u32(slot) }));
            }
        }
        Ok(None)
    }

    fn orphan_file_clear(self, handle: &Handle<'_>, index: u32, slot: u32) -> Result<()> {
        let file = self.orphan_file().ok_or(Error::Invalid("a record in no orphan file"))?;
        let index = index as usize;
        let block = self.volume.journal().cache().get(file.block(index))?;
        file.clear_slot(&block.write(handle)?, index, slot as usize);
        Ok(())
    }

    /// Releases an inode after its last user has released it.
    ///
    /// No caller is left to get an error: it is noted, and the record stays for the next open.
    /// Locks: takes `Inode`, then a handle.
    pub(crate) fn orphan_finish(self, inode: &Inode) {
        let mut body = self.volume.io(inode).quiesce();
        // Another thread may have given it a name meanwhile.
        if body.disk.links != 0 || inode.users.load(Ordering::Acquire) != 0 {
            return;
        }
        self.volume.io(inode).drop_folios(&mut body);
        if let Err(error) = self.volume.file_mut(&mut body).release_orphan() {
            self.volume.context().note_error(&error);
        }
    }
}

impl FileMut<'_> {
    /// Frees all blocks of an orphan, its number and its record.
    fn release_orphan(&mut self) -> Result<()> {
        let end = self.volume.credits().release_end();
        let mut handle = self.volume.journal().start(end)?;
        let range = if self.as_ref().has_map() { 0..LOGICAL_END } else { 0..0 };
        let mut done = self.unmap_in_steps(&mut handle, range, end, &mut |_, _| Ok(()));
        if let Err(error @ Error::Corrupt { .. }) = &done {
            // The rest of the map stays allocated until a checker frees it.
            self.volume.context().note_error(error);
            self.volume.inodes().init_map(&mut self.body.disk);
            done = Ok(());
        }
        let mut done =
            done.and_then(|()| self.volume.xattrs_mut(self.body).drop_values(&mut handle, end));
        if let Err(error @ Error::Corrupt { .. }) = &done {
            self.volume.context().note_error(error);
            self.body.disk.file_acl = None;
            self.body.xattr_tail_mut(self.volume.context()).fill(0);
            done = Ok(());
        }
        if let Err(error) = done {
            self.body.store(self.volume, &handle)?;
            return Err(error);
        }
        self.orphan_remove(&handle)?;
        if let Err(error) = self.release_inode(&handle) {
            // The next open of the volume finds the rest of it.
            self.orphan_add(&handle)?;
            self.body.store(self.volume, &handle)?;
            return Err(error);
        }
        handle.stop()
    }
}

/// Reads and checks the whole orphan file.
fn load_orphan_file(volume: &Volume) -> Result<OrphanFile> {
    let number = volume.at_open().orphan_file_inum;
    let file = Ino::new(number).ok_or(Site::NOWHERE.corrupt(What::OrphanFile))?;
    // Read without the table of inodes in use, because the caller holds an inode's lock.
    let body = volume.inodes().read(file)?;
    let at = Site::of_ino(file);
    let count = body.disk.size >> volume.block_size().log2();
    if body.file_kind() != FileKind::Regular || count > u64::from(orphan_file::MAX_BLOCKS) {
        return Err(at.corrupt(What::OrphanFile));
    }
    let seed = body.seed(volume.context());
    let mut blocks = Vec::new();
    for logical in 0..fits_u32(count) {
        let block = volume.file(&body).content_block(LogicalBlock(logical))?;
        let block = block.ok_or(at.corrupt(What::OrphanFile))?;
        let bytes = block.read();
        let inodes = volume.geometry().inodes_count();
        let used = orphan_file::check(&bytes, block.nr(), seed, inodes)?.count();
        blocks.push((block.nr(), used));
    }
    Ok(OrphanFile::new(seed, blocks))
}
