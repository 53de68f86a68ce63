//! Making an open file durable; `files/file/sync.rs` describes how.

use crate::api::file::File;
use crate::state::inode::synced::Synced;
use extant_base::Result;
use extant_journal::CommitPoint;

impl File {
    /// Returns when content and metadata of the file are durable.
    ///
    /// # Errors
    /// `Device`, `Aborted`. Each write-back error is returned once to each opening of the file.
    pub fn sync_all(&self) -> Result<()> {
        self.sync(|synced| &mut synced.all)
    }

    /// Returns when the content is durable, with what is needed to read it back; times need not be.
    ///
    /// # Errors
    /// As [`File::sync_all`].
    pub fn sync_data(&self) -> Result<()> {
        self.sync(|synced| &mut synced.content)
    }

    /// Writes dirty bytes of a range to the device and returns when that is done. It does not
    /// flush: the bytes are not durable, and the file's map and size may not be on the device.
    ///
    /// # Errors
    /// `Device`, `Aborted`; then the bytes stay dirty.
    pub fn write_back(&self, offset: u64, len: u64) -> Result<()> {
        let range = offset..offset.saturating_add(len);
        self.volume()
            .context()
            .recording_errors(|| self.volume().io(&self.inode).write_back(range, &u64::MAX))?;
        Ok(())
    }

    fn sync(&self, which: impl Fn(&mut Synced) -> &mut Option<CommitPoint>) -> Result<()> {
        let volume = self.volume();
        if !volume.context().is_open_to_write() {
            return Ok(());
        }
        volume.context().announce()?;
        if let Some(file_cache) = self.inode.file_cache.get() {
            let done =
                volume.context().recording_errors(|| volume.io(&self.inode).write_back_file());
            if let Err(error) = &done {
                file_cache.pages.note_error(error);
            }
            // A write-back error that this opening has not seen yet.
            let reported = file_cache.pages.check_error(&self.opened.error_seen);
            done?;
            reported?;
        }
        volume.io(&self.inode).commit_inode(which)
    }
}
