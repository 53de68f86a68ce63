//! The part of `parking_lot` that is used, built from the explorer's locks.

use super::time;
use crate::explore::{Timers, timers};
use shuttle::sync as model;
use std::cell::Cell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;
use std::time::Duration;

/// How often a timed wait looks before its time is over.
const LOOKS: u64 = 6;

#[derive(Default)]
pub(crate) struct Mutex<T: ?Sized>(model::Mutex<T>);

pub(crate) struct MutexGuard<'a, T: ?Sized> {
    lock: &'a Mutex<T>,
    held: Option<model::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Mutex<T> {
        Mutex(model::Mutex::new(value))
    }

    pub(crate) fn into_inner(self) -> T {
        self.0.into_inner().unwrap()
    }
}

impl<T: ?Sized> Mutex<T> {
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        // A thread that panicked has ended the run.
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        MutexGuard { lock: self, held: Some(held) }
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        Some(MutexGuard { lock: self, held: Some(self.0.try_lock().ok()?) })
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap()
    }
}

impl<T: ?Sized> MutexGuard<'_, T> {
    pub(crate) fn unlocked<R>(guard: &mut Self, act: impl FnOnce() -> R) -> R {
        guard.held = None;
        let answer = act();
        guard.held = guard.lock.lock().held;
        answer
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.held.as_ref().unwrap()
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_mut().unwrap()
    }
}

/// A condition. Timed waiters do not sleep: the explorer ends their wait when it chooses, or never
/// ([`Timers`]).
#[derive(Default)]
pub(crate) struct Condvar {
    sleepers: model::Condvar,
    notified: Cell<u64>,
}

// SAFETY: all threads of a run are coroutines of one thread.
#[allow(unsafe_code)]
unsafe impl Sync for Condvar {}

impl Condvar {
    pub(crate) const fn new() -> Condvar {
        Condvar { sleepers: model::Condvar::new(), notified: Cell::new(0) }
    }

    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.held.take().unwrap();
        guard.held = Some(self.sleepers.wait(held).unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, time: Duration) {
        if timers() == Timers::Never {
            return self.wait(guard);
        }
        let before = self.notified.get();
        let looks = super::below(LOOKS);
        MutexGuard::unlocked(guard, || {
            for _ in 0..looks {
                if self.notified.get() != before {
                    return;
                }
                shuttle::thread::yield_now();
            }
        });
        if self.notified.get() == before {
            time::pass(time);
        }
    }

    pub(crate) fn notify_all(&self) {
        self.notified.set(self.notified.get() + 1);
        self.sleepers.notify_all();
    }
}

#[derive(Default)]
pub(crate) struct RwLock<T: ?Sized>(model::RwLock<T>);

pub(crate) use model::{RwLockReadGuard, RwLockWriteGuard};

impl<T> RwLock<T> {
    pub(crate) const fn new(value: T) -> RwLock<T> {
        RwLock(model::RwLock::new(value))
    }
}

impl<T: ?Sized> RwLock<T> {
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        self.0.try_read().ok()
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        self.0.try_write().ok()
    }
}

impl<T: ?Sized> fmt::Debug for Mutex<T> {
    /// Without the content: reading it would be a step of the schedule.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex").finish_non_exhaustive()
    }
}

impl<T: ?Sized> fmt::Debug for RwLock<T> {
    /// Without the content: reading it would be a step of the schedule.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RwLock").finish_non_exhaustive()
    }
}

impl fmt::Debug for Condvar {
    /// Without the content: reading it would be a step of the schedule.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Condvar").finish_non_exhaustive()
    }
}
