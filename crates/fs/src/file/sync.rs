//! Making a file durable.
//!
//! ```text
//!   sync_all    everything of the file       sync_data   what reading it back needs
//! ```

use crate::file::File;
use extant_base::Result;

impl File {
    /// Returns when content and metadata of the file are durable.
    ///
    /// Errors: `Device`, `Aborted`. Locks: takes `Inode`, shared.
    pub fn sync_all(&self) -> Result<()> {
        self.volume().journal.sync()
    }

    /// Returns when the content is durable, with what is needed to read it back; times need not be.
    ///
    /// Errors and locks as [`File::sync_all`].
    pub fn sync_data(&self) -> Result<()> {
        self.volume().journal.sync()
    }
}
