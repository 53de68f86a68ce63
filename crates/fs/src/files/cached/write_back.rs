//! Write-back of one file's dirty folios to the device.
//!
//! The caller of [`FileIo::write_back_held`] holds the file's write-back lock, under which no block
//! changes its place. So write-back holds the inode only to find and allocate blocks, and not while
//! the data moves.

use super::stream::{PART, Placed, Step, Stream};
use crate::context::superblock::SUPERBLOCK_CREDITS;
use crate::files::data::DataPath;
use crate::files::file::fresh::Plan;
use crate::files::file::pieces::Piece;
use crate::files::file::set_len::LARGE_FILE;
use crate::files::file::write::UNDER_HANDLE;
use crate::files::{DataIo, FileIo};
use crate::inodes::data_csum::NewChecksums;
use crate::inodes::file::FileMut;
use crate::inodes::map::credits::FileCredits;
use crate::inodes::mount::MountState;
use crate::space::reservations::ReservedFor;
use crate::state::file_cache::FileCacheState;
use crate::state::inode::Body;
use crate::volume::Volume;
use extant_base::{Error, Result};
use extant_journal::{Credits, Handle};
use extant_ondisk::extent::ExtentState;
use extant_ondisk::features::RoCompat;
use extant_pagecache::{Content, Demand, FileCache, Landing, Owner, Use};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Most bytes that get blocks at a time.
pub(super) const RUN: u64 = 16 << 20;
/// Most runs of a file that one thread writes one after the other.
const RUNS_AT_ONCE: usize = 16;

/// Dirty bytes, and the blocks that they lie in.
pub(super) type DirtyRun = (Range<u64>, Vec<Piece>);

/// How far the size on disk may grow.
pub(super) struct SizeBound<'a> {
    pub file_cache: &'a FileCacheState,
    /// The first byte that is clean but may still be in flight.
    pub bound: &'a dyn Fn() -> u64,
}

impl Owner for Volume {
    fn write_back(
        &self,
        file: &Arc<FileCache>,
        range: Range<u64>,
        demand: &dyn Demand,
    ) -> Result<u64> {
        let Some(inode) = self.inode_table().find(file.ino()) else { return Ok(0) };
        match inode.file_cache.get() {
            Some(file_cache) if Arc::ptr_eq(&file_cache.pages, file) => {
                self.context().recording_errors(|| self.io(&inode).write_back(range, demand))
            }
            _ => Ok(0),
        }
    }

    fn read_ahead(&self, file: &Arc<FileCache>, range: Range<u64>, how: Use) {
        if let Some(inode) = self.inode_table().find(file.ino())
            && inode.file_cache.get().is_some_and(|file_cache| Arc::ptr_eq(&file_cache.pages, file))
        {
            // A read of these bytes returns the error itself.
            let _ = self.io(&inode).populate(range, how);
        }
    }
}

impl FileIo<'_> {
    /// Writes dirty bytes of `range` to the device, in order, about as many as `demand` says.
    /// Returns how many. It does not flush them.
    ///
    /// Errors: `Device`, `Aborted`, `Corrupt`; `NoSpace` only when the volume is damaged. After an
    /// error the bytes stay dirty.
    /// Locks: takes `WriteBack`, `Inode`, then handles.
    pub(crate) fn write_back(self, range: Range<u64>, demand: &dyn Demand) -> Result<u64> {
        if self.inode.file_cache.get().is_none() {
            return Ok(0);
        }
        let _writing_back = self.inode.hold_write_back();
        self.write_back_held(range, demand)
    }

    /// As [`FileIo::write_back`], for all dirty bytes of the file.
    pub(crate) fn write_back_file(self) -> Result<u64> {
        self.write_back(0..u64::MAX, &u64::MAX)
    }

    /// As [`FileIo::write_back`]. The caller holds the file's write-back lock.
    pub(super) fn write_back_held(self, range: Range<u64>, demand: &dyn Demand) -> Result<u64> {
        let Some(file_cache) = self.inode.file_cache.get() else { return Ok(0) };
        let closed = self.inode.closed_dirty.load(Ordering::Acquire);
        let done = Stream::new(self.volume, self.inode, file_cache, range, demand).write()?;
        self.store_times_and_size(file_cache)?;
        if self.inode.was_closed_dirty() {
            self.note_closed();
            if !file_cache.pages.is_dirty() {
                self.inode.closed_written.fetch_max(closed, Ordering::AcqRel);
            }
        }
        if self.volume.data_checksums().has_data_csum() && !file_cache.pages.is_dirty() {
            let _alone = self.inode.write();
            self.volume.cache_reservations(file_cache).forget_settled_rewrites();
        }
        Ok(done)
    }

    /// Dirty bytes before `start` that the size on disk does not reach. They go first: the size on
    /// disk must not cover bytes that are not on the device, and no block with data may lie past
    /// it.
    pub(super) fn first_past_disk_size(
        self,
        file_cache: &FileCacheState,
        start: u64,
    ) -> Option<Range<u64>> {
        let log2 = self.volume.block_size().log2();
        let from = self.inode.read().size_on_disk? >> log2 << log2;
        if from >= start {
            return None;
        }
        file_cache.pages.next_dirty(from..start, RUN)
    }

    /// Dirty runs from the start of `range`, with the written blocks that hold them, and the file's
    /// size. They are about `most` bytes, end at the next `PART` border, and stop before the first
    /// run that is not in written blocks.
    pub(super) fn runs_in_place(
        self,
        file_cache: &FileCacheState,
        range: Range<u64>,
        most: u64,
    ) -> Result<(Vec<DirtyRun>, u64)> {
        let body = self.inode.read();
        let (mut at, mut left) = (range.start, most);
        let mut runs = Vec::new();
        while left > 0
            && runs.len() < RUNS_AT_ONCE
            && let Some(mut run) = file_cache.pages.next_dirty(at..range.end, left)
        {
            let border = (run.start / PART + 1) * PART;
            let is_cut = run.end >= border;
            run.end = run.end.min(border);
            let Some(pieces) = self.volume.file(&body).pieces_in_place(run.start, run.end)? else {
                break;
            };
            (at, left) = (run.end, left.saturating_sub(run.end - run.start));
            runs.push((run, pieces));
            if is_cut {
                break;
            }
        }
        Ok((runs, body.size))
    }

    /// Allocates blocks for the start of a run of dirty bytes. With `small` it also writes a short
    /// run under the handle, and so it does for the start of a long run of a file without extents.
    /// With `small`, no other write of the file is in flight.
    pub(super) fn place_run_to_write(
        self,
        file_cache: &FileCacheState,
        run: Range<u64>,
        small: bool,
    ) -> Result<Step> {
        let mut body = self.inode.write();
        let _in_use = file_cache.use_map_reservation();
        let runs = self.volume.file(&body).runs_to_write(run.start, run.end)?;
        let log2 = self.volume.block_size().log2();
        let reach = runs.last().map_or(run.end, |last| u64::from(last.end().0) << log2);
        let mut run = run.start..run.end.min(reach);
        let is_small = small && run.end - run.start <= UNDER_HANDLE;
        if !is_small && !body.disk.has_extents() {
            run.end = run.start + UNDER_HANDLE.max(1 << log2);
        }
        let runs = self.volume.file(&body).runs_to_write(run.start, run.end)?;
        let plan = Plan { pos: run.start, content: Content::new(&[]), runs: &runs };
        if is_small || !body.disk.has_extents() {
            let done = match self.volume.file(&body).has_data_checksums() {
                true => {
                    self.volume.file_mut(&mut body).write_run_with_checksums(file_cache, &plan, run)
                }
                false => self.volume.file_mut(&mut body).write_run_small(file_cache, &plan, run),
            };
            return done.map(Step::Written);
        }
        let handle =
            self.volume.journal().start(self.volume.credits_of(&body).first_fill(&runs))?;
        let (pieces, error) =
            self.volume.file_mut(&mut body).place(&handle, &plan, ExtentState::Unwritten);
        let stored = body.store(self.volume, &handle).and_then(|()| handle.stop());
        if self.volume.file(&body).has_data_checksums() {
            self.volume.cache_reservations(file_cache).note_in_flight(&pieces);
            if let Err(error) = stored {
                self.volume.cache_reservations(file_cache).reserve_failed(&pieces);
                return Err(error);
            }
        }
        stored?;
        let size = body.size;
        let range = self
            .volume
            .data_io()
            .reached(&pieces, run)
            .ok_or_else(|| error.unwrap_or(Error::NoSpace))?;
        Ok(Step::Placed(Placed { range, pieces, size }))
    }

    /// Makes the data of `pieces` readable, after it is on the device: maps or converts the blocks.
    /// Then raises the size on disk, to `size` at most.
    pub(super) fn show_written(
        self,
        pieces: &[Piece],
        size: u64,
        size_bound: &SizeBound<'_>,
        checksums: &NewChecksums,
    ) -> Result<()> {
        let is_fresh = pieces.iter().any(|piece| piece.fresh);
        if !is_fresh && self.inode.read().size_on_disk.is_none() {
            return Ok(());
        }
        let mut left = pieces.to_vec();
        let done = self.show_left(&mut left, size, size_bound, checksums);
        if self.volume.data_checksums().has_data_csum() {
            self.volume.cache_reservations(size_bound.file_cache).note_write_ended(pieces);
        }
        if done.is_err() && self.volume.data_checksums().has_data_csum() {
            let first = left.first().map_or(u32::MAX, |piece| piece.logical);
            for piece in pieces.iter().filter_map(|piece| piece.before(first)) {
                // These are shown, and their data is dirty again with the rest.
                self.volume
                    .cache_reservations(size_bound.file_cache)
                    .reserve_mapped_again(piece.logical..piece.logical + piece.len);
            }
            self.volume.cache_reservations(size_bound.file_cache).reserve_failed(&left);
        }
        done
    }

    fn show_left(
        self,
        left: &mut Vec<Piece>,
        size: u64,
        size_bound: &SizeBound<'_>,
        checksums: &NewChecksums,
    ) -> Result<()> {
        while !left.is_empty() {
            // Space for the map may have to wait for a commit, as space for data may.
            self.volume
                .space()
                .with_reserved_space(|| self.show_some(left, size, size_bound, checksums))?;
        }
        Ok(())
    }

    /// Shows as many pieces as one handle can, at least the start of the first.
    fn show_some(
        self,
        left: &mut Vec<Piece>,
        size: u64,
        size_bound: &SizeBound<'_>,
        checksums: &NewChecksums,
    ) -> Result<()> {
        let log2 = self.volume.block_size().log2();
        let mut body = self.inode.write();
        let _in_use = size_bound.file_cache.use_map_reservation();
        let checksums = self.volume.file(&body).has_data_checksums().then_some(checksums);
        let handle = self.volume.journal().start(self.volume.credits_of(&body).cached_change())?;
        let (reached, error) = self.volume.file_mut(&mut body).show(&handle, left, checksums);
        let (is_stuck, is_all) = (reached == 0, left.is_empty());
        let reached = size.min(u64::from(reached) << log2);
        let raised = self.volume.file_mut(&mut body).raise_size(
            &handle,
            reached,
            is_all.then_some(size_bound),
        );
        body.store(self.volume, &handle)?;
        handle.stop()?;
        raised?;
        match is_stuck {
            true => Err(error.unwrap_or(Error::NoSpace)),
            false => Ok(()),
        }
    }
}

impl FileMut<'_> {
    /// Writes a short run: blocks, data and size under one handle.
    fn write_run_small(
        &mut self,
        file_cache: &FileCacheState,
        plan: &Plan<'_>,
        run: Range<u64>,
    ) -> Result<u64> {
        let mut credits = self.volume.credits_of(self.body).first_fill(plan.runs);
        credits.blocks += SUPERBLOCK_CREDITS;
        let handle = self.volume.journal().start(credits)?;
        let (pieces, error) = self.place(&handle, plan, ExtentState::Written);
        let written = match self.volume.data_io().reached(&pieces, run) {
            Some(run) => self.volume.data_io().write_small_taken(file_cache, &pieces, run),
            None => Err(error.unwrap_or(Error::NoSpace)),
        };
        let taken = match written {
            Ok((taken, reached)) => {
                let after = pieces.iter().filter_map(|piece| piece.from(reached));
                self.take_back(&handle, &after.collect::<Vec<_>>());
                let reached = u64::from(reached) << self.volume.block_size().log2();
                self.raise_size(&handle, reached, Some(&nothing_in_flight(file_cache)))
                    .map(|()| taken)
            }
            Err(error) => {
                self.take_back(&handle, &pieces);
                Err(error)
            }
        };
        self.body.store(self.volume, &handle)?;
        handle.stop()?;
        let taken = taken?;
        let written = taken.range();
        taken.done();
        Ok(written.end - written.start)
    }

    /// Removes blocks from the map whose data is not on the device, and reserves the freed space
    /// for that data again.
    fn take_back(&mut self, handle: &Handle<'_>, pieces: &[Piece]) {
        let fresh = || pieces.iter().filter(|piece| piece.fresh);
        // No other file may take the freed clusters before they are reserved for this data again.
        let blocks = fresh().map(|piece| u64::from(piece.len)).sum();
        let _between = self.volume.space().reserve_freed(ReservedFor::Data, blocks);
        self.hide(handle, pieces);
        for piece in fresh() {
            // The caller returns the error that led here, not this one.
            let _ = self
                .volume
                .reservations(self.body)
                .reserve_freed_again(piece.logical..piece.logical + piece.len);
        }
    }
}

impl DataIo<'_> {
    fn write_small_taken<'c>(
        self,
        file_cache: &'c FileCacheState,
        pieces: &[Piece],
        run: Range<u64>,
    ) -> Result<(Landing<'c>, u32)> {
        let taken = file_cache.pages.take_dirty(run)?;
        let Range { start, end } = taken.range();
        let content = taken.slices();
        let content = Content::new(&content);
        self.write_pieces(DataPath::Device, pieces, u64::MAX, start, content, None)?;
        Ok((taken.release_buffers(), self.block_at(end)))
    }
}

impl FileMut<'_> {
    /// As [`FileMut::write_run_small`], for a file with data checksums.
    fn write_run_with_checksums(
        &mut self,
        file_cache: &FileCacheState,
        plan: &Plan<'_>,
        run: Range<u64>,
    ) -> Result<u64> {
        let (fill, show) = (
            self.volume.credits_of(self.body).first_fill(plan.runs),
            self.volume.credits_of(self.body).cached_change(),
        );
        let handle = self.volume.journal().start(fill.plus(show))?;
        let (mut pieces, error) = self.place(&handle, plan, ExtentState::Unwritten);
        let all = pieces.clone();
        let mut checksums = NewChecksums::default();
        let shown = match self.volume.data_io().reached(&pieces, run) {
            Some(run) => file_cache.pages.take_dirty(run).and_then(|taken| {
                let content = taken.slices();
                let (pos, content) = (taken.range().start, Content::new(&content));
                let (path, checksums) = (DataPath::Device, &mut checksums);
                self.volume.data_io().write_pieces(
                    path,
                    &pieces,
                    u64::MAX,
                    pos,
                    content,
                    Some(checksums),
                )?;
                Ok(taken.release_buffers())
            }),
            None => Err(error.unwrap_or(Error::NoSpace)),
        };
        let shown = shown.and_then(|landing| {
            // The rest of the run is no longer dirty and needs no blocks.
            let end = self.volume.data_io().block_at(landing.range().end);
            let unused: Vec<Piece> = pieces.iter().filter_map(|piece| piece.from(end)).collect();
            self.volume.data_io().release_pieces(&unused);
            pieces = pieces.iter().filter_map(|piece| piece.before(end)).collect();
            let (reached, error) = self.show(&handle, &mut pieces, Some(&checksums));
            match error {
                None => {
                    let reached = u64::from(reached) << self.volume.block_size().log2();
                    self.raise_size(&handle, reached, Some(&nothing_in_flight(file_cache)))?;
                    Ok(landing)
                }
                Some(error) => Err(error),
            }
        });
        if shown.is_err() {
            let first = pieces.first().map_or(u32::MAX, |piece| piece.logical);
            for piece in all.iter().filter_map(|piece| piece.before(first)) {
                self.volume
                    .cache_reservations(file_cache)
                    .reserve_mapped_again(piece.logical..piece.logical + piece.len);
            }
            self.volume.cache_reservations(file_cache).reserve_failed(&pieces);
        }
        let stored = self.body.store(self.volume, &handle);
        stored.and_then(|()| handle.stop())?;
        let landing = shown?;
        let written = landing.range();
        landing.done();
        Ok(written.end - written.start)
    }
}

impl DataIo<'_> {
    /// The block of a file that starts at byte `end`.
    pub(super) fn block_at(self, end: u64) -> u32 {
        u32::try_from(end >> self.volume.block_size().log2()).unwrap_or(u32::MAX)
    }

    /// The start of `run` that `pieces` cover, or `None` when they cover nothing.
    fn reached(self, pieces: &[Piece], run: Range<u64>) -> Option<Range<u64>> {
        let last = pieces.last()?;
        let end = u64::from(last.logical + last.len) << self.volume.block_size().log2();
        (end > run.start).then(|| run.start..run.end.min(end))
    }
}

impl FileCredits<'_> {
    /// Credits to store an inode with what changed in the cache: size, times, one conversion.
    fn cached_change(self) -> Credits {
        self.first_convert(true).plus(Credits::blocks(SUPERBLOCK_CREDITS))
    }
}

impl FileMut<'_> {
    /// Raises the size on disk to byte `reached`, and with `size_bound` to the first dirty byte.
    /// Writers may have made bytes before `reached` dirty again since.
    fn raise_size(
        &mut self,
        handle: &Handle<'_>,
        reached: u64,
        size_bound: Option<&SizeBound<'_>>,
    ) -> Result<()> {
        let Some(before) = self.body.size_on_disk else { return Ok(()) };
        let log2 = self.volume.block_size().log2();
        let from = before >> log2 << log2;
        let clean = size_bound.map_or(0, |size_bound| {
            let dirty = size_bound.file_cache.pages.next_dirty(from..u64::MAX, 1);
            // The order matters: bytes that write-back took before this search for dirty bytes are
            // within the bound by now.
            dirty.map_or(self.body.size, |dirty| dirty.start).min((size_bound.bound)())
        });
        let size = before.max(clean.max(reached).min(self.body.size));
        self.body.size_on_disk = (size < self.body.size).then_some(size);
        match size >= LARGE_FILE {
            true => self.volume.context().add_ro_compat(handle, RoCompat::LARGE_FILE),
            false => Ok(()),
        }
    }
}

impl FileIo<'_> {
    /// Stores times and size when write-back did not store them with the data.
    fn store_times_and_size(self, file_cache: &FileCacheState) -> Result<()> {
        let is_pending = |body: &Body| body.times_changed || body.size_on_disk.is_some();
        if !is_pending(&self.inode.read()) {
            return Ok(());
        }
        let mut body = self.inode.write();
        if !is_pending(&body) {
            return Ok(());
        }
        let credits = Credits::blocks(self.volume.credits().store() + SUPERBLOCK_CREDITS);
        let handle = self.volume.journal().start(credits)?;
        let raised = self.volume.file_mut(&mut body).raise_size(
            &handle,
            0,
            Some(&nothing_in_flight(file_cache)),
        );
        body.store(self.volume, &handle)?;
        handle.stop()?;
        raised
    }
}

impl MountState<'_> {
    /// Writes all dirty data of all files to the device.
    ///
    /// Errors: the first one that a file met. The other files are still written, and a sync of a
    /// file returns that file's own error. Locks: as [`FileIo::write_back`].
    pub(crate) fn write_back_all(self) -> Result<()> {
        let Some(cache) = self.volume.page_cache() else { return Ok(()) };
        let mut done = Ok(());
        for file in cache.dirty_files() {
            let Some(inode) = self.volume.inode_table().find(file.ino()) else { continue };
            if let Err(error) = self.volume.io(&inode).write_back_file() {
                file.note_error(&error);
                done = done.and(Err(error));
            }
        }
        done
    }
}

/// For a file with no write in flight.
fn nothing_in_flight(file_cache: &FileCacheState) -> SizeBound<'_> {
    SizeBound { file_cache, bound: &|| u64::MAX }
}
