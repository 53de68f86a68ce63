//! Making a file durable.
//!
//! ```text
//!                  last transaction of           not durable ──► commit it, one flush for it and data
//!   sync_all       anything in the inode ─────┬─►
//!   sync_data      size and map ──────────────┘  durable     ──► one flush, for data written in place
//!                                                not known   ──► commit everything
//! ```

use crate::file::File;
use crate::file::synced::Synced;
use extant_base::{Result, Tid};

impl File {
    /// Returns when content and metadata of the file are durable.
    ///
    /// Errors: `Device`, `Aborted`. Locks: takes `Inode`, shared.
    pub fn sync_all(&self) -> Result<()> {
        self.sync(|synced| &mut synced.all)
    }

    /// Returns when the content is durable, with what is needed to read it back; times need not be.
    ///
    /// Errors and locks as [`File::sync_all`].
    pub fn sync_data(&self) -> Result<()> {
        self.sync(|synced| &mut synced.content)
    }

    fn sync(&self, which: impl Fn(&mut Synced) -> &mut Option<Tid>) -> Result<()> {
        let volume = self.volume();
        if !volume.mode.is_open_to_write() {
            return Ok(());
        }
        volume.announce()?;
        let mut synced = self.inode.read().synced;
        match *which(&mut synced) {
            Some(tid) if !volume.journal.is_off() => {
                volume.noting_abort(volume.journal.commit_with_data(tid))
            }
            _ => {
                volume.noting_abort(volume.journal.sync())?;
                let now = volume.journal.committed();
                let mut body = self.inode.write();
                which(&mut body.synced).get_or_insert(now);
                Ok(())
            }
        }
    }
}
