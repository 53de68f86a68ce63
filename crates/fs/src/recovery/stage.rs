//! Where recovery works after the log's replay: a volume over [`Staged`] changes.
//!
//! ```text
//!   Volume (journal off) ──► Staged ──commit──► one transaction of the log ──► home
//! ```
//!
//! Rule: each step leaves a consistent volume that still records the remaining work (the
//! remaining orphans). Changes that exceed the log are written home directly; this happens only
//! with a tiny log and very large fast commits.

use crate::recovery::staged::Staged;
use crate::volume::{Volume, VolumeOptions};
use extant_base::{ByteOffset, Result};
use extant_blockdev::BlockDevice;
use extant_journal::{FastCommitLog, Log, Recovery};
use extant_ondisk::features::Incompat;
use extant_ondisk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use std::sync::Arc;

/// A volume whose log was replayed, and the changes that recovery makes to it.
pub(super) struct Stage {
    staged: Staged,
    /// The volume, which may be changed freely.
    pub(super) volume: Volume,
    options: VolumeOptions,
}

impl Stage {
    /// Opens the volume on `home` again, and counts its free space from the descriptors.
    pub(super) fn open(
        home: &Arc<dyn BlockDevice>,
        log: Option<(Log, Recovery)>,
        options: &VolumeOptions,
    ) -> Result<Stage> {
        let options = VolumeOptions {
            read_only: false,
            backup: None,
            free_later: log.as_ref().is_some_and(|(_, recovery)| recovery.fast_commit.is_some()),
            ..options.clone()
        };
        let block_size = crate::context::superblock::read_superblock(&**home, None)?.block_size;
        let staged = Staged::new(Arc::clone(home), log, block_size);
        let mut volume = Volume::open_parts(staged.device(), &options)?;
        if let Some(log) = staged.log() {
            volume.guard_log(log.map());
        }
        volume.space().recount_free()?;
        Ok(Stage { staged, volume, options })
    }

    /// Opens the volume again after a step, for work that needs freed blocks back at once.
    pub(super) fn reopen(self) -> Result<Stage> {
        let home = Arc::clone(self.staged.home());
        Stage::open(&home, self.staged.into_log(), &self.options)
    }

    /// The fast commits to apply. Returns them once.
    pub(super) fn take_fast_commits(&mut self) -> Option<FastCommitLog> {
        self.staged.recovery_mut()?.fast_commit.take()
    }

    /// Settles if further changes might not fit the log. The volume must be consistent.
    pub(super) fn commit_if_large(&mut self) -> Result<()> {
        self.volume.journal().sync()?;
        if self.staged.is_large() {
            self.commit_step()?;
        }
        Ok(())
    }

    /// Writes the changes home as one transaction. The volume must be consistent.
    pub(super) fn commit_step(&mut self) -> Result<()> {
        self.volume.mount_state().update_superblock()?;
        self.volume.journal().sync()?;
        let now = self.volume.environment().now();
        let now = (u64::try_from(now.sec).unwrap_or(0), now.nsec);
        self.staged.commit_step(self.volume.geometry().blocks_count(), now)
    }

    /// Settles what is left, empties the log, and marks the volume as recovered.
    pub(super) fn finish(mut self) -> Result<()> {
        // After this the superblock differs from the one at home only in a flag: see `torn.rs`.
        self.commit_step()?;
        self.staged.empty_log()?;
        // The last write is the superblock alone: it takes effect as a whole.
        self.volume.context().superblock().write().features.incompat.remove(Incompat::LIVE);
        self.volume.mount_state().update_superblock()?;
        self.volume.journal().sync()?;
        let mut bytes = [0; SUPERBLOCK_SIZE];
        let at = ByteOffset(SUPERBLOCK_OFFSET);
        self.staged.device().read_at(at, &mut bytes)?;
        self.staged.home().write_fua(at, &bytes)
    }
}
