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

    /// The next item; `None` once all is done.
    pub(super) fn take(&self) -> Option<T> {
        let mut state = self.state.lock();
        if let Some(item) = state.items.pop() {
            return Some(item);
        }
        state.busy -= 1;
        loop {
            if state.busy == 0 {
                self.told.notify_all();
                return None;
            }
            self.told.wait(&mut state);
            if let Some(item) = state.items.pop() {
                state.busy += 1;
                return Some(item);
            }
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
                        while let Some(item) = queue.take() {
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
}
