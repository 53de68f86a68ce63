//! Transfers by io_uring.
//!
//! ```text
//!   slot n   request + its vectors, boxed      user_data = n
//!            submit ──► entry in the ring ──► kick: one system call ──► completion ──► slot free
//! ```
//!
//! A slot keeps its request, and so the memory, until the kernel has completed it. A ring that is
//! dropped waits for all completions.

use super::now::{Target, by_device};
use super::{Completion, Memory, Request};
use crate::caller::Access;
use crate::device::BlockDevice;
use crate::range::failed;
use io_uring::{IoUring, opcode, types};
use std::io;

pub(super) struct Ring<'m> {
    /// Present until [`Ring::into_idle`].
    ring: Option<IoUring>,
    slots: Vec<Option<Slot<'m>>>,
    free: Vec<u32>,
    /// Entries that the kernel has not seen yet.
    unsent: usize,
}

struct Slot<'m> {
    request: Request<'m>,
    /// The vectors that the kernel reads, for requests of several pieces.
    vectors: Vec<libc::iovec>,
}

// SAFETY: the vectors point into the request's memory, which may move to another thread.
unsafe impl Send for Slot<'_> {}

impl<'m> Ring<'m> {
    /// A ring for `depth` transfers. Errors: the system's, where io_uring is forbidden.
    pub(super) fn new(depth: usize) -> io::Result<Ring<'m>> {
        let entries = u32::try_from(depth).unwrap_or(4096).next_power_of_two();
        let ring = IoUring::builder().dontfork().build(entries)?;
        Ok(Ring::around(ring, depth))
    }

    /// As [`Ring::new`], from the io_uring that an earlier `Ring` of this depth returned.
    pub(super) fn around(ring: IoUring, depth: usize) -> Ring<'m> {
        let slots = (0..depth).map(|_| None).collect();
        Ring { ring: Some(ring), slots, free: (0..depth as u32).rev().collect(), unsent: 0 }
    }

    /// Returns the io_uring for reuse, or `None` while a transfer is in flight.
    pub(super) fn into_idle(mut self) -> Option<IoUring> {
        if self.under_way() == 0 && self.unsent == 0 { self.ring.take() } else { None }
    }

    fn ring(&mut self) -> &mut IoUring {
        self.ring.as_mut().expect("only `into_idle` takes it")
    }

    pub(super) fn under_way(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Queues one transfer. The caller has fewer than `depth` in flight.
    pub(super) fn submit(&mut self, target: Target, request: Request<'m>) {
        let n = self.free.pop().expect("fewer than `depth` are under way");
        let vectors = match &request.memory {
            Memory::Lent(spans) if spans.len() != 1 => request.memory.vectors(),
            _ => Vec::new(),
        };
        let slot = self.slots[n as usize].insert(Slot { request, vectors });
        let file = types::Fd(target.file);
        let Slot { request: Request { memory, .. }, vectors } = &*slot;
        let single = match memory {
            Memory::Owned(buf) => Some((buf.start(), buf.len())),
            Memory::Lent(spans) => match spans.as_slice() {
                [one] => Some((one.start(), one.len())),
                _ => None,
            },
        };
        let entry = match (single, slot.request.access) {
            (Some((start, len)), Access::Read) if u32::try_from(len).is_ok() => {
                opcode::Write::new(file, start, len as u32).offset(target.at).build()
            }
            (Some((start, len)), Access::Write) if u32::try_from(len).is_ok() => {
                opcode::Read::new(file, start, len as u32).offset(target.at).build()
            }
            (_, Access::Read) => opcode::Writev::new(file, vectors.as_ptr(), vectors.len() as u32)
                .offset(target.at)
                .build(),
            (_, Access::Write) => opcode::Readv::new(file, vectors.as_ptr(), vectors.len() as u32)
                .offset(target.at)
                .build(),
        };
        let entry = entry.user_data(n.into());
        // SAFETY: all that the entry points to is in the slot, which stays until the completion
        // with its number. The descriptor belongs to the device, which the caller keeps longer than
        // the ring.
        while unsafe { self.ring().submission().push(&entry) }.is_err() {
            self.kick();
        }
        self.unsent += 1;
    }

    /// Sends all entries to the kernel.
    pub(super) fn kick(&mut self) {
        let mut patience = 0;
        while self.unsent > 0 {
            match self.ring().submit() {
                Ok(sent) => self.unsent -= sent.min(self.unsent),
                Err(error) => pause_or_give_up(&error, &mut patience),
            }
        }
    }

    pub(super) fn poll(&mut self, device: &dyn BlockDevice) -> Option<Completion<'m>> {
        let entry = self.ring().completion().next()?;
        self.finish(device, entry.user_data() as usize, entry.result())
    }

    pub(super) fn wait(&mut self, device: &dyn BlockDevice) -> Option<Completion<'m>> {
        let mut patience = 0;
        while self.under_way() > 0 {
            if let Some(done) = self.poll(device) {
                return Some(done);
            }
            match self.ring().submit_and_wait(1) {
                Ok(sent) => self.unsent -= sent.min(self.unsent),
                Err(error) => pause_or_give_up(&error, &mut patience),
            }
        }
        None
    }

    fn finish(
        &mut self,
        device: &dyn BlockDevice,
        n: usize,
        result: i32,
    ) -> Option<Completion<'m>> {
        let Slot { mut request, .. } = self.slots[n].take()?;
        self.free.push(n as u32);
        let len = request.memory.len();
        if request.access == Access::Read {
            device.wrote_past();
        }
        let result = match usize::try_from(result) {
            Ok(done) if done == len => Ok(()),
            // Short, or refused by an alignment rule that the system did not report: the device's
            // own methods repeat it all.
            Ok(_) => by_device(device, &mut request),
            Err(_) if [libc::EINVAL, libc::EAGAIN, libc::EINTR].contains(&-result) => {
                by_device(device, &mut request)
            }
            Err(_) => {
                let error = io::Error::from_raw_os_error(-result);
                Err(failed(request.op(), request.at, len as u64, error))
            }
        };
        Some(Completion { request, result })
    }
}

/// Pauses before a retry. The kernel may use the memory of a request until it has completed it, so
/// the memory cannot be released: a ring that fails permanently ends the process.
fn pause_or_give_up(error: &io::Error, patience: &mut u32) {
    if matches!(error.raw_os_error(), Some(libc::EINTR)) {
        return;
    }
    *patience += 1;
    if *patience > 10_000 {
        eprintln!("extant: io_uring answers no more, and has memory of this process: {error}");
        std::process::abort();
    }
    std::thread::sleep(std::time::Duration::from_micros(200));
}

impl Drop for Ring<'_> {
    fn drop(&mut self) {
        let mut patience = 0;
        while self.under_way() > 0 {
            let answered: Vec<u64> =
                self.ring().completion().map(|entry| entry.user_data()).collect();
            for n in answered {
                if self.slots[n as usize].take().is_some() {
                    self.free.push(n as u32);
                }
            }
            if self.under_way() > 0
                && let Err(error) = self.ring().submit_and_wait(1)
            {
                pause_or_give_up(&error, &mut patience);
            }
        }
    }
}
