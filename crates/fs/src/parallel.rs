//! Sharing work among a few threads.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Does `work` for each of `0..items`, on at most `threads` threads. Each thread has a state of its
/// own from `make`. Returns the states.
pub(crate) fn each<S: Send>(
    threads: usize,
    items: usize,
    make: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, usize) + Sync,
) -> Vec<S> {
    let next = AtomicUsize::new(0);
    let run = || {
        let mut state = make();
        loop {
            let item = next.fetch_add(1, Ordering::Relaxed);
            if item >= items {
                return state;
            }
            work(&mut state, item);
        }
    };
    let threads = threads.clamp(1, items.max(1));
    if threads == 1 {
        return vec![run()];
    }
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(run)).collect();
        let mut states = vec![run()];
        for other in others {
            match other.join() {
                Ok(state) => states.push(state),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        states
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_worked_on_once() {
        for threads in [1, 2, 5] {
            let states = each(threads, 1000, Vec::new, |seen: &mut Vec<usize>, n| seen.push(n));
            let mut all: Vec<usize> = states.into_iter().flatten().collect();
            all.sort_unstable();
            assert!(all.iter().copied().eq(0..1000), "{threads}");
        }
        assert_eq!(each(4, 0, || 7, |_, _| ()), [7]);
    }
}
