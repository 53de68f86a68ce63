//! The flag between writers and flusher: it loses no wake-up, and causes few.
//!
//! ```text
//!   writer                          flusher
//!   1  pending += n                 a  seen = event count
//!   2  flag: test and set           b  flag: clear
//!   3  it was clear: notify         c  n = pending, exactly
//!                                   d  n > 0: write n, from a again
//!                                   e  n = 0: wait, unless notified since a
//! ```
//!
//! Between 2 and b all further writers find the flag set and do not notify. They need not: b comes
//! after their 2, so c comes after their 1. With b and c in the other order, c misses a writer that
//! comes between them and b clears its flag: its bytes would stay dirty until another writer comes.
//! The tests show both orders with a model checker.
//!
//! ## Memory order
//!
//! These are the only places that need a memory order, and why it is enough:
//!
//! - Step 2 is a read-modify-write with `Release`: it publishes step 1.
//! - Step b is a read-modify-write with `Acquire`, never a plain store. It reads the last step 2
//!   before it. All steps 2 since the last b form one release sequence, because each is a
//!   read-modify-write. So b sees the step 1 of *every* writer that found the flag set, and c may
//!   be `Relaxed`.
//! - A writer that comes after b finds the flag clear, so it notifies. The event count is guarded
//!   by a lock: a notification before a is seen by a (and so are that writer's steps 1 and 2); a
//!   later one ends e.
//! - Step 1 and all other counters are `Relaxed`: each is one number, and read-modify-writes of one
//!   number lose nothing.

use extant_base::lock::{Condvar, Mutex, Rank};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// An atomic flag: `std`'s, or the model checker's.
pub trait Flag {
    /// Stores `value` and returns the old value, in one step.
    fn swap(&self, value: bool, order: Ordering) -> bool;
}

impl Flag for AtomicBool {
    #[inline]
    fn swap(&self, value: bool, order: Ordering) -> bool {
        AtomicBool::swap(self, value, order)
    }
}

/// Wakes waiting threads. A notification between reading the count and waiting is not lost.
pub trait WakeUp {
    /// Number of notifications so far.
    fn count(&self) -> u64;
    /// Increments the count and wakes all waiting threads.
    fn notify(&self);
    /// Waits until the count exceeds `seen`, or until the time `until`.
    fn wait(&self, seen: u64, until: Option<Instant>);
}

/// A [`WakeUp`] made of a count under a lock.
pub struct EventCount {
    count: Mutex<u64>,
    changed: Condvar,
}

impl Default for EventCount {
    fn default() -> EventCount {
        EventCount { count: Mutex::new(Rank::Leaf, 0), changed: Condvar::new() }
    }
}

impl WakeUp for EventCount {
    fn count(&self) -> u64 {
        *self.count.lock()
    }

    // Innermost, like the list's lock: a file may become dirty under a lock of the same rank.
    fn notify(&self) {
        *self.count.lock_second() += 1;
        self.changed.notify_all();
    }

    fn wait(&self, seen: u64, until: Option<Instant>) {
        let mut count = self.count.lock();
        while *count == seen {
            match until {
                None => self.changed.wait(&mut count),
                Some(until) => {
                    let Some(time) = until.checked_duration_since(Instant::now()) else { return };
                    if time.is_zero() {
                        return;
                    }
                    self.changed.wait_for(&mut count, time);
                }
            }
        }
    }
}

/// At most one request, from any number of writers to the flusher.
#[derive(Default)]
pub struct Kick<W = AtomicBool, R = EventCount> {
    flag: W,
    events: R,
}

impl<W: Flag, R: WakeUp> Kick<W, R> {
    /// Requests that the flusher check the pending bytes. The caller has counted its bytes before.
    #[inline]
    pub fn kick(&self) {
        if !self.flag.swap(true, Ordering::Release) {
            self.events.notify();
        }
    }

    /// Clears the request, then counts by `pending`: in this order.
    #[inline]
    pub fn take(&self, pending: impl FnOnce() -> u64) -> u64 {
        self.flag.swap(false, Ordering::Acquire);
        pending()
    }

    /// The events that the flusher waits for.
    pub fn events(&self) -> &R {
        &self.events
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loom::sync::atomic::{AtomicBool as ModelBool, AtomicU64 as ModelU64};
    use loom::sync::{Condvar as ModelCondvar, Mutex as ModelMutex};
    use std::sync::Arc;

    impl Flag for ModelBool {
        fn swap(&self, value: bool, order: Ordering) -> bool {
            ModelBool::swap(self, value, order)
        }
    }

    struct ModelEventCount {
        count: ModelMutex<u64>,
        changed: ModelCondvar,
    }

    impl WakeUp for ModelEventCount {
        fn count(&self) -> u64 {
            *self.count.lock().unwrap()
        }

        fn notify(&self) {
            *self.count.lock().unwrap() += 1;
            self.changed.notify_all();
        }

        fn wait(&self, seen: u64, _: Option<Instant>) {
            let mut count = self.count.lock().unwrap();
            while *count == seen {
                count = self.changed.wait(count).unwrap();
            }
        }
    }

    type Model = Kick<ModelBool, ModelEventCount>;

    /// Runs two writers against a flusher without timers, in every order that the memory model
    /// allows. A lost wake-up leaves the flusher asleep, which the checker reports as a deadlock.
    fn every_order(take: fn(&Model, &ModelU64) -> u64) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || {
            let events =
                ModelEventCount { count: ModelMutex::new(0), changed: ModelCondvar::new() };
            let kick = Arc::new(Kick { flag: ModelBool::new(false), events });
            let pending = Arc::new(ModelU64::new(0));
            let writers = [1, 2].map(|n| {
                let (kick, pending) = (kick.clone(), pending.clone());
                loom::thread::spawn(move || {
                    pending.fetch_add(n, Ordering::Relaxed);
                    kick.kick();
                })
            });
            let mut written = 0;
            while written < 3 {
                let seen = kick.events().count();
                let n = take(&kick, &pending);
                if n == 0 {
                    kick.events().wait(seen, None);
                }
                pending.fetch_sub(n, Ordering::Relaxed);
                written += n;
            }
            for writer in writers {
                writer.join().unwrap();
            }
        });
    }

    #[test]
    fn no_order_of_steps_loses_a_wake_up() {
        every_order(|kick, pending| kick.take(|| pending.load(Ordering::Relaxed)));
    }

    #[test]
    #[should_panic(expected = "deadlock")]
    fn counting_before_the_flag_is_cleared_loses_one() {
        every_order(|kick, pending| {
            let n = pending.load(Ordering::Relaxed);
            kick.take(|| n)
        });
    }

    #[test]
    #[should_panic(expected = "deadlock")]
    fn clearing_without_acquiring_loses_one() {
        every_order(|kick, pending| {
            kick.flag.swap(false, Ordering::Relaxed);
            pending.load(Ordering::Relaxed)
        });
    }

    #[test]
    fn a_sleeper_wakes_at_its_time() {
        let events = EventCount::default();
        let until = Instant::now() + std::time::Duration::from_millis(5);
        events.wait(events.count(), Some(until));
        assert!(Instant::now() >= until);
    }
}
