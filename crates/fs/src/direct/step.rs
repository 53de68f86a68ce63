//! One step of a direct transfer, between its beginning and its end.
//!
//! ```text
//!   file     pos ├───── run ─────┼──── run ────┼─ hole ─┤ pos + len
//!   device        at … ──────────  at … ───────   zeros
//!   requests      one for a run that is lent, or for each chunk       tag: where in the step
//! ```

use super::bounce::Chunk;
use super::summed::Expected;
use super::{Bounce, DirectOptions, Stability};
use crate::file::pieces::Piece;
use crate::sums::NewSums;
use crate::volume::Volume;
use extant_base::{BlockNr, ByteOffset, Error, Result};
use extant_blockdev::{Access, CallerMemory, Completion, Faults, Memory, Request, Span};
use std::sync::atomic::Ordering::Relaxed;

/// Bytes of the file in one place on the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// Bytes from the step's start.
    pub(super) offset: usize,
    pub(super) len: usize,
    /// Where they are; `None` where zeros are read.
    pub(super) at: Option<u64>,
}

/// What was begun; [`Volume::finish_write`] or [`Volume::finish_read`] ends it.
pub(super) struct Step {
    pub(super) entry: u64,
    pub(super) pos: u64,
    pub(super) len: usize,
    pub(super) runs: Vec<Run>,
    /// The blocks, for a write: those that are fresh are unwritten until it ends.
    pub(super) pieces: Vec<Piece>,
    /// The file's end moves to that of the step.
    pub(super) grows: bool,
    pub(super) stability: Stability,
    /// A write's: the sums of its blocks, where the file has them.
    pub(super) sums: Option<NewSums>,
    /// A read's: what its bytes are held against.
    pub(super) expected: Option<Box<Expected>>,
    /// It is durable when it is handed out.
    pub(super) sync: bool,
    /// How far from the start all is well; the first error behind that.
    reached: usize,
    error: Option<Error>,
    /// Chunks that were read, in any order.
    pub(super) chunks: Vec<(usize, Memory<'static>)>,
    charges: Vec<super::bounce::Charge>,
}

/// A copy stopped short: the memory has to be faulted in.
pub(super) struct Short;

/// What became of [`Volume::take`].
pub(super) enum Taken<'m> {
    Requests(Vec<Request<'m>>),
    Short(Short),
    /// A copy would be needed, and nothing may be waited for.
    WouldBlock,
    Failed(Error),
}

impl Step {
    pub(super) fn new(entry: u64, pos: u64, len: usize, runs: Vec<Run>) -> Step {
        Step {
            entry,
            pos,
            len,
            runs,
            pieces: Vec::new(),
            grows: false,
            stability: Stability::Any,
            sums: None,
            expected: None,
            sync: false,
            reached: len,
            error: None,
            chunks: Vec::new(),
            charges: Vec::new(),
        }
    }

    /// A request of it is over.
    pub(super) fn landed(&mut self, done: Completion<'_>) {
        let offset = done.request.tag as usize;
        if let Err(error) = done.result
            && offset < self.reached
        {
            self.reached = offset;
            self.error = Some(error);
        } else if let (Access::Write, Some(expected)) = (done.request.access, &mut self.expected) {
            expected.look(offset, &done.request.memory);
        }
        if let (Access::Write, Memory::Owned(buf)) = (done.request.access, done.request.memory) {
            self.chunks.push((offset, Memory::Owned(buf)));
        }
    }

    /// How many bytes from the start on are where they belong.
    pub(super) fn reached(&self) -> usize {
        self.reached
    }

    /// Why no more are.
    pub(super) fn take_error(&mut self) -> Option<Error> {
        self.error.take()
    }
}

impl Volume {
    /// Takes the memory of a step, lent or copied, and makes its requests. On anything but requests all that was taken
    /// is given back.
    pub(super) fn take<'m>(
        &self,
        step: &mut Step,
        memory: &mut (impl CallerMemory<'m> + ?Sized),
        access: Access,
        options: &DirectOptions,
    ) -> Taken<'m> {
        let before = memory.left();
        step.stability = step.stability.max(match options.bounce {
            Bounce::Auto | Bounce::Never => Stability::Any,
            Bounce::Always => Stability::Stable,
            Bounce::Summed => Stability::Summed,
        });
        if step.stability == Stability::Any {
            match self.lend(step, memory, access, options) {
                Some(requests) => return Taken::Requests(requests),
                None => memory.revert(before - memory.left()),
            }
        }
        if options.no_wait {
            return Taken::WouldBlock;
        }
        let taken = match access {
            Access::Read => self.copy(step, memory),
            Access::Write => self.chunks_for(step),
        };
        if !matches!(taken, Taken::Requests(_)) {
            step.charges.clear();
            memory.revert(before - memory.left());
        }
        taken
    }

    /// All of a step's memory in place; `None` where it cannot be lent, or lies badly.
    fn lend<'m>(
        &self,
        step: &Step,
        memory: &mut (impl CallerMemory<'m> + ?Sized),
        access: Access,
        options: &DirectOptions,
    ) -> Option<Vec<Request<'m>>> {
        let unit = self.direct_unit() as usize;
        let must_fit = options.bounce == Bounce::Auto && self.device.alignment() > 1;
        let mut requests = Vec::with_capacity(step.runs.len());
        let mut lent = 0;
        for run in &step.runs {
            let Some(at) = run.at else {
                if !put_zeros(memory, run.len, Faults::Off) {
                    return None;
                }
                continue;
            };
            let mut spans: Vec<Span<'m>> = Vec::with_capacity(1);
            let mut left = run.len;
            while left > 0 {
                let span = memory.lend(left, access)?;
                if must_fit && !(span.is_aligned_to(unit) && span.len().is_multiple_of(unit)) {
                    return None;
                }
                left -= span.len();
                spans.push(span);
            }
            lent += run.len as u64;
            let memory = Memory::Lent(spans);
            requests.push(Request { tag: run.offset as u64, access, at: ByteOffset(at), memory });
        }
        self.chunks.stats.lent.fetch_add(lent, Relaxed);
        Some(requests)
    }

    /// A write's bytes in chunks, copied without faults.
    fn copy<'m>(
        &self,
        step: &mut Step,
        memory: &mut (impl CallerMemory<'m> + ?Sized),
    ) -> Taken<'m> {
        let block = (step.stability == Stability::Summed).then(|| self.block_size().bytes());
        let log2 = self.block_size().log2();
        let mut chunks = match self.each_chunk(step, |chunk: &mut Chunk| {
            self.chunks.fill(chunk, memory, Faults::Off, block) == chunk.buf.len()
        }) {
            Ok(Some(chunks)) => chunks,
            Ok(None) => return Taken::Short(Short),
            Err(error) => return Taken::Failed(error),
        };
        let taken = reached(&chunks);
        if taken < step.len {
            // Memory was short: fewer bytes, and of new blocks only whole ones.
            let is_fresh = step.grows || step.pieces.iter().any(|piece| piece.fresh);
            let unit = if is_fresh { self.block_size().bytes() as u64 } else { 1 };
            let end = (step.pos + taken as u64) / unit * unit;
            step.reached = usize::try_from(end.saturating_sub(step.pos)).unwrap_or(0);
            if step.reached == 0 {
                return Taken::Failed(Error::NoMemory);
            }
            chunks.retain(|(offset, ..)| *offset < step.reached);
            memory.revert(taken - step.reached);
        }
        if let Some(sums) = &mut step.sums {
            for (_, at, chunk) in &mut chunks {
                sums.push_all(BlockNr(*at >> log2), std::mem::take(&mut chunk.sums));
            }
        }
        requests(step, chunks, Access::Read)
    }

    /// Chunks for a read's bytes.
    fn chunks_for<'m>(&self, step: &mut Step) -> Taken<'m> {
        match self.each_chunk(step, |_| true) {
            Ok(Some(chunks)) => {
                let last = step.runs.iter().rev().find(|run| run.at.is_some());
                if last.is_some_and(|run| reached(&chunks) < run.offset + run.len) {
                    step.reached = reached(&chunks);
                }
                requests(step, chunks, Access::Write)
            }
            Ok(None) => Taken::Short(Short),
            Err(error) => Taken::Failed(error),
        }
    }

    /// Chunks for all runs, or for as many from the first on as there is memory for; `None` where `fill` came short.
    ///
    /// Errors: `NoMemory` for none.
    fn each_chunk(
        &self,
        step: &Step,
        mut fill: impl FnMut(&mut Chunk) -> bool,
    ) -> Result<Option<Vec<Placed>>> {
        // Blocks that have sums are copied whole.
        let is_whole = step.sums.is_some() || step.expected.is_some();
        let block = if is_whole { self.block_size().bytes() } else { 1 };
        let unit = (self.direct_unit() as usize).max(block);
        let mut chunks: Vec<Placed> = Vec::new();
        for run in &step.runs {
            let Some(at) = run.at else { continue };
            let mut done = 0;
            while done < run.len {
                let mut chunk = match self.chunks.take(run.len - done, unit) {
                    Ok(chunk) => chunk,
                    Err(_) if !chunks.is_empty() => return Ok(Some(chunks)),
                    Err(error) => return Err(error),
                };
                if !fill(&mut chunk) {
                    return Ok(None);
                }
                let len = chunk.buf.len();
                chunks.push((run.offset + done, at + done as u64, chunk));
                done += len;
            }
        }
        Ok(Some(chunks))
    }
}

/// A chunk: where in the step, where on the device.
type Placed = (usize, u64, Chunk);

/// Up to where in the step.
fn reached(chunks: &[Placed]) -> usize {
    chunks.last().map_or(0, |(offset, _, chunk)| offset + chunk.buf.len())
}

fn requests<'m>(step: &mut Step, chunks: Vec<Placed>, access: Access) -> Taken<'m> {
    let requests = chunks.into_iter().map(|(offset, at, chunk)| {
        step.charges.push(chunk.charge);
        Request { tag: offset as u64, access, at: ByteOffset(at), memory: Memory::Owned(chunk.buf) }
    });
    Taken::Requests(requests.collect())
}

/// Puts zeros over the next `len` bytes; whether they took them.
pub(super) fn put_zeros<'m>(
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
