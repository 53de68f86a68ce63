//! Changes made in memory and brought home in steps, each of them one transaction of the log.
//!
//! ```text
//!   whoever changes ──► Overlay ──only read──► home
//!                          │ settle: blocks that differ
//!                          ▼
//!               one transaction of the log ──► home, flush ──► overlay forgets
//! ```
//!
//! For work that has the volume to itself: recovery, another size, other features. The log never
//! holds more than the step that goes home, so blocks freed by an earlier step need no revokes.
//!
//! Rule: at each settling the volume is whole. Between settlings only blocks that the last step left
//! free may be written past the overlay.

use extant_base::{BlockNr, BlockSize, ByteOffset, Error, Result};
use extant_blockdev::{BlockDevice, Overlay};
use extant_journal::{Log, Recovery};
use std::sync::Arc;

/// A volume's device with what is being changed on it.
pub(crate) struct Staged {
    home: Arc<dyn BlockDevice>,
    over: Arc<Overlay<Arc<dyn BlockDevice>>>,
    log: Option<(Log, Recovery)>,
    block_size: BlockSize,
    /// A step stopped half-way home.
    failed: bool,
}

impl Staged {
    /// Nothing is changed yet. Without a `log`, steps go home directly, not whole.
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

    /// The device as it is to be: writes stay in memory until they are settled.
    pub(crate) fn device(&self) -> Arc<dyn BlockDevice> {
        Arc::clone(&self.over) as Arc<dyn BlockDevice>
    }

    /// What recovery left in the log, if there is one.
    pub(crate) fn recovery_mut(&mut self) -> Option<&mut Recovery> {
        self.log.as_mut().map(|(_, recovery)| recovery)
    }

    /// The log, if there is one.
    pub(crate) fn log(&self) -> Option<&Log> {
        self.log.as_ref().map(|(log, _)| log)
    }

    /// Gives the log up, to open the volume anew.
    pub(crate) fn into_log(self) -> Option<(Log, Recovery)> {
        self.log
    }

    /// Most blocks of one step; `None` where there is no log and so no limit.
    pub(crate) fn limit(&self) -> Option<u64> {
        self.log.as_ref().map(|(log, _)| log.append_limit())
    }

    /// Whether so much waits that a step of ordinary size might not fit any more.
    pub(crate) fn is_large(&self) -> bool {
        let limit = self.limit().map_or(4096, |limit| limit / 4);
        self.over.held_bytes() >> self.block_size.log2() > limit
    }

    /// Writes bytes that nobody refers to yet, at once: free blocks that content moves to.
    pub(crate) fn write_free(&self, at: ByteOffset, bytes: &[u8]) -> Result<()> {
        self.over.write_through(at, bytes)
    }

    /// Brings home what waits, as one step; blocks from `block_count` on are left out. `now` is the
    /// time in seconds and nanoseconds.
    ///
    /// A step larger than the log goes home directly, not whole. Errors: `Device`.
    pub(crate) fn settle(&mut self, block_count: u64, now: (u64, u32)) -> Result<()> {
        let blocks = self.changed_blocks(block_count)?;
        if !self.append(&blocks, now)? {
            self.write_home(&blocks)?;
        }
        self.over.forget_changes();
        Ok(())
    }

    /// As [`Staged::settle`], but a step larger than the log is refused, and nothing changed.
    ///
    /// Errors: `NotSupported` then; `Device`.
    pub(crate) fn settle_whole(&mut self, block_count: u64, now: (u64, u32)) -> Result<()> {
        let blocks = self.changed_blocks(block_count)?;
        if !self.append(&blocks, now)? {
            if self.log.is_some() {
                return Err(Error::NotSupported(
                    "the change is larger than the journal: give the volume a larger one first",
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

    /// Settles what waits and makes `log`, which is empty, the volume's log from then on.
    ///
    /// The step is written to the new log; `switch`, one write that cannot be torn, makes the volume
    /// name it; only then does the step go home. Cut before the switch the volume is as it was, cut
    /// behind it the new log holds all that was done. Errors: as [`Staged::settle_whole`].
    pub(crate) fn settle_into(
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
                "the change is larger than the journal: give the volume a larger one first",
            ));
        }
        self.log = Some((log, recovery));
        self.over.forget_changes();
        Ok(())
    }

    /// Settles what waits as the last step of the log, which the step takes away. `switch`, one
    /// write that cannot be torn, makes the log count. Later steps go home directly.
    ///
    /// Errors: as [`Staged::settle_whole`].
    pub(crate) fn settle_and_leave(
        &mut self,
        block_count: u64,
        now: (u64, u32),
        switch: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        let (log, recovery) = self.log.take().ok_or(Error::NotFound)?;
        self.settle_into(log, recovery, block_count, now, switch)?;
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

    /// The blocks whose content differs from the one at home, ascending.
    fn changed_blocks(&self, block_count: u64) -> Result<Vec<BlockNr>> {
        let size = self.block_size;
        let (mut old, mut new) = (vec![0; size.bytes()], vec![0; size.bytes()]);
        let mut changed = Vec::new();
        for range in self.over.changed_ranges() {
            // A volume's last block may end before its page does, and with it the device.
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

    /// Marks the log empty; everything is durable at home. What waits is not settled.
    ///
    /// Errors: `NotSupported` where a step stopped half-way home: the log is what mends that.
    pub(crate) fn empty_log(&mut self) -> Result<()> {
        if self.failed {
            return Err(Error::NotSupported("a change did not come home: recover the volume"));
        }
        match &mut self.log {
            Some((log, recovery)) => log.finish(&self.home, recovery),
            None => self.home.flush(),
        }
    }
}
