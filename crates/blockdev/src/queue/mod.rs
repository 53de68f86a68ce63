//! Many transfers of one device at a time, each with its own result.
//!
//! ```text
//!   submit(request) ──► in flight, at most `depth` ──► wait() ──► completion: request, result
//!                            │
//!             Ring      io_uring, where the device has a descriptor and the system allows it
//!             Threads   positional I/O, up to 8 at a time
//!             Inline    immediately, in the caller's thread, in order: memory, recorders, faults
//! ```
//!
//! A request's memory belongs to the queue until its completion is returned. A queue that is
//! dropped first waits for all transfers in flight. Borrowed memory needs a [`scope`], which waits
//! before it returns; a `Queue` outside of a scope takes only memory that is not borrowed.

mod ahead;
mod now;
mod ring;
mod threads;

pub use ahead::transfer_all;
pub use now::transfer;

use crate::caller::{Access, Span};
use crate::device::BlockDevice;
use crate::pool::PooledBuf;
use crate::range::check_range;
use extant_base::{ByteOffset, Error, IoOp, Result};
use ring::Ring;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::Arc;
use threads::Threads;

/// The memory that a transfer reads or fills.
#[derive(Debug)]
pub enum Memory<'m> {
    /// Lent spans, one after the other.
    Lent(Vec<Span<'m>>),
    /// A whole buffer that the request owns.
    Owned(PooledBuf),
}

impl Memory<'_> {
    /// The length in bytes.
    pub fn len(&self) -> usize {
        match self {
            Memory::Lent(spans) => {
                spans.iter().fold(0, |sum: usize, span| sum.saturating_add(span.len()))
            }
            Memory::Owned(buf) => buf.len(),
        }
    }

    /// Whether it holds no byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The addresses and lengths of the pieces.
    fn vectors(&self) -> Vec<libc::iovec> {
        match self {
            Memory::Lent(spans) => spans
                .iter()
                .map(|span| libc::iovec { iov_base: span.start().cast(), iov_len: span.len() })
                .collect(),
            Memory::Owned(buf) => {
                vec![libc::iovec { iov_base: buf.start().cast(), iov_len: buf.len() }]
            }
        }
    }

    /// Whether all of it allows `access`.
    fn allows(&self, access: Access) -> bool {
        match self {
            Memory::Lent(spans) => {
                access == Access::Read || spans.iter().all(|span| span.access() == Access::Write)
            }
            Memory::Owned(_) => true,
        }
    }
}

/// One transfer.
#[derive(Debug)]
pub struct Request<'m> {
    /// A value that the caller chooses; the completion returns it.
    pub tag: u64,
    /// [`Access::Read`] of memory writes to the device, [`Access::Write`] reads from it.
    pub access: Access,
    /// The position on the device.
    pub at: ByteOffset,
    /// The memory to read or fill.
    pub memory: Memory<'m>,
}

impl Request<'_> {
    fn op(&self) -> IoOp {
        match self.access {
            Access::Read => IoOp::Write,
            Access::Write => IoOp::Read,
        }
    }

    /// Fails where the device would refuse the request without any transfer.
    fn check(&self, device: &dyn BlockDevice) -> Result<()> {
        if self.access == Access::Read && device.is_read_only() {
            return Err(Error::ReadOnly);
        }
        if !self.memory.allows(self.access) {
            return Err(Error::Invalid("memory that may only be read"));
        }
        check_range(self.op(), device.len(), self.at, self.memory.len() as u64)
    }
}

/// A transfer that has ended.
#[derive(Debug)]
pub struct Completion<'m> {
    /// The request; its memory belongs to the caller again.
    pub request: Request<'m>,
    /// `Ok` when every byte was moved.
    pub result: Result<()>,
}

/// How a queue runs its transfers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueWay {
    /// The best way available: a ring where the device has a descriptor, threads where io_uring is
    /// forbidden, and inline for other devices.
    #[default]
    Auto,
    /// io_uring.
    Ring,
    /// Positional I/O on threads.
    Threads,
    /// In the caller's thread, in order.
    Inline,
}

enum Way<'m> {
    Ring(Box<Ring<'m>>),
    Threads(Threads<'m>),
    Inline,
}

/// A queue of one device; see the picture at the top of this module.
///
/// # Examples
///
/// ```
/// use extant_base::ByteOffset;
/// use extant_blockdev::{Access, BufPool, Memory, MemoryDevice, Queue, QueueWay, Request};
/// use std::sync::Arc;
/// let mut queue = Queue::new(Arc::new(MemoryDevice::new(1 << 20)), 16, QueueWay::Auto);
/// let pool = BufPool::default();
/// for n in 0..16 {
///     let memory = Memory::Owned(pool.take(4096));
///     queue.submit(Request { tag: n, access: Access::Read, at: ByteOffset(n * 4096), memory });
/// }
/// while let Some(done) = queue.wait() {
///     done.result?;
/// }
/// # Ok::<(), extant_base::Error>(())
/// ```
pub struct Queue<'m> {
    /// Declared before `device`, so dropped before it: transfers in flight use the device.
    way: Way<'m>,
    device: Arc<dyn BlockDevice>,
    depth: usize,
    done: VecDeque<Completion<'m>>,
    /// Invariant in `'m`: neither a longer nor a shorter lifetime is allowed, see [`scope`].
    _memory: PhantomData<fn(&'m ()) -> &'m ()>,
}

impl std::fmt::Debug for Queue<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("depth", &self.depth).finish_non_exhaustive()
    }
}

impl Queue<'static> {
    /// A queue with up to `depth` transfers in flight, 1 to 4096. `way` is a preference: io_uring
    /// may be forbidden, and a device without a descriptor has no ring; threads replace the ring.
    pub fn new(device: Arc<dyn BlockDevice>, depth: usize, way: QueueWay) -> Queue<'static> {
        Queue::open(device, depth, way)
    }
}

/// Runs `work` with a queue for memory that is borrowed for `'m`. Returns, or continues a panic of
/// `work`, when no transfer is in flight any more.
pub fn scope<'m, R>(
    device: Arc<dyn BlockDevice>,
    depth: usize,
    way: QueueWay,
    work: impl FnOnce(&mut QueueScope<'_, 'm>) -> R,
) -> R {
    let mut queue = Queue::open(device, depth, way);
    // `work` cannot move the queue out of this function. The drop at the end waits for all
    // transfers.
    work(&mut QueueScope { queue: &mut queue })
}

/// The queue of a [`scope`].
pub struct QueueScope<'q, 'm> {
    queue: &'q mut Queue<'m>,
}

impl std::fmt::Debug for QueueScope<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueueScope").field("queue", &self.queue).finish_non_exhaustive()
    }
}

/// The operations of a queue, with or without a scope.
pub trait DriveQueue<'m> {
    /// Starts a transfer. With `depth` transfers in flight it waits for one of them first. The
    /// kernel may see the request only when [`wait`](DriveQueue::wait) or
    /// [`kick`](DriveQueue::kick) is called.
    fn submit(&mut self, request: Request<'m>);
    /// Sends all submitted requests to the kernel.
    fn kick(&mut self);
    /// Waits for a transfer to end and returns it; `None` when none is in flight. The order is
    /// arbitrary.
    fn wait(&mut self) -> Option<Completion<'m>>;
    /// Returns a transfer that has ended, without waiting; `None` when there is none.
    fn poll(&mut self) -> Option<Completion<'m>>;
    /// How many transfers were submitted and not yet returned.
    fn in_flight(&self) -> usize;
}

impl<'m> DriveQueue<'m> for QueueScope<'_, 'm> {
    fn submit(&mut self, request: Request<'m>) {
        self.queue.submit(request);
    }
    fn kick(&mut self) {
        self.queue.kick();
    }
    fn wait(&mut self) -> Option<Completion<'m>> {
        self.queue.wait()
    }
    fn poll(&mut self) -> Option<Completion<'m>> {
        self.queue.poll()
    }
    fn in_flight(&self) -> usize {
        self.queue.in_flight()
    }
}

impl<'m> DriveQueue<'m> for Queue<'m> {
    fn submit(&mut self, request: Request<'m>) {
        Queue::submit(self, request);
    }
    fn kick(&mut self) {
        Queue::kick(self);
    }
    fn wait(&mut self) -> Option<Completion<'m>> {
        Queue::wait(self)
    }
    fn poll(&mut self) -> Option<Completion<'m>> {
        Queue::poll(self)
    }
    fn in_flight(&self) -> usize {
        Queue::in_flight(self)
    }
}

impl<'m> Queue<'m> {
    fn open(device: Arc<dyn BlockDevice>, depth: usize, way: QueueWay) -> Queue<'m> {
        let depth = depth.clamp(1, 4096);
        let has_descriptor = device.descriptor().is_some();
        let ring = || Ring::new(depth).ok().map(|ring| Way::Ring(Box::new(ring)));
        let threads = || Way::Threads(Threads::new(Arc::clone(&device), depth));
        let way = match way {
            QueueWay::Auto | QueueWay::Ring if has_descriptor => ring().unwrap_or_else(threads),
            QueueWay::Threads => threads(),
            QueueWay::Ring => threads(),
            QueueWay::Auto | QueueWay::Inline => Way::Inline,
        };
        Queue { device, depth, way, done: VecDeque::new(), _memory: PhantomData }
    }

    /// The way in which this queue runs its transfers.
    pub fn way(&self) -> QueueWay {
        match self.way {
            Way::Ring(_) => QueueWay::Ring,
            Way::Threads(_) => QueueWay::Threads,
            Way::Inline => QueueWay::Inline,
        }
    }

    /// The device.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// As [`DriveQueue::submit`].
    pub fn submit(&mut self, mut request: Request<'m>) {
        if let Err(error) = request.check(&*self.device) {
            return self.done.push_back(Completion { request, result: Err(error) });
        }
        while self.under_way() >= self.depth {
            let Some(done) = self.reap() else { break };
            self.done.push_back(done);
        }
        match &mut self.way {
            Way::Threads(threads) => threads.submit(request),
            Way::Inline => {
                let result = now::transfer_checked(&*self.device, &mut request);
                self.done.push_back(Completion { request, result });
            }
            Way::Ring(ring) => match now::whole_for_kernel(&*self.device, &request) {
                Some(target) => ring.submit(target, request),
                // The device's own methods handle it.
                None => {
                    let result = now::transfer_checked(&*self.device, &mut request);
                    self.done.push_back(Completion { request, result });
                }
            },
        }
    }

    /// As [`DriveQueue::kick`].
    pub fn kick(&mut self) {
        if let Way::Ring(ring) = &mut self.way {
            ring.kick();
        }
    }

    /// As [`DriveQueue::wait`].
    pub fn wait(&mut self) -> Option<Completion<'m>> {
        self.kick();
        self.done.pop_front().or_else(|| self.reap())
    }

    /// As [`DriveQueue::poll`].
    pub fn poll(&mut self) -> Option<Completion<'m>> {
        self.kick();
        if let Some(done) = self.done.pop_front() {
            return Some(done);
        }
        match &mut self.way {
            Way::Ring(ring) => ring.poll(&*self.device),
            Way::Threads(threads) => threads.poll(),
            Way::Inline => None,
        }
    }

    /// As [`DriveQueue::in_flight`].
    pub fn in_flight(&self) -> usize {
        self.under_way() + self.done.len()
    }

    fn under_way(&self) -> usize {
        match &self.way {
            Way::Ring(ring) => ring.under_way(),
            Way::Threads(threads) => threads.under_way(),
            Way::Inline => 0,
        }
    }

    /// Waits for one of the transfers in flight.
    fn reap(&mut self) -> Option<Completion<'m>> {
        match &mut self.way {
            Way::Ring(ring) => ring.wait(&*self.device),
            Way::Threads(threads) => threads.wait(),
            Way::Inline => None,
        }
    }
}

#[cfg(test)]
mod tests;
