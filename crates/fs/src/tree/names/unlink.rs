//! Removing a name, and the file with its last name.
//!
//! ```text
//!   links left         name gone, links - 1
//!   last, held         name gone, links 0, recorded as an orphan             one handle
//!   last, not held     … and little to free: freed in the same handle, no record
//! ```

use super::check_name;
use super::lock::Entry;
use crate::inodes::fast_commit::Named;
use crate::inodes::lookup::Slot;
use crate::state::inode::{Body, Inode};
use crate::tree::names::Names;
use extant_base::{Error, Result};
use extant_journal::Handle;
use extant_ondisk::inode::FileKind;
use extant_ondisk::time::Timestamp;
use std::sync::atomic::Ordering;

impl Names<'_> {
    /// Removes `name`, which must not be a directory's, from directory `dir`.
    ///
    /// Errors: `ReadOnly`; `NameTooLong`, `NotFound`, `NotADirectory`; `IsADirectory`;
    /// `NotPermitted` if a flag forbids it; `Corrupt`, `Device`. After an error nothing has
    /// changed. Locks: takes `Inode` of the directory and the file, then a handle.
    pub(crate) fn unlink(self, dir: &Inode, name: &[u8]) -> Result<()> {
        self.volume.context().check_writable()?;
        check_name(name)?;
        if matches!(name, b"." | b"..") {
            return Err(Error::IsADirectory);
        }
        self.with_entry(dir, name, |entry| {
            entry.dir_body.check_may_lose_name(&entry.target_body)?;
            if entry.target_body.file_kind() == FileKind::Directory {
                return Err(Error::IsADirectory);
            }
            self.remove_entry(entry, name)
        })?;
        self.volume.mount_state().sync_names_if_flagged(&[dir])
    }

    /// Removes `name` of an empty directory from directory `dir`.
    ///
    /// Errors: as [`Names::unlink`], but `NotADirectory` for other kinds of file; `NotEmpty`, also
    /// for ".."; `Invalid` for ".".
    pub(crate) fn rmdir(self, dir: &Inode, name: &[u8]) -> Result<()> {
        self.volume.context().check_writable()?;
        check_name(name)?;
        match name {
            b"." => return Err(Error::Invalid("\".\" cannot be removed")),
            b".." => return Err(Error::NotEmpty),
            _ => {}
        }
        self.with_entry(dir, name, |entry| {
            entry.dir_body.check_may_lose_name(&entry.target_body)?;
            if entry.target_body.file_kind() != FileKind::Directory {
                return Err(Error::NotADirectory);
            }
            if entry.target.ino == extant_base::Ino::ROOT {
                return Err(Error::Busy);
            }
            if !self.volume.file(&entry.target_body).dir()?.is_empty()? {
                return Err(Error::NotEmpty);
            }
            self.remove_entry(entry, name)
        })?;
        self.volume.mount_state().sync_names_if_flagged(&[dir])
    }

    fn remove_entry(self, entry: Entry<'_>, name: &[u8]) -> Result<()> {
        let Entry { dir, mut dir_body, found, target, mut target_body } = entry;
        let now = self.volume.environment().now();
        let slots = (self.volume.inodes().slot(dir.ino)?, self.volume.inodes().slot(target.ino)?);
        let handle = self.volume.journal().start(self.volume.credits().unlink(&target_body))?;
        self.volume.dir_mut(&mut dir_body).remove_found(&handle, found)?;
        let named = Named { parent: dir.ino, name, ino: target.ino };
        self.volume.notes().note_unnamed(&handle, &dir_body, target_body.file_kind(), named);
        if target_body.file_kind() == FileKind::Directory {
            dir_body.drop_subdirectory();
        }
        dir_body.names_changed(now);
        dir_body.store_in(self.volume, &handle, &slots.0)?;
        self.lose_link(&handle, target, &mut target_body, &slots.1, now)?;
        handle.stop()
    }

    /// Lowers the link count of `target` by one, or to zero for a directory, and stores it. At
    /// zero, the inode is freed if that takes little work and only the caller holds it; otherwise
    /// it is recorded as an orphan.
    pub(super) fn lose_link(
        self,
        handle: &Handle<'_>,
        target: &Inode,
        body: &mut Body,
        slot: &Slot,
        now: Timestamp,
    ) -> Result<()> {
        body.disk.ctime = now;
        body.disk.links = match body.file_kind() {
            FileKind::Directory => 0,
            _ => body.disk.links.saturating_sub(1),
        };
        if body.disk.links > 0 {
            return body.store_in(self.volume, handle, slot);
        }
        // While a write of its data is in flight, the inode keeps its blocks.
        let still = target.writing_back.try_lock();
        if target.users.load(Ordering::Acquire) == 1
            && still.is_some()
            && self.is_quick_to_release(body)
        {
            self.volume.io(target).drop_folios(body);
            match self.volume.file_mut(body).release_inode(handle) {
                Ok(()) => return Ok(()),
                // What remains of it becomes an orphan.
                Err(error) => self.volume.context().note_error(&error),
            }
        }
        target.unlinked.store(true, Ordering::Release);
        self.volume.file_mut(body).orphan_add(handle)?;
        body.store_in(self.volume, handle, slot)
    }
}
