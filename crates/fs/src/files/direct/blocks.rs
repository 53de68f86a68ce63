//! The blocks to which a direct write goes.
//!
//! ```text
//!   range      ├─────────────────────────────────┤
//!   file       [ written │ unwritten ][  hole  ][ …      up to a hole, which gets unwritten blocks
//!              ▲ new blocks are written whole: parts of them go through the cache
//! ```

use super::begin::RUNS_MAX;
use crate::files::direct::DirectSteps;
use crate::files::file::fresh::Plan;
use crate::files::file::pieces::Piece;
use crate::files::file::write::{block_after, block_of};
use crate::inodes::file::{FileMut, FileRef};
use crate::inodes::map::Target;
use extant_base::narrow::{fits_u32, fits_usize};
use extant_base::{Error, Result};
use extant_ondisk::extent::ExtentState;
use extant_pagecache::Content;

/// What the map has for a write.
pub(crate) enum Blocks {
    /// Blocks for this many bytes.
    There(Vec<Piece>, usize),
    /// No block at its start.
    Missing,
    Buffered(usize),
}

impl FileRef<'_> {
    /// The blocks of bytes `pos..end`, up to a hole. The written blocks of a covered file will
    /// move; no new blocks are held for them yet.
    pub(crate) fn blocks_for(self, pos: u64, end: u64) -> Result<Blocks> {
        let size = self.volume.block_size();
        let mut pieces: Vec<Piece> = Vec::new();
        let has_checksums = self.has_data_checksums();
        for run in self.runs(block_of(size, pos)?..block_after(size, end)?) {
            let run = run?;
            let (block, fresh, moved) = match run.target {
                Target::Hole => break,
                Target::Written(block) => (block, has_checksums, has_checksums),
                Target::Unwritten(block) => (block, true, false),
            };
            // Blocks that move become one run, wherever they were.
            if let Some(Piece { len, moved: true, .. }) = pieces.last_mut().filter(|_| moved) {
                *len += run.len;
                continue;
            }
            if pieces.len() == RUNS_MAX {
                break;
            }
            pieces.push(Piece { logical: run.logical.0, len: run.len, block, fresh, moved });
        }
        Ok(self.volume.direct_steps().whole_fresh_blocks(pieces, pos, end))
    }
}

impl FileMut<'_> {
    /// As [`FileRef::blocks_for`]. Holes get unwritten blocks.
    pub(crate) fn blocks_made(&mut self, pos: u64, end: u64) -> Result<Blocks> {
        let log2 = self.volume.block_size().log2();
        let runs = self.as_ref().runs_to_write(pos, end)?;
        let Some(last) = runs.last() else { return Ok(Blocks::Missing) };
        let end = end.min(u64::from(last.end().0) << log2);
        let is_there = |target: &Target| !matches!(target, Target::Hole);
        if runs.iter().all(|run| is_there(&run.target)) {
            return self.as_ref().blocks_for(pos, end);
        }
        if !self.body.disk.has_extents() {
            return Ok(Blocks::Buffered(fits_usize(end - pos)));
        }
        // Except for blocks that the transfer covers in part: those go through the cache.
        let block = 1u64 << log2;
        let has_checksums = self.as_ref().has_data_checksums();
        let is_hole = |byte: u64| {
            let at = fits_u32(byte >> log2);
            runs.iter().any(|run| {
                (run.logical.0..run.end().0).contains(&at)
                    && (has_checksums || !matches!(run.target, Target::Written(_)))
            })
        };
        if !pos.is_multiple_of(block) && is_hole(pos) {
            return Ok(Blocks::Buffered(fits_usize(end.min(pos.next_multiple_of(block)) - pos)));
        }
        let whole = end / block * block;
        let end = if end > whole && is_hole(whole) { whole } else { end };
        if end <= pos {
            let len = end.max(pos + 1).next_multiple_of(block) - pos;
            return Ok(Blocks::Buffered(fits_usize(len)));
        }
        let mut runs = self.as_ref().runs_to_write(pos, end)?;
        if has_checksums {
            runs.retain(|run| run.target == Target::Hole);
        }
        let plan = Plan { pos, content: Content::new(&[]), runs: &runs };
        let handle =
            self.volume.journal().start(self.volume.credits_of(self.body).first_fill(&runs))?;
        let (pieces, error) = self.place(&handle, &plan, ExtentState::Unwritten);
        self.body.store(self.volume, &handle)?;
        handle.stop()?;
        if has_checksums {
            return match self.as_ref().blocks_for(pos, end)? {
                Blocks::Missing => Err(error.unwrap_or(Error::NoSpace)),
                blocks => Ok(blocks),
            };
        }
        match self.volume.direct_steps().whole_fresh_blocks(pieces, pos, end) {
            Blocks::Missing => Err(error.unwrap_or(Error::NoSpace)),
            blocks => Ok(blocks),
        }
    }
}

impl DirectSteps<'_> {
    /// From pieces starting at byte `pos`: those that a transfer up to byte `end` can use. New
    /// blocks count only if they are written whole.
    fn whole_fresh_blocks(self, mut pieces: Vec<Piece>, pos: u64, end: u64) -> Blocks {
        let log2 = self.volume.block_size().log2();
        let block = 1u64 << log2;
        let Some(first) = pieces.first() else { return Blocks::Missing };
        if first.fresh && !pos.is_multiple_of(block) {
            return Blocks::Buffered(fits_usize(end.min(pos.next_multiple_of(block)) - pos));
        }
        let reached = pieces.last().map_or(0, |last| u64::from(last.logical + last.len) << log2);
        let mut end = end.min(reached);
        if !end.is_multiple_of(block) && pieces.last().is_some_and(|last| last.fresh) {
            end = end / block * block;
            if end <= pos {
                return Blocks::Buffered(fits_usize(reached.min(pos + block) - pos));
            }
            let last = fits_u32(end >> log2);
            pieces = pieces.into_iter().filter_map(|piece| piece.before(last)).collect();
        }
        Blocks::There(pieces, fits_usize(end - pos))
    }
}
