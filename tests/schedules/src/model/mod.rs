//! Locks, conditions, atomics, threads and the clock, under the explorer's control.
//!
//! Each module has the names of the one that it replaces. At every use of a lock, a condition or an
//! atomic, another thread may run. All threads of a run are coroutines of one thread of the system.
//! So what the explorer need not see may use `std`'s own types.

pub(crate) mod keys;
pub(crate) mod parking_lot;
pub(crate) mod thread;
pub(crate) mod time;

/// `std::sync`.
pub(crate) mod sync {
    pub(crate) use shuttle::sync::{Mutex, RwLock, atomic};
    // Set once or counted, in steps that no other thread can interrupt.
    pub(crate) use std::sync::{Arc, OnceLock, Weak};
}

/// A point at which another thread may run.
pub(crate) fn point() {
    shuttle::sync::atomic::AtomicBool::new(false).load(std::sync::atomic::Ordering::Relaxed);
}

/// A number below `end`, chosen by the explorer.
pub(crate) fn below(end: u64) -> u64 {
    use shuttle::rand::Rng;
    shuttle::rand::thread_rng().gen_range(0..end)
}
