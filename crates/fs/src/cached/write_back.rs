//! Dirty folios on their way to the device.
//!
//! The caller of [`Volume::write_back_held`] holds the file's write-back lock: blocks keep their place
//! until it lets go, so the inode is held to find and give blocks, and not while the data moves.

use crate::cached::Cached;
use crate::data::DataPath;
use crate::file::content::Content;
use crate::file::pieces::Piece;
use crate::file::set_len::LARGE_FILE;
use crate::file::write::{Plan, UNDER_HANDLE};
use crate::inode::{Body, Inode};
use crate::superblock::SUPERBLOCK_CREDITS;
use crate::volume::Volume;
use extant_base::{Error, Ino, Result};
use extant_journal::{Credits, Handle};
use extant_ondisk::extent::ExtentState;
use extant_ondisk::features::RoCompat;
use extant_pagecache::{FileCache, Owner, Taken, Use};
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Most bytes that get blocks at a time.
const RUN: u64 = 16 << 20;
/// Bytes of one device write, where there is more to write.
const PART: usize = 2 << 20;
/// How often one write-back begins before its range, while others write there again and again.
const DETOURS_MAX: u32 = 64;
/// Device writes of one file that are under way at a time.
const IN_FLIGHT: usize = 4;
/// Bytes for which another thread pays.
const WORTH_A_THREAD: usize = 128 << 10;
/// Most runs of a file that are written together.
const TOGETHER: usize = 64;

impl Owner for Volume {
    fn write_back(&self, file: &Arc<FileCache>, range: Range<u64>, limit: u64) -> Result<u64> {
        let Some(inode) = self.inodes.find(file.ino()) else { return Ok(0) };
        match inode.cached.get() {
            Some(cached) if Arc::ptr_eq(&cached.pages, file) => {
                self.noting(|| self.write_back(&inode, range, limit))
            }
            _ => Ok(0),
        }
    }

    fn read_ahead(&self, file: &Arc<FileCache>, range: Range<u64>, how: Use) {
        if let Some(inode) = self.inodes.find(file.ino())
            && inode.cached.get().is_some_and(|cached| Arc::ptr_eq(&cached.pages, file))
        {
            // The reader meets the error where it is one for him.
            let _ = self.populate(&inode, range, how);
        }
    }
}

impl Volume {
    /// Writes dirty bytes of `range` to the device, in order, about `limit` at most; how many. They are not
    /// flushed there.
    ///
    /// Errors: `Device`, `Aborted`, `Corrupt`; `NoSpace` only where the volume is damaged. The bytes stay dirty then.
    /// Locks: takes `WriteBack`, `Inode`, then handles.
    pub(crate) fn write_back(&self, inode: &Inode, range: Range<u64>, limit: u64) -> Result<u64> {
        if inode.cached.get().is_none() {
            return Ok(0);
        }
        let _writing_back = inode.writing_back.lock();
        self.write_back_held(inode, range, limit)
    }

    /// As [`Volume::write_back`], the file's write-back lock held.
    pub(super) fn write_back_held(
        &self,
        inode: &Inode,
        range: Range<u64>,
        limit: u64,
    ) -> Result<u64> {
        let Some(cached) = inode.cached.get() else { return Ok(0) };
        let (mut at, mut done, mut detours) = (range.start, 0, 0);
        while done < limit {
            let most = RUN.min(limit - done).max(self.block_size().bytes() as u64);
            let Some(mut run) = cached.pages.next_dirty(at..range.end, most) else { break };
            let mut is_asked = true;
            if detours < DETOURS_MAX
                && let Some(first) = self.first_behind_size(inode, cached, run.start)
            {
                (run, detours, is_asked) = (first, detours + 1, false);
            }
            let end = if is_asked { range.end } else { run.end };
            let n = match self.write_in_place(inode, cached, run.start..end, most)? {
                Some((next, n)) => {
                    at = next;
                    n
                }
                None => {
                    let n = self.with_space_retry(|| self.write_run(inode, cached, run.clone()))?;
                    at = run.start + n;
                    n
                }
            };
            done += if is_asked { n } else { 0 };
        }
        self.store_late(inode, cached)?;
        Ok(done)
    }

    /// Dirty bytes before `start` that the size on disk does not reach: they go first, for it passes no bytes that
    /// are not there, and no blocks with data are to lie behind it.
    fn first_behind_size(&self, inode: &Inode, cached: &Cached, start: u64) -> Option<Range<u64>> {
        let log2 = self.block_size().log2();
        let from = inode.read().size_on_disk? >> log2 << log2;
        if from >= start {
            return None;
        }
        cached.pages.next_dirty(from..start, RUN)
    }

    /// Writes the runs of dirty bytes of `range`, about `most` bytes, up to the first that has no written blocks
    /// yet: where to go on, and how many. `None` where the first one is such a run.
    fn write_in_place(
        &self,
        inode: &Inode,
        cached: &Cached,
        range: Range<u64>,
        most: u64,
    ) -> Result<Option<(u64, u64)>> {
        let runs = self.runs_in_place(inode, cached, range.clone(), most)?;
        if runs.is_empty() {
            return Ok(None);
        }
        let mut taken: Vec<(&[Piece], Taken<'_>)> = Vec::with_capacity(runs.len());
        let (mut next, mut n) = (range.start, 0);
        for (run, pieces) in &runs {
            let one = match cached.pages.take_dirty(run.clone()) {
                Ok(one) => one,
                Err(error) if taken.is_empty() => return Err(error),
                Err(_) => break,
            };
            let got = one.range();
            (next, n) = (got.end, n + (got.end - got.start));
            taken.push((pieces, one));
            if got.end < run.end {
                break;
            }
        }
        self.write_taken(&taken)?;
        taken.iter_mut().for_each(|(_, one)| one.let_go());
        if inode.read().size_on_disk.is_some() {
            // Before they are clean: who finds no dirty file has nothing to wait for.
            self.store_late(inode, cached)?;
        }
        taken.into_iter().for_each(|(_, one)| one.done());
        Ok(Some((next, n)))
    }

    /// Dirty runs of `range` from its start on, about `most` bytes, that lie in written blocks, and these.
    fn runs_in_place(
        &self,
        inode: &Inode,
        cached: &Cached,
        range: Range<u64>,
        most: u64,
    ) -> Result<Vec<(Range<u64>, Vec<Piece>)>> {
        let body = inode.read();
        let (mut at, mut left) = (range.start, most);
        let mut runs = Vec::new();
        while left > 0
            && runs.len() < TOGETHER
            && let Some(run) = cached.pages.next_dirty(at..range.end, left)
            && let Some(pieces) = self.pieces_in_place(inode.ino, &body, run.start, run.end)?
        {
            (at, left) = (run.end, left.saturating_sub(run.end - run.start));
            runs.push((run, pieces));
        }
        Ok(runs)
    }

    /// Gives blocks to the start of a run of dirty bytes, and writes it: how many.
    fn write_run(&self, inode: &Inode, cached: &Cached, run: Range<u64>) -> Result<u64> {
        let mut body = inode.write();
        let runs = self.runs_to_write(inode.ino, &body, run.start, run.end)?;
        let log2 = self.block_size().log2();
        let reach = runs.last().map_or(run.end, |last| u64::from(last.end().0) << log2);
        let mut run = run.start..run.end.min(reach);
        let is_small = run.end - run.start <= UNDER_HANDLE;
        if !is_small && !body.disk.has_extents() {
            run.end = run.start + UNDER_HANDLE.max(1 << log2);
        }
        let runs = self.runs_to_write(inode.ino, &body, run.start, run.end)?;
        let plan = Plan { ino: inode.ino, pos: run.start, content: Content::new(&[]), runs: &runs };
        if is_small || !body.disk.has_extents() {
            return self.write_run_small(&mut body, cached, &plan, run);
        }
        let handle = self.journal.start(self.first_fill_credits(&body, &runs))?;
        let (pieces, error) = self.place(&mut body, &handle, &plan, ExtentState::Unwritten);
        body.store(self, inode.ino, &handle)?;
        handle.stop()?;
        let size = body.size;
        drop(body);
        let run = self.reached(&pieces, run).ok_or_else(|| error.unwrap_or(Error::NoSpace))?;

        let taken = cached.pages.take_dirty(run)?;
        let run = taken.range();
        let mut all = [(&pieces[..], taken)];
        self.write_taken(&all)?;
        let [(_, taken)] = &mut all;
        taken.let_go();
        let [(_, taken)] = all;

        let reached = self.block_at(run.end);
        let pieces: Vec<Piece> = pieces.iter().filter_map(|piece| piece.before(reached)).collect();
        let mut shown = 0;
        while shown < pieces.len() {
            let mut body = inode.write();
            let handle = self.journal.start(self.late_credits(&body))?;
            let (more, error) = self.show(&mut body, &handle, inode.ino, &pieces[shown..]);
            shown += more;
            let reached = pieces[..shown].last().map_or(0, |piece| piece.logical + piece.len);
            let reached = size.min(u64::from(reached) << log2);
            let rest = (shown == pieces.len()).then_some(cached);
            let raised = self.raise_size(&mut body, &handle, reached, rest);
            body.store(self, inode.ino, &handle)?;
            handle.stop()?;
            raised?;
            if more == 0 {
                return Err(error.unwrap_or(Error::NoSpace));
            }
        }
        taken.done();
        Ok(run.end - run.start)
    }

    /// One handle for blocks, data and size.
    fn write_run_small(
        &self,
        body: &mut Body,
        cached: &Cached,
        plan: &Plan<'_>,
        run: Range<u64>,
    ) -> Result<u64> {
        let mut credits = self.first_fill_credits(body, plan.runs);
        credits.blocks += SUPERBLOCK_CREDITS;
        let handle = self.journal.start(credits)?;
        let (pieces, error) = self.place(body, &handle, plan, ExtentState::Written);
        let written = match self.reached(&pieces, run) {
            Some(run) => self.write_small_taken(cached, &pieces, run),
            None => Err(error.unwrap_or(Error::NoSpace)),
        };
        let taken = match written {
            Ok((taken, reached)) => {
                let behind = pieces.iter().filter_map(|piece| piece.from(reached));
                self.take_back(body, &handle, plan.ino, &behind.collect::<Vec<_>>());
                let reached = u64::from(reached) << self.block_size().log2();
                self.raise_size(body, &handle, reached, Some(cached)).map(|()| taken)
            }
            Err(error) => {
                self.take_back(body, &handle, plan.ino, &pieces);
                Err(error)
            }
        };
        body.store(self, plan.ino, &handle)?;
        handle.stop()?;
        let taken = taken?;
        let written = taken.range();
        taken.done();
        Ok(written.end - written.start)
    }

    /// Hides blocks whose data is not on the device; what they lose of space is promised to the data again.
    fn take_back(&self, body: &mut Body, handle: &Handle<'_>, ino: Ino, pieces: &[Piece]) {
        self.hide(body, handle, ino, pieces);
        if !body.disk.has_extents() {
            for piece in pieces.iter().filter(|piece| piece.fresh) {
                // The error that led here is the one to tell.
                let _ = self.promise_again(ino, body, piece.logical..piece.logical + piece.len);
            }
        }
    }

    fn write_small_taken<'c>(
        &self,
        cached: &'c Cached,
        pieces: &[Piece],
        run: Range<u64>,
    ) -> Result<(Taken<'c>, u32)> {
        let taken = cached.pages.take_dirty(run)?;
        let end = taken.range().end;
        let mut all = [(pieces, taken)];
        self.write_taken(&all)?;
        all[0].1.let_go();
        let [(_, taken)] = all;
        Ok((taken, self.block_at(end)))
    }

    /// The block of a file that starts at byte `end`.
    fn block_at(&self, end: u64) -> u32 {
        u32::try_from(end >> self.block_size().log2()).unwrap_or(u32::MAX)
    }

    /// The start of `run` that `pieces` cover; `None` for nothing.
    fn reached(&self, pieces: &[Piece], run: Range<u64>) -> Option<Range<u64>> {
        let last = pieces.last()?;
        let end = u64::from(last.logical + last.len) << self.block_size().log2();
        (end > run.start).then(|| run.start..run.end.min(end))
    }

    /// Writes what was taken into the pieces that cover it, several parts at a time.
    fn write_taken(&self, taken: &[(&[Piece], Taken<'_>)]) -> Result<()> {
        let slices: Vec<Vec<IoSlice<'_>>> = taken.iter().map(|(_, one)| one.slices()).collect();
        let mut parts = Vec::new();
        let mut total = 0;
        for ((pieces, one), slices) in taken.iter().zip(&slices) {
            let content = Content::new(slices);
            total += content.len();
            let pos = one.range().start;
            let froms = (0..content.len()).step_by(PART);
            parts.extend(froms.map(|from| {
                let to = content.len().min(from + PART);
                (*pieces, pos + from as u64, content.part(from, to))
            }));
        }
        let log2 = self.block_size().log2();
        let write = |(pieces, start, content): &(&[Piece], u64, Content<'_>)| {
            let first = pieces
                .partition_point(|piece| u64::from(piece.logical + piece.len) << log2 <= *start);
            self.write_pieces(DataPath::Device, &pieces[first..], u64::MAX, *start, *content)
        };
        let threads = IN_FLIGHT.min(parts.len()).min(1 + total / WORTH_A_THREAD);
        if threads < 2 {
            return parts.iter().try_for_each(write);
        }
        let next = AtomicUsize::new(0);
        let work = || -> Result<()> {
            while let Some(part) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Err(error) = write(part) {
                    next.store(parts.len(), Ordering::Relaxed);
                    return Err(error);
                }
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let spawn = |_| std::thread::Builder::new().spawn_scoped(scope, work).ok();
            // Without more threads this one writes it all.
            let others: Vec<_> = (1..threads).map_while(spawn).collect();
            let mut done = work();
            for other in others {
                let other = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                done = done.and(other);
            }
            done
        })
    }

    /// What stores an inode with what changed in the cache: size, times, one conversion.
    fn late_credits(&self, body: &Body) -> Credits {
        self.first_convert_credits(body, true).plus(Credits::blocks(SUPERBLOCK_CREDITS))
    }

    /// The size on disk follows the data that is there: up to byte `reached`, and with `rest` up to the first of it
    /// that is dirty. Data before `reached` may have been written over since.
    fn raise_size(
        &self,
        body: &mut Body,
        handle: &Handle<'_>,
        reached: u64,
        rest: Option<&Cached>,
    ) -> Result<()> {
        let Some(before) = body.size_on_disk else { return Ok(()) };
        let log2 = self.block_size().log2();
        let from = before >> log2 << log2;
        let clean = match rest.map(|cached| cached.pages.next_dirty(from..u64::MAX, 1)) {
            Some(Some(dirty)) => dirty.start,
            Some(None) => body.size,
            None => 0,
        };
        let size = before.max(clean.max(reached).min(body.size));
        body.size_on_disk = (size < body.size).then_some(size);
        match size >= LARGE_FILE {
            true => self.add_ro_compat(handle, RoCompat::LARGE_FILE),
            false => Ok(()),
        }
    }

    /// Stores times and size where writing back had no need to.
    fn store_late(&self, inode: &Inode, cached: &Cached) -> Result<()> {
        let is_late = |body: &Body| body.times_changed || body.size_on_disk.is_some();
        if !is_late(&inode.read()) {
            return Ok(());
        }
        let mut body = inode.write();
        if !is_late(&body) {
            return Ok(());
        }
        let credits = Credits::blocks(self.store_credits() + SUPERBLOCK_CREDITS);
        let handle = self.journal.start(credits)?;
        let raised = self.raise_size(&mut body, &handle, 0, Some(cached));
        body.store(self, inode.ino, &handle)?;
        handle.stop()?;
        raised
    }

    /// Writes all dirty data of all files to the device.
    ///
    /// Errors: the first that a file met; the others are tried, and each is told to who syncs the file. Locks: as
    /// [`Volume::write_back`].
    pub(crate) fn write_back_all(&self) -> Result<()> {
        let Some(cache) = &self.page_cache else { return Ok(()) };
        let mut done = Ok(());
        for file in cache.dirty_files() {
            let Some(inode) = self.inodes.find(file.ino()) else { continue };
            if let Err(error) = self.write_back(&inode, 0..u64::MAX, u64::MAX) {
                file.note_error(&error);
                done = done.and(Err(error));
            }
        }
        done
    }
}
