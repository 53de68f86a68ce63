//! Read-ahead: bytes are there before their reader.
//!
//! ```text
//!   sequential   │ read now: window │ asked: twice the window │
//!                                   ▲ the reader comes here: the next window, twice as long, up to
//!                                     2 MiB, is asked for; so two windows are under way or there
//!   strided      │r│    │r│    │a│    │a│    │a│    …           the same step twice: the next records
//! ```
//! A window's first folio carries a trigger: hits stop there, and the slow way asks for more.

use crate::file::FileCache;
use crate::owner::{Owner, Use};
use extant_base::lock::{Condvar, Mutex, Rank};
use extant_base::{ByteOffset, Error, IoOp, Result};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex as Plain};
use std::thread::JoinHandle;

const FIRST: u64 = 64 << 10;
const LARGEST: u64 = 2 << 20;
/// Records of a strided reader that are read ahead.
const RECORDS: u64 = 32;
/// Ranges that may wait for the thread; what is beyond is not read ahead.
const WAITING: usize = 128;

/// What one opener's reads look like. Interior: any number of threads may read through it.
#[derive(Debug, Default)]
pub struct ReadStream {
    seen: Plain<Seen>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// Start and end of the last read that came by.
    start: u64,
    end: u64,
    any: bool,
    /// Bytes of the sequential window; 0: the reader is not sequential.
    window: u64,
    /// End of what was read or asked for ahead.
    ahead: u64,
    /// From one start to the next, and how often in a row.
    stride: i64,
    repeats: u32,
    /// Start of the last record that was asked for.
    record: u64,
}

/// What to read now, and what ahead.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub now_to: u64,
    pub asks: Vec<Range<u64>>,
}

impl ReadStream {
    /// A reader nothing is known of.
    pub fn new() -> ReadStream {
        ReadStream::default()
    }

    /// The bytes at `at` are not in the cache; `len` of them are wanted of a file of `file_len`.
    pub(crate) fn missed(&self, at: u64, len: u64, file_len: u64) -> Plan {
        let now = Plan { now_to: at + len, asks: Vec::new() };
        // Somebody else is reading through this stream right now: no harm in knowing less.
        let Ok(mut seen) = self.seen.try_lock() else { return now };
        let seen = &mut *seen;
        let near = seen.window > 0 && at <= seen.ahead && at + 2 * seen.window >= seen.ahead;
        if (!seen.any && at == 0) || (seen.any && at == seen.end) || near {
            return seen.sequential(at, len, file_len);
        }
        seen.window = 0;
        seen.step(at, len);
        Plan { asks: seen.records(at, len, file_len), ..now }
    }

    /// The reader came to a folio with a trigger.
    pub(crate) fn triggered(&self, at: u64, len: u64, file_len: u64) -> Plan {
        let now = Plan { now_to: at + len, asks: Vec::new() };
        let Ok(mut seen) = self.seen.try_lock() else { return now };
        let seen = &mut *seen;
        if seen.window > 0 && at < seen.ahead {
            (seen.start, seen.end) = (at, at + len);
            return Plan { asks: seen.next_window(file_len), ..now };
        }
        seen.step(at, len);
        Plan { asks: seen.records(at, len, file_len), ..now }
    }

    /// The reader came by and needs nothing.
    pub(crate) fn passed(&self, at: u64, len: u64) {
        if let Ok(mut seen) = self.seen.try_lock()
            && seen.end <= at
        {
            match seen.end == at || !seen.any {
                true => (seen.start, seen.end, seen.any) = (at, at + len, true),
                false => seen.step(at, len),
            }
        }
    }
}

impl Seen {
    fn sequential(&mut self, at: u64, len: u64, file_len: u64) -> Plan {
        let first = !self.any || self.window == 0;
        let grown = match first {
            true => len.saturating_mul(2).clamp(FIRST, LARGEST).next_power_of_two(),
            false => (2 * self.window).min(LARGEST),
        };
        self.window = grown;
        (self.start, self.end, self.any) = (at, at + len, true);
        (self.stride, self.repeats) = (0, 0);
        let now_to = aligned_end(at, grown).max(at + len).min(file_len);
        self.ahead = now_to;
        let sure = at > 0 || !first;
        let asks = if sure { self.next_window(file_len) } else { Vec::new() };
        Plan { now_to, asks }
    }

    /// The window after what is there or asked for, twice as long as the last.
    fn next_window(&mut self, file_len: u64) -> Vec<Range<u64>> {
        self.window = (2 * self.window).min(LARGEST);
        let range = self.ahead..aligned_end(self.ahead, self.window).min(file_len);
        if range.is_empty() {
            return Vec::new();
        }
        self.ahead = range.end;
        vec![range]
    }

    /// Notes where the reader went.
    fn step(&mut self, at: u64, len: u64) {
        let stride = at.wrapping_sub(self.start) as i64;
        if self.any && stride == self.stride && stride != 0 {
            self.repeats = self.repeats.saturating_add(1);
        } else {
            (self.stride, self.repeats, self.record) = (stride, 0, 0);
        }
        (self.start, self.end, self.any) = (at, at + len, true);
    }

    /// The next records of a strided reader.
    fn records(&mut self, at: u64, len: u64, file_len: u64) -> Vec<Range<u64>> {
        if self.repeats == 0 {
            return Vec::new();
        }
        let most = (LARGEST / len.max(1)).clamp(1, RECORDS).min(4 << self.repeats.min(4));
        let mut asks = Vec::new();
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
                asks.push(start..(start + len).min(file_len));
                self.record = start;
            }
        }
        asks
    }
}

/// Where a window from `at` on ends: at a multiple of its size, so that folios are large.
fn aligned_end(at: u64, window: u64) -> u64 {
    at.saturating_add(window) & !(window - 1)
}

impl FileCache {
    /// Asks the thread to read `range` ahead.
    pub(crate) fn ask_ahead(&self, range: Range<u64>, how: Use) {
        if let Some(file) = self.me() {
            self.ahead().ask(Ask { file, range, how });
        }
    }
}

struct Ask {
    file: Arc<FileCache>,
    range: Range<u64>,
    how: Use,
}

/// The thread that reads ahead, and what waits for it.
pub(crate) struct Ahead {
    state: Mutex<State>,
    woken: Condvar,
}

#[derive(Default)]
struct State {
    asks: VecDeque<Ask>,
    running: bool,
    thread: Option<JoinHandle<()>>,
}

impl Ahead {
    pub fn new() -> Ahead {
        Ahead { state: Mutex::new(Rank::Leaf, State::default()), woken: Condvar::new() }
    }

    fn ask(&self, ask: Ask) {
        let mut state = self.state.lock();
        if state.running && state.asks.len() < WAITING {
            state.asks.push_back(ask);
            self.woken.notify_all();
        }
    }

    pub fn start(self: &Arc<Self>, owner: Arc<dyn Owner>) -> Result<()> {
        let mut state = self.state.lock();
        if state.running {
            return Ok(());
        }
        let ahead = self.clone();
        let thread = std::thread::Builder::new().name("extant-ahead".to_owned());
        let thread = thread.spawn(move || ahead.run(&*owner));
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
        let (asks, thread) = {
            let mut state = self.state.lock();
            state.running = false;
            self.woken.notify_all();
            (std::mem::take(&mut state.asks), state.thread.take())
        };
        // Files may end here: with no lock held.
        drop(asks);
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }

    fn run(&self, owner: &dyn Owner) {
        loop {
            let ask = {
                let mut state = self.state.lock();
                loop {
                    if !state.running {
                        return;
                    }
                    match state.asks.pop_front() {
                        Some(ask) => break ask,
                        None => self.woken.wait(&mut state),
                    }
                }
            };
            owner.read_ahead(&ask.file, ask.range, ask.how);
        }
    }
}
