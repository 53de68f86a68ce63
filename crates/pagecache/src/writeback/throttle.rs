//! Throttling of writers: a writer does not outrun the device for long, and does not stop for long.
//!
//! ```text
//!   pause per byte, in the device's own time per byte
//!    4× ┤                    ▄▀│ wait in the queue,
//!    2× ┤                 ▄▀   │ first come, first served:
//!    1× ┤             ▄▀       │ one leaves for each byte that was written
//!    ½× ┤        ▄▀            │
//!    ¼× ┤    ▄▀                │
//!       └────┬─────────────────┬──────────────► level: bytes that are dirty or under write-back
//!          start              full
//! ```
//!
//! All writers of a class share one clock, which each byte advances by its pause. A writer sleeps
//! until the clock's time, at most 200 ms. So the writers together keep to the measured rate of
//! write-back, each gets its share, and the level settles in the middle, where a byte's pause
//! equals the device's time per byte, at any number of writers. The rate is not divided in advance
//! between the two classes (ordinary data, don't cache): each class finds its share through its
//! level.
//!
//! A writer is throttled after its write, so a class may exceed `full` by the calls under way.
//! Waiting writers leave the queue one by one, and not faster than bytes are written: otherwise all
//! of them would write at once as soon as one of them fits.

use super::{nanos_of, whole};
use extant_base::lock::{Condvar, Mutex, Rank};
use extant_base::{Error, Result};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The longest pause. Only a full queue makes a writer wait longer.
const PAUSE_MAX: Duration = Duration::from_millis(200);
/// Shorter pauses accumulate: sleeping costs about as much.
const PAUSE_MIN: Duration = Duration::from_micros(300);
/// How far the clock may lag behind the time: it lets writers that slept too long catch up.
const CREDIT: Duration = Duration::from_millis(2);
/// After this time the unused grant of a writer that left the queue expires.
const GRANT_TIMEOUT: Duration = Duration::from_millis(50);

/// The levels at which pauses begin and at which writers stop, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Thresholds {
    pub start: u64,
    pub full: u64,
}

impl Thresholds {
    /// Position of `level` between the thresholds: 0 at `start`, 1 at `full`.
    pub fn position(&self, level: u64) -> f64 {
        let span = self.full.saturating_sub(self.start).max(1);
        (level as f64 - self.start as f64) / span as f64
    }
}

/// A waiting writer.
struct Waiter {
    admitted: AtomicBool,
    changed: Condvar,
}

struct Queue {
    waiting: VecDeque<(Arc<Waiter>, u64)>,
    /// When a writer last left the queue.
    last_admitted: Instant,
    /// Throttling is off: the flusher does not run, so no writer may wait.
    disabled: bool,
}

/// The throttle of one class of writers.
pub(super) struct Throttle {
    thresholds: Thresholds,
    /// Nanoseconds since `epoch` up to which the bytes written so far are paced.
    clock: AtomicU64,
    epoch: Instant,
    /// Number of writers that wait in the queue or pause.
    sleeping: AtomicU64,
    /// Bytes that writers which left the queue may still write.
    granted: AtomicU64,
    queue: Mutex<Queue>,
    /// Signalled when the level is below `start`.
    below_start: Condvar,
}

impl Throttle {
    pub fn new(thresholds: Thresholds) -> Throttle {
        let epoch = Instant::now();
        let queue = Queue { waiting: VecDeque::new(), last_admitted: epoch, disabled: true };
        Throttle {
            thresholds,
            clock: AtomicU64::new(0),
            epoch,
            sleeping: AtomicU64::new(0),
            granted: AtomicU64::new(0),
            queue: Mutex::new(Rank::Leaf, queue),
            below_start: Condvar::new(),
        }
    }

    /// The thresholds.
    pub fn thresholds(&self) -> Thresholds {
        self.thresholds
    }

    /// Whether a pause was charged so far, however short, and how many writers wait in the queue.
    #[cfg(test)]
    pub fn seen(&self) -> (bool, usize) {
        (self.clock.load(Ordering::Relaxed) > 0, self.queue.lock().waiting.len())
    }

    /// Records that a writer of this class wrote `bytes`: uses up grants.
    pub fn note_written(&self, bytes: u64) {
        if self.granted.load(Ordering::Relaxed) > 0 {
            let less = |granted: u64| Some(granted.saturating_sub(bytes));
            let _ = self.granted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
    }

    /// Bytes left the class; `level` returns the bytes left now. Wakes the writers that now fit.
    #[inline]
    pub fn level_fell(&self, level: impl Fn() -> u64) {
        if self.sleeping.load(Ordering::SeqCst) > 0 {
            self.wake_sleepers(level());
        }
    }

    // Innermost lock: callers may hold locks of the same rank, and this takes none.
    fn wake_sleepers(&self, level: u64) {
        let mut queue = self.queue.lock_second();
        if level < self.thresholds.start {
            self.below_start.notify_all();
        }
        self.admit_waiters(&mut queue, level);
    }

    fn admit_waiters(&self, queue: &mut Queue, level: u64) {
        if queue.last_admitted.elapsed() > GRANT_TIMEOUT {
            self.granted.store(0, Ordering::Relaxed);
        }
        while let Some((waiter, bytes)) = queue.waiting.front() {
            let granted = self.granted.load(Ordering::Relaxed);
            // A call counts as at most a quarter of `full`; a larger one would wait forever.
            let wanted = (*bytes).min(self.thresholds.full / 4);
            if level.saturating_add(granted).saturating_add(wanted) > self.thresholds.full {
                break;
            }
            self.granted.fetch_add(*bytes, Ordering::Relaxed);
            waiter.admitted.store(true, Ordering::Relaxed);
            waiter.changed.notify_all();
            queue.waiting.pop_front();
            queue.last_admitted = Instant::now();
        }
    }

    /// Throttles a writer that has just written `bytes`. `rate` is the rate of write-back in bytes
    /// per second, 0 if it is not measured yet. `stuck` returns an error when waiting cannot
    /// succeed.
    ///
    /// # Errors
    /// That of `stuck`, when the level is at `full`.
    pub fn throttle(
        &self,
        bytes: u64,
        rate: f64,
        level: impl Fn() -> u64,
        stuck: impl Fn() -> Option<Error>,
    ) -> Result<()> {
        let position = self.thresholds.position(level());
        if position >= 1.0 {
            self.wait_in_queue(bytes, &level, &stuck)
        } else if position > 0.0 && rate > 0.0 {
            self.pause(bytes, rate * 16f64.powf(0.5 - position), &level);
            Ok(())
        } else {
            Ok(())
        }
    }

    fn pause(&self, bytes: u64, rate: f64, level: &impl Fn() -> u64) {
        let cost = (bytes as f64 / rate).min(PAUSE_MAX.as_secs_f64());
        let cost = nanos_of(Duration::from_secs_f64(cost));
        let now = nanos_of(self.epoch.elapsed());
        let ahead = |clock: u64| {
            let from = clock.max(now.saturating_sub(nanos_of(CREDIT)));
            (from + cost).min(now + nanos_of(PAUSE_MAX))
        };
        let before = self
            .clock
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |clock| Some(ahead(clock)))
            .expect("the closure always returns Some");
        let pause = Duration::from_nanos(ahead(before).saturating_sub(now));
        if pause < PAUSE_MIN {
            return;
        }
        let mut queue = self.queue.lock();
        self.sleeping.fetch_add(1, Ordering::SeqCst);
        if !queue.disabled && level() >= self.thresholds.start {
            self.below_start.wait_for(&mut queue, pause);
        }
        self.sleeping.fetch_sub(1, Ordering::SeqCst);
    }

    fn wait_in_queue(
        &self,
        bytes: u64,
        level: &impl Fn() -> u64,
        stuck: &impl Fn() -> Option<Error>,
    ) -> Result<()> {
        let waiter = Arc::new(Waiter { admitted: AtomicBool::new(false), changed: Condvar::new() });
        let mut queue = self.queue.lock();
        self.sleeping.fetch_add(1, Ordering::SeqCst);
        queue.waiting.push_back((waiter.clone(), bytes));
        let mut answer = Ok(());
        // The level is read after `sleeping` counts this thread: a thread that lowers the level
        // from here on serves the queue. The timeout covers grants that were not used.
        loop {
            self.admit_waiters(&mut queue, level());
            if queue.disabled || waiter.admitted.load(Ordering::Relaxed) {
                break;
            }
            if level() >= self.thresholds.full
                && let Some(error) = stuck()
            {
                answer = Err(error);
                break;
            }
            waiter.changed.wait_for(&mut queue, GRANT_TIMEOUT);
        }
        queue.waiting.retain(|(other, _)| !Arc::ptr_eq(other, &waiter));
        self.sleeping.fetch_sub(1, Ordering::SeqCst);
        answer
    }

    /// Lets each waiting writer check again whether waiting cannot succeed.
    pub fn recheck_stuck(&self) {
        let queue = self.queue.lock();
        for (waiter, _) in &queue.waiting {
            waiter.changed.notify_all();
        }
    }

    /// Turns throttling off (`true`: all writers go on) or on again (`false`).
    pub fn set_disabled(&self, disabled: bool) {
        let mut queue = self.queue.lock();
        queue.disabled = disabled;
        if disabled {
            self.below_start.notify_all();
            for (waiter, _) in &queue.waiting {
                waiter.changed.notify_all();
            }
        }
    }
}

/// The rate of write-back, measured while it is busy.
pub(super) struct Rate {
    state: Mutex<Busy>,
    /// Bytes per second, 0 before the first measurement.
    now: AtomicU64,
}

struct Busy {
    calls: u32,
    /// Start of the time that is not counted yet.
    since: Instant,
    time: Duration,
    bytes: u64,
}

impl Rate {
    /// Times are accumulated up to this before they count.
    const WINDOW: Duration = Duration::from_millis(20);

    pub fn new() -> Rate {
        let busy = Busy { calls: 0, since: Instant::now(), time: Duration::ZERO, bytes: 0 };
        Rate { state: Mutex::new(Rank::Leaf, busy), now: AtomicU64::new(0) }
    }

    /// Bytes per second, 0 before the first measurement.
    pub fn now(&self) -> f64 {
        self.now.load(Ordering::Relaxed) as f64
    }

    /// Sets the rate as if it had been measured.
    #[cfg(test)]
    pub fn set(&self, bytes_a_second: u64) {
        self.now.store(bytes_a_second, Ordering::Relaxed);
    }

    /// Write-back of a file starts; several may run at once.
    pub fn begin(&self) {
        let mut busy = self.state.lock();
        if busy.calls == 0 {
            busy.since = Instant::now();
        }
        busy.calls += 1;
    }

    /// A running write-back has written `bytes` and continues.
    pub fn add(&self, bytes: u64) {
        self.count(bytes, 0);
    }

    /// A running write-back ends; it has written `bytes` since its last `add`.
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
            self.now.store(whole(new.max(1.0)), Ordering::Relaxed);
            busy.time = Duration::ZERO;
            busy.bytes = 0;
        }
    }
}
