//! How a direct transfer begins: what the file has for it, made ready and kept as it is.
//!
//! ```text
//!   write  written or unwritten blocks, inside the size    inode shared ─► entry
//!          holes                                           Write ─► inode ─► handle [ unwritten blocks ] ─► entry
//!          past the size                                   the same, and Write is kept to the end
//!   read                                                   inode shared ─► entry
//!   all    dirty bytes in the way: let go, write them back, again
//! ```

use super::DirectOptions;
use super::in_flight::Help;
use super::step::{Run, Step};
use crate::data::DataPath;
use crate::file::content::Content;
use crate::file::pieces::Piece;
use crate::file::write::{Plan, block_behind, block_of, check_writable_file, is_recent};
use crate::inode::{Body, Inode};
use crate::map::Target;
use crate::sums::NewSums;
use crate::volume::Volume;
use extant_base::lock::{MutexGuard, ReadGuard};
use extant_base::{BlockNr, Error, Ino, Result};
use extant_ondisk::extent::ExtentState;
use extant_ondisk::inode::{FileKind, InodeFlags};
use std::ops::Range;
use std::sync::Weak;

/// Most bytes of one step.
pub(super) const STEP_MAX: usize = 16 << 20;
/// Most places on the device that one step goes to: those of 1 MiB in blocks of 4 KiB.
const RUNS_MAX: usize = 256;

/// What becomes of the start of a transfer.
#[allow(clippy::large_enum_variant, reason = "it is taken apart at once")]
pub(super) enum Begun<'a> {
    /// It is under way; a file that grows stays closed to other writers meanwhile.
    Step(Step, Option<MutexGuard<'a, ()>>),
    /// So many bytes have to go through the cache.
    Buffered(usize),
}

/// What the map has for a write.
enum Blocks {
    /// Blocks for so many bytes.
    There(Vec<Piece>, usize),
    /// None at its start.
    Missing,
    Buffered(usize),
}

impl Volume {
    /// Begins to write the start of `len` bytes at byte `pos`.
    ///
    /// Errors: as `File::write_direct`. Locks: takes `Write`, `WriteBack`, `Inode`, handles; keeps at most `Write`.
    pub(super) fn begin_direct_write<'a>(
        &self,
        inode: &'a Inode,
        pos: u64,
        len: usize,
        options: &DirectOptions,
        helper: Option<&Weak<dyn Help>>,
    ) -> Result<Begun<'a>> {
        let len = match self.whole_units(pos, len) {
            Ok(len) => len,
            Err(len) => return Ok(Begun::Buffered(len)),
        };
        let mut touched = false;
        loop {
            let body = self.read_body(inode, options)?;
            check_writable_file(&body)?;
            if body.flags.contains(InodeFlags::APPEND) {
                return Err(Error::NotPermitted);
            }
            let room = self.max_file_size(&body).saturating_sub(pos);
            if room < len as u64 {
                return Ok(Begun::Buffered(len));
            }
            if !self.takes_direct(&body) {
                return Ok(Begun::Buffered(len));
            }
            let end = pos + len as u64;
            let grows = end > body.size || body.size_on_disk.is_some_and(|size| end > size);
            if grows || !body.no_capability {
                drop(body);
                may_wait(options)?;
                return self.begin_elsewhere(inode, pos, len, helper);
            }
            let is_summed = self.covers(inode.ino, &body);
            if is_summed {
                may_wait(options)?;
            }
            let now = self.environment.now();
            // What shows new blocks sets the times.
            if !touched && !is_summed && !body.times_kept && !is_recent(&body, now) {
                drop(body);
                may_wait(options)?;
                self.touch(inode, now)?;
                touched = true;
                continue;
            }
            let blocks = self.blocks_for(inode.ino, &body, pos, end)?;
            let (pieces, len) = match blocks {
                Blocks::There(pieces, len) => (pieces, len),
                Blocks::Buffered(len) => return Ok(Begun::Buffered(len)),
                Blocks::Missing => {
                    drop(body);
                    may_wait(options)?;
                    return self.begin_elsewhere(inode, pos, len, helper);
                }
            };
            let range = pos..pos + len as u64;
            if !self.is_out_of_cache(inode, &range) {
                drop(body);
                may_wait(options)?;
                self.write_back(inode, self.in_whole_blocks(range), &u64::MAX)?;
                continue;
            }
            let apart = is_summed && pieces.iter().any(|piece| piece.fresh && !piece.moved);
            let entry = match apart {
                true => inode.directs.begin_apart(range.clone(), helper.cloned()),
                false => inode.directs.begin(range.clone(), true, helper.cloned()),
            };
            let Some(entry) = entry else {
                drop(body);
                may_wait(options)?;
                if apart {
                    self.wait_for_direct_writes(inode, range);
                }
                inode.directs.wait_open();
                continue;
            };
            let pieces = match self.hold_moved(&body, pieces) {
                Ok(pieces) => pieces,
                Err(error) => {
                    inode.directs.end(entry);
                    return match error {
                        // A buffered write knows what else to try.
                        Error::NoSpace => Ok(Begun::Buffered(len)),
                        error => Err(error),
                    };
                }
            };
            return Ok(Begun::Step(
                self.write_step_of(inode.ino, &body, entry, pos, len, pieces),
                None,
            ));
        }
    }

    /// As [`Volume::begin_direct_write`], where the inode changes: holes get unwritten blocks, the file is to grow.
    fn begin_elsewhere<'a>(
        &self,
        inode: &'a Inode,
        pos: u64,
        len: usize,
        helper: Option<&Weak<dyn Help>>,
    ) -> Result<Begun<'a>> {
        loop {
            let writing = inode.writing.lock();
            let mut body = inode.write();
            check_writable_file(&body)?;
            if body.flags.contains(InodeFlags::APPEND) {
                return Err(Error::NotPermitted);
            }
            if !self.takes_direct(&body) {
                return Ok(Begun::Buffered(len));
            }
            self.drop_capability(inode.ino, &mut body)?;
            let end = pos + len as u64;
            let grows = end > body.size || body.size_on_disk.is_some();
            let range = self.in_whole_blocks(pos..end);
            // What is written back late has its size first.
            let is_late = grows && body.size_on_disk.is_some();
            if is_late || !self.is_out_of_cache(inode, &range) {
                drop(body);
                let range = if is_late { 0..u64::MAX } else { range };
                self.write_back(inode, range, &u64::MAX)?;
                continue;
            }
            let (pieces, len) =
                match self.with_space_retry(|| self.blocks_made(inode.ino, &mut body, pos, end)) {
                    Ok(Blocks::There(pieces, len)) => (pieces, len),
                    Ok(Blocks::Buffered(len)) => return Ok(Begun::Buffered(len)),
                    // A buffered write knows what else to try.
                    Ok(Blocks::Missing) | Err(Error::NoSpace) => return Ok(Begun::Buffered(len)),
                    Err(error) => return Err(error),
                };
            let end = pos + len as u64;
            let grows = end > body.size;
            if grows {
                self.zero_gap(DataPath::Device, inode.ino, &mut body, pos)?;
            }
            let apart = self.covers(inode.ino, &body)
                && pieces.iter().any(|piece| piece.fresh && !piece.moved);
            let entry = match apart {
                true => inode.directs.begin_apart(pos..end, helper.cloned()),
                false => inode.directs.begin(pos..end, true, helper.cloned()),
            };
            let Some(entry) = entry else {
                drop(body);
                if apart {
                    // One that grows keeps `Write`, but ends without it.
                    self.wait_for_direct_writes(inode, pos..end);
                }
                drop(writing);
                inode.directs.wait_open();
                continue;
            };
            let pieces = match self.hold_moved(&body, pieces) {
                Ok(pieces) => pieces,
                Err(error) => {
                    inode.directs.end(entry);
                    return match error {
                        Error::NoSpace => Ok(Begun::Buffered(len)),
                        error => Err(error),
                    };
                }
            };
            let mut step = self.write_step_of(inode.ino, &body, entry, pos, len, pieces);
            step.grows = grows;
            drop(body);
            return Ok(Begun::Step(step, grows.then_some(writing)));
        }
    }

    fn write_step_of(
        &self,
        ino: Ino,
        body: &Body,
        entry: u64,
        pos: u64,
        len: usize,
        pieces: Vec<Piece>,
    ) -> Step {
        let log2 = self.block_size().log2();
        let mut runs: Vec<Run> = Vec::new();
        for piece in &pieces {
            let first = u64::from(piece.logical) << log2;
            let from = pos.max(first);
            let to = (pos + len as u64).min(first + (u64::from(piece.len) << log2));
            if from < to {
                let at = (piece.block.0 << log2) + (from - first);
                join_run(&mut runs, (from - pos) as usize, (to - from) as usize, Some(at));
            }
        }
        let mut step = Step::new(entry, pos, len, runs);
        step.pieces = pieces;
        step.stability = self.stability(ino, body);
        step.sums = self.covers(ino, body).then(NewSums::default);
        step
    }

    /// The blocks that bytes `pos..end` have, up to a hole. Of a covered file the written ones are to be moved: held are
    /// none yet.
    fn blocks_for(&self, ino: Ino, body: &Body, pos: u64, end: u64) -> Result<Blocks> {
        let size = self.block_size();
        let mut pieces: Vec<Piece> = Vec::new();
        let is_summed = self.covers(ino, body);
        for run in self.runs(ino, body, block_of(size, pos)?..block_behind(size, end)?) {
            let run = run?;
            let (block, fresh, moved) = match run.target {
                Target::Hole => break,
                Target::Written(block) => (block, is_summed, is_summed),
                Target::Unwritten(block) => (block, true, false),
            };
            // What is moved is whole afterwards, wherever its parts were.
            if let Some(Piece { len, moved: true, .. }) = pieces.last_mut().filter(|_| moved) {
                *len += run.len;
                continue;
            }
            if pieces.len() == RUNS_MAX {
                break;
            }
            pieces.push(Piece { logical: run.logical.0, len: run.len, block, fresh, moved });
        }
        Ok(self.whole_fresh_blocks(pieces, pos, end))
    }

    /// As [`Volume::blocks_for`], holes given unwritten blocks.
    fn blocks_made(&self, ino: Ino, body: &mut Body, pos: u64, end: u64) -> Result<Blocks> {
        let log2 = self.block_size().log2();
        let runs = self.runs_to_write(ino, body, pos, end)?;
        let Some(last) = runs.last() else { return Ok(Blocks::Missing) };
        let end = end.min(u64::from(last.end().0) << log2);
        let is_there = |target: &Target| !matches!(target, Target::Hole);
        if runs.iter().all(|run| is_there(&run.target)) {
            return self.blocks_for(ino, body, pos, end);
        }
        if !body.disk.has_extents() {
            return Ok(Blocks::Buffered((end - pos) as usize));
        }
        // Not for blocks that the transfer covers in part: the cache fills those.
        let block = 1u64 << log2;
        let is_summed = self.covers(ino, body);
        let is_hole = |byte: u64| {
            let at = (byte >> log2) as u32;
            runs.iter().any(|run| {
                (run.logical.0..run.end().0).contains(&at)
                    && (is_summed || !matches!(run.target, Target::Written(_)))
            })
        };
        if !pos.is_multiple_of(block) && is_hole(pos) {
            return Ok(Blocks::Buffered((end.min(pos.next_multiple_of(block)) - pos) as usize));
        }
        let whole = end / block * block;
        let end = if end > whole && is_hole(whole) { whole } else { end };
        if end <= pos {
            return Ok(Blocks::Buffered((end.max(pos + 1).next_multiple_of(block) - pos) as usize));
        }
        let mut runs = self.runs_to_write(ino, body, pos, end)?;
        if is_summed {
            runs.retain(|run| run.target == Target::Hole);
        }
        let plan = Plan { ino, pos, content: Content::new(&[]), runs: &runs };
        let handle = self.journal.start(self.first_fill_credits(body, &runs))?;
        let (pieces, error) = self.place(body, &handle, &plan, ExtentState::Unwritten);
        body.store(self, ino, &handle)?;
        handle.stop()?;
        if is_summed {
            return match self.blocks_for(ino, body, pos, end)? {
                Blocks::Missing => Err(error.unwrap_or(Error::NoSpace)),
                blocks => Ok(blocks),
            };
        }
        match self.whole_fresh_blocks(pieces, pos, end) {
            Blocks::Missing => Err(error.unwrap_or(Error::NoSpace)),
            blocks => Ok(blocks),
        }
    }

    /// Of pieces from byte `pos` on: those that a transfer up to byte `end` can go to, new blocks only whole.
    fn whole_fresh_blocks(&self, mut pieces: Vec<Piece>, pos: u64, end: u64) -> Blocks {
        let log2 = self.block_size().log2();
        let block = 1u64 << log2;
        let Some(first) = pieces.first() else { return Blocks::Missing };
        if first.fresh && !pos.is_multiple_of(block) {
            return Blocks::Buffered((end.min(pos.next_multiple_of(block)) - pos) as usize);
        }
        let reached = pieces.last().map_or(0, |last| u64::from(last.logical + last.len) << log2);
        let mut end = end.min(reached);
        if !end.is_multiple_of(block) && pieces.last().is_some_and(|last| last.fresh) {
            end = end / block * block;
            if end <= pos {
                return Blocks::Buffered((reached.min(pos + block) - pos) as usize);
            }
            let last = (end >> log2) as u32;
            pieces = pieces.into_iter().filter_map(|piece| piece.before(last)).collect();
        }
        Blocks::There(pieces, (end - pos) as usize)
    }

    /// Begins to read the start of `len` bytes at byte `pos`; `None` at the file's end.
    ///
    /// Errors: as `File::read_direct`. Locks: takes `WriteBack`; `Inode`, shared.
    pub(super) fn begin_direct_read(
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
                Ok(want) if self.takes_direct(&body) => want,
                Ok(want) | Err(want) => return Ok(Some(Begun::Buffered(want))),
            };
            let is_summed = self.covers(inode.ino, &body);
            let want = match self.whole_summed_blocks(is_summed, pos, want) {
                Ok(want) => want,
                Err(want) => return Ok(Some(Begun::Buffered(want))),
            };
            let range = pos..pos + want as u64;
            if inode.cached.get().is_some_and(|cached| cached.pages.is_busy(range.clone())) {
                drop(body);
                may_wait(options)?;
                self.write_back(inode, self.in_whole_blocks(range), &u64::MAX)?;
                continue;
            }
            let (runs, len) = self.runs_to_read(inode.ino, &body, range)?;
            let range = pos..pos + len as u64;
            let Some(entry) = inode.directs.begin(range, false, helper.cloned()) else {
                drop(body);
                may_wait(options)?;
                inode.directs.wait_open();
                continue;
            };
            let mut step = Step::new(entry, pos, len, runs);
            if is_summed {
                match self.expected_of(&step) {
                    Ok(expected) => step.expected = Some(Box::new(expected)),
                    Err(error) => {
                        inode.directs.end(entry);
                        return Err(error);
                    }
                }
            }
            return Ok(Some(Begun::Step(step, None)));
        }
    }

    /// Where the bytes `range` are, and how many of them were looked at.
    fn runs_to_read(&self, ino: Ino, body: &Body, range: Range<u64>) -> Result<(Vec<Run>, usize)> {
        let size = self.block_size();
        let log2 = size.log2();
        let mut runs: Vec<Run> = Vec::new();
        let mut reached = range.start;
        let last = block_behind(size, range.end)?;
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

    /// How many bytes of `len` at `pos` are whole units of the device; else how many have to go through the cache first.
    fn whole_units(&self, pos: u64, len: usize) -> std::result::Result<usize, usize> {
        let unit = self.direct_unit();
        let off = pos % unit;
        if off != 0 {
            return Err(len.min((unit - off) as usize));
        }
        match len.min(STEP_MAX) / unit as usize * unit as usize {
            0 => Err(len),
            whole => Ok(whole),
        }
    }

    fn read_body<'a>(
        &self,
        inode: &'a Inode,
        options: &DirectOptions,
    ) -> Result<ReadGuard<'a, Body>> {
        match options.no_wait {
            true => inode.body.try_read().ok_or(Error::WouldBlock),
            false => Ok(inode.read()),
        }
    }

    /// Takes the bytes `range` out of the cache, and keeps writers that ask folios alone from dirtying them again while
    /// the inode's lock is held. `false`: some are dirty.
    fn is_out_of_cache(&self, inode: &Inode, range: &Range<u64>) -> bool {
        inode.be_loud();
        match inode.cached.get() {
            Some(cached) => cached.pages.invalidate(self.in_whole_blocks(range.clone())),
            None => true,
        }
    }
}

fn may_wait(options: &DirectOptions) -> Result<()> {
    if options.no_wait { Err(Error::WouldBlock) } else { Ok(()) }
}

/// Adds a run, or lengthens the last one where it goes on from there.
fn join_run(runs: &mut Vec<Run>, offset: usize, len: usize, at: Option<u64>) {
    if let Some(last) = runs.last_mut() {
        let follows = match (last.at, at) {
            (Some(before), Some(at)) => before + last.len as u64 == at,
            (None, None) => true,
            _ => false,
        };
        if follows {
            last.len += len;
            return;
        }
    }
    runs.push(Run { offset, len, at });
}
