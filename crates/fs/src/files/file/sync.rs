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
//! A file with the flag `SYNC` is made durable in this way after each change of it, before the
//! changing call returns. So is each change of names in a directory with `SYNC` or `DIRSYNC`.

use crate::state::inode::Inode;
use crate::state::inode::synced::Synced;
use crate::volume::Volume;
use extant_base::Result;
use extant_journal::CommitPoint;
use std::sync::atomic::Ordering;

impl Volume {
    /// Commits the last change of an inode, or flushes data that was written in place.
    pub(crate) fn commit_inode(
        &self,
        inode: &Inode,
        which: impl Fn(&mut Synced) -> &mut Option<CommitPoint>,
    ) -> Result<()> {
        let mut synced = inode.read().synced;
        match *which(&mut synced) {
            Some(point) if !self.journal().is_off() => {
                self.context().recording_abort(self.journal().commit_with_data(point, Some(self)))
            }
            _ => {
                self.context().recording_abort(self.journal().sync())?;
                let now = self.journal().durable_point();
                let mut body = inode.write();
                which(&mut body.synced).get_or_insert(now);
                Ok(())
            }
        }
    }

    /// See [`Filesystem::sync_closed_files`](crate::Filesystem::sync_closed_files).
    pub(crate) fn sync_closed_files(&self) -> Result<()> {
        let dirty = self.page_cache().map(|cache| cache.dirty_files());
        for file in dirty.into_iter().flatten() {
            let Some(inode) = self.inodes().find(file.ino()) else { continue };
            if inode.was_closed_dirty()
                && !inode.unlinked.load(Ordering::Relaxed)
                && let Err(error) = self.write_back_file(&inode)
            {
                file.note_error(&error);
            }
        }
        let point = *self.closed_commit_point().lock();
        match point {
            Some(point) if !self.is_durable(point) => {
                self.context().announce()?;
                self.context().recording_abort(self.journal().commit_with_data(point, Some(self)))
            }
            _ => Ok(()),
        }
    }

    /// The data of a closed file is on the device: a later sync commits what is needed to read it.
    pub(crate) fn note_closed(&self, inode: &Inode) {
        if !self.context().is_open_to_write() || inode.unlinked.load(Ordering::Relaxed) {
            return;
        }
        let Some(point) = inode.read().synced.content else { return };
        let mut last = self.closed_commit_point().lock();
        if last.is_none_or(|last| is_later(point, last)) {
            *last = Some(point);
        }
    }

    fn is_durable(&self, point: CommitPoint) -> bool {
        self.journal().is_off() || !is_later(point, self.journal().durable_point())
    }

    /// Makes a call's changes of `inode` durable if the inode's flags require that. Does nothing
    /// while the volume is a single all-or-nothing transaction.
    ///
    /// Errors: as [`File::sync_all`](crate::File::sync_all); then the change is made but not
    /// durable. Locks: as a write; the caller holds none.
    pub(crate) fn sync_if_flagged(&self, inode: &Inode) -> Result<()> {
        if !inode.syncs.load(Ordering::Relaxed) || self.journal().is_one_transaction() {
            return Ok(());
        }
        self.context().announce()?;
        if let Some(file_cache) = inode.file_cache.get() {
            let written = self.write_back_file(inode);
            if let Err(error) = &written {
                file_cache.pages.note_error(error);
            }
            written?;
        }
        self.commit_inode(inode, |synced| &mut synced.all)
    }

    /// As [`Volume::sync_if_flagged`], for a call's changes of names in directories. Unlike a sync,
    /// it does not write back dirty data of files.
    pub(crate) fn sync_names_if_flagged(&self, dirs: &[&Inode]) -> Result<()> {
        match dirs.iter().any(|dir| dir.syncs.load(Ordering::Relaxed)) {
            true => self.commit_names(),
            false => Ok(()),
        }
    }

    /// Makes all earlier changes of names durable. Unlike a sync, it does not write back dirty data
    /// of files. Does nothing while the volume is a single all-or-nothing transaction.
    pub(crate) fn commit_names(&self) -> Result<()> {
        if self.journal().is_one_transaction() {
            return Ok(());
        }
        self.context().announce()?;
        match self.context().fast_commits() && self.journal().is_all_recorded() {
            true => Ok(()),
            false => self.context().recording_abort(self.journal().sync()),
        }
    }
}

fn is_later(point: CommitPoint, other: CommitPoint) -> bool {
    point.tid.is_after(other.tid) || point.tid == other.tid && point.nr > other.nr
}
