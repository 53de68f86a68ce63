//! A work queue for a few threads, in which work can create more work.

use extant_base::lock::{Condvar, Mutex, Rank};

/// The tasks to do. The last one in is the first out, so a tree is walked depth first and the queue
/// holds few branches.
pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    items: Vec<T>,
    /// Threads that may still add tasks.
    busy: usize,
}

impl<T> Queue<T> {
    /// A queue with its first item, for `threads` threads. All of them take items until none is
    /// left.
    pub(super) fn new(first: T, threads: usize) -> Queue<T> {
        let state = State { items: vec![first], busy: threads };
        Queue { state: Mutex::new(Rank::Leaf, state), changed: Condvar::new() }
    }

    pub(super) fn put(&self, item: T) {
        self.state.lock().items.push(item);
        self.changed.notify_all();
    }

    /// Whether another thread may be waiting for work.
    pub(super) fn is_short(&self) -> bool {
        let state = self.state.lock();
        state.items.is_empty()
    }

    /// One of the threads. It takes items until it is dropped, which a panic does, too.
    pub(super) fn worker(&self) -> Worker<'_, T> {
        Worker { queue: self, is_busy: true }
    }
}

/// See [`Queue::worker`].
pub(super) struct Worker<'a, T> {
    queue: &'a Queue<T>,
    /// Whether it counts as a thread that may add items.
    is_busy: bool,
}

impl<T> Worker<'_, T> {
    /// The next item; `None` once all work is done.
    pub(super) fn take(&mut self) -> Option<T> {
        let Queue { state, changed } = self.queue;
        let mut state = state.lock();
        if let Some(item) = state.items.pop() {
            return Some(item);
        }
        state.busy -= 1;
        self.is_busy = false;
        loop {
            if state.busy == 0 {
                changed.notify_all();
                return None;
            }
            changed.wait(&mut state);
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
            self.queue.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn tasks_added_by_tasks_are_done() {
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
            // An item of 10 creates one of each smaller number, and so on: 2^10 items.
            assert_eq!(done.load(Ordering::Relaxed), 1 << 10, "{threads}");
        }
    }

    #[test]
    fn no_thread_waits_for_one_that_panicked() {
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
