//! What blocks, wakes, counts and tells the time, under the explorer's eyes.
//!
//! Each module has the names of the one it stands for. Every use of a lock, a condition or an atomic is a point at which
//! another thread may go on. All threads of a run are coroutines of one thread of the system, so what the explorer need
//! not see may be kept in `std`'s own types.

pub(crate) mod keys;
pub(crate) mod parking_lot;
pub(crate) mod thread;
pub(crate) mod time;

/// `std::sync`.
pub(crate) mod sync {
    pub(crate) use shuttle::sync::{Mutex, RwLock, atomic};
    // Set once or counted, by steps that nobody can come between.
    pub(crate) use std::sync::{Arc, OnceLock, Weak};
}

/// A point at which another thread may go on.
pub(crate) fn point() {
    shuttle::sync::atomic::AtomicBool::new(false).load(std::sync::atomic::Ordering::Relaxed);
}

/// A number below `end`, by the explorer's choice.
pub(crate) fn below(end: u64) -> u64 {
    use shuttle::rand::Rng;
    shuttle::rand::thread_rng().gen_range(0..end)
}
