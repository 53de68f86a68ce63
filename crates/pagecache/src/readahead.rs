//! Read-ahead: bytes enter the cache before their reader needs them.
//!
//! ```text
//!   sequential   │ read now: window │ requested: twice the window │
//!                                   ▲ the reader arrives here and requests the next window,
//!                                     twice as long, up to 2 MiB: two windows stay ahead
//!   strided      │r│    │r│    │a│    │a│    │a│    …          same stride twice: next records
//! ```
//! The first folio of a window carries a trigger. A hit stops there, and the slow path requests
//! more.

use crate::interface::Use;
use extant_base::lock::{Condvar, Mutex, Rank};
use extant_base::{ByteOffset, Error, IoOp, Result};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex as StdMutex};
use std::thread::JoinHandle;

const FIRST: u64 = 64 << 10;
const LARGEST: u64 = 2 << 20;
/// Number of records of a strided reader that are read ahead.
const RECORDS: u64 = 32;
/// Ranges that may be queued for the thread. Further requests are dropped.
const QUEUE_MAX: usize = 128;

/// The access pattern of one opener. Any number of threads may read through it: it has its own
/// lock.
#[derive(Debug, Default)]
pub struct ReadStream {
    pattern: StdMutex<Pattern>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Pattern {
    /// Start and end of the last read.
    start: u64,
    end: u64,
    started: bool,
    /// Bytes of the sequential window; 0 when the reader is not sequential.
    window: u64,
    /// End of the bytes that were read or requested.
    ahead: u64,
    /// Distance from one read's start to the next, and how often it repeated.
    stride: i64,
    repeats: u32,
    /// Start of the last record requested.
    record: u64,
}

/// What to read now and what to read ahead.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub now_to: u64,
    pub requests: Vec<Range<u64>>,
}

impl ReadStream {
    /// A stream without history.
    pub fn new() -> ReadStream {
        ReadStream::default()
    }

    /// Called on a miss at `at`: the reader wants `len` bytes of a file of `file_len` bytes.
    pub(crate) fn missed(&self, at: u64, len: u64, file_len: u64) -> Plan {
        let now = Plan { now_to: at + len, requests: Vec::new() };
        // Another thread uses this stream now; losing one observation does no harm.
        let Ok(mut pattern) = self.pattern.try_lock() else { return now };
        let pattern = &mut *pattern;
        let is_near =
            pattern.window > 0 && at <= pattern.ahead && at + 2 * pattern.window >= pattern.ahead;
        if (!pattern.started && at == 0) || (pattern.started && at == pattern.end) || is_near {
            return pattern.sequential(at, len, file_len);
        }
        pattern.window = 0;
        pattern.step(at, len);
        Plan { requests: pattern.records(at, len, file_len), ..now }
    }

    /// Called when the reader arrives at a folio with a trigger.
    pub(crate) fn triggered(&self, at: u64, len: u64, file_len: u64) -> Plan {
        let now = Plan { now_to: at + len, requests: Vec::new() };
        let Ok(mut pattern) = self.pattern.try_lock() else { return now };
        let pattern = &mut *pattern;
        if pattern.window > 0 && at < pattern.ahead {
            (pattern.start, pattern.end) = (at, at + len);
            return Plan { requests: pattern.next_window(file_len), ..now };
        }
        pattern.step(at, len);
        Plan { requests: pattern.records(at, len, file_len), ..now }
    }

    /// Called for a read that needs nothing.
    pub(crate) fn passed(&self, at: u64, len: u64) {
        if let Ok(mut pattern) = self.pattern.try_lock()
            && pattern.end <= at
        {
            match pattern.end == at || !pattern.started {
                true => (pattern.start, pattern.end, pattern.started) = (at, at + len, true),
                false => pattern.step(at, len),
            }
        }
    }
}

impl Pattern {
    fn sequential(&mut self, at: u64, len: u64, file_len: u64) -> Plan {
        let first = !self.started || self.window == 0;
        let grown = match first {
            true => len.saturating_mul(2).clamp(FIRST, LARGEST).next_power_of_two(),
            false => (2 * self.window).min(LARGEST),
        };
        self.window = grown;
        (self.start, self.end, self.started) = (at, at + len, true);
        (self.stride, self.repeats) = (0, 0);
        let now_to = aligned_end(at, grown).max(at + len).min(file_len);
        self.ahead = now_to;
        let is_confident = at > 0 || !first;
        let requests = if is_confident { self.next_window(file_len) } else { Vec::new() };
        Plan { now_to, requests }
    }

    /// The window after the bytes that are cached or requested, twice as long as the last one.
    fn next_window(&mut self, file_len: u64) -> Vec<Range<u64>> {
        self.window = (2 * self.window).min(LARGEST);
        let range = self.ahead..aligned_end(self.ahead, self.window).min(file_len);
        if range.is_empty() {
            return Vec::new();
        }
        self.ahead = range.end;
        vec![range]
    }

    /// Records the reader's position and stride.
    fn step(&mut self, at: u64, len: u64) {
        let stride = at.wrapping_sub(self.start).cast_signed();
        if self.started && stride == self.stride && stride != 0 {
            self.repeats = self.repeats.saturating_add(1);
        } else {
            (self.stride, self.repeats, self.record) = (stride, 0, 0);
        }
        (self.start, self.end, self.started) = (at, at + len, true);
    }

    /// The next records of a strided reader.
    fn records(&mut self, at: u64, len: u64, file_len: u64) -> Vec<Range<u64>> {
        if self.repeats == 0 {
            return Vec::new();
        }
        let most = (LARGEST / len.max(1)).clamp(1, RECORDS).min(4 << self.repeats.min(4));
        let mut requests = Vec::new();
        let mut next = at;
        for _ in 0..most {
            let Some(start) = next.checked_add_signed(self.stride) else { break };
            if start >= file_len {
                break;
            }
            next = start;
            let new = match self.stride > 0 {
                true => start > self.record,
                false => self.record == 0 || start < self.record,
            };
            if new {
                requests.push(start..(start + len).min(file_len));
                self.record = start;
            }
        }
        requests
    }
}

/// The end of a window that starts at `at`: a multiple of the window's size, so that folios are
/// large.
fn aligned_end(at: u64, window: u64) -> u64 {
    at.saturating_add(window) & !(window - 1)
}

/// Bytes of a file of type `F` to read into the cache.
pub(crate) struct Request<F> {
    pub file: Arc<F>,
    pub range: Range<u64>,
    pub how: Use,
}

/// The read-ahead thread and its queue of requests.
pub(crate) struct ReadAhead<F> {
    state: Mutex<State<F>>,
    woken: Condvar,
}

struct State<F> {
    requests: VecDeque<Request<F>>,
    running: bool,
    thread: Option<JoinHandle<()>>,
}

impl<F: Send + Sync + 'static> ReadAhead<F> {
    pub fn new() -> ReadAhead<F> {
        let state = State { requests: VecDeque::new(), running: false, thread: None };
        ReadAhead { state: Mutex::new(Rank::Leaf, state), woken: Condvar::new() }
    }

    /// Requests that the thread read bytes. Dropped when the queue is full.
    pub fn request(&self, request: Request<F>) {
        let mut state = self.state.lock();
        if state.running && state.requests.len() < QUEUE_MAX {
            state.requests.push_back(request);
            self.woken.notify_all();
        }
    }

    /// Starts the thread, which passes each request to `read`, unless it runs.
    ///
    /// # Errors
    /// `Device` when the system gives no thread.
    pub fn start(self: &Arc<Self>, read: impl Fn(Request<F>) + Send + 'static) -> Result<()> {
        let mut state = self.state.lock();
        if state.running {
            return Ok(());
        }
        let ahead = self.clone();
        let thread = std::thread::Builder::new().name("extant-ahead".to_owned());
        let thread = thread.spawn(move || ahead.run(read));
        state.thread = Some(thread.map_err(|source| Error::Device {
            op: IoOp::Open,
            at: ByteOffset(0),
            len: 0,
            source,
        })?);
        state.running = true;
        Ok(())
    }

    pub fn stop(&self) {
        let (requests, thread) = {
            let mut state = self.state.lock();
            state.running = false;
            self.woken.notify_all();
            (std::mem::take(&mut state.requests), state.thread.take())
        };
        // This may drop the last reference to a file, so no lock is held.
        drop(requests);
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }

    fn run(&self, read: impl Fn(Request<F>)) {
        loop {
            let request = {
                let mut state = self.state.lock();
                loop {
                    if !state.running {
                        return;
                    }
                    match state.requests.pop_front() {
                        Some(request) => break request,
                        None => self.woken.wait(&mut state),
                    }
                }
            };
            read(request);
        }
    }
}
