//! CREAT, LINK and UNLINK records: names added to directories and removed.
//!
//! ```text
//!   CREAT dir ──► first block 0 with "." and ".."      then the name in its parent
//!   name exists, same inode     nothing to do
//!   name exists, other inode    the newer record wins, unless a directory would lose its name
//! ```

use super::{Replay, Touched};
use crate::state::inode::Inode;
use extant_base::{Error, Ino, Result, Site, What};
use extant_ondisk::dirent::EntryKind;
use extant_ondisk::fast_commit::NameChange;
use extant_ondisk::inode::FileKind;
use extant_ondisk::time::Timestamp;
use std::sync::Arc;

impl Replay<'_> {
    /// Makes a name lead to an inode.
    pub(super) fn add_name(&mut self, n: usize, change: NameChange<'_>) -> Result<()> {
        let Some(inode) = self.find_or_make(n, change.ino)? else { return Ok(()) };
        let Some(parent) = self.directory(n, change.parent)? else { return Ok(()) };
        if change.ino == change.parent {
            return Err(wrong(change));
        }
        let (mode, kind, changed) = {
            let body = inode.read();
            (body.mode, body.file_kind(), body.ctime)
        };
        let is_directory = kind == FileKind::Directory;
        let known = *self.touch(&inode);
        let before = self.lookup(&parent, change.name)?;
        if before == Some(change.ino) {
            return Ok(());
        }
        if is_directory && known.names > 0 {
            // A directory has one name, and the log never contains a move of one.
            return Err(wrong(change));
        }
        if let Some(before) = before {
            self.drop_name(&parent, change.name, before, changed)?;
        }
        if is_directory && known.is_raw {
            self.init_directory(&inode, change.parent)?;
        }
        let volume = self.volume;
        {
            let mut body = parent.write();
            let handle = self.handle()?;
            let entry = EntryKind::from_mode(mode);
            volume.dir_mut(&mut body).insert(&handle, change.name, change.ino, entry)?;
            set_changed(&mut body.disk, changed);
            body.store(volume, &handle)?;
            handle.stop()?;
        }
        self.count(&inode, 1);
        if is_directory {
            self.count_below(&parent, 1);
        }
        Ok(())
    }

    /// Removes a name, if it still leads to the inode of the record.
    pub(super) fn remove_name(&mut self, change: NameChange<'_>) -> Result<()> {
        let Some(parent) = self.directory(usize::MAX, change.parent)? else { return Ok(()) };
        if self.lookup(&parent, change.name)? != Some(change.ino) {
            return Ok(());
        }
        let changed = match self.find(change.ino)? {
            Some(inode) => inode.read().ctime,
            None => Timestamp::default(),
        };
        self.drop_name(&parent, change.name, change.ino, changed)
    }

    /// Removes `name`, which leads to `ino`.
    fn drop_name(
        &mut self,
        parent: &Arc<Inode>,
        name: &[u8],
        ino: Ino,
        changed: Timestamp,
    ) -> Result<()> {
        let inode = self.find(ino)?;
        let mut is_directory = false;
        if let Some(inode) = &inode {
            let body = inode.read();
            is_directory = body.file_kind() == FileKind::Directory;
            if is_directory && !self.is_free_directory(&body)? {
                return Err(Site::of_ino(ino).corrupt(What::FastCommitInode));
            }
        }
        let volume = self.volume;
        {
            let mut body = parent.write();
            let handle = self.handle()?;
            volume.dir_mut(&mut body).remove(&handle, name)?;
            set_changed(&mut body.disk, changed);
            body.store(volume, &handle)?;
            handle.stop()?;
        }
        if let Some(inode) = inode {
            self.count(&inode, -1);
        }
        if is_directory {
            self.count_below(parent, -1);
        }
        Ok(())
    }

    /// The directory of a record: it is in use, has a name, and is ready for entries.
    fn directory(&mut self, n: usize, ino: Ino) -> Result<Option<Arc<Inode>>> {
        let Some(inode) = self.find_or_make(n, ino)? else { return Ok(None) };
        if inode.read().file_kind() != FileKind::Directory {
            return Err(Site::of_ino(ino).corrupt(What::FastCommitInode));
        }
        let Touched { names, is_raw, .. } = *self.touch(&inode);
        Ok((names > 0 && !is_raw).then_some(inode))
    }

    fn lookup(&self, parent: &Arc<Inode>, name: &[u8]) -> Result<Option<Ino>> {
        let body = parent.read();
        let dir = self.volume.file(&body).dir()?;
        if dir.is_encrypted() {
            return Err(Error::Encrypted);
        }
        Ok(dir.find(name)?.map(|found| found.ino))
    }

    fn init_directory(&mut self, inode: &Arc<Inode>, parent: Ino) -> Result<()> {
        let volume = self.volume;
        {
            let mut body = inode.write();
            let handle = self.handle()?;
            volume.dir_mut(&mut body).init(&handle, parent)?;
            body.store(volume, &handle)?;
            handle.stop()?;
        }
        self.touch(inode).is_raw = false;
        Ok(())
    }

    fn count(&mut self, inode: &Inode, names: i64) {
        self.touch(inode).names += names;
    }

    fn count_below(&mut self, parent: &Inode, directories: i64) {
        if let Some(count) = &mut self.touch(parent).subdirectories {
            *count += directories;
        }
    }
}

fn wrong(change: NameChange<'_>) -> Error {
    Site::of_ino(change.ino).corrupt(What::FastCommitInode)
}

/// The directory's change time is that of the name's inode: the log has no times of directories.
fn set_changed(parent: &mut extant_ondisk::inode::Inode, changed: Timestamp) {
    if (changed.sec, changed.nsec) > (parent.mtime.sec, parent.mtime.nsec) {
        parent.mtime = changed;
    }
    if (changed.sec, changed.nsec) > (parent.ctime.sec, parent.ctime.nsec) {
        parent.ctime = changed;
    }
}
