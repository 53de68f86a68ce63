//! Files whose data stops going through the journal: it is written home before any write bypasses
//! the journal (rule F5).
//!
//! ```text
//!   commit everything ─► data home, flush ─► revoke every block ─► commit
//!                        the log's copies      no copy is replayed any more:
//!                        are the same          data written in place from now on stays
//! ```

use crate::files::data::DataPath;
use crate::inodes::file::{FileMut, FileRef};
use crate::inodes::map::{LOGICAL_END, Run, Target};
use crate::state::inode::Body;
use crate::volume::Volume;
use extant_base::{BlockNr, LogicalBlock, Result};
use extant_journal::{Credits, Ineligible};
use std::io::IoSlice;
use std::ops::Range;

/// Blocks that are copied, or revoked, at a time.
const PIECE: u32 = 64;

impl FileMut<'_> {
    /// Takes a file's data out of the journal, before its flag is removed. Does nothing without a
    /// journal.
    ///
    /// Errors: `Corrupt`, `Device`, `Aborted`. Locks: the caller holds the inode's, and no handle.
    pub(crate) fn leave_journal(&mut self) -> Result<()> {
        if !self.as_ref().journals_data() || !self.as_ref().has_map() {
            return Ok(());
        }
        self.volume.journal().sync()?;
        let mut bytes = vec![0; PIECE as usize * self.volume.block_size().bytes()];
        self.as_ref().each_written(|volume, body, run, block| {
            let bytes = &mut bytes[..run.len as usize * volume.block_size().bytes()];
            volume.file(body).read_data(block, 0, bytes)?;
            volume.data_io().write_data(DataPath::Device, block, 0, &[IoSlice::new(bytes)])
        })?;
        self.volume.journal().flush()?;
        self.as_ref().each_written(|volume, _, run, block| {
            let handle = volume.journal().start(Credits { blocks: 0, revokes: run.len })?;
            volume.context().require_full_commit(&handle, Ineligible::JournaledData);
            (0..u64::from(run.len)).for_each(|n| handle.forget(BlockNr(block.0 + n)));
            handle.stop()
        })?;
        self.volume.journal().sync()
    }
}

impl FileRef<'_> {
    /// Calls `piece` for all written blocks of a file, a few at a time.
    fn each_written(
        self,
        mut piece: impl FnMut(&Volume, &Body, Run, BlockNr) -> Result<()>,
    ) -> Result<()> {
        let mut left: Range<u32> = 0..LOGICAL_END;
        while !left.is_empty() {
            let mut run = self.map(LogicalBlock(left.start), left.end - left.start)?;
            if let Target::Written(block) = run.target {
                run.len = run.len.min(PIECE);
                piece(self.volume, self.body, run, block)?;
            }
            left.start = run.end().0;
        }
        Ok(())
    }
}
