//! The writers' brakes: nobody outruns the device for long, and nobody stands still for long.
//!
//! ```text
//!   pause per byte, in the device's own time per byte
//!    4× ┤                    ▄▀│ wait in line,
//!    2× ┤                 ▄▀   │ first come, first served:
//!    1× ┤             ▄▀       │ one leaves for each byte that arrived
//!    ½× ┤        ▄▀            │
//!    ¼× ┤    ▄▀                │
//!       └────┬─────────────────┬──────────────► bytes that are dirty or on their way
//!          start              full
//! ```
//!
//! All writers of a class share one clock that runs ahead by each byte's pause; a writer sleeps
//! until the clock's time was reached, 200 ms at most. So their sum keeps to the measured rate of
//! write-back, each gets its share, and the fill settles where a byte's pause is the device's
//! time, in the middle, at any number of writers. Between the two classes (ordinary data, don't
//! cache) the rate is not divided beforehand: the fill of each finds its share.
//!
//! A writer brakes after its write, so a class may pass `full` by the calls under way. Those who
//! wait in line leave it one by one, and not faster than bytes arrive: else all would write at once
//! the moment that one has room.

use extant_base::lock::{Condvar, Mutex, Rank};
use extant_base::{Error, Result};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The longest pause; beyond it only a full line makes a writer wait.
const PAUSE_MAX: Duration = Duration::from_millis(200);
/// Pauses shorter than this are saved up: sleeping costs about as much.
const PAUSE_MIN: Duration = Duration::from_micros(300);
/// How far the clock may lie behind: what writers that slept too long catch up.
const CREDIT: Duration = Duration::from_millis(2);
/// After this time a writer that left the line is thought to write no more.
const ABSENT: Duration = Duration::from_millis(50);

/// Where brakes begin and where they hold, in bytes that are dirty or on their way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fill {
    pub start: u64,
    pub full: u64,
}

impl Fill {
    /// 0 at `start`, 1 at `full`.
    pub fn of(&self, level: u64) -> f64 {
        let span = self.full.saturating_sub(self.start).max(1);
        (level as f64 - self.start as f64) / span as f64
    }
}

/// One who waits in line.
struct Waiter {
    may_go: AtomicBool,
    changed: Condvar,
}

struct Queue {
    waiting: VecDeque<(Arc<Waiter>, u64)>,
    /// When somebody left the line last.
    left_at: Instant,
    /// Nothing is written any more: nobody shall wait.
    open: bool,
}

/// The brakes of one class of writers.
pub(super) struct Line {
    fill: Fill,
    /// Nanoseconds from `born`, until which the bytes so far were to be paused for.
    clock: AtomicU64,
    born: Instant,
    /// Those who wait in the queue or pause.
    sleeping: AtomicU64,
    /// Bytes that those who left the line are about to write.
    granted: AtomicU64,
    queue: Mutex<Queue>,
    /// The level is below the start of the brakes.
    calm: Condvar,
}

impl Line {
    pub fn new(fill: Fill) -> Line {
        let born = Instant::now();
        let queue = Queue { waiting: VecDeque::new(), left_at: born, open: true };
        Line {
            fill,
            clock: AtomicU64::new(0),
            born,
            sleeping: AtomicU64::new(0),
            granted: AtomicU64::new(0),
            queue: Mutex::new(Rank::Leaf, queue),
            calm: Condvar::new(),
        }
    }

    /// Where the brakes stand.
    pub fn fill(&self) -> Fill {
        self.fill
    }

    /// Whether anybody had to pause so far, however shortly, and how many wait in line.
    #[cfg(test)]
    pub fn seen(&self) -> (bool, usize) {
        (self.clock.load(Ordering::Relaxed) > 0, self.queue.lock().waiting.len())
    }

    /// `bytes` were written by somebody of this class: what was granted has been used.
    pub fn used(&self, bytes: u64) {
        if self.granted.load(Ordering::Relaxed) > 0 {
            let less = |granted: u64| Some(granted.saturating_sub(bytes));
            let _ = self.granted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
    }

    /// Bytes left the class; how many are there now says `level`. Lets go who may.
    #[inline]
    pub fn moved(&self, level: impl Fn() -> u64) {
        if self.sleeping.load(Ordering::SeqCst) > 0 {
            self.let_go(level());
        }
    }

    // Innermost: called under locks of the same rank, and takes none.
    fn let_go(&self, level: u64) {
        let mut queue = self.queue.lock_second();
        if level < self.fill.start {
            self.calm.notify_all();
        }
        self.serve(&mut queue, level);
    }

    fn serve(&self, queue: &mut Queue, level: u64) {
        if queue.left_at.elapsed() > ABSENT {
            self.granted.store(0, Ordering::Relaxed);
        }
        while let Some((waiter, bytes)) = queue.waiting.front() {
            let coming = self.granted.load(Ordering::Relaxed);
            // A call as large as the whole room counts as a quarter, or it would wait for ever.
            let room = (*bytes).min(self.fill.full / 4);
            if level.saturating_add(coming).saturating_add(room) > self.fill.full {
                break;
            }
            self.granted.fetch_add(*bytes, Ordering::Relaxed);
            waiter.may_go.store(true, Ordering::Relaxed);
            waiter.changed.notify_all();
            queue.waiting.pop_front();
            queue.left_at = Instant::now();
        }
    }

    /// Brakes a writer that just wrote `bytes`. `rate` is what write-back does, in bytes a second, 0 if
    /// nobody knows yet. `stuck` tells whether waiting is in vain, and then why.
    pub fn brake(
        &self,
        bytes: u64,
        rate: f64,
        level: impl Fn() -> u64,
        stuck: impl Fn() -> Option<Error>,
    ) -> Result<()> {
        let fill = self.fill.of(level());
        if fill >= 1.0 {
            self.wait_in_line(bytes, &level, &stuck)
        } else if fill > 0.0 && rate > 0.0 {
            self.pause(bytes, rate * 16f64.powf(0.5 - fill), &level);
            Ok(())
        } else {
            Ok(())
        }
    }

    fn pause(&self, bytes: u64, rate: f64, level: &impl Fn() -> u64) {
        let cost = (bytes as f64 / rate).min(PAUSE_MAX.as_secs_f64());
        let cost = Duration::from_secs_f64(cost).as_nanos() as u64;
        let now = self.born.elapsed().as_nanos() as u64;
        let ahead = |clock: u64| {
            let from = clock.max(now.saturating_sub(CREDIT.as_nanos() as u64));
            (from + cost).min(now + PAUSE_MAX.as_nanos() as u64)
        };
        let before = self
            .clock
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |clock| Some(ahead(clock)))
            .expect("the clock always runs on");
        let pause = Duration::from_nanos(ahead(before).saturating_sub(now));
        if pause < PAUSE_MIN {
            return;
        }
        let mut queue = self.queue.lock();
        self.sleeping.fetch_add(1, Ordering::SeqCst);
        if !queue.open && level() >= self.fill.start {
            self.calm.wait_for(&mut queue, pause);
        }
        self.sleeping.fetch_sub(1, Ordering::SeqCst);
    }

    fn wait_in_line(
        &self,
        bytes: u64,
        level: &impl Fn() -> u64,
        stuck: &impl Fn() -> Option<Error>,
    ) -> Result<()> {
        let waiter = Arc::new(Waiter { may_go: AtomicBool::new(false), changed: Condvar::new() });
        let mut queue = self.queue.lock();
        self.sleeping.fetch_add(1, Ordering::SeqCst);
        queue.waiting.push_back((waiter.clone(), bytes));
        let mut answer = Ok(());
        // The level is asked for once more after `sleeping` tells of this thread: whoever lowers
        // it from here on looks at the line. The time limit is for what was granted and not used.
        loop {
            self.serve(&mut queue, level());
            if queue.open || waiter.may_go.load(Ordering::Relaxed) {
                break;
            }
            if level() >= self.fill.full
                && let Some(error) = stuck()
            {
                answer = Err(error);
                break;
            }
            waiter.changed.wait_for(&mut queue, ABSENT);
        }
        queue.waiting.retain(|(other, _)| !Arc::ptr_eq(other, &waiter));
        self.sleeping.fetch_sub(1, Ordering::SeqCst);
        answer
    }

    /// Lets everybody in line look again whether waiting is in vain.
    pub fn look_again(&self) {
        let queue = self.queue.lock();
        for (waiter, _) in &queue.waiting {
            waiter.changed.notify_all();
        }
    }

    /// Nobody waits any more, or (`false`) brakes work again.
    pub fn open(&self, open: bool) {
        let mut queue = self.queue.lock();
        queue.open = open;
        if open {
            self.calm.notify_all();
            for (waiter, _) in &queue.waiting {
                waiter.changed.notify_all();
            }
        }
    }
}

/// How fast write-back is, measured while it is busy.
pub(super) struct Rate {
    state: Mutex<Busy>,
    /// Bytes a second, 0 before the first measurement.
    now: AtomicU64,
}

struct Busy {
    calls: u32,
    /// When the time that is not counted yet began.
    since: Instant,
    time: Duration,
    bytes: u64,
}

impl Rate {
    /// Shorter times are gathered before they count.
    const WINDOW: Duration = Duration::from_millis(20);

    pub fn new() -> Rate {
        let busy = Busy { calls: 0, since: Instant::now(), time: Duration::ZERO, bytes: 0 };
        Rate { state: Mutex::new(Rank::Leaf, busy), now: AtomicU64::new(0) }
    }

    /// Bytes a second, 0 if nobody knows yet.
    pub fn now(&self) -> f64 {
        self.now.load(Ordering::Relaxed) as f64
    }

    /// As if it had been measured.
    #[cfg(test)]
    pub fn set(&self, bytes_a_second: u64) {
        self.now.store(bytes_a_second, Ordering::Relaxed);
    }

    /// A write-back begins; several may run at once.
    pub fn begin(&self) {
        let mut busy = self.state.lock();
        if busy.calls == 0 {
            busy.since = Instant::now();
        }
        busy.calls += 1;
    }

    /// One that began has written `bytes` and goes on.
    pub fn so_far(&self, bytes: u64) {
        self.count(bytes, 0);
    }

    /// One that began has written `bytes`, but for those told of before, and ends.
    pub fn end(&self, bytes: u64) {
        self.count(bytes, 1);
    }

    fn count(&self, bytes: u64, ended: u32) {
        let mut busy = self.state.lock();
        let now = Instant::now();
        let busy = &mut *busy;
        busy.time += now.duration_since(busy.since);
        busy.since = now;
        busy.calls -= ended;
        busy.bytes += bytes;
        if busy.time >= Rate::WINDOW && busy.bytes > 0 {
            let sample = busy.bytes as f64 / busy.time.as_secs_f64();
            let old = self.now();
            let new = if old == 0.0 { sample } else { old + (sample - old) / 4.0 };
            self.now.store(new.max(1.0) as u64, Ordering::Relaxed);
            busy.time = Duration::ZERO;
            busy.bytes = 0;
        }
    }
}
