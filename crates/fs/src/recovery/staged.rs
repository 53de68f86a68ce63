//! Changes that are made in memory and written home in steps, each of them one transaction of the
//! log.
//!
//! ```text
//!   the change ──► Overlay ──read only──► home
//!                     │ commit: blocks that differ
//!                     ▼
//!          one transaction of the log ──► home, flush ──► overlay drops them
//! ```
//!
//! For work that has the volume to itself: recovery, resizing, changing features. The log never
//! holds more than the step that is written home. So blocks that an earlier step freed need no
//! revokes.
//!
//! Rule: at each commit of a step the volume is consistent. Between these, only blocks that were
//! free after the last step may be written past the overlay.

use extant_base::{BlockNr, BlockSize, ByteOffset, Error, Result};
use extant_blockdev::{BlockDevice, Overlay};
use extant_journal::{Log, Recovery};
use std::sync::Arc;

/// A volume's device and the changes that are not yet written to it.
pub(crate) struct Staged {
    home: Arc<dyn BlockDevice>,
    over: Arc<Overlay<Arc<dyn BlockDevice>>>,
    log: Option<(Log, Recovery)>,
    block_size: BlockSize,
    /// A step failed after a part of it was written home.
    failed: bool,
}

impl Staged {
    /// A device without changes. Without a `log`, steps are written home directly and are not
    /// atomic.
    pub(crate) fn new(
        home: Arc<dyn BlockDevice>,
        log: Option<(Log, Recovery)>,
        block_size: BlockSize,
    ) -> Staged {
        let over = Arc::new(Overlay::new(Arc::clone(&home)));
        Staged { home, over, log, block_size, failed: false }
    }

    /// The device below.
    pub(crate) fn home(&self) -> &Arc<dyn BlockDevice> {
        &self.home
    }

    /// The device with the changes: writes to it stay in memory until a step is committed.
    pub(crate) fn device(&self) -> Arc<dyn BlockDevice> {
        Arc::clone(&self.over) as Arc<dyn BlockDevice>
    }

    /// The state of the log after recovery, if there is a log.
    pub(crate) fn recovery_mut(&mut self) -> Option<&mut Recovery> {
        self.log.as_mut().map(|(_, recovery)| recovery)
    }

    /// The log, if there is one.
    pub(crate) fn log(&self) -> Option<&Log> {
        self.log.as_ref().map(|(log, _)| log)
    }

    /// Returns the log, to open the volume again.
    pub(crate) fn into_log(self) -> Option<(Log, Recovery)> {
        self.log
    }

    /// Most blocks of one step; `None` without a log: then there is no limit.
    pub(crate) fn limit(&self) -> Option<u64> {
        self.log.as_ref().map(|(log, _)| log.append_limit())
    }

    /// Whether so many changes wait that another step of ordinary size might not fit.
    pub(crate) fn is_large(&self) -> bool {
        let limit = self.limit().map_or(4096, |limit| limit / 4);
        self.over.held_bytes() >> self.block_size.log2() > limit
    }

    /// Writes bytes at once to free blocks, to which no metadata refers yet: content that moves
    /// there.
    pub(crate) fn write_free(&self, at: ByteOffset, bytes: &[u8]) -> Result<()> {
        self.over.write_through(at, bytes)
    }

    /// Writes the waiting changes home as one step, without the blocks from `block_count` on. `now`
    /// is the time in seconds and nanoseconds.
    ///
    /// A step that is larger than the log is written home directly and is not atomic. Errors:
    /// `Device`.
    pub(crate) fn commit_step(&mut self, block_count: u64, now: (u64, u32)) -> Result<()> {
        let blocks = self.changed_blocks(block_count)?;
        if !self.append(&blocks, now)? {
            self.write_home(&blocks)?;
        }
        self.over.forget_changes();
        Ok(())
    }

    /// As [`Staged::commit_step`], but refuses a step that is larger than the log. Then nothing
    /// changes.
    ///
    /// Errors: `NotSupported` then; `Device`.
    pub(crate) fn commit_whole_step(&mut self, block_count: u64, now: (u64, u32)) -> Result<()> {
        let blocks = self.changed_blocks(block_count)?;
        if !self.append(&blocks, now)? {
            if self.log.is_some() {
                return Err(Error::NotSupported(
                    "the change is larger than the journal: make the journal larger first",
                ));
            }
            self.write_home(&blocks)?;
        }
        self.over.forget_changes();
        Ok(())
    }

    fn append(&mut self, blocks: &[BlockNr], now: (u64, u32)) -> Result<bool> {
        let done = match &mut self.log {
            Some((log, recovery)) => log.append(&self.home, recovery, &self.over, blocks, now),
            None => Ok(false),
        };
        self.failed |= done.is_err();
        done
    }

    /// Settles the waiting changes and makes `log`, which is empty, the volume's log from then on.
    ///
    /// The step is written to the new log. Then `switch`, one write that cannot be torn, makes the
    /// volume name that log. Only then is the step written home. After a power cut before the
    /// switch the volume is as it was. After a power cut later, the new log holds the whole step.
    /// Errors: as [`Staged::commit_whole_step`].
    pub(crate) fn commit_into(
        &mut self,
        mut log: Log,
        mut recovery: Recovery,
        block_count: u64,
        now: (u64, u32),
        switch: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        let blocks = self.changed_blocks(block_count)?;
        let (home, over) = (&self.home, &self.over);
        let done = log.append_after(home, &mut recovery, over, &blocks, now, switch);
        self.failed |= done.is_err();
        if !done? {
            return Err(Error::NotSupported(
                "the change is larger than the journal: make the journal larger first",
            ));
        }
        self.log = Some((log, recovery));
        self.over.forget_changes();
        Ok(())
    }

    /// Settles the waiting changes as the last step of the log, which the step removes. `switch`,
    /// one write that cannot be torn, makes the log valid. Later steps are written home directly.
    ///
    /// Errors: as [`Staged::commit_whole_step`].
    pub(crate) fn commit_and_leave_log(
        &mut self,
        block_count: u64,
        now: (u64, u32),
        switch: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        let (log, recovery) = self.log.take().ok_or(Error::NotFound)?;
        self.commit_into(log, recovery, block_count, now, switch)?;
        self.log = None;
        Ok(())
    }

    fn write_home(&mut self, blocks: &[BlockNr]) -> Result<()> {
        let done = self.copy_home(blocks);
        self.failed |= done.is_err();
        done
    }

    fn copy_home(&self, blocks: &[BlockNr]) -> Result<()> {
        for block in blocks {
            let mut bytes = vec![0; self.block_size.bytes()];
            let at = self.block_size.start_of(*block);
            self.over.read_at(at, &mut bytes)?;
            self.home.write_at(at, &bytes)?;
        }
        self.home.flush()
    }

    /// The blocks whose content differs from that at home, ascending.
    fn changed_blocks(&self, block_count: u64) -> Result<Vec<BlockNr>> {
        let size = self.block_size;
        let (mut old, mut new) = (vec![0; size.bytes()], vec![0; size.bytes()]);
        let mut changed = Vec::new();
        for range in self.over.changed_ranges() {
            // The volume, and with it the device, may end inside the page of its last block.
            let blocks = size.block_at(ByteOffset(range.start)).0..size.blocks_for(range.end);
            for block in blocks.map(BlockNr).filter(|block| block.0 < block_count) {
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

    /// Marks the log empty. Everything is durable at home. Changes that still wait are dropped.
    ///
    /// Errors: `NotSupported` if a step was only partly written home: the log is needed to repair
    /// that.
    pub(crate) fn empty_log(&mut self) -> Result<()> {
        if self.failed {
            return Err(Error::NotSupported(
                "a change was logged and not checkpointed: recover the volume",
            ));
        }
        match &mut self.log {
            Some((log, recovery)) => log.finish(&self.home, recovery),
            None => self.home.flush(),
        }
    }
}
