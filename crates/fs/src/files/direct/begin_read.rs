//! Beginning a direct read: where its bytes are, and the checksums with which they are verified.

use super::DirectOptions;
use super::begin::{Begun, RUNS_MAX, join_run, may_wait};
use super::step::{Run, Step};
use crate::files::file::write::{block_after, block_of};
use crate::inodes::map::Target;
use crate::state::inode::transfers::Help;
use crate::state::inode::{Body, Inode};
use crate::volume::Volume;
use extant_base::{BlockNr, Error, Ino, Result};
use extant_ondisk::inode::{FileKind, InodeFlags};
use std::ops::Range;
use std::sync::Weak;

impl Volume {
    /// Begins to read the start of `len` bytes at byte `pos`; `None` at the file's end.
    ///
    /// Errors: as `File::read_direct`. Locks: takes `WriteBack`; `Inode`, shared.
    pub(crate) fn begin_direct_read(
        &self,
        inode: &Inode,
        pos: u64,
        len: usize,
        options: &DirectOptions,
        helper: Option<&Weak<dyn Help>>,
    ) -> Result<Option<Begun<'static>>> {
        loop {
            let body = self.read_body(inode, options)?;
            match body.file_kind() {
                FileKind::Regular => {}
                FileKind::Directory => return Err(Error::IsADirectory),
                _ => return Err(Error::Invalid("not a regular file")),
            }
            if body.flags.contains(InodeFlags::ENCRYPT) {
                return Err(Error::Encrypted);
            }
            let left = usize::try_from(body.size.saturating_sub(pos)).unwrap_or(usize::MAX);
            let want = len.min(left);
            if want == 0 {
                return Ok(None);
            }
            let want = match self.whole_units(pos, want) {
                Ok(want) if self.supports_direct(&body) => want,
                Ok(want) | Err(want) => return Ok(Some(Begun::Buffered(want))),
            };
            let has_checksums = self.has_data_checksums(inode.ino, &body);
            let want = match self.whole_blocks_of(has_checksums, pos, want) {
                Ok(want) => want,
                Err(want) => return Ok(Some(Begun::Buffered(want))),
            };
            let range = pos..pos + want as u64;
            if inode
                .file_cache
                .get()
                .is_some_and(|file_cache| file_cache.pages.is_busy(range.clone()))
            {
                drop(body);
                may_wait(options)?;
                self.write_back(inode, self.in_whole_blocks(range), &u64::MAX)?;
                continue;
            }
            let (runs, len) = self.runs_to_read(inode.ino, &body, range)?;
            let range = pos..pos + len as u64;
            let Some(entry) = inode.transfers.begin(range, false, helper.cloned()) else {
                drop(body);
                may_wait(options)?;
                inode.transfers.wait_open();
                continue;
            };
            let mut step = Step::new(entry, pos, len, runs);
            if has_checksums {
                match self.expected_of(&step) {
                    Ok(expected) => step.expected = Some(Box::new(expected)),
                    Err(error) => {
                        inode.transfers.end(entry);
                        return Err(error);
                    }
                }
            }
            return Ok(Some(Begun::Step(step, None)));
        }
    }

    /// Where the bytes of `range` are, and how many bytes from its start this covers.
    fn runs_to_read(&self, ino: Ino, body: &Body, range: Range<u64>) -> Result<(Vec<Run>, usize)> {
        let size = self.block_size();
        let log2 = size.log2();
        let mut runs: Vec<Run> = Vec::new();
        let mut reached = range.start;
        let last = block_after(size, range.end)?;
        for run in self.runs(ino, body, block_of(size, range.start)?..last) {
            let run = run?;
            let first = u64::from(run.logical.0) << log2;
            let from = range.start.max(first);
            let to = range.end.min(u64::from(run.end().0) << log2);
            let at = match run.target {
                Target::Written(BlockNr(block)) => Some((block << log2) + (from - first)),
                Target::Hole | Target::Unwritten(_) => None,
            };
            join_run(&mut runs, (from - range.start) as usize, (to - from) as usize, at);
            reached = to;
            if runs.len() == RUNS_MAX {
                break;
            }
        }
        Ok((runs, (reached - range.start) as usize))
    }
}
