//! Where recovery works after the log's replay: in memory, until a step is whole.
//!
//! ```text
//!   Volume (journal off) ──► Overlay ──only read──► home
//!                               │ settle: blocks that differ
//!                               ▼
//!                    one transaction of the log ──► home, flush ──► overlay forgets
//! ```
//!
//! Rule: at each settling the volume is whole, with what is left to do still on record (the orphans
//! that remain). A step that is larger than the log goes home directly; only a volume with a tiny
//! log and enormous fast commits gets there.

use crate::volume::{Volume, VolumeOptions};
use extant_base::{BlockNr, ByteOffset, Result};
use extant_blockdev::{BlockDevice, Overlay};
use extant_journal::{FastCommitLog, Log, Recovery};
use extant_ondisk::features::Incompat;
use extant_ondisk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use std::sync::Arc;

/// A volume whose log was replayed, and what is being done to it.
pub(super) struct Stage {
    home: Arc<dyn BlockDevice>,
    over: Arc<Overlay<Arc<dyn BlockDevice>>>,
    /// The volume, to be changed freely.
    pub(super) volume: Volume,
    log: Option<(Log, Recovery)>,
    options: VolumeOptions,
}

impl Stage {
    /// Opens the volume on `home` anew, its counters summed from the descriptors.
    pub(super) fn open(
        home: &Arc<dyn BlockDevice>,
        log: Option<(Log, Recovery)>,
        options: &VolumeOptions,
    ) -> Result<Stage> {
        let over = Arc::new(Overlay::new(Arc::clone(home)));
        let options = VolumeOptions {
            read_only: false,
            backup: None,
            free_later: log.as_ref().is_some_and(|(_, recovery)| recovery.fast_commit.is_some()),
            ..options.clone()
        };
        let volume = Volume::open_parts(Arc::clone(&over) as Arc<dyn BlockDevice>, &options)?;
        volume.recount_free()?;
        Ok(Stage { home: Arc::clone(home), over, volume, log, options })
    }

    /// The volume anew, after a settling: for work that wants freed blocks back at once.
    pub(super) fn reopen(self) -> Result<Stage> {
        Stage::open(&self.home, self.log, &self.options)
    }

    /// The fast commits to apply, once.
    pub(super) fn take_fast_commits(&mut self) -> Option<FastCommitLog> {
        self.log.as_mut()?.1.fast_commit.take()
    }

    /// Settles when so much was changed that more might not fit the log. The volume is whole.
    pub(super) fn settle_if_large(&mut self) -> Result<()> {
        self.volume.journal.sync()?;
        let limit = match &self.log {
            Some((log, _)) => log.append_limit() / 4,
            None => 4096,
        };
        if self.over.held_bytes() >> self.volume.block_size().log2() > limit {
            self.settle()?;
        }
        Ok(())
    }

    /// Brings home what was changed, as one step. The volume is whole.
    pub(super) fn settle(&mut self) -> Result<()> {
        self.volume.settle_superblock()?;
        self.volume.journal.sync()?;
        let blocks = self.changed_blocks()?;
        let now = self.volume.environment.now();
        let now = (u64::try_from(now.sec).unwrap_or(0), now.nsec);
        let appended = match &mut self.log {
            Some((log, recovery)) => log.append(&self.home, recovery, &self.over, &blocks, now)?,
            None => false,
        };
        if !appended {
            for block in blocks {
                let mut bytes = vec![0; self.volume.block_size().bytes()];
                let at = self.volume.block_size().start_of(block);
                self.over.read_at(at, &mut bytes)?;
                self.home.write_at(at, &bytes)?;
            }
            self.home.flush()?;
        }
        self.over.forget_changes();
        Ok(())
    }

    /// The blocks whose content differs from the one at home, ascending.
    fn changed_blocks(&self) -> Result<Vec<BlockNr>> {
        let size = self.volume.block_size();
        let (mut old, mut new) = (vec![0; size.bytes()], vec![0; size.bytes()]);
        let mut changed = Vec::new();
        for range in self.over.changed_ranges() {
            // A volume's last block may end before its page does, and with it the device.
            let blocks = size.block_at(ByteOffset(range.start)).0..size.blocks_for(range.end);
            for block in blocks.map(BlockNr).filter(|block| block.0 < self.block_count()) {
                if changed.last() == Some(&block) {
                    continue;
                }
                self.home.read_at(size.start_of(block), &mut old)?;
                self.over.read_at(size.start_of(block), &mut new)?;
                if old != new {
                    changed.push(block);
                }
            }
        }
        Ok(changed)
    }

    fn block_count(&self) -> u64 {
        self.volume.layout.blocks_count()
    }

    /// Settles what is left, empties the log, and marks the volume as recovered.
    pub(super) fn finish(mut self) -> Result<()> {
        // Afterwards the superblock differs from the one at home in a flag only: see `torn.rs`.
        self.settle()?;
        if let Some((log, recovery)) = &mut self.log {
            log.finish(&self.home, recovery)?;
        }
        // The last step is one superblock: what it says holds from now on.
        self.volume.superblock.write().features.incompat.remove(Incompat::RECOVER);
        self.volume.settle_superblock()?;
        self.volume.journal.sync()?;
        let mut bytes = [0; SUPERBLOCK_SIZE];
        self.over.read_at(ByteOffset(SUPERBLOCK_OFFSET), &mut bytes)?;
        self.home.write_fua(ByteOffset(SUPERBLOCK_OFFSET), &bytes)?;
        Ok(())
    }
}
