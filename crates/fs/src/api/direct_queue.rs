//! A queue of direct transfers: the caller does not wait for each one.
//!
//! ```text
//!   write, read ──begin, take──► device's queue ──► wait: finish ──► DirectDone
//!                     │                                ▲
//!                     │             a thread that has to wait for such a transfer helps
//!                     └ grows, parts of blocks, page faults: done at once ──► DirectDone
//! ```

use crate::api::file::File;
use crate::api::filesystem::Filesystem;
use crate::files::direct::DirectOptions;
use crate::files::direct::begin::Begun;
use crate::files::direct::step::{Mover, Step, Taken};
use crate::state::inode::transfers::Help;
use extant_base::{Error, Result};
use extant_blockdev::{Access, CallerMemory, Completion, Queue, QueueWay, Request};
use parking_lot::{Condvar, Mutex};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// A finished transfer, as a [`DirectQueue`] returns it.
#[derive(Debug)]
pub struct DirectDone<M> {
    /// The caller's own tag.
    pub tag: u64,
    /// How many bytes were moved, as the blocking call returns it.
    pub result: Result<usize>,
    /// The caller's memory, advanced by as many bytes.
    pub memory: M,
}

/// Many direct transfers of a volume's files at a time.
///
/// One thread submits and waits; several threads have a queue each. Dropping the queue waits for
/// the transfers in flight.
///
/// # Examples
///
/// ```
/// # let _here = extant_guide_tests::with_image();
/// use extant::direct::{AlignedBuf, DirectOptions, OwnedMemory};
/// let fs = extant::OpenOptions::new().write(true).direct(true).open("disk.img")?;
/// let file = fs.open_file("/disk.raw")?;
/// let mut queue = fs.direct_queue(64);
/// for n in 0..1024 {
///     let memory = OwnedMemory::new(AlignedBuf::zeroed(4096));
///     queue.write(n, &file, memory, n * 4096, &DirectOptions::default());
/// }
/// while let Some(done) = queue.wait() {
///     assert_eq!(done.result?, 4096);
/// }
/// # Ok::<(), extant::Error>(())
/// ```
pub struct DirectQueue<M: CallerMemory<'static> + Send + 'static> {
    shared: Arc<Shared<M>>,
    /// The same object, as entries refer to it.
    helper: Weak<dyn Help>,
    depth: usize,
}

impl<M: CallerMemory<'static> + Send + 'static> std::fmt::Debug for DirectQueue<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DirectQueue").field("depth", &self.depth).finish_non_exhaustive()
    }
}

struct Shared<M> {
    fs: Filesystem,
    /// What the device has. Held while waiting for the device; no ranked lock is taken under it.
    device: Mutex<Device<M>>,
    done: Mutex<Done<M>>,
    finished: Condvar,
}

struct Device<M> {
    queue: Queue<'static>,
    /// Transfers by number, the upper half of their requests' tags.
    transfers: HashMap<u32, Transfer<M>>,
    next: u32,
}

struct Done<M> {
    list: VecDeque<DirectDone<M>>,
    /// Submitted and not returned yet.
    pending: usize,
}

struct Transfer<M> {
    tag: u64,
    file: File,
    step: Step,
    memory: M,
    access: Access,
    /// Bytes of the memory that a write took.
    taken: usize,
    /// Requests that have not ended.
    left: usize,
}

impl Filesystem {
    /// A queue for up to `depth` direct transfers at a time. It uses io_uring where the device and
    /// the system allow it.
    pub fn direct_queue<M: CallerMemory<'static> + Send + 'static>(
        &self,
        depth: usize,
    ) -> DirectQueue<M> {
        self.direct_queue_by(depth, QueueWay::Auto)
    }

    /// As [`Filesystem::direct_queue`], with a choice of mechanism.
    pub fn direct_queue_by<M: CallerMemory<'static> + Send + 'static>(
        &self,
        depth: usize,
        way: QueueWay,
    ) -> DirectQueue<M> {
        let depth = depth.max(1);
        let queue = Queue::new(Arc::clone(self.volume().device()), depth, way);
        let device = Mutex::new(Device { queue, transfers: HashMap::new(), next: 0 });
        let done = Mutex::new(Done { list: VecDeque::new(), pending: 0 });
        let shared = Shared { fs: self.clone(), device, done, finished: Condvar::new() };
        let shared = Arc::new(shared);
        let helper: Arc<dyn Help> = shared.clone();
        DirectQueue { helper: Arc::downgrade(&helper), shared, depth }
    }

    /// Statistics of direct transfers since the volume was opened.
    pub fn direct_stats(&self) -> crate::state::bounce::DirectStats {
        self.volume().bounce_chunks().stats()
    }

    /// Limits the memory for copies of direct transfers, in bytes; the default is 64 MiB.
    pub fn limit_direct_chunks(&self, bytes: usize) {
        self.volume().bounce_chunks().limit(bytes);
    }
}

impl<M: CallerMemory<'static> + Send + 'static> DirectQueue<M> {
    /// Starts to write all that is left of `memory` at byte `offset` of a file. With `depth`
    /// transfers in flight, first waits for one. A transfer that the device cannot do alone is
    /// finished before this returns. With [`DirectOptions::sync`] the data is durable when the
    /// queue returns the transfer.
    pub fn write(
        &mut self,
        tag: u64,
        file: &File,
        memory: M,
        offset: u64,
        options: &DirectOptions,
    ) {
        self.start(tag, file, offset, memory, options, Access::Read);
    }

    /// Starts to fill `memory` from byte `offset` of a file on, as [`DirectQueue::write`].
    pub fn read(&mut self, tag: u64, file: &File, memory: M, offset: u64, options: &DirectOptions) {
        self.start(tag, file, offset, memory, options, Access::Write);
    }

    /// Which mechanism drives the device.
    pub fn way(&self) -> QueueWay {
        self.shared.device.lock().queue.way()
    }

    /// How many transfers were started and not returned yet.
    pub fn in_flight(&self) -> usize {
        self.shared.done.lock().pending
    }

    /// Waits for a transfer to end and returns it; `None` when there is none. They come in any
    /// order.
    pub fn wait(&mut self) -> Option<DirectDone<M>> {
        loop {
            {
                let mut done = self.shared.done.lock();
                if let Some(one) = done.list.pop_front() {
                    done.pending -= 1;
                    return Some(one);
                }
                if done.pending == 0 {
                    return None;
                }
            }
            self.shared.reap();
        }
    }

    fn start(
        &mut self,
        tag: u64,
        file: &File,
        offset: u64,
        mut memory: M,
        options: &DirectOptions,
        access: Access,
    ) {
        while self.shared.device.lock().transfers.len() >= self.depth {
            self.shared.reap();
        }
        self.shared.done.lock().pending += 1;
        let len = memory.left();
        let begun = self.begin(file, offset, &mut memory, options, access);
        let (mut step, requests) = match begun {
            Ok(Some(begun)) => begun,
            Ok(None) => {
                let result = match access {
                    Access::Read => file.write_direct(&mut memory, offset, options),
                    Access::Write => file.read_direct(&mut memory, offset, options),
                };
                return self.shared.deliver(DirectDone { tag, result, memory });
            }
            Err(error) => {
                return self.shared.deliver(DirectDone { tag, result: Err(error), memory });
            }
        };
        let taken = len - memory.left();
        step.sync = options.sync;
        let transfer =
            Transfer { tag, file: file.clone(), step, memory, access, taken, left: requests.len() };
        if requests.is_empty() {
            return self.shared.finish(transfer);
        }
        let mut device = self.shared.device.lock();
        let number = device.next;
        device.next = number.wrapping_add(1);
        device.transfers.insert(number, transfer);
        for request in requests {
            let tag = u64::from(number) << 32 | request.tag;
            device.queue.submit(Request { tag, ..request });
        }
    }

    /// Begins a transfer of all that is left of `memory`. `None` if it is not a single step that
    /// the device does alone.
    fn begin(
        &self,
        file: &File,
        offset: u64,
        memory: &mut M,
        options: &DirectOptions,
        access: Access,
    ) -> Result<Option<(Step, Vec<Request<'static>>)>> {
        let volume = self.shared.fs.volume();
        if !std::ptr::eq(volume, file.volume()) {
            return Err(Error::Invalid("a file of another volume"));
        }
        let (inode, len, helper) = (file.held(), memory.left(), Some(&self.helper));
        let begun = match access {
            Access::Read => {
                volume.context().check_writable()?;
                match len {
                    0 => None,
                    _ => Some(
                        volume.direct(inode).begin_direct_write(offset, len, options, helper)?,
                    ),
                }
            }
            Access::Write => {
                volume.direct(inode).begin_direct_read(offset, len, options, helper)?
            }
        };
        let mut step = match begun {
            Some(Begun::Step(step, None)) => step,
            Some(Begun::Step(step, writing @ Some(_))) => {
                volume.direct(inode).abandon(step);
                drop(writing);
                return Ok(None);
            }
            _ => return Ok(None),
        };
        // A read that is shorter because the file ends there is complete.
        let is_cut = |at: u64| access == Access::Read || at < inode.read().size;
        if step.len < len && is_cut(offset + step.len as u64) {
            volume.direct(inode).abandon(step);
            return Ok(None);
        }
        match volume.direct_steps().take(&mut step, memory, access, options, Mover::Queue) {
            Taken::Requests(requests) => Ok(Some((step, requests))),
            Taken::Moved => Ok(Some((step, Vec::new()))),
            Taken::Short(_) => {
                volume.direct(inode).abandon(step);
                Ok(None)
            }
            Taken::WouldBlock => {
                volume.direct(inode).abandon(step);
                Err(Error::WouldBlock)
            }
            Taken::Failed(error) => {
                volume.direct(inode).abandon(step);
                Err(error)
            }
        }
    }
}

impl<M: CallerMemory<'static> + Send> Shared<M> {
    /// Takes a completion from the device and finishes each transfer whose last request has ended.
    /// If another thread has taken all of them, waits a moment for that thread.
    fn reap(&self) {
        let mut device = self.device.lock();
        let Some(mut completion) = device.queue.wait() else {
            drop(device);
            let mut done = self.done.lock();
            if done.list.is_empty() && done.pending > 0 {
                self.finished.wait_for(&mut done, Duration::from_millis(1));
            }
            return;
        };
        // Completions that are already there cost nothing to take.
        let mut over = Vec::new();
        loop {
            over.extend(device.complete(completion));
            match device.queue.poll() {
                Some(next) => completion = next,
                None => break,
            }
        }
        drop(device);
        over.into_iter().for_each(|transfer| self.finish(transfer));
    }

    fn finish(&self, transfer: Transfer<M>) {
        let Transfer { tag, file, step, mut memory, access, taken, .. } = transfer;
        let (volume, sync) = (file.volume(), step.sync);
        let result = volume.context().recording_errors(|| match access {
            Access::Read => {
                let done = volume.direct(file.held()).finish_write(step);
                memory.revert(taken - done.as_ref().unwrap_or(&0));
                if sync && done.is_ok() {
                    file.sync_data()?;
                }
                volume.io(file.held()).sync_if_flagged()?;
                done
            }
            Access::Write => volume.direct(file.held()).finish_read(step, &mut memory),
        });
        self.deliver(DirectDone { tag, result, memory });
    }

    fn deliver(&self, one: DirectDone<M>) {
        self.done.lock().list.push_back(one);
        self.finished.notify_all();
    }
}

impl<M> Device<M> {
    /// The transfer that this completion ends, if it does.
    fn complete(&mut self, completion: Completion<'static>) -> Option<Transfer<M>> {
        let tag = completion.request.tag;
        let number = (tag >> 32) as u32;
        let transfer = self.transfers.get_mut(&number).expect("a request of a transfer");
        transfer.left -= 1;
        let is_last = transfer.left == 0;
        let request = Request { tag: tag & u64::from(u32::MAX), ..completion.request };
        transfer.step.complete(Completion { request, ..completion });
        is_last.then(|| self.transfers.remove(&number)).flatten()
    }
}

impl<M: CallerMemory<'static> + Send> Help for Shared<M> {
    fn help(&self) {
        self.reap();
    }
}

impl<M: CallerMemory<'static> + Send + 'static> Drop for DirectQueue<M> {
    fn drop(&mut self) {
        while self.wait().is_some() {}
    }
}
