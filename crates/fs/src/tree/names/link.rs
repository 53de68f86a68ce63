//! Adding a further name to a file, or the first name to a file without one.

use super::lock::lock_two;
use super::{check_name, entry_kind};
use crate::inodes::fast_commit::Named;
use crate::state::inode::Inode;
use crate::tree::names::Names;
use extant_base::{Error, Result};
use extant_journal::Credits;
use extant_ondisk::inode::{FileKind, InodeFlags};
use std::sync::atomic::Ordering;

impl Names<'_> {
    /// Adds `name` in directory `dir` as a further name of `target`.
    ///
    /// Errors: `Exists`, `NameTooLong`, `NotADirectory`; `ReadOnly`; `NotPermitted` for a
    /// directory, or if a flag forbids it; `NotFound` if the directory or the target has lost its
    /// last name; `LinkLimit`; `CrossProject`; `Encrypted`; `NoSpace`; `Corrupt`, `Device`. After
    /// an error nothing has changed. Locks: takes `Inode` of both, then a handle.
    pub(crate) fn link(self, dir: &Inode, name: &[u8], target: &Inode) -> Result<()> {
        self.volume.space().with_space_retry(|| self.link_once(dir, name, target))?;
        self.volume.mount_state().sync_names_if_flagged(&[dir])
    }

    fn link_once(self, dir: &Inode, name: &[u8], target: &Inode) -> Result<()> {
        check_name(name)?;
        if dir.ino == target.ino {
            return Err(self.link_to_itself(dir, name));
        }
        let (mut body, mut target_body) = lock_two(dir, target);
        let place = self.insert_place(dir, &body, name)?;
        self.volume.context().check_writable()?;
        body.check_accepts_names()?;
        let fixed = InodeFlags::IMMUTABLE | InodeFlags::APPEND;
        if target_body.disk.flags.intersects(fixed)
            || target_body.file_kind() == FileKind::Directory
        {
            return Err(Error::NotPermitted);
        }
        let unnamed = target_body.disk.links == 0;
        if unnamed && !target.nameable.load(Ordering::Acquire) {
            return Err(Error::NotFound);
        }
        let links = target_body.disk.links;
        target_body.add_link()?;
        target_body.disk.links = links;
        if body.disk.flags.contains(InodeFlags::PROJINHERIT)
            && body.disk.projid != target_body.disk.projid
        {
            return Err(Error::CrossProject);
        }
        let now = self.volume.environment().now();
        let credits = self.volume.credits_of(&body).insert(&place)
            + super::credits::LINK
            + self.volume.quota_accounting().credits(1);
        let handle = self.volume.journal().start(Credits::blocks(credits))?;
        let slot = self.volume.inodes().slot(target.ino)?;
        let kind = entry_kind(target_body.file_kind());
        self.volume.dir_mut(&mut body).insert_at(&handle, place, name, target.ino, kind)?;
        let named = Named { parent: dir.ino, name, ino: target.ino };
        self.volume.notes().note_named(&handle, &body, target_body.file_kind(), false, named);
        body.names_changed(now);
        body.store(self.volume, &handle)?;
        if unnamed {
            self.volume.file_mut(&mut target_body).orphan_remove(&handle)?;
            target.unlinked.store(false, Ordering::Release);
        }
        target_body.disk.links += 1;
        target_body.disk.ctime = now;
        target_body.store_in(self.volume, &handle, &slot)?;
        handle.stop()
    }

    /// The error for a link to a directory inside itself.
    fn link_to_itself(self, dir: &Inode, name: &[u8]) -> Error {
        let body = dir.read();
        match self
            .insert_place(dir, &body, name)
            .and_then(|_| self.volume.context().check_writable())
        {
            Ok(()) => Error::NotPermitted,
            Err(error) => error,
        }
    }
}
