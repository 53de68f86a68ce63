//! A direct write, step by step, in the caller's thread.
//!
//! ```text
//!   begin ─► take ─► move ─► finish         next step
//!              └ short: give back, abandon, fault in, again; no progress: copied, then buffered
//! ```

use super::DirectOptions;
use super::begin::Begun;
use super::step::{Mover, Step, Taken};
use crate::files::direct::{DirectIo, DirectSteps};
use extant_base::{Error, Result};
use extant_blockdev::{Access, CallerMemory, Completion, Request, transfer, transfer_all};
use std::sync::atomic::Ordering::Relaxed;

/// How often memory is faulted in for one step before the bytes are copied and buffered instead.
pub(crate) const FAULTS_MAX: u32 = 8;

impl DirectIo<'_> {
    /// See `File::write_direct`.
    pub(crate) fn write_direct<'m>(
        self,
        offset: u64,
        memory: &mut (impl CallerMemory<'m> + ?Sized),
        options: &DirectOptions,
    ) -> Result<usize> {
        self.volume.context().check_writable()?;
        let mut done = 0;
        let mut faults = 0;
        while memory.left() > 0 {
            let pos = offset.checked_add(done as u64).ok_or(Error::FileTooLarge)?;
            let step = match self.write_one(pos, memory, options, &mut faults) {
                Ok(Some(n)) => n,
                Ok(None) => continue,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            };
            if step == 0 {
                break;
            }
            (done, faults) = (done + step, 0);
        }
        Ok(done)
    }

    /// One step. Returns how many bytes, or `None` if memory was faulted in and the step must begin
    /// again.
    fn write_one<'m>(
        self,
        pos: u64,
        memory: &mut (impl CallerMemory<'m> + ?Sized),
        options: &DirectOptions,
        faults: &mut u32,
    ) -> Result<Option<usize>> {
        let left = memory.left();
        let (mut step, writing) = match self.begin_direct_write(pos, left, options, None)? {
            Begun::Step(step, writing) => (step, writing),
            Begun::Buffered(_) if options.no_wait => return Err(Error::WouldBlock),
            Begun::Buffered(len) => {
                return self.write_buffered(pos, len, memory).map(Some);
            }
        };
        let requests = match self.volume.direct_steps().take(
            &mut step,
            memory,
            Access::Read,
            options,
            Mover::Here,
        ) {
            Taken::Requests(requests) => requests,
            Taken::Moved => Vec::new(),
            Taken::Short(_) => {
                let len = step.len;
                self.abandon(step);
                drop(writing);
                return self.fault_in(pos, len, memory, faults);
            }
            Taken::WouldBlock => {
                self.abandon(step);
                return Err(Error::WouldBlock);
            }
            Taken::Failed(error) => {
                self.abandon(step);
                return Err(error);
            }
        };
        let taken = left - memory.left();
        self.volume.direct_steps().move_now(&mut step, requests);
        let done = self.finish_write(step);
        drop(writing);
        memory.revert(taken - done.as_ref().unwrap_or(&0));
        done.map(Some)
    }

    /// Faults in the memory that a copy did not find, with no lock held. If that does not help
    /// repeatedly, writes the bytes through the cache.
    pub(crate) fn fault_in<'m>(
        self,
        pos: u64,
        len: usize,
        memory: &mut (impl CallerMemory<'m> + ?Sized),
        faults: &mut u32,
    ) -> Result<Option<usize>> {
        self.volume.bounce_chunks().stats.faults.fetch_add(1, Relaxed);
        *faults += 1;
        if memory.fault_in(len, Access::Read) < len {
            return Err(Error::Fault);
        }
        match *faults < FAULTS_MAX {
            true => Ok(None),
            false => self.write_buffered(pos, len, memory).map(Some),
        }
    }
}

impl DirectSteps<'_> {
    /// Does a step's requests, up to the first one that fails.
    pub(crate) fn move_now<'m>(self, step: &mut Step, requests: Vec<Request<'m>>) {
        self.move_then(step, requests, |_| ());
    }

    /// As [`DirectSteps::move_now`]. Calls `then` on the step after each request.
    pub(crate) fn move_then<'m>(
        self,
        step: &mut Step,
        requests: Vec<Request<'m>>,
        mut then: impl FnMut(&mut Step),
    ) {
        let many = requests.len() > 1;
        let mut requests = requests.into_iter();
        let mut complete = |done: Completion<'m>| {
            step.complete(done);
            then(step);
        };
        match requests.next() {
            Some(mut request) if !many => {
                let result = transfer(&**self.volume.device(), &mut request);
                complete(Completion { request, result });
            }
            first => {
                let mut all = first.into_iter().chain(requests);
                transfer_all(&**self.volume.device(), || all.next(), complete);
            }
        }
    }
}
