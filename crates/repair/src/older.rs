//! Older copies of blocks, which the log still holds.
//!
//! ```text
//!   block at home: checksum wrong ──► newest committed copy in the log: checksum right? ─► taken
//! ```
//!
//! All metadata is written through the log, which is a ring. So if it has a copy of a block at all,
//! the newest one of a committed transaction is what was last written home. Only a tool that writes
//! past the log (e2fsck, debugfs, the replay of fast commits) makes a copy out of date, and such a
//! tool leaves right checksums. So a copy replaces only what is wrong at home.

use extant_base::{BlockNr, BlockSize, Result, Tid};
use extant_journal::{FastCommitLog, Log, LogHistory};
use hashbrown::HashSet;

/// The longest log that is read, in blocks: the most that mke2fs makes.
const LOG_BLOCKS_MAX: u32 = 10_240_000;

/// A committed copy of a block.
pub(crate) struct OlderBlock<'o> {
    /// The block's home.
    pub(crate) block: u64,
    /// A number that is larger the later the transaction is, see [`Older::place`].
    pub(crate) place: u32,
    /// When the transaction was committed, in seconds since 1970.
    pub(crate) committed_at: Option<u64>,
    pub(crate) bytes: &'o [u8],
}

/// The copies of a volume's log.
pub(crate) struct Older {
    log: Log,
    history: LogHistory,
    committed: HashSet<Tid>,
    block_size: BlockSize,
}

impl Older {
    /// Finds the copies; `None` for a log that is longer than any that mke2fs makes.
    ///
    /// Errors: `Device`.
    pub(crate) fn read(log: Log, block_size: BlockSize) -> Result<Option<Older>> {
        if log.superblock().maxlen > LOG_BLOCKS_MAX {
            return Ok(None);
        }
        let history = log.history()?;
        let committed = history.commits().iter().map(|commit| commit.tid).collect();
        Ok(Some(Older { log, history, committed, block_size }))
    }

    /// The newest committed copy of `block`; `None` if there is none, or if it is damaged.
    ///
    /// Errors: `Device`.
    pub(crate) fn newest(&self, block: u64) -> Result<Option<Vec<u8>>> {
        let of_block = self.history.copies_of(BlockNr(block));
        let newest = of_block.iter().find(|copy| self.committed.contains(&copy.tid));
        let Some(newest) = newest else { return Ok(None) };
        let mut bytes = vec![0; self.block_size.bytes()];
        Ok(self.log.read_old(newest, &mut bytes)?.then_some(bytes))
    }

    /// Calls `each` with the committed copies of all blocks that `wanted` accepts: by block, and of
    /// one block the newest first. Damaged copies are left out.
    ///
    /// Errors: `Device`.
    pub(crate) fn each(
        &self,
        wanted: &dyn Fn(u64) -> bool,
        each: &mut dyn FnMut(&OlderBlock<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut bytes = vec![0; self.block_size.bytes()];
        for copy in self.history.copies() {
            if wanted(copy.block.0)
                && self.committed.contains(&copy.tid)
                && self.log.read_old(copy, &mut bytes)?
            {
                let (block, place) = (copy.block.0, self.place(copy.tid));
                let committed_at = self.history.committed_at(copy.tid);
                each(&OlderBlock { block, place, committed_at, bytes: &bytes })?;
            }
        }
        Ok(())
    }

    /// The fast commits that the log still holds, the oldest first; `inode_bytes` is the volume's
    /// inode size.
    ///
    /// Errors: `Device`.
    pub(crate) fn fast_commits(&self, inode_bytes: usize) -> Result<Vec<FastCommitLog>> {
        let mut found = self.log.old_fast_commits(inode_bytes)?;
        found.sort_by_key(|commit| self.place(commit.tid()));
        Ok(found)
    }

    /// A number that is larger the later a transaction is.
    pub(crate) fn place(&self, tid: Tid) -> u32 {
        self.history.place(tid)
    }
}
