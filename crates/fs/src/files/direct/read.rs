//! A direct read, step by step, in the caller's thread. Zero copy is tried first.

use super::DirectOptions;
use super::begin::Begun;
use super::step::{Mover, Taken};
use crate::files::direct::DirectIo;
use extant_base::{Error, Result};
use extant_blockdev::{Access, CallerMemory, Faults};

impl DirectIo<'_> {
    /// See `File::read_direct`.
    pub(crate) fn read_direct<'m>(
        self,
        offset: u64,
        memory: &mut (impl CallerMemory<'m> + ?Sized),
        options: &DirectOptions,
    ) -> Result<usize> {
        let mut done = 0;
        while memory.left() > 0 {
            let Some(pos) = offset.checked_add(done as u64) else { break };
            match self.read_one(pos, memory, options) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// One step. Returns how many bytes, 0 at the end of the file.
    fn read_one<'m>(
        self,
        pos: u64,
        memory: &mut (impl CallerMemory<'m> + ?Sized),
        options: &DirectOptions,
    ) -> Result<usize> {
        let left = memory.left();
        let mut step = match self.begin_direct_read(pos, left, options, None)? {
            None => return Ok(0),
            Some(Begun::Step(step, _)) => step,
            Some(Begun::Buffered(_)) if options.no_wait => return Err(Error::WouldBlock),
            Some(Begun::Buffered(len)) => return self.read_buffered(pos, len, memory),
        };
        let requests = match self.volume.direct_steps().take(
            &mut step,
            memory,
            Access::Write,
            options,
            Mover::Here,
        ) {
            Taken::Requests(requests) => requests,
            Taken::Moved => Vec::new(),
            Taken::Short(_) | Taken::WouldBlock => {
                self.abandon(step);
                return Err(Error::WouldBlock);
            }
            Taken::Failed(error) => {
                self.abandon(step);
                return Err(error);
            }
        };
        match step.is_lent {
            true => self.volume.direct_steps().move_now(&mut step, requests),
            // A page fault here could wait for a thread that waits for this transfer. So this
            // copies without faults; what needs one is copied at the end.
            false => self.volume.direct_steps().move_then(&mut step, requests, |step| {
                self.volume.direct_steps().copy_out(step, memory, Faults::Off);
            }),
        }
        self.finish_read(step, memory)
    }
}
