//! Requests through io_uring: one system call commits a reply and waits for the next request.
//!
//! ```text
//!   kernel: a queue a CPU ──► entries that wait ──► our threads, each with a ring and one entry
//!
//!     prepare ─► rings set up ─► INIT answered ─► go ─► REGISTER ─► request ─► COMMIT_AND_FETCH …
//!        └── one fails: nothing was requested from the kernel yet, /dev/fuse serves
//!
//!   entry:  ┌──────────────┬───────────┬────────────┐   ┌───────────────────────────────┐
//!           │ header 128   │ struct 128│ commit: 32 │   │ payload: names or data in,    │
//!           └──────────────┴───────────┴────────────┘   │ the reply out                 │
//!                                                       └───────────────────────────────┘
//! ```
//!
//! The kernel puts a request on the queue of the CPU on which the caller runs. Each thread belongs
//! to one queue. When the last waiting thread of a queue receives a request, it starts another
//! thread, so a request that takes long does not block others. Threads are not bound to their
//! queue's CPU: threads that the filesystem starts from one of them would inherit the binding.
//! FORGET, INTERRUPT and requests from before all queues were registered arrive through
//! `/dev/fuse`.

use crate::abi::{self, PAGE};
use crate::connection::{Log, is_end};
use crate::dispatch::{Dispatch, Outcome};
use crate::negotiate::Agreed;
use crate::request::Message;
use crate::transport::buffer::Buffer;
use crate::transport::worker_pool::Place;
use crate::transport::{CpuLatencyHold, WorkerPool};
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use zerocopy::{FromBytes, IntoBytes};

type Ring = IoUring<squeue::Entry128, cqueue::Entry>;

const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;
/// Threads of each queue at the start.
const FIRST_THREADS: usize = 2;
/// Payloads up to this size are copied, so that the reply can use the payload buffer. For larger
/// ones the reply is built elsewhere and then copied; it is short.
const COPIED: usize = PAGE;
/// Buffer for those replies. The largest is that of an `ioctl`, whose number has 14 bits for its
/// size.
const SHORT_REPLY: usize = 2 * 16384;
/// Smallest agreed transfer limit with which the kernel's payload buffer holds every reply.
const LEAST_TRANSFER: u32 = 128 << 10;

/// State that the threads of all queues share.
struct Shared {
    dispatch: Arc<Dispatch>,
    connection: Arc<OwnedFd>,
    cpu_latency: Option<Arc<CpuLatencyHold>>,
    log: Log,
}

/// Threads with rings that wait until INIT is answered.
pub(crate) struct Prepared {
    pools: Vec<Arc<WorkerPool>>,
    start: Vec<Sender<Arc<Shared>>>,
}

/// Sets up rings for every queue: at most `threads` altogether, but at least one for each queue.
/// `None` where io_uring cannot be used: the transfer limit is below `LEAST_TRANSFER`, or io_uring
/// is not permitted.
pub(crate) fn prepare(
    agreed: &Agreed,
    connection: &Arc<OwnedFd>,
    threads: usize,
) -> Option<Prepared> {
    if agreed.max_transfer < LEAST_TRANSFER {
        return None;
    }
    let queues = possible_cpus()?;
    let limit = (threads / queues).max(1);
    let mut prepared = Prepared { pools: Vec::new(), start: Vec::new() };
    let (report, reports) = channel();
    for queue in 0..queues {
        let pool = WorkerPool::unending("extant-fuse-q", limit);
        prepared.pools.push(Arc::clone(&pool));
        for _ in 0..FIRST_THREADS.min(limit) {
            let (start, ready) = channel();
            let (connection, report) = (Arc::clone(connection), report.clone());
            let queue = u16::try_from(queue).ok()?;
            let started = pool.start(move |place| {
                let ring = set_up(&connection);
                let usable = ring.is_ok();
                let _ = report.send(usable);
                // `prepare` reads reports until every sender is dropped.
                drop(report);
                if let Ok(ring) = ring {
                    wait_and_serve(ring, queue, &place, &ready);
                }
            });
            started.ok()?;
            prepared.start.push(start);
        }
    }
    drop(report);
    // If one fails, `prepared` is dropped, and with it every `start`; then the threads end.
    reports.iter().all(|usable| usable).then_some(prepared)
}

fn wait_and_serve(ring: Ring, queue: u16, place: &Place, ready: &Receiver<Arc<Shared>>) {
    if let Ok(shared) = ready.recv() {
        serve(&shared, ring, queue, place);
    }
}

impl Prepared {
    /// Called when INIT has been answered with io_uring agreed: the threads register their entries.
    pub(crate) fn start(
        self,
        dispatch: &Arc<Dispatch>,
        connection: &Arc<OwnedFd>,
        cpu_latency: Option<&Arc<CpuLatencyHold>>,
        log: &Log,
    ) -> Vec<Arc<WorkerPool>> {
        let shared = Arc::new(Shared {
            dispatch: Arc::clone(dispatch),
            connection: Arc::clone(connection),
            cpu_latency: cpu_latency.cloned(),
            log: Arc::clone(log),
        });
        for start in &self.start {
            let _ = start.send(Arc::clone(&shared));
        }
        self.pools
    }
}

/// Number of CPUs that the machine may ever have; the kernel has a queue for each. `None` if it
/// cannot be read.
pub(crate) fn possible_cpus() -> Option<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").ok()?;
    cpus_of(&text)
}

/// Counts the CPUs in a list like `0-3,8`.
fn cpus_of(list: &str) -> Option<usize> {
    let range = |part: &str| -> Option<RangeInclusive<usize>> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    list.trim().split(',').map(|part| range(part).map(|r| r.count())).sum()
}

/// A ring for this thread. The connection is its registered file 0.
fn set_up(connection: &OwnedFd) -> io::Result<Ring> {
    let ring: Ring =
        IoUring::builder().setup_single_issuer().setup_defer_taskrun().dontfork().build(2)?;
    ring.submitter().register_files(&[connection.as_raw_fd()])?;
    Ok(ring)
}

/// Memory for an entry's requests and replies. The kernel writes to `header` and `payload` while
/// the entry waits; no borrow of them exists during that time.
struct Entry {
    header: Buffer,
    payload: Buffer,
    /// Addresses and lengths of the two buffers, for REGISTER.
    places: Box<[[usize; 2]; 2]>,
}

impl Entry {
    fn new(agreed: &Agreed) -> Entry {
        let mut header = Buffer::new(0, size_of::<abi::UringReqHeader>());
        let mut payload = Buffer::new(0, agreed.reply_bytes());
        let place = |bytes: &mut [u8], len: usize| [bytes.as_mut_ptr().expose_provenance(), len];
        let places = Box::new([
            place(header.bytes(), size_of::<abi::UringReqHeader>()),
            place(payload.bytes(), agreed.reply_bytes()),
        ]);
        Entry { header, payload, places }
    }

    /// The command that passes the entry to the kernel.
    fn command(&self, operation: u32, queue: u16, commit_id: u64) -> squeue::Entry128 {
        let about = abi::UringCmdReq { flags: 0, commit_id, qid: queue, padding: [0; 6] };
        let mut area = [0; 80];
        area[..size_of::<abi::UringCmdReq>()].copy_from_slice(about.as_bytes());
        let places = self.places.as_ptr().expose_provenance() as u64;
        let command = opcode::UringCmd80::new(types::Fixed(0), operation).cmd(area);
        let mut entry = command.addr(Some(places)).build();
        // SAFETY: an `Entry128` is 128 bytes and, as `repr(C)`, the kernel's submission entry,
        // which has a `u32` field `len` at byte 24; every value is valid for it. The crate has no
        // setter for it.
        unsafe { (&raw mut entry).cast::<u32>().add(6).write(self.places.len() as u32) };
        entry
    }
}

fn serve(shared: &Arc<Shared>, mut ring: Ring, queue: u16, place: &Place) {
    let mut entry = Entry::new(shared.dispatch.agreed());
    let mut copied = vec![0; COPIED];
    let mut short = vec![0; SHORT_REPLY];
    let mut command = entry.command(REGISTER, queue, 0);
    loop {
        // SAFETY: the memory that `command` names belongs to `entry`, which outlives `ring`'s use
        // of it: the function returns only after the completion of the last command, or after the
        // kernel refused it.
        if unsafe { ring.submission().push(&command) }.is_err() {
            (shared.log)("a ring that holds one command is full");
            return;
        }
        let result = loop {
            match ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // Dropping the ring cancels what the kernel may still hold, and waits for it.
                    (shared.log)(&format!("io_uring serves no more of the mount: {error}"));
                    drop(ring);
                    return;
                }
            }
            if let Some(completion) = ring.completion().next() {
                break completion.result();
            }
        };
        if result < 0 {
            let errno = Errno::from_raw_os_error(-result);
            if !is_end(errno) && errno != Errno::CANCELED {
                (shared.log)(&format!("io_uring serves no more of the mount: {errno}"));
            }
            return;
        }
        if let Some(cpu_latency) = &shared.cpu_latency {
            cpu_latency.request();
        }
        if place.busy() {
            start(shared, queue, place.pool());
        }
        let commit_id = answer(&shared.dispatch, &mut entry, &mut copied, &mut short);
        command = entry.command(COMMIT_AND_FETCH, queue, commit_id);
        place.idle();
    }
}

/// Starts another thread for a queue.
fn start(shared: &Arc<Shared>, queue: u16, pool: &Arc<WorkerPool>) {
    let ours = Arc::clone(shared);
    let started = pool.start(move |place| match set_up(&ours.connection) {
        Ok(ring) => serve(&ours, ring, queue, &place),
        Err(error) => (ours.log)(&format!("no further ring serves the mount: {error}")),
    });
    if let Err(error) = started {
        (shared.log)(&format!("no further thread serves the mount: {error}"));
    }
}

/// Answers the request in `entry` and puts the reply there. Returns the id with which the reply is
/// committed.
fn answer(dispatch: &Dispatch, entry: &mut Entry, copied: &mut [u8], short: &mut [u8]) -> u64 {
    let (header, _) = abi::UringReqHeader::mut_from_prefix(entry.header.bytes())
        .expect("a page's boundary, and the header's bytes behind it");
    let (head, _) = abi::InHeader::read_from_prefix(&header.in_out).expect("128 bytes");
    let place = header.op_in;
    let commit_id = header.ring_ent_in_out.commit_id;
    let reply_bytes = dispatch.agreed().reply_bytes();
    let payload = &mut entry.payload.bytes()[..reply_bytes];
    let given = (header.ring_ent_in_out.payload_sz as usize).min(payload.len());
    let limits = dispatch.agreed().limits();
    let outcome = if given <= copied.len() {
        let request = &mut copied[..given];
        request.copy_from_slice(&payload[..given]);
        dispatch.answer(&Message::parts(head, &place, request, &limits), payload)
    } else {
        let message = Message::parts(head, &place, &payload[..given], &limits);
        let outcome = dispatch.answer(&message, short);
        if let Outcome::Reply { len, .. } = outcome {
            payload[..len].copy_from_slice(&short[..len]);
        }
        outcome
    };
    let (error, len) = match outcome {
        Outcome::Reply { error, len } => (error.map_or(0, |e| -e.raw_os_error()), len),
        // The kernel expects a commit for every request.
        Outcome::Silent => (0, 0),
    };
    let out_len = (size_of::<abi::OutHeader>() + len) as u32;
    let out = abi::OutHeader { len: out_len, error, unique: head.unique };
    header.in_out[..size_of::<abi::OutHeader>()].copy_from_slice(out.as_bytes());
    header.ring_ent_in_out.payload_sz = len as u32;
    commit_id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_counted() {
        for (list, cpus) in [("0\n", 1), ("0-1\n", 2), ("0-3,8", 5), ("0,2,4-5", 4)] {
            assert_eq!(cpus_of(list), Some(cpus), "{list}");
        }
        for wrong in ["", "a", "1-", "-"] {
            assert_eq!(cpus_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn commands_name_both_places() {
        let agreed = crate::negotiate::tests::agreed();
        let entry = Entry::new(&agreed);
        let command = entry.command(REGISTER, 7, 9);
        // SAFETY: the sizes are equal, and any bytes are a valid `[u8; 128]`.
        let raw: [u8; 128] = unsafe { std::mem::transmute(command) };
        assert_eq!(raw[24..28], 2u32.to_ne_bytes());
        assert_eq!(raw[16..24], entry.places.as_ptr().addr().to_ne_bytes());
        assert_eq!(raw[56..64], 9u64.to_ne_bytes());
        assert_eq!(raw[64..66], 7u16.to_ne_bytes());
    }
}
