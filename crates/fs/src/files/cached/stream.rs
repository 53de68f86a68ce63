//! Writes the dirty bytes of one file as a stream of device writes. While some are in flight, the
//! next ones get their blocks, and the ones that have ended are shown: mapped or converted, so that
//! a read finds the data on the device.
//!
//! ```text
//!             one worker at a time          all workers at once    first worker that ends, for all
//!   worker 1  find ► place ► take 2 MiB ──►  data to the device  ──►  [show, size, times] ► clean
//!   worker 2                      take 2 MiB  ──►  data  ──────────────►  with the next
//!   worker 3  a long run gets its blocks at once; then  take …
//! ```
//!
//! Writes begin in ascending order of offset and are shown in that order. One handle shows several
//! that have ended (rule F7). So the size on disk grows from left to right, and after a write
//! fails, none after it is shown. The stream waits until no write is in flight before it goes back
//! to bytes on the left and before it writes data under a handle: no block is ever in flight twice.

use super::FileCacheState;
use super::write_back::{RUN, SizeBound};
use crate::files::data::DataPath;
use crate::files::file::pieces::Piece;
use crate::files::file::write::UNDER_HANDLE;
use crate::inodes::data_csum::NewChecksums;
use crate::state::inode::Inode;
use crate::volume::Volume;
use extant_base::lock::{Condvar, Mutex, Rank};
use extant_base::narrow::fits_usize;
use extant_base::{Error, Result};
use extant_pagecache::{Content, Demand, Landing, Taken};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Scope;

/// Bytes of one write, where there is more to write.
pub(super) const PART: u64 = 2 << 20;
/// How often one write-back may begin before its range, while writers keep making bytes there
/// dirty.
const DETOURS_MAX: u32 = 64;
/// Device writes of one file in flight at a time.
const IN_FLIGHT: usize = 4;
/// The bytes from which one more thread is worth its cost.
const WORTH_A_THREAD: u64 = 128 << 10;

/// See the module. The caller holds the file's write-back lock.
pub(super) struct Stream<'a> {
    volume: &'a Volume,
    inode: &'a Inode,
    file_cache: &'a FileCacheState,
    range: Range<u64>,
    demand: &'a dyn Demand,
    workers: AtomicUsize,
    cursor: Mutex<Cursor>,
    writes: Mutex<Writes<'a>>,
    ended: Condvar,
}

/// The cursor: where the stream is.
struct Cursor {
    at: u64,
    /// Bytes of the range that were taken, and how many are wanted.
    begun: u64,
    wanted: u64,
    detours: u32,
    /// A run that is not all taken yet, and whether it lies in the requested range.
    placed: Option<(Placed, bool)>,
    is_over: bool,
}

/// A dirty run that has its blocks.
pub(super) struct Placed {
    pub range: Range<u64>,
    pub pieces: Vec<Piece>,
    /// The file's size when the run was found.
    pub size: u64,
}

/// What happened to a run that is not in written blocks.
pub(super) enum Step {
    Placed(Placed),
    /// It was written under a handle: this many bytes.
    Written(u64),
}

struct Found {
    run: Range<u64>,
    /// It lies in the requested range; it is no detour.
    in_range: bool,
    most: u64,
}

/// What one worker writes.
struct Job<'a> {
    number: u64,
    parts: Vec<(Vec<Piece>, Taken<'a>)>,
}

struct Write<'a> {
    start: u64,
    size: u64,
    pieces: Vec<Piece>,
    checksums: NewChecksums,
    state: State<'a>,
}

enum State<'a> {
    InFlight,
    Ended(Vec<Landing<'a>>),
    Failed,
}

#[derive(Default)]
struct Writes<'a> {
    /// Writes that are neither shown nor about to be, and the number of the first.
    queue: VecDeque<Write<'a>>,
    first: u64,
    is_showing: bool,
    /// A write failed: none after it is shown.
    is_lost: bool,
    error: Option<Error>,
    /// A worker panicked: no other worker may wait for it.
    is_broken: bool,
}

impl<'a> Writes<'a> {
    fn of(&mut self, number: u64) -> &mut Write<'a> {
        let n = fits_usize(number - self.first);
        &mut self.queue[n]
    }
}

/// When a worker panics, marks the stream as broken and wakes the others.
struct PanicGuard<'s, 'a>(&'s Stream<'a>);

impl Drop for PanicGuard<'_, '_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.writes.lock_second().is_broken = true;
            self.0.ended.notify_all();
        }
    }
}

impl<'a> Stream<'a> {
    pub fn new(
        volume: &'a Volume,
        inode: &'a Inode,
        file_cache: &'a FileCacheState,
        range: Range<u64>,
        demand: &'a dyn Demand,
    ) -> Stream<'a> {
        let cursor = Cursor {
            at: range.start,
            begun: 0,
            wanted: demand.wanted(0),
            detours: 0,
            placed: None,
            is_over: false,
        };
        Stream {
            volume,
            inode,
            file_cache,
            range,
            demand,
            workers: AtomicUsize::new(1),
            cursor: Mutex::new(Rank::Stream, cursor),
            writes: Mutex::new(Rank::Leaf, Writes::default()),
            ended: Condvar::new(),
        }
    }

    /// Writes what is wanted. Returns how many bytes. Locks: takes `Stream`, `Inode`, then handles;
    /// `Folio`.
    pub(crate) fn write(self) -> Result<u64> {
        std::thread::scope(|scope| self.work(scope));
        if let Some((placed, _)) = self.cursor.lock().placed.take() {
            self.reserve_again(&placed.pieces);
        }
        match self.writes.into_inner().error {
            Some(error) => Err(error),
            None => Ok(self.cursor.into_inner().begun),
        }
    }

    fn work<'s>(&'s self, scope: &'s Scope<'s, '_>) {
        let _guard = PanicGuard(self);
        loop {
            let job = match self.next(scope) {
                Ok(Some(job)) => job,
                Ok(None) => return,
                Err(error) => {
                    let mut writes = self.writes.lock();
                    writes.error.get_or_insert(error);
                    return;
                }
            };
            let mut checksums = NewChecksums::default();
            let has_checksums = self.volume.data_checksums().has_data_csum();
            let written = job.parts.iter().try_for_each(|(pieces, taken)| {
                let slices = taken.slices();
                let (start, content) = (taken.range().start, Content::new(&slices));
                let checksums = has_checksums.then_some(&mut checksums);
                self.volume.data_io().write_pieces(
                    DataPath::Device,
                    pieces,
                    u64::MAX,
                    start,
                    content,
                    checksums,
                )
            });
            // After a failed write, its bytes are dirty again before any other thread sees the
            // error.
            let result = match written {
                Ok(()) => {
                    Ok(job.parts.into_iter().map(|(_, taken)| taken.release_buffers()).collect())
                }
                Err(error) => {
                    drop(job.parts);
                    Err(error)
                }
            };
            self.writes.lock().of(job.number).checksums = checksums;
            self.end_write(job.number, result);
        }
    }

    /// The data of these blocks did not reach the device, or could not be shown there.
    fn reserve_again(&self, pieces: &[Piece]) {
        if self.volume.data_checksums().has_data_csum() {
            self.volume.cache_reservations(self.file_cache).reserve_failed(pieces);
        }
    }

    fn next<'s>(&'s self, scope: &'s Scope<'s, '_>) -> Result<Option<Job<'a>>> {
        let mut guard = self.cursor.lock();
        let cursor = &mut *guard;
        let (workers, most) =
            (self.workers.load(Ordering::Relaxed), self.demand.writes_in_flight(IN_FLIGHT));
        if workers > most.max(1) && !cursor.is_over {
            self.workers.store(workers - 1, Ordering::Relaxed);
            return Ok(None);
        }
        let job = self.next_in(cursor);
        cursor.is_over |= !matches!(job, Ok(Some(_)));
        let left =
            self.file_cache.pages.dirty_bytes().min(cursor.wanted.saturating_sub(cursor.begun));
        let is_more = !cursor.is_over && (cursor.placed.is_some() || left >= WORTH_A_THREAD);
        if is_more && workers < most {
            // If no thread can be started, the existing ones write everything.
            let worker = std::thread::Builder::new().spawn_scoped(scope, move || self.work(scope));
            self.workers.store(workers + usize::from(worker.is_ok()), Ordering::Relaxed);
        }
        job
    }

    fn next_in(&self, cursor: &mut Cursor) -> Result<Option<Job<'a>>> {
        loop {
            if cursor.is_over || self.has_failed() {
                return Ok(None);
            }
            if let Some((placed, in_range)) = cursor.placed.take() {
                return self.take_placed(cursor, placed, in_range).map(Some);
            }
            let Some(found) = self.find(cursor) else { return Ok(None) };
            if let Some(job) = self.take_in_place(cursor, &found)? {
                return Ok(Some(job));
            }
            match self.volume.space().with_reserved_space(|| self.place(found.run.clone()))? {
                Step::Placed(placed) => cursor.placed = Some((placed, found.in_range)),
                Step::Written(n) => {
                    cursor.at = found.run.start + n;
                    cursor.begun += if found.in_range { n } else { 0 };
                }
            }
        }
    }

    /// The next dirty run, or one to the left of it that has to go first. `None` at the end.
    fn find(&self, cursor: &mut Cursor) -> Option<Found> {
        if cursor.begun >= cursor.wanted {
            // A thread that waits for the file's write-back lock goes before bytes that are only
            // optional.
            let others = self.inode.write_back_wanted.load(Ordering::Relaxed) > 0;
            if cursor.begun == 0 || others {
                return None;
            }
            cursor.wanted = self.demand.wanted(cursor.begun);
        }
        let left = cursor.wanted.checked_sub(cursor.begun).filter(|left| *left > 0)?;
        let most = RUN.min(left).max(self.volume.block_size().bytes() as u64);
        let run = self.file_cache.pages.next_dirty(cursor.at..self.range.end, most)?;
        let earlier =
            || self.volume.io(self.inode).first_past_disk_size(self.file_cache, run.start);
        if cursor.detours < DETOURS_MAX && earlier().is_some() {
            // What ends now may be all that was missing.
            if !self.wait_all_ended() {
                return None;
            }
            if let Some(run) = earlier() {
                cursor.detours += 1;
                return Some(Found { run, in_range: false, most });
            }
        }
        Some(Found { run, in_range: true, most })
    }

    /// Takes dirty runs that lie in written blocks, up to the first one that does not. `None` when
    /// the first one does not.
    fn take_in_place(&self, cursor: &mut Cursor, found: &Found) -> Result<Option<Job<'a>>> {
        let end = if found.in_range { self.range.end } else { found.run.end };
        let (range, most) = (found.run.start..end, found.most.min(PART));
        let (runs, size) =
            self.volume.io(self.inode).runs_in_place(self.file_cache, range, most)?;
        let Some((first, _)) = runs.first() else { return Ok(None) };
        let number = self.begin(first.start, size);
        let mut parts: Vec<(Vec<Piece>, Taken<'a>)> = Vec::with_capacity(runs.len());
        for (run, pieces) in runs {
            let taken = match self.file_cache.pages.take_dirty(run.clone()) {
                Ok(taken) => taken,
                Err(error) if parts.is_empty() => {
                    self.end_write(number, Ok(Vec::new()));
                    return Err(error);
                }
                Err(_) => break,
            };
            let got = taken.range();
            cursor.at = got.end;
            cursor.begun += if found.in_range { got.end - got.start } else { 0 };
            let is_short = got.end < run.end;
            let pieces = self.part_of(&pieces, &got);
            self.add_pieces(number, &pieces);
            parts.push((pieces, taken));
            if is_short {
                break;
            }
        }
        Ok(Some(Job { number, parts }))
    }

    /// Takes the start of a run that has its blocks.
    fn take_placed(
        &self,
        cursor: &mut Cursor,
        mut placed: Placed,
        in_range: bool,
    ) -> Result<Job<'a>> {
        let Range { start, end } = placed.range;
        // Whole folios are taken without a copy, and no folio crosses a `PART` border.
        let part = start..end.min((start / PART + 1) * PART);
        let number = self.begin(start, placed.size);
        let taken = match self.file_cache.pages.take_dirty(part.clone()) {
            Ok(taken) => taken,
            Err(error) => {
                self.end_write(number, Ok(Vec::new()));
                self.reserve_again(&placed.pieces);
                return Err(error);
            }
        };
        let got = taken.range();
        cursor.at = got.end;
        cursor.begun += if in_range { got.end - got.start } else { 0 };
        let pieces = self.part_of(&placed.pieces, &got);
        self.add_pieces(number, &pieces);
        let next = self.volume.data_io().block_at(got.end);
        placed.pieces = placed.pieces.iter().filter_map(|piece| piece.from(next)).collect();
        if got.end == part.end && got.end < end {
            placed.range.start = got.end;
            cursor.placed = Some((placed, in_range));
        } else {
            self.reserve_again(&placed.pieces);
        }
        Ok(Job { number, parts: vec![(pieces, taken)] })
    }

    fn part_of(&self, pieces: &[Piece], range: &Range<u64>) -> Vec<Piece> {
        let (from, to) = (
            self.volume.data_io().block_at(range.start),
            self.volume.data_io().block_at(range.end),
        );
        let part = |piece: &Piece| piece.before(to).and_then(|piece| piece.from(from));
        pieces.iter().filter_map(part).collect()
    }

    /// Allocates blocks for a run. Writes it at once if it is all that is dirty, or if its data
    /// must be written under the handle.
    fn place(&self, run: Range<u64>) -> Result<Step> {
        let has_extents = self.inode.read().disk.has_extents();
        if !has_extents && !self.wait_all_ended() {
            return Err(self.first_error());
        }
        let is_all = self.file_cache.pages.dirty_bytes() <= UNDER_HANDLE && self.is_idle();
        self.volume.io(self.inode).place_run_to_write(self.file_cache, run, is_all || !has_extents)
    }

    /// Registers a write that is about to take bytes from `start` on. It is registered first, so
    /// that a thread that finds the bytes clean also finds the write ([`Stream::bound`]).
    fn begin(&self, start: u64, size: u64) -> u64 {
        let mut writes = self.writes.lock();
        let (pieces, checksums) = (Vec::new(), NewChecksums::default());
        writes.queue.push_back(Write { start, size, pieces, checksums, state: State::InFlight });
        writes.first + writes.queue.len() as u64 - 1
    }

    fn add_pieces(&self, number: u64, pieces: &[Piece]) {
        let mut writes = self.writes.lock();
        let n = fits_usize(number - writes.first);
        writes.queue[n].pieces.extend_from_slice(pieces);
    }

    /// The first byte that may be in flight.
    fn bound(&self) -> u64 {
        self.writes.lock().queue.front().map_or(u64::MAX, |write| write.start)
    }

    /// A write has ended. Shows it and all writes after it that have ended, unless one before it is
    /// still in flight.
    fn end_write(&self, number: u64, result: Result<Vec<Landing<'a>>>) {
        let mut writes = self.writes.lock();
        let n = fits_usize(number - writes.first);
        writes.queue[n].state = match result {
            Ok(landings) => State::Ended(landings),
            Err(error) => {
                writes.error.get_or_insert(error);
                State::Failed
            }
        };
        if writes.is_showing {
            return;
        }
        writes.is_showing = true;
        loop {
            let (mut pieces, mut size) = (Vec::new(), 0);
            let (mut checksums, mut unshown) = (NewChecksums::default(), Vec::new());
            let (mut done, mut lost) = (Vec::new(), Vec::new());
            let has_ended = |write: &Write<'_>| !matches!(write.state, State::InFlight);
            while writes.queue.front().is_some_and(has_ended)
                && let Some(write) = writes.queue.pop_front()
            {
                writes.first += 1;
                match write.state {
                    State::Ended(landings) if writes.is_lost => {
                        unshown.extend(write.pieces);
                        lost.extend(landings);
                    }
                    State::Ended(landings) => {
                        pieces.extend(write.pieces);
                        checksums.append(write.checksums);
                        size = write.size;
                        done.extend(landings);
                    }
                    _ => {
                        unshown.extend(write.pieces);
                        writes.is_lost = true;
                    }
                }
            }
            if done.is_empty() && lost.is_empty() && unshown.is_empty() {
                break;
            }
            drop(writes);
            self.reserve_again(&unshown);
            // They are dirty again before the search for the size on disk.
            drop(lost);
            let size_bound = SizeBound { file_cache: self.file_cache, bound: &|| self.bound() };
            let shown =
                self.volume.io(self.inode).show_written(&pieces, size, &size_bound, &checksums);
            match &shown {
                Ok(()) => done.into_iter().for_each(Landing::done),
                Err(_) => drop(done),
            }
            writes = self.writes.lock();
            if let Err(error) = shown {
                writes.error.get_or_insert(error);
                writes.is_lost = true;
            }
        }
        writes.is_showing = false;
        drop(writes);
        self.ended.notify_all();
    }

    /// Waits until nothing is in flight. Returns `false` when something failed. The caller holds
    /// the cursor lock.
    fn wait_all_ended(&self) -> bool {
        let mut writes = self.writes.lock();
        while (!writes.queue.is_empty() || writes.is_showing) && !writes.is_broken {
            self.ended.wait(&mut writes);
        }
        writes.error.is_none() && !writes.is_broken
    }

    fn is_idle(&self) -> bool {
        let writes = self.writes.lock();
        writes.queue.is_empty() && !writes.is_showing
    }

    fn has_failed(&self) -> bool {
        let writes = self.writes.lock();
        writes.error.is_some() || writes.is_broken
    }

    fn first_error(&self) -> Error {
        let writes = self.writes.lock();
        writes.error.as_ref().map_or(Error::NoMemory, Error::again)
    }
}
