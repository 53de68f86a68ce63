//! Making a file durable.
//!
//! ```text
//!                  last commit point of       not durable ─► commit it, one flush for it and data
//!   sync_all       anything in the inode ───┬─►
//!   sync_data      size and map ────────────┘  durable     ─► one flush, for data written in place
//!                                              not known   ─► commit everything
//!   before that, dirty folios are written back
//! ```
//!
//! On a mount, the dirty folios of closed files are written back, too. One commit serves them and
//! the file: the sync waits for the later of the two commit points.
//!
//! A file with the flag `SYNC` is made durable in this way after each change of it, before the
//! changing call returns. So is each change of names in a directory with `SYNC` or `DIRSYNC`.

use crate::files::FileIo;
use crate::inodes::mount::MountState;
use crate::state::inode::Inode;
use crate::state::inode::synced::Synced;
use extant_base::Result;
use extant_journal::CommitPoint;
use std::sync::atomic::Ordering;

impl FileIo<'_> {
    /// Commits the last change of an inode, and those of closed files that are due, or flushes
    /// data that was written in place.
    pub(crate) fn commit_inode(
        self,
        which: impl Fn(&mut Synced) -> &mut Option<CommitPoint>,
    ) -> Result<()> {
        let mut synced = self.inode.read().synced;
        match *which(&mut synced) {
            Some(point) if !self.volume.journal().is_off() => {
                let due = self.volume.closed_files().due();
                let point = due.map_or(point, |due| point.later(due));
                self.volume.mount_state().commit_point(point)
            }
            _ => {
                self.volume.context().recording_abort(self.volume.journal().sync())?;
                let now = self.volume.journal().durable_point();
                let mut body = self.inode.write();
                which(&mut body.synced).get_or_insert(now);
                Ok(())
            }
        }
    }
}

impl MountState<'_> {
    fn commit_point(self, point: CommitPoint) -> Result<()> {
        let done = self.volume.journal().commit_with_data(point, Some(self.volume));
        self.volume.context().recording_abort(done)
    }

    /// See [`Filesystem::write_back_up_to`](crate::Filesystem::write_back_up_to).
    pub(crate) fn write_back_up_to(self, most: u64) {
        let stats = self.volume.page_cache().map(|cache| cache.stats());
        // What is in flight counts as well: the caller waits for a write-back in progress.
        if stats.is_some_and(|stats| stats.dirty + stats.writing <= most) {
            self.write_back_where(|_| true);
        }
    }

    /// See [`Filesystem::write_back_closed_files`](crate::Filesystem::write_back_closed_files).
    pub(crate) fn write_back_closed_files(self) {
        self.write_back_where(Inode::was_closed_dirty);
        self.volume.closed_files().make_due();
    }

    /// Writes back the dirty files that `which` selects and that have names. Each file's next sync
    /// returns its error.
    fn write_back_where(self, which: impl Fn(&Inode) -> bool) {
        let dirty = self.volume.page_cache().map(|cache| cache.dirty_files());
        for file in dirty.into_iter().flatten() {
            let Some(inode) = self.volume.inode_table().find(file.ino()) else { continue };
            if which(&inode)
                && !inode.unlinked.load(Ordering::Relaxed)
                && let Err(error) = self.volume.io(&inode).write_back_file()
            {
                file.note_error(&error);
            }
        }
    }

    /// Commits the changes of closed files that are due. A fast commit may do that.
    pub(crate) fn commit_closed_files(self) -> Result<()> {
        match self.volume.closed_files().due() {
            Some(point) if !self.is_durable(point) => {
                self.volume.context().announce()?;
                self.commit_point(point)
            }
            _ => Ok(()),
        }
    }
}

impl FileIo<'_> {
    /// The data of a closed file is on the device: a later sync commits what is needed to read it.
    pub(crate) fn note_closed(self) {
        if !self.volume.context().is_open_to_write() || self.inode.unlinked.load(Ordering::Relaxed)
        {
            return;
        }
        let content = self.inode.read().synced.content;
        if let Some(point) = content {
            self.volume.closed_files().note(point);
        }
    }
}

impl MountState<'_> {
    fn is_durable(self, point: CommitPoint) -> bool {
        self.volume.journal().is_off() || !point.is_later(self.volume.journal().durable_point())
    }
}

impl FileIo<'_> {
    /// Makes a call's changes of the inode durable if its flags require that. Does nothing
    /// while the volume is a single all-or-nothing transaction.
    ///
    /// Errors: as [`File::sync_all`](crate::File::sync_all); then the change is made but not
    /// durable. Locks: as a write; the caller holds none.
    pub(crate) fn sync_if_flagged(self) -> Result<()> {
        if !self.inode.syncs.load(Ordering::Relaxed) || self.volume.journal().is_one_transaction() {
            return Ok(());
        }
        self.volume.context().announce()?;
        if let Some(file_cache) = self.inode.file_cache.get() {
            let written = self.write_back_file();
            if let Err(error) = &written {
                file_cache.pages.note_error(error);
            }
            written?;
        }
        self.commit_inode(|synced| &mut synced.all)
    }
}

impl MountState<'_> {
    /// As [`FileIo::sync_if_flagged`], for a call's changes of names in directories. Unlike a sync,
    /// it does not write back dirty data of files.
    pub(crate) fn sync_names_if_flagged(self, dirs: &[&Inode]) -> Result<()> {
        let is_flagged = dirs.iter().any(|dir| dir.syncs.load(Ordering::Relaxed));
        match is_flagged && !self.volume.journal().is_one_transaction() {
            true => self.sync_names(),
            false => Ok(()),
        }
    }
}
