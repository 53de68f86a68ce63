//! Threads on demand: one for each request in progress, and a few more that wait.
//!
//! ```text
//!   start ──► waiting ──request──► busy ──reply──► waiting …
//!                 │ no other thread waits: one more starts, up to the limit
//!                 └── too many wait: this one ends
//! ```

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use parking_lot::{Condvar, Mutex};

/// How many threads may wait before one ends.
const IDLE: usize = 8;

/// The threads of a transport. Only these threads and the pool's creator start more, so when none
/// is left, the pool has ended.
pub(crate) struct WorkerPool {
    name: &'static str,
    limit: usize,
    /// How many threads may wait before one ends.
    idle: usize,
    alive: AtomicUsize,
    /// Of the threads alive, how many wait for a request.
    waiting: AtomicUsize,
    joins: Mutex<Vec<JoinHandle<()>>>,
    ended: Condvar,
}

/// A thread's membership in its pool. Dropping it ends the membership, however the thread ends.
pub(crate) struct Place {
    pool: Arc<WorkerPool>,
    waits: Cell<bool>,
}

impl WorkerPool {
    /// A pool named `name` without threads. It will have at most `limit` of them.
    pub(crate) fn new(name: &'static str, limit: usize) -> Arc<WorkerPool> {
        WorkerPool::with(name, limit, IDLE)
    }

    /// The same, but its threads never end for lack of work.
    pub(crate) fn unending(name: &'static str, limit: usize) -> Arc<WorkerPool> {
        WorkerPool::with(name, limit, usize::MAX)
    }

    fn with(name: &'static str, limit: usize, idle: usize) -> Arc<WorkerPool> {
        Arc::new(WorkerPool {
            name,
            limit: limit.max(1),
            idle,
            alive: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            joins: Mutex::new(Vec::new()),
            ended: Condvar::new(),
        })
    }

    /// Starts a thread that runs `work` with its `Place`; it counts as waiting. Does nothing when
    /// the pool is full.
    pub(crate) fn start(
        self: &Arc<WorkerPool>,
        work: impl FnOnce(Place) + Send + 'static,
    ) -> io::Result<()> {
        let has_space = |n| (n < self.limit).then_some(n + 1);
        if self.alive.fetch_update(Ordering::AcqRel, Ordering::Acquire, has_space).is_err() {
            return Ok(());
        }
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let place = Place { pool: Arc::clone(self), waits: Cell::new(true) };
        // If the closure never runs, it is dropped, and its `Place` with it.
        let join = thread::Builder::new().name(self.name.into()).spawn(move || work(place))?;
        let mut joins = self.joins.lock();
        joins.retain(|join| !join.is_finished());
        joins.push(join);
        Ok(())
    }

    /// Waits until no thread is left.
    pub(crate) fn wait(&self) {
        let mut joins = self.joins.lock();
        while self.alive.load(Ordering::Acquire) > 0 {
            self.ended.wait(&mut joins);
        }
        let joins = std::mem::take(&mut *joins);
        for join in joins {
            // `dispatch` catches panics of the filesystem; any other panic has been printed.
            let _ = join.join();
        }
    }
}

impl Place {
    /// A request arrived. Returns true if no thread waits any more and another one should start.
    pub(crate) fn busy(&self) -> bool {
        self.waits.set(false);
        let pool = &self.pool;
        pool.waiting.fetch_sub(1, Ordering::AcqRel) == 1
            && pool.alive.load(Ordering::Acquire) < pool.limit
    }

    /// The reply is sent. Returns false if enough other threads wait and this one shall end. It
    /// then does not count as waiting, so of several threads that finish at the same time enough
    /// remain.
    pub(crate) fn idle(&self) -> bool {
        let few = |n| (n < self.pool.idle).then(|| n + 1);
        let waits = self.pool.waiting.fetch_update(Ordering::AcqRel, Ordering::Acquire, few);
        self.waits.set(waits.is_ok());
        waits.is_ok()
    }

    /// The pool.
    pub(crate) fn pool(&self) -> &Arc<WorkerPool> {
        &self.pool
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.waits.get() {
            self.pool.waiting.fetch_sub(1, Ordering::AcqRel);
        }
        if self.pool.alive.fetch_sub(1, Ordering::AcqRel) == 1 {
            // Taken so that a thread in `wait` that still saw threads alive is asleep by now and
            // receives the wake-up.
            let _joins = self.pool.joins.lock();
            self.pool.ended.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_about_to_end_does_not_count_as_waiting() {
        let pool = WorkerPool::with("test", 3, 1);
        let (send, places) = std::sync::mpsc::channel();
        for _ in 0..2 {
            let send = send.clone();
            pool.start(move |place| send.send(place).unwrap()).unwrap();
        }
        let (stays, ends) = (places.recv().unwrap(), places.recv().unwrap());
        assert!(!stays.busy());
        assert!(ends.busy());
        assert!(stays.idle());
        assert!(!ends.idle());
        // The other thread takes some time to end. Before that and after it, this thread is the
        // last one.
        assert!(stays.busy());
        assert!(stays.idle());
        drop(ends);
        assert!(stays.busy());
        assert!(stays.idle());
        drop(stays);
        pool.wait();
        assert_eq!(pool.waiting.load(Ordering::Acquire), 0);
    }

    #[test]
    fn threads_start_up_to_the_limit_and_are_waited_for() {
        let pool = WorkerPool::new("test", 3);
        let (send, receive) = std::sync::mpsc::channel();
        for _ in 0..5 {
            let send = send.clone();
            pool.start(move |place| {
                send.send(place.busy()).unwrap();
                place.idle();
            })
            .unwrap();
        }
        drop(send);
        pool.wait();
        assert!((3..=5).contains(&receive.iter().count()));
        assert_eq!(pool.alive.load(Ordering::Acquire), 0);
        assert_eq!(pool.waiting.load(Ordering::Acquire), 0);
    }
}
