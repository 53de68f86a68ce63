//! How a direct transfer ends.
//!
//! ```text
//!   write   inode ─► handle [ map written data, size, times ]       only if blocks or size are new
//!           range leaves the cache ─► entry ends
//!   read    chunks ─► caller ─► entry ends
//! ```
//!
//! Runs where sleeping is allowed. The caller holds no lock except `Write` when the file grows.

use super::step::{Step, put_zeros};
use crate::context::superblock::SUPERBLOCK_CREDITS;
use crate::files::direct::{DirectIo, DirectSteps};
use crate::files::file::pieces::Piece;
use extant_base::narrow::fits_usize;
use extant_base::{Error, Result};
use extant_blockdev::{CallerMemory, Faults, PooledBuf};
use extant_journal::Credits;
use std::sync::atomic::Ordering::Relaxed;

impl DirectIo<'_> {
    /// Ends a write whose requests have ended. Returns how many bytes were written, from its start
    /// on.
    ///
    /// Errors: when that is none, the device's error, or what the map gives.
    pub(crate) fn finish_write(self, mut step: Step) -> Result<usize> {
        let mut n = step.reached();
        let mut error = step.take_error();
        let mut unshown = step.pieces.clone();
        if n > 0 && (step.grows || step.pieces.iter().any(|piece| piece.fresh)) {
            match self.show_step(&step, n, &mut unshown) {
                Ok(shown) => n = shown,
                Err(late_error) => (n, error) = (0, Some(late_error)),
            }
        }
        self.volume.data_io().release_pieces(&unshown);
        self.forget_cached(&step);
        self.inode.transfers.end(step.entry);
        match error {
            Some(error) if n == 0 => Err(error),
            _ => Ok(n),
        }
    }

    /// Ends a step of which nothing was written.
    pub(crate) fn abandon(self, step: Step) {
        self.volume.data_io().release_pieces(&step.pieces);
        self.inode.transfers.end(step.entry);
    }

    /// Makes the first `n` bytes of a step readable, now that they are on the device, and raises
    /// the size. Returns how many bytes it showed. `unshown` holds the step's pieces; those that
    /// are shown leave it.
    fn show_step(self, step: &Step, n: usize, unshown: &mut Vec<Piece>) -> Result<usize> {
        let log2 = self.volume.block_size().log2();
        let end = step.pos + n as u64;
        // A block of which only a part was written stays unwritten.
        let whole =
            if n == step.len { end.next_multiple_of(1 << log2) } else { end >> log2 << log2 };
        let last = u32::try_from(whole >> log2).unwrap_or(u32::MAX);
        let after: Vec<Piece> = unshown.iter().filter_map(|piece| piece.from(last)).collect();
        *unshown = unshown.iter().filter_map(|piece| piece.before(last)).collect();
        let done = self.show_pieces(step, end, unshown);
        unshown.extend(after);
        done
    }

    fn show_pieces(self, step: &Step, end: u64, pieces: &mut Vec<Piece>) -> Result<usize> {
        let log2 = self.volume.block_size().log2();
        let mut reached = step.pos;
        while !pieces.is_empty() {
            let mut body = self.inode.write();
            let credits = self.volume.credits_of(&body).first_convert(true);
            let handle =
                self.volume.journal().start(credits.plus(Credits::blocks(SUPERBLOCK_CREDITS)))?;
            let checksums = step.checksums.as_ref();
            let (to, error) = self.volume.file_mut(&mut body).show(&handle, pieces, checksums);
            if to > 0 {
                reached = end.min(u64::from(to) << log2).max(step.pos);
            }
            let grown = match step.grows && reached > body.size && reached > step.pos {
                true => self.volume.file_mut(&mut body).set_size_field(&handle, reached),
                false => Ok(()),
            };
            let now = self.volume.environment().now();
            body.content_changed(now);
            // Done under the inode lock, so that no read fills a folio with the former zeros.
            self.forget_cached(step);
            body.store(self.volume, &handle)?;
            handle.stop()?;
            grown?;
            if to == 0 {
                return match reached > step.pos {
                    true => break,
                    false => Err(error.unwrap_or(Error::NoSpace)),
                };
            }
        }
        Ok(fits_usize(reached - step.pos))
    }

    /// Drops from the cache what was read of the range before or during the write. Dirty bytes
    /// there are newer: their writer did not follow the engine's locking, which a statistic counts.
    /// They stay, and are written back.
    fn forget_cached(self, step: &Step) {
        let range =
            self.volume.direct_steps().in_whole_blocks(step.pos..step.pos + step.len as u64);
        if let Some(file_cache) = self.inode.file_cache.get()
            && !file_cache.pages.invalidate(range)
        {
            self.volume.bounce_chunks().stats.conflicts.fetch_add(1, Relaxed);
        }
    }

    /// Ends a read whose requests have ended. Returns how many bytes the caller has, from its start
    /// on. Gives the rest back to the caller's memory.
    ///
    /// Errors: when that is none, the device's error, or `Fault`.
    pub(crate) fn finish_read<'m>(
        self,
        mut step: Step,
        memory: &mut (impl CallerMemory<'m> + ?Sized),
    ) -> Result<usize> {
        self.inode.transfers.end(step.entry);
        let reached = step.reached();
        let error = step.take_error();
        if step.expected.as_ref().is_some_and(|expected| expected.is_missed()) {
            memory.revert(if step.is_lent { step.len } else { step.copied_out });
            return self.read_again(step.pos, step.len, memory);
        }
        if step.is_lent {
            memory.revert(step.len - reached);
            return if reached > 0 || error.is_none() {
                Ok(reached)
            } else {
                Err(error.unwrap_or(Error::Fault))
            };
        }
        self.volume.direct_steps().copy_out(&mut step, memory, Faults::Allowed);
        let done = step.copied_out;
        match error.or((done < reached).then_some(Error::Fault)) {
            Some(error) if done == 0 => Err(error),
            _ => Ok(done),
        }
    }
}

impl DirectSteps<'_> {
    /// Copies what was read to the caller, from the point that it has reached. Stops at the first
    /// byte that is missing, that failed verification, or that the memory cannot take.
    pub(crate) fn copy_out<'m>(
        self,
        step: &mut Step,
        memory: &mut (impl CallerMemory<'m> + ?Sized),
        faults: Faults,
    ) {
        let reached = step.reached();
        while step.copied_out < reached
            && !step.expected.as_ref().is_some_and(|all| all.is_missed())
        {
            let at = step.copied_out;
            let run = step.runs.iter().find(|run| (run.offset..run.offset + run.len).contains(&at));
            let Some(run) = run else { return };
            if run.at.is_none() {
                let before = memory.left();
                let is_whole = put_zeros(memory, (run.offset + run.len).min(reached) - at, faults);
                step.copied_out += before - memory.left();
                if !is_whole {
                    return;
                }
                continue;
            }
            let holds = |(offset, chunk): &(usize, PooledBuf)| {
                (*offset..*offset + chunk.len()).contains(&at)
            };
            let Some(n) = step.chunks.iter().position(holds) else { return };
            let (offset, chunk) = &step.chunks[n];
            let bytes = &chunk[at - offset..chunk.len().min(reached - offset)];
            let copied = memory.copy_in(bytes, faults);
            self.volume.bounce_chunks().stats.copied.fetch_add(copied as u64, Relaxed);
            step.copied_out += copied;
            if copied < bytes.len() {
                return;
            }
            step.chunks.swap_remove(n);
        }
    }
}
