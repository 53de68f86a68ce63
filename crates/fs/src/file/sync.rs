//! Making a file durable.
//!
//! ```text
//!                  last step of                  not durable ──► commit it, one flush for it and data
//!   sync_all       anything in the inode ─────┬─►
//!   sync_data      size and map ──────────────┘  durable     ──► one flush, for data written in place
//!                                                not known   ──► commit everything
//!   before it, dirty folios go to the device
//! ```

use crate::file::File;
use crate::file::synced::Synced;
use extant_base::Result;
use extant_journal::Step;

impl File {
    /// Returns when content and metadata of the file are durable.
    ///
    /// Errors: `Device`, `Aborted`; each error of writing back is told once to each opening of the file. Locks: as a
    /// write.
    pub fn sync_all(&self) -> Result<()> {
        self.sync(|synced| &mut synced.all)
    }

    /// Returns when the content is durable, with what is needed to read it back; times need not be.
    ///
    /// Errors and locks as [`File::sync_all`].
    pub fn sync_data(&self) -> Result<()> {
        self.sync(|synced| &mut synced.content)
    }

    /// Writes dirty bytes of a range to the device and returns when they are there. Nothing is flushed:
    /// they are not durable, and the file's map and size may not be.
    ///
    /// Errors: `Device`, `Aborted`: the bytes stay dirty. Locks: takes `WriteBack`, then as a write.
    pub fn write_back(&self, offset: u64, len: u64) -> Result<()> {
        let range = offset..offset.saturating_add(len);
        self.volume().noting(|| self.volume().write_back(&self.inode, range, &u64::MAX))?;
        Ok(())
    }

    fn sync(&self, which: impl Fn(&mut Synced) -> &mut Option<Step>) -> Result<()> {
        let volume = self.volume();
        if !volume.mode.is_open_to_write() {
            return Ok(());
        }
        volume.announce()?;
        if let Some(cached) = self.inode.cached.get() {
            let done = volume.noting(|| volume.write_back(&self.inode, 0..u64::MAX, &u64::MAX));
            if let Err(error) = &done {
                cached.pages.note_error(error);
            }
            // What writing back met since this opening was last told of it.
            let told = cached.pages.check_error(&self.opened.error_seen);
            done?;
            told?;
        }
        let mut synced = self.inode.read().synced;
        match *which(&mut synced) {
            Some(step) if !volume.journal.is_off() => {
                volume.noting_abort(volume.journal.commit_with_data(step, Some(volume)))
            }
            _ => {
                volume.noting_abort(volume.journal.sync())?;
                let now = volume.journal.durable_step();
                let mut body = self.inode.write();
                which(&mut body.synced).get_or_insert(now);
                Ok(())
            }
        }
    }
}
