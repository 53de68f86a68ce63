//! Syncing and closing a volume that is open for writing.
//!
//! `context/mode.rs` describes what the superblock on disk shows at each step, and in which order.

use crate::context::superblock::{SUPERBLOCK_CREDITS, patch_superblock};
use crate::volume::Volume;
use extant_base::{Error, Result};
use extant_journal::Credits;
use extant_ondisk::features::{Incompat, RoCompat};
use extant_ondisk::superblock::{Superblock, VolumeState};

/// What makes an open volume durable, and what opens and closes it.
#[derive(Clone, Copy)]
pub(crate) struct MountState<'a> {
    /// The volume.
    pub(crate) volume: &'a Volume,
}

impl Volume {
    /// The mount of this volume: sync, opening for writing, closing.
    pub(crate) fn mount_state(&self) -> MountState<'_> {
        MountState { volume: self }
    }
}

impl MountState<'_> {
    /// Makes all changes from before the call durable.
    pub(crate) fn sync(self) -> Result<()> {
        self.volume.context().recording_errors(|| self.sync_all())
    }

    /// Makes the names in all directories durable, as they were before the call. Commits, unless a
    /// fast commit recorded all changes; writes back no data of files. After a crash, a directory
    /// whose changes were recorded has the times that recovery gives it.
    ///
    /// Errors and locks as [`MountState::sync`].
    pub(crate) fn sync_names(self) -> Result<()> {
        let context = self.volume.context();
        if context.fast_commits() {
            self.commit_closed_files()?;
            if self.volume.journal().is_all_recorded() {
                return Ok(());
            }
        }
        context.recording_errors(|| {
            if context.is_open_to_write() {
                context.announce()?;
                context.write_errors()?;
            }
            self.volume.journal().sync()
        })
    }

    fn sync_all(self) -> Result<()> {
        if self.volume.context().is_open_to_write() {
            self.volume.context().announce()?;
            self.volume.context().write_errors()?;
        }
        self.write_back_and_commit(true)
    }

    /// Writes back all dirty data. Then commits if `commit` asks for it, or if write-back of some
    /// file failed: an error of one file does not cost the other files their changes. In
    /// one-transaction mode there is no commit after an error: that transaction is all or nothing.
    fn write_back_and_commit(self, commit: bool) -> Result<()> {
        let written = self.write_back_all();
        match written.is_err() {
            true if self.volume.journal().is_one_transaction() => written,
            false if !commit => written,
            _ => written.and(self.volume.journal().sync()),
        }
    }

    /// Prepares a volume that was just opened for writing. With `one_transaction` nothing changes
    /// on disk before the first [`MountState::sync`].
    ///
    /// Errors: `Device`. Locks: takes `Mount`.
    pub(crate) fn begin_writing(self, one_transaction: bool) -> Result<()> {
        self.volume.space().recount_free()?;
        // A superblock that goes through the journal must say the same as the announced one.
        self.volume.context().mark_in_use();
        if one_transaction {
            return Ok(());
        }
        self.volume.context().announce()
    }

    /// Makes everything durable and leaves a volume that needs no recovery. No change is possible
    /// afterwards. Closing again does nothing.
    ///
    /// Errors: `Device`, `Aborted`: then the volume needs recovery. Locks: takes `Mount`; none may
    /// be held.
    pub(crate) fn close(self) -> Result<()> {
        if !self.volume.context().is_open_to_write() {
            return Ok(());
        }
        let done = self.volume.context().recording_abort(self.write_final_state());
        self.stop_cache();
        done?;
        self.volume.context().release_hold()?;
        self.volume.device().set_idle();
        Ok(())
    }

    /// Ends the threads that write back and read ahead. Dirty data stays in memory.
    pub(crate) fn stop_cache(self) {
        if let Some(cache) = self.volume.page_cache() {
            cache.stop();
        }
    }

    fn write_final_state(self) -> Result<()> {
        self.volume.context().announce()?;
        self.write_back_and_commit(false)?;
        if !self.volume.context().close_to_writes() {
            return Ok(());
        }
        // Writes back the data of calls that were in progress when the volume was closed to
        // changes.
        self.write_back_all()?;
        self.volume.quota_accounting().sweep()?;
        let now = u64::try_from(self.volume.environment().now().sec).unwrap_or(0);
        let no_orphans = self.volume.orphans().file_is_empty();
        self.update_superblock_with(|sb| {
            sb.wtime = now;
            if no_orphans {
                sb.features.ro_compat.remove(RoCompat::ORPHAN_PRESENT);
            }
        })?;
        let was_valid = self.volume.at_open().state.contains(VolumeState::VALID);
        if self.volume.journal().is_off() {
            self.volume.journal().sync()?;
            return patch_superblock(&**self.volume.device(), |sb| {
                sb.state.set(VolumeState::VALID, was_valid)
            });
        }
        self.volume.journal().close()?;
        // Rule D3: the log is empty now, and that is durable.
        patch_superblock(&**self.volume.device(), |sb| sb.features.incompat.remove(Incompat::LIVE))
    }

    /// See [`Filesystem::set_label`](crate::Filesystem::set_label).
    pub(crate) fn set_label(self, label: &[u8]) -> Result<()> {
        self.volume.context().check_writable()?;
        let mut name = [0; 16];
        let Some(place) = name.get_mut(..label.len()) else {
            return Err(Error::Invalid("a label has at most 16 bytes"));
        };
        place.copy_from_slice(label);
        let handle = self.volume.journal().start(Credits::blocks(SUPERBLOCK_CREDITS))?;
        self.volume.context().change_superblock(&handle, |sb| sb.volume_name = name)?;
        handle.stop()?;
        self.sync()
    }

    /// Writes counters, late features and the error state into the superblock.
    ///
    /// Errors: `Device`, `Aborted`. Locks: takes a handle, then `Superblock`.
    pub(crate) fn update_superblock(self) -> Result<()> {
        self.update_superblock_with(|_| {})
    }

    /// As [`MountState::update_superblock`], with one more change in the same transaction.
    pub(crate) fn update_superblock_with(self, change: impl FnOnce(&mut Superblock)) -> Result<()> {
        self.volume.context().update_superblock(|sb| {
            sb.free_blocks =
                self.volume.space().free_clusters() << self.volume.geometry().log_cluster_ratio();
            sb.free_inodes = self.volume.space().free_inodes();
            change(sb);
        })
    }
}
