//! ADD_RANGE and DEL_RANGE records: where a file's blocks are.
//!
//! ```text
//!   record   ├── 0..10 at 5000 ─────────────────┤
//!   map      │ hole │ same place │ at 7000 │ hole │
//!              add    set state    replace   add
//! ```
//!
//! Ranges of directories are skipped: fast commits do not contain directory blocks, and each name
//! has a record of its own.

use super::Replay;
use crate::inodes::map::{Run, Target};
use crate::state::inode::Inode;
use extant_base::{BlockNr, Ino, LogicalBlock, Result, Site, What};
use extant_ondisk::extent::{Extent, ExtentState};
use extant_ondisk::fast_commit::MappedRange;
use extant_ondisk::inode::FileKind;
use std::sync::Arc;

impl Replay<'_> {
    /// The file of a range record, with a map; `None` when there is nothing to map.
    fn mapped_file(&mut self, n: usize, ino: Ino) -> Result<Option<Arc<Inode>>> {
        let Some(inode) = self.find_or_make(n, ino)? else { return Ok(None) };
        let (kind, inline) = {
            let body = inode.read();
            (body.file_kind(), body.has_inline_data())
        };
        if kind == FileKind::Directory {
            return Ok(None);
        }
        self.touch(&inode);
        if inline && let Some(later) = self.later_inode(n, ino) {
            // The content left the inode; the INODE record for that comes after the file's ranges.
            self.inode(ino, later)?;
        }
        let found = self.find(ino)?;
        match found {
            Some(inode) if self.volume.file(&inode.read()).has_map() => Ok(Some(inode)),
            _ => Err(Site::of_ino(ino).corrupt(What::FastCommitInode)),
        }
    }

    /// Maps a range to the blocks of the record.
    pub(super) fn add_range(&mut self, n: usize, range: MappedRange) -> Result<()> {
        let volume = self.volume;
        let len = u32::from(range.len_blocks);
        let at = Site::of_ino(range.ino).block(range.start);
        let ratio = u64::from(volume.geometry().cluster_ratio());
        let end = range.first.0.checked_add(len);
        let end = end.ok_or(at.corrupt(What::ExtentRange))?;
        if !volume.geometry().holds(range.start, u64::from(len))
            || volume.space().is_system(range.start, u64::from(len))
        {
            return Err(at.corrupt(What::ExtentRange));
        }
        if range.start.0 % ratio != u64::from(range.first.0) % ratio {
            return Err(at.corrupt(What::ExtentCluster));
        }
        let Some(inode) = self.mapped_file(n, range.ino)? else { return Ok(()) };
        let state = match range.unwritten {
            true => ExtentState::Unwritten,
            false => ExtentState::Written,
        };
        let mut body = inode.write();
        if range.unwritten && !body.has_extents() {
            return Err(at.corrupt(What::ExtentUnwritten));
        }
        let handle = volume.journal().start(super::CREDITS)?;
        let now: Vec<Run> = volume.file(&body).runs(range.first.0..end).collect::<Result<_>>()?;
        for run in now {
            let wanted = BlockNr(range.start.0 + u64::from(run.logical.0 - range.first.0));
            let part = run.logical.0..run.end().0;
            let is_written = matches!(run.target, Target::Written(_));
            if run.target.block() == Some(wanted) {
                if is_written != (state == ExtentState::Written) {
                    volume.file_mut(&mut body).convert(&handle, part, state)?;
                }
                continue;
            }
            self.blocks_left = self
                .blocks_left
                .checked_sub(u64::from(run.len))
                .ok_or_else(|| at.corrupt(What::FastCommitTag))?;
            if run.target.block().is_some() {
                volume.file_mut(&mut body).unmap(&handle, part)?;
            }
            let extent = Extent { logical: run.logical, len: run.len, physical: wanted, state };
            volume.file_mut(&mut body).map_insert(&handle, extent)?;
        }
        body.store(volume, &handle)?;
        handle.stop()
    }

    /// Unmaps a range.
    pub(super) fn del_range(
        &mut self,
        n: usize,
        ino: Ino,
        first: LogicalBlock,
        len_blocks: u32,
    ) -> Result<()> {
        let volume = self.volume;
        let Some(inode) = self.mapped_file(n, ino)? else { return Ok(()) };
        let end = first.0.saturating_add(len_blocks);
        let mut body = inode.write();
        let handle = volume.journal().start(super::CREDITS)?;
        volume.file_mut(&mut body).unmap(&handle, first.0.min(end)..end)?;
        body.store(volume, &handle)?;
        handle.stop()
    }
}
