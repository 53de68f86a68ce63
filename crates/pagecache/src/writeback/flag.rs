//! The flag between writers and flusher: no wake-up is lost, and few are made.
//!
//! ```text
//!   writer                          flusher
//!   1  owed += n                    a  heard = bell's count
//!   2  flag: test and set           b  flag: clear
//!   3  it was clear: ring           c  n = owed, exactly
//!                                   d  n > 0: write n, from a again
//!                                   e  n = 0: sleep, unless the bell rang since a
//! ```
//!
//! Between 2 and b all further writers find the flag set and ring nothing. They need not: b comes
//! after their 2, so c comes after their 1. With b and c in the other order a writer that comes
//! between them is not counted, and its flag is wiped: its bytes would lie until somebody else
//! writes. The tests show both with a model checker.
//!
//! ## Memory order
//!
//! The only places where an order is asked for, and why it is enough:
//!
//! - 2 is a read-modify-write with `Release`: it publishes 1.
//! - b is a read-modify-write with `Acquire`, never a plain store. It reads the last 2 before it;
//!   all 2s since the last b form one release sequence, since each is a read-modify-write, so b
//!   sees the 1 of *every* writer that found the flag set, and c may be `Relaxed`.
//! - A writer that comes after b finds the flag clear, so it rings. The bell is a count under a
//!   lock: a ring before a is seen by a (and so are the writer's 1 and 2), a later one ends e.
//! - 1 and all other counters are `Relaxed`: each is one number, and read-modify-writes of one
//!   number lose nothing.

use extant_base::lock::{Condvar, Mutex, Rank};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// A word that is true or false; `std`'s, or the model checker's.
pub trait Word {
    /// Puts `value` in and gives back what was there, as one step.
    fn swap(&self, value: bool, order: Ordering) -> bool;
}

impl Word for AtomicBool {
    #[inline]
    fn swap(&self, value: bool, order: Ordering) -> bool {
        AtomicBool::swap(self, value, order)
    }
}

/// Wakes whoever sleeps; a ring between listening and sleeping is not lost.
pub trait Ring {
    /// How often it has rung.
    fn heard(&self) -> u64;
    /// Rings: all sleepers wake.
    fn ring(&self);
    /// Sleeps until it has rung more often than `heard` times, or until `until`.
    fn sleep(&self, heard: u64, until: Option<Instant>);
}

/// A [`Ring`] made of a count under a lock.
pub struct Bell {
    count: Mutex<u64>,
    rang: Condvar,
}

impl Default for Bell {
    fn default() -> Bell {
        Bell { count: Mutex::new(Rank::Leaf, 0), rang: Condvar::new() }
    }
}

impl Ring for Bell {
    fn heard(&self) -> u64 {
        *self.count.lock()
    }

    // Innermost like the list's lock: a file may turn dirty under a lock of the same rank.
    fn ring(&self) {
        *self.count.lock_second() += 1;
        self.rang.notify_all();
    }

    fn sleep(&self, heard: u64, until: Option<Instant>) {
        let mut count = self.count.lock();
        while *count == heard {
            match until {
                None => self.rang.wait(&mut count),
                Some(until) => {
                    let Some(time) = until.checked_duration_since(Instant::now()) else { return };
                    if time.is_zero() {
                        return;
                    }
                    self.rang.wait_for(&mut count, time);
                }
            }
        }
    }
}

/// One request at most, from any number of writers to the flusher.
#[derive(Default)]
pub struct Kick<W = AtomicBool, R = Bell> {
    flag: W,
    bell: R,
}

impl<W: Word, R: Ring> Kick<W, R> {
    /// Asks the flusher to look at what is owed. To be called after it was counted.
    #[inline]
    pub fn kick(&self) {
        if !self.flag.swap(true, Ordering::Release) {
            self.bell.ring();
        }
    }

    /// Takes the request, then counts by `owed`: in this order.
    #[inline]
    pub fn claim(&self, owed: impl FnOnce() -> u64) -> u64 {
        self.flag.swap(false, Ordering::Acquire);
        owed()
    }

    /// What the flusher listens to between its looks.
    pub fn bell(&self) -> &R {
        &self.bell
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loom::sync::atomic::{AtomicBool as ModelBool, AtomicU64 as ModelU64};
    use loom::sync::{Condvar as ModelCondvar, Mutex as ModelMutex};
    use std::sync::Arc;

    impl Word for ModelBool {
        fn swap(&self, value: bool, order: Ordering) -> bool {
            ModelBool::swap(self, value, order)
        }
    }

    struct ModelBell {
        count: ModelMutex<u64>,
        rang: ModelCondvar,
    }

    impl Ring for ModelBell {
        fn heard(&self) -> u64 {
            *self.count.lock().unwrap()
        }

        fn ring(&self) {
            *self.count.lock().unwrap() += 1;
            self.rang.notify_all();
        }

        fn sleep(&self, heard: u64, _: Option<Instant>) {
            let mut count = self.count.lock().unwrap();
            while *count == heard {
                count = self.rang.wait(count).unwrap();
            }
        }
    }

    type Model = Kick<ModelBool, ModelBell>;

    /// Runs two writers against a flusher that knows no timer, in every order that the memory
    /// model allows. A wake-up that is lost leaves the flusher asleep: the checker calls that a
    /// deadlock.
    fn every_order(claim: fn(&Model, &ModelU64) -> u64) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || {
            let bell = ModelBell { count: ModelMutex::new(0), rang: ModelCondvar::new() };
            let kick = Arc::new(Kick { flag: ModelBool::new(false), bell });
            let owed = Arc::new(ModelU64::new(0));
            let writers = [1, 2].map(|n| {
                let (kick, owed) = (kick.clone(), owed.clone());
                loom::thread::spawn(move || {
                    owed.fetch_add(n, Ordering::Relaxed);
                    kick.kick();
                })
            });
            let mut written = 0;
            while written < 3 {
                let heard = kick.bell().heard();
                let n = claim(&kick, &owed);
                if n == 0 {
                    kick.bell().sleep(heard, None);
                }
                owed.fetch_sub(n, Ordering::Relaxed);
                written += n;
            }
            for writer in writers {
                writer.join().unwrap();
            }
        });
    }

    #[test]
    fn no_order_of_steps_loses_a_wake_up() {
        every_order(|kick, owed| kick.claim(|| owed.load(Ordering::Relaxed)));
    }

    #[test]
    #[should_panic(expected = "deadlock")]
    fn counting_before_the_flag_is_cleared_loses_one() {
        every_order(|kick, owed| {
            let n = owed.load(Ordering::Relaxed);
            kick.claim(|| n)
        });
    }

    #[test]
    #[should_panic(expected = "deadlock")]
    fn clearing_without_acquiring_loses_one() {
        every_order(|kick, owed| {
            kick.flag.swap(false, Ordering::Relaxed);
            owed.load(Ordering::Relaxed)
        });
    }

    #[test]
    fn a_sleeper_wakes_at_its_time() {
        let bell = Bell::default();
        let until = Instant::now() + std::time::Duration::from_millis(5);
        bell.sleep(bell.heard(), Some(until));
        assert!(Instant::now() >= until);
    }
}
