//! Threads on demand: one for each request in progress, and a few more that wait.
//!
//! ```text
//!   start ──► waiting ──request──► busy ──reply──► waiting …
//!                 │                  │ no other thread waits: one is unparked, or one more starts,
//!                 │                  │ up to the limit
//!                 ├── for many requests, `HOT` others waited: this one is parked
//!                 └── too many wait: this one ends
//! ```
//!
//! The kernel gives a request to the thread that has waited longest. If eight threads waited while
//! requests come one after the other, each request would run on the thread, and often on the
//! processor, whose caches are the coldest.

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use parking_lot::{Condvar, Mutex};

/// How many threads may wait before one ends.
const IDLE: usize = 8;
/// How many threads wait while requests come one after the other.
const HOT: usize = 2;
/// After so many requests for which more threads waited than necessary, one is parked.
const CALM: usize = 64;

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
    /// How many threads wait for requests before others are parked.
    hot: usize,
    /// Requests in a row for which more than `hot` threads waited.
    calm: AtomicUsize,
    parked: Mutex<Parked>,
    unparked: Condvar,
    joins: Mutex<Vec<JoinHandle<()>>>,
    ended: Condvar,
}

/// Threads that neither wait for a request nor serve one.
#[derive(Default)]
struct Parked {
    threads: usize,
    /// How many of them shall continue.
    called: usize,
}

/// A thread's membership in its pool. Dropping it ends the membership, however the thread ends.
pub(crate) struct Place {
    pool: Arc<WorkerPool>,
    waits: Cell<bool>,
}

impl WorkerPool {
    /// A pool named `name` without threads. It will have at most `limit` of them.
    pub(crate) fn new(name: &'static str, limit: usize) -> Arc<WorkerPool> {
        WorkerPool::with(name, limit, IDLE, HOT)
    }

    /// The same, but for lack of work its threads neither end nor are parked.
    pub(crate) fn unending(name: &'static str, limit: usize) -> Arc<WorkerPool> {
        WorkerPool::with(name, limit, usize::MAX, usize::MAX)
    }

    fn with(name: &'static str, limit: usize, idle: usize, hot: usize) -> Arc<WorkerPool> {
        Arc::new(WorkerPool {
            name,
            limit: limit.max(1),
            idle,
            alive: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            hot,
            calm: AtomicUsize::new(0),
            parked: Mutex::new(Parked::default()),
            unparked: Condvar::new(),
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

    /// Parks the calling thread, which waits for a request, unless fewer than `hot` others wait.
    fn park(&self) {
        let mut parked = self.parked.lock();
        let enough = |n: usize| (n > self.hot).then(|| n - 1);
        if self.waiting.fetch_update(Ordering::AcqRel, Ordering::Acquire, enough).is_err() {
            return;
        }
        // A thread after which no other waits takes the lock before it looks for parked ones, so
        // it finds this one.
        parked.threads += 1;
        while parked.called == 0 {
            self.unparked.wait(&mut parked);
        }
        parked.called -= 1;
        self.waiting.fetch_add(1, Ordering::AcqRel);
    }

    /// Lets up to `most` parked threads continue. Returns whether there was one.
    fn unpark(&self, most: usize) -> bool {
        let mut parked = self.parked.lock();
        let called = most.min(parked.threads);
        parked.threads -= called;
        parked.called += called;
        for _ in 0..called {
            self.unparked.notify_one();
        }
        called > 0
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
    /// A request arrived. Returns true if no thread waits any more, none is parked, and another one
    /// should start.
    pub(crate) fn busy(&self) -> bool {
        self.waits.set(false);
        let pool = &self.pool;
        if pool.waiting.fetch_sub(1, Ordering::AcqRel) > 1 {
            return false;
        }
        pool.calm.store(0, Ordering::Relaxed);
        !pool.unpark(1) && pool.alive.load(Ordering::Acquire) < pool.limit
    }

    /// The reply is sent. Returns true when the thread shall wait for the next request; before
    /// that, it may have been parked. Returns false if enough other threads wait and this one shall
    /// end. It then does not count as waiting, so of several threads that finish at the same time
    /// enough remain.
    pub(crate) fn idle(&self) -> bool {
        let pool = &self.pool;
        let few = |n| (n < pool.idle).then(|| n + 1);
        let waits = pool.waiting.fetch_update(Ordering::AcqRel, Ordering::Acquire, few);
        self.waits.set(waits.is_ok());
        if waits.is_ok_and(|others| others >= pool.hot)
            && pool.calm.fetch_add(1, Ordering::Relaxed) >= CALM
        {
            pool.calm.store(0, Ordering::Relaxed);
            pool.park();
        }
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
        // When the connection ends, parked threads must find that out, too.
        self.pool.unpark(usize::MAX);
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
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_worker_about_to_end_does_not_count_as_waiting() {
        let pool = WorkerPool::with("test", 3, 1, usize::MAX);
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
    fn threads_are_parked_while_requests_come_one_after_the_other() {
        let pool = WorkerPool::with("test", 4, 8, 2);
        let (send, places) = std::sync::mpsc::channel();
        for _ in 0..4 {
            let send = send.clone();
            pool.start(move |place| send.send(place).unwrap()).unwrap();
        }
        let mut places: Vec<Place> = (0..4).map(|_| places.recv().unwrap()).collect();
        let (parked, ends) = (|| pool.parked.lock().threads, AtomicBool::new(false));
        thread::scope(|threads| {
            // Two threads serve requests while two others wait.
            for place in places.split_off(2) {
                let ends = &ends;
                threads.spawn(move || {
                    while !ends.load(Ordering::Acquire) {
                        place.busy();
                        assert!(place.idle());
                    }
                });
            }
            while parked() < 2 {
                thread::yield_now();
            }
            assert_eq!(pool.waiting.load(Ordering::Acquire), 2);
            // Two requests at the same time: a parked thread continues, and no new one starts.
            ends.store(true, Ordering::Release);
            assert!(!places[0].busy());
            assert!(!places[1].busy());
            assert!(parked() < 2);
            // When a thread ends, all continue.
            drop(places);
        });
        pool.wait();
        assert_eq!((parked(), pool.waiting.load(Ordering::Acquire)), (0, 0));
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
