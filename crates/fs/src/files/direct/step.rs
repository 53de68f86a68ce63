//! One step of a direct transfer, between its begin and its end.
//!
//! ```text
//!   file     pos ├───── run ─────┼──── run ────┼─ hole ─┤ pos + len
//!   device        at … ──────────  at … ───────   zeros
//!   requests      one for a run that is lent, or for each chunk       tag: offset in the step
//! ```

use super::data_csum::Expected;
use super::{Bounce, DirectOptions, Stability};
use crate::files::direct::DirectSteps;
use crate::files::file::pieces::Piece;
use crate::inodes::data_csum::NewChecksums;
use crate::state::bounce::{CHUNK_MAX, Chunk, CopyTo};
use crate::volume::Volume;
use extant_base::narrow::fits_usize;
use extant_base::{BlockNr, ByteOffset, Error, Result};
use extant_blockdev::{
    Access, CallerMemory, Completion, Faults, Memory, PooledBuf, Request, Span, transfer_all,
};
use std::cell::RefCell;
use std::sync::atomic::Ordering::Relaxed;

/// Bytes that are copied, checksummed or verified while the device moves others of the same call.
const PIECE: usize = 256 << 10;

/// Bytes of the file in one place on the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// Bytes from the step's start.
    pub(crate) offset: usize,
    pub(crate) len: usize,
    /// Where they are; `None` for bytes that read as zeros.
    pub(crate) at: Option<u64>,
}

/// A step that was begun. [`DirectIo::finish_write`](crate::files::direct::DirectIo::finish_write)
/// or [`DirectIo::finish_read`](crate::files::direct::DirectIo::finish_read) ends it.
pub(crate) struct Step {
    pub(crate) entry: u64,
    pub(crate) pos: u64,
    pub(crate) len: usize,
    pub(crate) runs: Vec<Run>,
    /// The blocks of a write. Fresh ones stay unwritten until the step ends.
    pub(crate) pieces: Vec<Piece>,
    /// The file's end moves to the end of the step.
    pub(crate) grows: bool,
    pub(crate) stability: Stability,
    /// Of a write: the checksums of its blocks, if the file has them.
    pub(crate) checksums: Option<NewChecksums>,
    /// Of a read: the checksums with which its bytes are verified.
    pub(crate) expected: Option<Box<Expected>>,
    /// It is durable when the queue returns it.
    pub(crate) sync: bool,
    /// How many bytes from the start succeeded; the first error after them.
    reached: usize,
    error: Option<Error>,
    /// Chunks that were read, in any order, and how many bytes from the start the caller already
    /// has.
    pub(crate) chunks: Vec<(usize, PooledBuf)>,
    pub(crate) copied_out: usize,
    /// The caller's own memory is read or written, not chunks.
    pub(crate) is_lent: bool,
    charges: Vec<crate::state::bounce::Charge>,
}

/// A copy stopped early: the memory has to be faulted in.
pub(crate) struct Short;

/// Who moves a step's bytes once they are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mover {
    /// This thread, which waits for the device. A long step is cut into pieces, so that the device
    /// moves some while others are copied, checksummed or verified.
    Here,
    /// A queue, together with other transfers.
    Queue,
}

/// The result of [`DirectSteps::take`].
pub(crate) enum Taken<'m> {
    Requests(Vec<Request<'m>>),
    /// Copied and moved, piece by piece: nothing is left to do.
    Moved,
    Short(Short),
    /// A copy would be needed, and the caller does not want to wait.
    WouldBlock,
    Failed(Error),
}

impl Step {
    pub(crate) fn new(entry: u64, pos: u64, len: usize, runs: Vec<Run>) -> Step {
        Step {
            entry,
            pos,
            len,
            runs,
            pieces: Vec::new(),
            grows: false,
            stability: Stability::Any,
            checksums: None,
            expected: None,
            sync: false,
            reached: len,
            error: None,
            chunks: Vec::new(),
            copied_out: 0,
            is_lent: false,
            charges: Vec::new(),
        }
    }

    /// One of its requests has ended.
    pub(crate) fn complete(&mut self, done: Completion<'_>) {
        let offset = fits_usize(done.request.tag);
        if let Err(error) = done.result
            && offset < self.reached
        {
            self.reached = offset;
            self.error = Some(error);
        } else if let (Access::Write, Some(expected)) = (done.request.access, &mut self.expected) {
            expected.verify(offset, &done.request.memory);
        }
        if let (Access::Write, Memory::Owned(buf)) = (done.request.access, done.request.memory) {
            self.chunks.push((offset, buf));
        }
    }

    /// How many bytes from the start were transferred.
    pub(crate) fn reached(&self) -> usize {
        self.reached
    }

    /// The error that stopped the transfer there.
    pub(crate) fn take_error(&mut self) -> Option<Error> {
        self.error.take()
    }
}

impl DirectSteps<'_> {
    /// Takes the memory of a step, lent or copied, and makes the step's requests. If the result is
    /// neither requests nor `Moved`, all that was taken is given back.
    pub(crate) fn take<'m>(
        self,
        step: &mut Step,
        memory: &mut (impl CallerMemory<'m> + ?Sized),
        access: Access,
        options: &DirectOptions,
        mover: Mover,
    ) -> Taken<'m> {
        let before = memory.left();
        let ahead = mover == Mover::Here && self.volume.device().descriptor().is_some();
        let piece = if ahead { PIECE } else { CHUNK_MAX };
        step.stability = step.stability.max(match options.bounce {
            Bounce::Auto | Bounce::Never => Stability::Any,
            Bounce::Always => Stability::Stable,
            Bounce::Checksummed => Stability::Checksummed,
        });
        if step.stability == Stability::Any {
            match self.lend(step, memory, access, options, piece) {
                Some(requests) => {
                    step.is_lent = true;
                    return Taken::Requests(requests);
                }
                None => memory.revert(before - memory.left()),
            }
        }
        if options.no_wait {
            return Taken::WouldBlock;
        }
        let taken = match access {
            Access::Read if ahead && step.len > piece && memory.is_present() => {
                self.copy_and_move(step, memory, piece)
            }
            Access::Read => self.copy(step, memory),
            Access::Write => self.chunks_for(step, piece),
        };
        if !matches!(taken, Taken::Requests(_) | Taken::Moved) {
            step.charges.clear();
            memory.revert(before - memory.left());
        }
        taken
    }

    /// Lends all of a step's memory. `None` if it cannot be lent or is not aligned.
    fn lend<'m>(
        self,
        step: &Step,
        memory: &mut (impl CallerMemory<'m> + ?Sized),
        access: Access,
        options: &DirectOptions,
        piece: usize,
    ) -> Option<Vec<Request<'m>>> {
        // Bytes that will be verified get requests of piece size.
        let most = if step.expected.is_some() { piece } else { usize::MAX };
        let unit = fits_usize(self.direct_unit());
        let must_fit = options.bounce == Bounce::Auto && self.volume.device().alignment() > 1;
        let mut requests = Vec::with_capacity(step.runs.len());
        let mut lent = 0;
        for run in &step.runs {
            let Some(at) = run.at else {
                if !put_zeros(memory, run.len, Faults::Off) {
                    return None;
                }
                continue;
            };
            let mut done = 0;
            while done < run.len {
                let part = most.min(run.len - done);
                let mut spans: Vec<Span<'m>> = Vec::with_capacity(1);
                let mut left = part;
                while left > 0 {
                    let span = memory.lend(left, access)?;
                    if must_fit && !(span.is_aligned_to(unit) && span.len().is_multiple_of(unit)) {
                        return None;
                    }
                    left -= span.len();
                    spans.push(span);
                }
                let (tag, at) = ((run.offset + done) as u64, ByteOffset(at + done as u64));
                requests.push(Request { tag, access, at, memory: Memory::Lent(spans) });
                done += part;
            }
            lent += run.len as u64;
        }
        self.volume.bounce_chunks().stats.lent.fetch_add(lent, Relaxed);
        Some(requests)
    }

    /// Copies a write's bytes into chunks, without page faults.
    fn copy<'m>(self, step: &mut Step, memory: &mut (impl CallerMemory<'m> + ?Sized)) -> Taken<'m> {
        let block = self.checksum_unit(step);
        let mut walk = self.walk(step, CHUNK_MAX);
        let mut requests = Vec::new();
        loop {
            let Some((offset, at, mut chunk)) = walk.next(self.volume, step) else { break };
            if self.volume.bounce_chunks().fill(
                &mut chunk,
                memory,
                Faults::Off,
                block,
                CopyTo::Past,
            ) < chunk.buf.len()
            {
                return Taken::Short(Short);
            }
            requests.push(self.write_of(step, offset, at, chunk));
        }
        if let Err(error) = self.end_copy(step, walk, memory) {
            return Taken::Failed(error);
        }
        requests.retain(|request: &Request<'_>| fits_usize(request.tag) < step.reached);
        Taken::Requests(requests)
    }

    /// As [`DirectSteps::copy`], for memory that is present: each chunk goes to the device while
    /// the next one is copied.
    fn copy_and_move<'m>(
        self,
        step: &mut Step,
        memory: &mut (impl CallerMemory<'m> + ?Sized),
        piece: usize,
    ) -> Taken<'m> {
        let block = self.checksum_unit(step);
        let mut walk = self.walk(step, piece);
        let step = RefCell::new(step);
        let next = || {
            let mut step = step.borrow_mut();
            let (offset, at, mut chunk) = walk.next(self.volume, &step)?;
            let n = self.volume.bounce_chunks().fill(
                &mut chunk,
                memory,
                Faults::Off,
                block,
                CopyTo::Near,
            );
            assert_eq!(n, chunk.buf.len(), "memory that said it is present");
            Some(self.write_of(&mut step, offset, at, chunk))
        };
        transfer_all(&**self.volume.device(), next, |done| step.borrow_mut().complete(done));
        let step = step.into_inner();
        if step.error.is_some() {
            // Chunks after the failed one were not taken or do not count.
            return Taken::Moved;
        }
        match self.end_copy(step, walk, memory) {
            Ok(()) => Taken::Moved,
            Err(error) => Taken::Failed(error),
        }
    }

    /// The size of the blocks whose checksums are computed during the copy.
    fn checksum_unit(self, step: &Step) -> Option<usize> {
        (step.stability == Stability::Checksummed).then(|| self.volume.block_size().bytes())
    }

    /// The write of a filled chunk. Its checksums are added to the step's.
    fn write_of<'m>(
        self,
        step: &mut Step,
        offset: usize,
        at: u64,
        mut chunk: Chunk,
    ) -> Request<'m> {
        if let Some(checksums) = &mut step.checksums {
            let nr = BlockNr(at >> self.volume.block_size().log2());
            checksums.push_all(nr, std::mem::take(&mut chunk.checksums));
        }
        step.request(offset, at, chunk, Access::Read)
    }

    /// Called after the last chunk. If memory ran out, shortens the step, and gives back to the
    /// caller's memory what the step no longer takes.
    ///
    /// Errors: `NoMemory` when nothing is left.
    fn end_copy<'m>(
        self,
        step: &mut Step,
        walk: Walk,
        memory: &mut (impl CallerMemory<'m> + ?Sized),
    ) -> Result<()> {
        let Some(taken) = walk.short_at else { return Ok(()) };
        // Fewer bytes, and new blocks only whole.
        let is_fresh = step.grows || step.pieces.iter().any(|piece| piece.fresh);
        let unit = if is_fresh { self.volume.block_size().bytes() as u64 } else { 1 };
        let end = (step.pos + taken as u64) / unit * unit;
        step.reached = usize::try_from(end.saturating_sub(step.pos)).unwrap_or(0);
        if step.reached == 0 {
            return Err(Error::NoMemory);
        }
        memory.revert(taken - step.reached);
        Ok(())
    }

    /// Chunks for a read's bytes.
    fn chunks_for<'m>(self, step: &mut Step, piece: usize) -> Taken<'m> {
        let mut walk = self.walk(step, piece);
        let mut requests = Vec::new();
        while let Some((offset, at, chunk)) = walk.next(self.volume, step) {
            requests.push(step.request(offset, at, chunk, Access::Write));
        }
        match walk.short_at {
            Some(0) => Taken::Failed(Error::NoMemory),
            Some(at) => {
                step.reached = at;
                Taken::Requests(requests)
            }
            None => Taken::Requests(requests),
        }
    }

    /// Chunks for all runs of a step, of up to `most` bytes each.
    fn walk(self, step: &Step, most: usize) -> Walk {
        // Blocks that have checksums are copied whole.
        let is_whole = step.checksums.is_some() || step.expected.is_some();
        let block = if is_whole { self.volume.block_size().bytes() } else { 1 };
        let unit = fits_usize(self.direct_unit()).max(block);
        Walk { run: 0, done: 0, most, unit, short_at: None }
    }
}

/// Takes chunks for a step's runs in order, from the first byte on, until memory runs out.
struct Walk {
    /// The run, and how much of it has chunks.
    run: usize,
    done: usize,
    most: usize,
    unit: usize,
    /// Where in the step memory ran out.
    short_at: Option<usize>,
}

impl Walk {
    /// The next chunk, with its offset in the step and its place on the device.
    fn next(&mut self, volume: &Volume, step: &Step) -> Option<(usize, u64, Chunk)> {
        loop {
            let run = step.runs.get(self.run)?;
            match run.at {
                Some(at) if self.done < run.len => {
                    let (offset, at) = (run.offset + self.done, at + self.done as u64);
                    let want = self.most.min(run.len - self.done);
                    let Ok(chunk) = volume.bounce_chunks().take(want, self.unit) else {
                        self.short_at = Some(offset);
                        // After the first failure no further chunk is tried.
                        self.run = step.runs.len();
                        return None;
                    };
                    self.done += chunk.buf.len();
                    return Some((offset, at, chunk));
                }
                _ => (self.run, self.done) = (self.run + 1, 0),
            }
        }
    }
}

impl Step {
    /// The transfer of a chunk.
    fn request<'m>(&mut self, offset: usize, at: u64, chunk: Chunk, access: Access) -> Request<'m> {
        self.charges.push(chunk.charge);
        Request { tag: offset as u64, access, at: ByteOffset(at), memory: Memory::Owned(chunk.buf) }
    }
}

/// Zeroes the next `len` bytes of the memory. Returns whether it took them all.
pub(crate) fn put_zeros<'m>(
    memory: &mut (impl CallerMemory<'m> + ?Sized),
    mut len: usize,
    faults: Faults,
) -> bool {
    static ZEROS: [u8; 4096] = [0; 4096];
    while len > 0 {
        let part = &ZEROS[..len.min(ZEROS.len())];
        if memory.copy_in(part, faults) < part.len() {
            return false;
        }
        len -= part.len();
    }
    true
}
