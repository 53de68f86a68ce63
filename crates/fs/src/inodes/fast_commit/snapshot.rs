//! What a fast commit records of an inode, read from the cached metadata.
//!
//! ```text
//!   slot in the table block ──► raw inode: 128 + extra_isize bytes
//!            └─ root of the extents ──► pieces of a range, in order
//! ```
//!
//! The journal calls this while no handle runs, so the blocks hold exactly what the recorded
//! transaction did. No inode lock is taken: a thread that waits to start a handle may hold it.

use super::stored;
use crate::inodes::map::Target;
use crate::state::inode::Body;
use crate::volume::Volume;
use extant_base::{Ino, Result};
use extant_journal::{Piece, RecordedInode, Snapshot};
use extant_ondisk::inode::Inode as DiskInode;

impl Snapshot for Volume {
    fn inode(&self, ino: Ino, raw: &mut Vec<u8>) -> Result<Option<RecordedInode>> {
        let (block, place) = self.inodes().slot(ino)?;
        let bytes = block.read();
        let slot = &bytes[place];
        if stored::ineligible_reason(slot).is_some() {
            return Ok(None);
        }
        raw.extend_from_slice(&slot[..stored::end_of_fields(slot)]);
        Ok(Some(RecordedInode { links: stored::links(slot), regular: true, mapped: true }))
    }

    fn pieces(&self, ino: Ino, first: u32, last: u32, each: &mut dyn FnMut(Piece)) -> Result<()> {
        let body = self.stored_body(ino)?;
        for run in self.file(&body).runs(first..last.saturating_add(1)) {
            let run = run?;
            let (physical, written) = match run.target {
                Target::Hole => continue,
                Target::Written(block) => (block, true),
                Target::Unwritten(block) => (block, false),
            };
            each(Piece { logical: run.logical.0, physical, len: run.len, written });
        }
        Ok(())
    }
}

impl Volume {
    /// The inode as its slot has it now, not as the table of inodes in use has it.
    fn stored_body(&self, ino: Ino) -> Result<Body> {
        let (block, place) = self.inodes().slot(ino)?;
        let disk = DiskInode::parse_unverified(&block.read()[place], ino, self.inode_format())?;
        Ok(Body::fresh(self.context(), ino, disk))
    }
}
