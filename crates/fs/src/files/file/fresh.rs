//! Blocks that are new to a file: allocates them, shows them once their data is written, and hides
//! those whose write failed.

use crate::files::DataIo;
use crate::files::file::pieces::Piece;
use crate::inodes::data_csum::NewChecksums;
use crate::inodes::file::FileMut;
use crate::inodes::map::{Run, Target};
use crate::volume::Volume;
use extant_base::{BlockNr, Error, Result};
use extant_journal::Handle;
use extant_ondisk::extent::ExtentState;
use extant_pagecache::Content;

/// What a step writes, and where.
pub(crate) struct Plan<'a> {
    pub(crate) pos: u64,
    pub(crate) content: Content<'a>,
    pub(crate) runs: &'a [Run],
}

impl Plan<'_> {
    /// How many bytes of the content the pieces cover; `None` when they cover nothing.
    pub(crate) fn covered(&self, volume: &Volume, pieces: &[Piece]) -> Option<usize> {
        let last = pieces.last()?;
        self.reached(volume, last.logical + last.len)
    }

    /// How many bytes of the content come before `block` of the file; `None` when none do.
    pub(crate) fn reached(&self, volume: &Volume, block: u32) -> Option<usize> {
        let end = u64::from(block) << volume.block_size().log2();
        let n = end.checked_sub(self.pos).filter(|n| *n > 0)?;
        Some(usize::try_from(n).unwrap_or(usize::MAX).min(self.content.len()))
    }
}

impl FileMut<'_> {
    /// Allocates blocks in `state` for the runs of the plan, from the left, until space or credits
    /// run out. Returns the pieces that have blocks now, and why there are no more.
    pub(crate) fn place(
        &mut self,
        handle: &Handle<'_>,
        plan: &Plan<'_>,
        state: ExtentState,
    ) -> (Vec<Piece>, Option<Error>) {
        let mut pieces = Vec::new();
        for run in plan.runs {
            if let Err(error) = self.place_run(handle, *run, state, &mut pieces) {
                return (pieces, Some(error));
            }
        }
        (pieces, None)
    }

    fn place_run(
        &mut self,
        handle: &Handle<'_>,
        run: Run,
        state: ExtentState,
        pieces: &mut Vec<Piece>,
    ) -> Result<()> {
        let covered = self.as_ref().has_data_checksums();
        let most =
            if covered { self.volume.data_checksums().checksums_at_once() } else { u32::MAX };
        match run.target {
            Target::Written(old) if covered => {
                let mut at = run.logical.0;
                while at < run.end().0 {
                    self.volume.credits().more(handle, self.volume.credits().hold())?;
                    let want = most.min(run.end().0 - at);
                    let (reserved, want) =
                        self.volume.reservations(self.body).reserved_rewrites(at, want);
                    let got = self.as_ref().hold_run_of(handle, old, want, reserved)?;
                    let (len, block) = (got.len, got.start);
                    pieces.push(Piece { logical: at, len, block, fresh: true, moved: true });
                    // The run has taken the reservation.
                    self.volume.reservations(self.body).moved_rewrites(at..at + len);
                    at += len;
                }
            }
            Target::Written(_) => pieces.extend(Piece::of(&run)),
            Target::Unwritten(block) => {
                if state == ExtentState::Written {
                    self.volume
                        .credits()
                        .more(handle, self.volume.credits_of(self.body).convert())?;
                    let range = run.logical.0..run.end().0;
                    self.convert(handle, range, state)?;
                }
                self.volume.data_io().push_fresh(pieces, run.logical.0, run.len, block, most);
            }
            Target::Hole => {
                let mut hole = run;
                while hole.len > 0 {
                    self.volume
                        .credits()
                        .more(handle, self.volume.credits_of(self.body).fill(hole.len))?;
                    let goal = self.volume.space().group_start(self.ino());
                    let got = self.fill_hole(goal, handle, hole, None, state)?;
                    let block = got.target.block().expect("a filled hole has blocks");
                    self.volume.data_io().push_fresh(pieces, got.logical.0, got.len, block, most);
                    hole.logical = got.end();
                    hole.len -= got.len;
                }
            }
        }
        Ok(())
    }
}

impl DataIo<'_> {
    /// Adds blocks that were allocated to the file, at most `most` to a piece.
    fn push_fresh(
        self,
        pieces: &mut Vec<Piece>,
        mut logical: u32,
        mut len: u32,
        mut block: BlockNr,
        most: u32,
    ) {
        while len > 0 {
            let n = len.min(most);
            pieces.push(Piece { logical, len: n, block, fresh: true, moved: false });
            (logical, len, block) = (logical + n, len - n, BlockNr(block.0 + u64::from(n)));
        }
    }
}

impl FileMut<'_> {
    /// Makes the fresh pieces readable, from the left, with `checksums` if the file has checksums.
    /// Returns the block after the last readable one, and why there are no more. Shown pieces leave
    /// `pieces`.
    pub(crate) fn show(
        &mut self,
        handle: &Handle<'_>,
        pieces: &mut Vec<Piece>,
        checksums: Option<&NewChecksums>,
    ) -> (u32, Option<Error>) {
        let (mut reached, mut shown) = (0, 0);
        let mut first_error = None;
        for piece in pieces.iter_mut() {
            let range = piece.logical..piece.logical + piece.len;
            let done = match checksums {
                _ if !piece.fresh => Ok(()),
                Some(checksums) => self.show_with_checksums(handle, piece, checksums),
                None => self
                    .volume
                    .credits()
                    .more(handle, self.volume.credits_of(self.body).convert())
                    .and_then(|()| self.convert(handle, range.clone(), ExtentState::Written)),
            };
            if let Err(error) = done {
                if piece.logical > range.start {
                    reached = piece.logical;
                }
                first_error = Some(error);
                break;
            }
            reached = range.end;
            shown += 1;
        }
        pieces.drain(..shown);
        (reached, first_error)
    }

    /// After a failed device write: removes new blocks without data from the map or makes them
    /// unwritten, so that no read returns their old content. The caller returns the write's own
    /// error.
    ///
    /// If that fails (no credits left, damaged map), the journal aborts. The blocks would show what
    /// other files left in them; after the abort, the map that shows them never becomes durable.
    pub(crate) fn hide(&mut self, handle: &Handle<'_>, pieces: &[Piece]) {
        for piece in pieces.iter().filter(|piece| piece.fresh) {
            if let Err(error) = self.hide_piece(handle, piece) {
                return self.volume.journal().abort(&error);
            }
        }
    }

    fn hide_piece(&mut self, handle: &Handle<'_>, piece: &Piece) -> Result<()> {
        if piece.moved {
            self.volume.space().release_held(piece.block, piece.len);
            return Ok(());
        }
        self.volume.credits().more(handle, self.volume.credits_of(self.body).unmap())?;
        if self.as_ref().journals_data() {
            // Copies that joined the transaction before the failure must not be written home over a
            // later owner's data.
            for n in 0..u64::from(piece.len) {
                handle.forget(BlockNr(piece.block.0 + n));
            }
        }
        let range = piece.logical..piece.logical + piece.len;
        match self.body.disk.has_extents() {
            true => self.convert(handle, range, ExtentState::Unwritten),
            false => self.unmap(handle, range),
        }
    }
}
