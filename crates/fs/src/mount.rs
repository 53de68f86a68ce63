//! Syncing and closing a volume that is open to write.
//!
//! What the superblock says of that on disk, and in which order, is in `context/mode.rs`.

use crate::context::superblock::{SUPERBLOCK_CREDITS, patch_superblock};
use crate::volume::Volume;
use extant_base::{Error, Result};
use extant_journal::Credits;
use extant_ondisk::features::{Incompat, RoCompat};
use extant_ondisk::superblock::{Superblock, VolumeState};

impl Volume {
    /// Everything that was changed before the call is durable after it.
    ///
    /// Errors: `Device`, `Aborted`. Locks: takes `Mount`; none may be held.
    pub(crate) fn sync(&self) -> Result<()> {
        self.context().noting(|| self.sync_all())
    }

    /// The names in all directories, as before the call, are durable after it: in full, unless a fast commit
    /// told them and nothing was changed since. A directory's times are then those that recovery gives it.
    ///
    /// Errors and locks as [`Volume::sync`].
    pub(crate) fn sync_names(&self) -> Result<()> {
        match self.context().fast_commits() && self.journal().is_all_told() {
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

    /// Writes back what is dirty, and commits where that was asked for or did not work for every file: what one of them
    /// meets does not cost the others their changes. One transaction is all or nothing.
    fn write_back_and_commit(&self, commit: bool) -> Result<()> {
        let written = self.write_back_all();
        match written.is_err() {
            true if self.journal().is_one_transaction() => written,
            false if !commit => written,
            _ => written.and(self.journal().sync()),
        }
    }

    /// The volume was just opened to write. With `one_transaction` nothing is said on disk before
    /// the first [`Volume::sync`].
    ///
    /// Errors: `Device`. Locks: takes `Mount`.
    pub(crate) fn begin_writing(&self, one_transaction: bool) -> Result<()> {
        self.space().recount_free()?;
        // What goes through the journal says the same as what is announced.
        self.context().mark_in_use();
        if one_transaction {
            return Ok(());
        }
        self.context().announce()
    }

    /// Makes everything durable and the volume one that needs no recovery. No change is possible
    /// afterwards; closing again does nothing.
    ///
    /// Errors: `Device`, `Aborted`: then the volume needs recovery. Locks: takes `Mount`; none may
    /// be held.
    pub(crate) fn close(&self) -> Result<()> {
        if !self.context().is_open_to_write() {
            return Ok(());
        }
        let done = self.context().noting_abort(self.make_whole());
        self.stop_cache();
        done?;
        self.context().release_hold()?;
        self.device().settle();
        Ok(())
    }

    /// Ends the threads that write back and read ahead. What is dirty stays in memory.
    pub(crate) fn stop_cache(&self) {
        if let Some(cache) = self.page_cache() {
            cache.stop();
        }
    }

    fn make_whole(&self) -> Result<()> {
        self.context().announce()?;
        self.write_back_and_commit(false)?;
        if !self.context().close_to_writes() {
            return Ok(());
        }
        // What was under way when the door was shut.
        self.write_back_all()?;
        self.quota_sweep()?;
        let now = u64::try_from(self.environment().now().sec).unwrap_or(0);
        let no_orphans = self.orphans().file_is_empty();
        self.settle_superblock_with(|sb| {
            sb.wtime = now;
            if no_orphans {
                sb.features.ro_compat.remove(RoCompat::ORPHAN_PRESENT);
            }
        })?;
        let was_valid = self.at_open().state.contains(VolumeState::VALID);
        if self.journal().is_off() {
            self.journal().sync()?;
            return patch_superblock(&*self.device(), |sb| {
                sb.state.set(VolumeState::VALID, was_valid)
            });
        }
        self.journal().close()?;
        // Rule D3: the log is empty now, and that is durable.
        patch_superblock(&*self.device(), |sb| sb.features.incompat.remove(Incompat::LIVE))
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

    /// Brings counters, late features and the error state into the superblock.
    ///
    /// Errors: `Device`, `Aborted`. Locks: takes a handle, then `Superblock`.
    pub(crate) fn settle_superblock(&self) -> Result<()> {
        self.settle_superblock_with(|_| {})
    }

    /// As [`Volume::settle_superblock`], with one more change in the same transaction.
    pub(crate) fn settle_superblock_with(
        &self,
        change: impl FnOnce(&mut Superblock),
    ) -> Result<()> {
        self.context().settle_superblock(|sb| {
            sb.free_blocks = self.space().free_clusters() << self.geometry().log_cluster_ratio();
            sb.free_inodes = self.space().free_inodes();
            change(sb);
        })
    }
}
