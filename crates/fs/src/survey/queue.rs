//! Work that makes more work, shared by a few threads.

use extant_base::lock::{Condvar, Mutex, Rank};

/// What is to be done. The last in comes out first, so that a tree is gone through downwards and the
/// queue holds few of its branches.
pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    told: Condvar,
}

struct State<T> {
    items: Vec<T>,
    /// Threads that may still put something in.
    busy: usize,
}

impl<T> Queue<T> {
    /// A queue with its first item, for `threads` threads, which all take until there is nothing left.
    pub(super) fn new(first: T, threads: usize) -> Queue<T> {
        let state = State { items: vec![first], busy: threads };
        Queue { state: Mutex::new(Rank::Leaf, state), told: Condvar::new() }
    }

    pub(super) fn put(&self, item: T) {
        self.state.lock().items.push(item);
        self.told.notify_all();
    }

    /// Whether another thread may be waiting for something to do.
    pub(super) fn is_short(&self) -> bool {
        let state = self.state.lock();
        state.items.is_empty()
    }

    /// One of the threads, which takes items until it is dropped, also by a panic.
    pub(super) fn worker(&self) -> Worker<'_, T> {
        Worker { queue: self, is_busy: true }
    }
}

/// See [`Queue::worker`].
pub(super) struct Worker<'a, T> {
    queue: &'a Queue<T>,
    /// Counts as one that may put something in.
    is_busy: bool,
}

impl<T> Worker<'_, T> {
    /// The next item; `None` once all is done.
    pub(super) fn take(&mut self) -> Option<T> {
        let Queue { state, told } = self.queue;
        let mut state = state.lock();
        if let Some(item) = state.items.pop() {
            return Some(item);
        }
        state.busy -= 1;
        self.is_busy = false;
        loop {
            if state.busy == 0 {
                told.notify_all();
                return None;
            }
            told.wait(&mut state);
            if let Some(item) = state.items.pop() {
                state.busy += 1;
                self.is_busy = true;
                return Some(item);
            }
        }
    }
}

impl<T> Drop for Worker<'_, T> {
    fn drop(&mut self) {
        if self.is_busy {
            self.queue.state.lock().busy -= 1;
            self.queue.told.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn what_work_makes_is_done_too() {
        for threads in [1, 2, 5] {
            let (queue, done) = (Queue::new(10, threads), AtomicU64::new(0));
            std::thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| {
                        let mut worker = queue.worker();
                        while let Some(item) = worker.take() {
                            done.fetch_add(1, Ordering::Relaxed);
                            (0..item).for_each(|n| queue.put(n));
                        }
                    });
                }
            });
            // One of 10 makes one of each below, each those below it: 2^10.
            assert_eq!(done.load(Ordering::Relaxed), 1 << 10, "{threads}");
        }
    }

    #[test]
    fn nobody_waits_for_a_thread_that_panicked() {
        let queue = Queue::new(1, 2);
        std::thread::scope(|scope| {
            let fails = scope.spawn(|| {
                let _worker = queue.worker();
                panic!("as a test");
            });
            let mut worker = queue.worker();
            assert_eq!(worker.take(), Some(1));
            assert_eq!(worker.take(), None);
            assert!(fails.join().is_err());
        });
    }
}
