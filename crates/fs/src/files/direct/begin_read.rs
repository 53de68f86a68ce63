//! Beginning a direct read: where its bytes are, and the checksums with which they are verified.

use super::DirectOptions;
use super::begin::{Begun, RUNS_MAX, join_run, may_wait};
use super::step::{Run, Step};
use crate::files::direct::DirectIo;
use crate::files::file::write::{block_after, block_of};
use crate::inodes::file::FileRef;
use crate::inodes::map::Target;
use crate::state::inode::transfers::Help;
use extant_base::narrow::fits_usize;
use extant_base::{BlockNr, Error, Result};
use extant_ondisk::inode::{FileKind, InodeFlags};
use std::ops::Range;
use std::sync::Weak;

impl DirectIo<'_> {
    /// Begins to read the start of `len` bytes at byte `pos`; `None` at the file's end.
    ///
    /// Errors: as `File::read_direct`. Locks: takes `WriteBack`; `Inode`, shared.
    pub(crate) fn begin_direct_read(
        self,
        pos: u64,
        len: usize,
        options: &DirectOptions,
        helper: Option<&Weak<dyn Help>>,
    ) -> Result<Option<Begun<'static>>> {
        loop {
            let body = self.read_body(options)?;
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
            let want = match self.volume.direct_steps().whole_units(pos, want) {
                Ok(want) if self.volume.file(&body).supports_direct() => want,
                Ok(want) | Err(want) => return Ok(Some(Begun::Buffered(want))),
            };
            let has_checksums = self.volume.file(&body).has_data_checksums();
            let want = match self.volume.direct_steps().whole_blocks_of(has_checksums, pos, want) {
                Ok(want) => want,
                Err(want) => return Ok(Some(Begun::Buffered(want))),
            };
            let range = pos..pos + want as u64;
            if self
                .inode
                .file_cache
                .get()
                .is_some_and(|file_cache| file_cache.pages.is_busy(range.clone()))
            {
                drop(body);
                may_wait(options)?;
                self.volume
                    .io(self.inode)
                    .write_back(self.volume.direct_steps().in_whole_blocks(range), &u64::MAX)?;
                continue;
            }
            let (runs, len) = self.volume.file(&body).runs_to_read(range)?;
            let range = pos..pos + len as u64;
            let Some(entry) = self.inode.transfers.begin(range, false, helper.cloned()) else {
                drop(body);
                may_wait(options)?;
                self.inode.transfers.wait_open();
                continue;
            };
            let mut step = Step::new(entry, pos, len, runs);
            if has_checksums {
                match self.volume.direct_steps().expected_of(&step) {
                    Ok(expected) => step.expected = Some(Box::new(expected)),
                    Err(error) => {
                        self.inode.transfers.end(entry);
                        return Err(error);
                    }
                }
            }
            return Ok(Some(Begun::Step(step, None)));
        }
    }
}

impl FileRef<'_> {
    /// Where the bytes of `range` are, and how many bytes from its start this covers.
    fn runs_to_read(self, range: Range<u64>) -> Result<(Vec<Run>, usize)> {
        let size = self.volume.block_size();
        let log2 = size.log2();
        let mut runs: Vec<Run> = Vec::new();
        let mut reached = range.start;
        let last = block_after(size, range.end)?;
        for run in self.runs(block_of(size, range.start)?..last) {
            let run = run?;
            let first = u64::from(run.logical.0) << log2;
            let from = range.start.max(first);
            let to = range.end.min(u64::from(run.end().0) << log2);
            let at = match run.target {
                Target::Written(BlockNr(block)) => Some((block << log2) + (from - first)),
                Target::Hole | Target::Unwritten(_) => None,
            };
            join_run(&mut runs, fits_usize(from - range.start), fits_usize(to - from), at);
            reached = to;
            if runs.len() == RUNS_MAX {
                break;
            }
        }
        Ok((runs, fits_usize(reached - range.start)))
    }
}
