//! Syncing and closing a volume that is open for writing.
//!
//! `context/mode.rs` describes what the superblock on disk shows at each step, and in which order.

use crate::context::superblock::{SUPERBLOCK_CREDITS, patch_superblock};
use crate::volume::Volume;
use extant_base::{Error, Result};
use extant_journal::Credits;
use extant_ondisk::features::{Incompat, RoCompat};
use extant_ondisk::superblock::{Superblock, VolumeState};

impl Volume {
    /// Makes all changes from before the call durable.
    pub(crate) fn sync(&self) -> Result<()> {
        self.context().recording_errors(|| self.sync_all())
    }

    /// Makes the names in all directories durable, as they were before the call. This is a full
    /// sync unless a fast commit recorded all changes. After a crash, a directory then has the
    /// times that recovery gives it.
    ///
    /// Errors and locks as [`Volume::sync`].
    pub(crate) fn sync_names(&self) -> Result<()> {
        match self.context().fast_commits() && self.journal().is_all_recorded() {
            true => Ok(()),
            false => self.sync(),
        }
    }

    fn sync_all(&self) -> Result<()> {
        if self.context().is_open_to_write() {
            self.context().announce()?;
            self.context().write_errors()?;
        }
        self.write_back_and_commit(true)
    }

    /// Writes back all dirty data. Then commits if `commit` asks for it, or if write-back of some
    /// file failed: an error of one file does not cost the other files their changes. In
    /// one-transaction mode there is no commit after an error: that transaction is all or nothing.
    fn write_back_and_commit(&self, commit: bool) -> Result<()> {
        let written = self.write_back_all();
        match written.is_err() {
            true if self.journal().is_one_transaction() => written,
            false if !commit => written,
            _ => written.and(self.journal().sync()),
        }
    }

    /// Prepares a volume that was just opened for writing. With `one_transaction` nothing changes
    /// on disk before the first [`Volume::sync`].
    ///
    /// Errors: `Device`. Locks: takes `Mount`.
    pub(crate) fn begin_writing(&self, one_transaction: bool) -> Result<()> {
        self.space().recount_free()?;
        // A superblock that goes through the journal must say the same as the announced one.
        self.context().mark_in_use();
        if one_transaction {
            return Ok(());
        }
        self.context().announce()
    }

    /// Makes everything durable and leaves a volume that needs no recovery. No change is possible
    /// afterwards. Closing again does nothing.
    ///
    /// Errors: `Device`, `Aborted`: then the volume needs recovery. Locks: takes `Mount`; none may
    /// be held.
    pub(crate) fn close(&self) -> Result<()> {
        if !self.context().is_open_to_write() {
            return Ok(());
        }
        let done = self.context().recording_abort(self.write_final_state());
        self.stop_cache();
        done?;
        self.context().release_hold()?;
        self.device().settle();
        Ok(())
    }

    /// Ends the threads that write back and read ahead. Dirty data stays in memory.
    pub(crate) fn stop_cache(&self) {
        if let Some(cache) = self.page_cache() {
            cache.stop();
        }
    }

    fn write_final_state(&self) -> Result<()> {
        self.context().announce()?;
        self.write_back_and_commit(false)?;
        if !self.context().close_to_writes() {
            return Ok(());
        }
        // Writes back the data of calls that were in progress when the volume was closed to
        // changes.
        self.write_back_all()?;
        self.quota_sweep()?;
        let now = u64::try_from(self.environment().now().sec).unwrap_or(0);
        let no_orphans = self.orphans().file_is_empty();
        self.update_superblock_with(|sb| {
            sb.wtime = now;
            if no_orphans {
                sb.features.ro_compat.remove(RoCompat::ORPHAN_PRESENT);
            }
        })?;
        let was_valid = self.at_open().state.contains(VolumeState::VALID);
        if self.journal().is_off() {
            self.journal().sync()?;
            return patch_superblock(&**self.device(), |sb| {
                sb.state.set(VolumeState::VALID, was_valid)
            });
        }
        self.journal().close()?;
        // Rule D3: the log is empty now, and that is durable.
        patch_superblock(&**self.device(), |sb| sb.features.incompat.remove(Incompat::LIVE))
    }

    /// See [`Filesystem::set_label`](crate::Filesystem::set_label).
    pub(crate) fn set_label(&self, label: &[u8]) -> Result<()> {
        self.context().check_writable()?;
        let mut name = [0; 16];
        let Some(place) = name.get_mut(..label.len()) else {
            return Err(Error::Invalid("a label has at most 16 bytes"));
        };
        place.copy_from_slice(label);
        let handle = self.journal().start(Credits::blocks(SUPERBLOCK_CREDITS))?;
        self.context().change_superblock(&handle, |sb| sb.volume_name = name)?;
        handle.stop()?;
        self.sync()
    }

    /// Writes counters, late features and the error state into the superblock.
    ///
    /// Errors: `Device`, `Aborted`. Locks: takes a handle, then `Superblock`.
    pub(crate) fn update_superblock(&self) -> Result<()> {
        self.update_superblock_with(|_| {})
    }

    /// As [`Volume::update_superblock`], with one more change in the same transaction.
    pub(crate) fn update_superblock_with(
        &self,
        change: impl FnOnce(&mut Superblock),
    ) -> Result<()> {
        self.context().update_superblock(|sb| {
            sb.free_blocks = self.space().free_clusters() << self.geometry().log_cluster_ratio();
            sb.free_inodes = self.space().free_inodes();
            change(sb);
        })
    }
}
