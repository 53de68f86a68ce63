//! Finds, from the inodes, the blocks that have checksums or are about to get them.

use crate::inodes::data_csum::DataChecksums;
use crate::inodes::file::FileRef;
use crate::inodes::lookup::Lookup;
use crate::inodes::map::Target;
use crate::state::inode::Body;
use extant_base::{BlockNr, Error, GroupNr, Ino, LogicalBlock, Result};

/// Neighbouring blocks of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CoveredRun {
    pub(crate) block: BlockNr,
    pub(crate) len: u32,
    pub(crate) ino: Ino,
}

/// Receives what a walk over all inodes finds.
pub(crate) trait CoveredVisitor {
    /// An inode in use, covered or not.
    fn inode(&mut self, body: &Body) -> Result<()>;
    /// Written blocks of a covered inode.
    fn run(&mut self, run: CoveredRun) -> Result<()>;
    /// Metadata that cannot be read. The blocks that it describes are not reported.
    fn damage(&mut self, error: Error) -> Result<()>;
}

impl DataChecksums<'_> {
    /// Visits the inodes of group `nr` that are in use, and the blocks of those that the volume
    /// covers or would cover.
    ///
    /// Errors: `Device`; those of `visitor`.
    pub(crate) fn walk_covered(self, nr: GroupNr, visitor: &mut dyn CoveredVisitor) -> Result<()> {
        let used: Vec<u32> = match self.volume.space().inode_bitmap(nr) {
            Ok(bitmap) => bitmap.with(|bytes| {
                let is_used =
                    |slot: &u32| extant_ondisk::bitmap::count_set(bytes, *slot..*slot + 1) > 0;
                (0..self.volume.geometry().inodes_per_group()).filter(is_used).collect()
            }),
            Err(error @ Error::Corrupt { .. }) => return visitor.damage(error),
            Err(error) => return Err(error),
        };
        for ino in used.into_iter().filter_map(|slot| self.volume.geometry().ino_of_slot(nr, slot))
        {
            if self.volume.inodes().is_hidden(ino) {
                continue;
            }
            match self.volume.inodes().peek(ino, Lookup::Internal) {
                Ok(body) => self.volume.file(&body).walk_inode(visitor)?,
                Err(error @ Error::Corrupt { .. }) => visitor.damage(error)?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl FileRef<'_> {
    fn walk_inode(self, visitor: &mut dyn CoveredVisitor) -> Result<()> {
        visitor.inode(self.body)?;
        if !self.would_have_checksums() {
            return Ok(());
        }
        let mut at = 0;
        while at < crate::inodes::map::LOGICAL_END {
            let run = match self.map(LogicalBlock(at), crate::inodes::map::LOGICAL_END - at) {
                Ok(run) => run,
                Err(error @ Error::Corrupt { .. }) => return visitor.damage(error),
                Err(error) => return Err(error),
            };
            if let Target::Written(block) = run.target {
                visitor.run(CoveredRun { block, len: run.len, ino: self.ino() })?;
            }
            at = run.end().0;
        }
        Ok(())
    }
}
