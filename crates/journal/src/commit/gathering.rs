//! Threads that commit repeatedly share commits.
//!
//! ```text
//!   without gathering    a b │ commit │ c d      c d │ commit │ a b      half of them each time
//!                              c d wait              a b came too late
//!   with it              a b c d │ commit │ a b c d ┆ │ commit │         all of them
//!                                                   └ the next leader waits a moment for the
//!                                                     threads that the last commit served
//! ```
//!
//! The leader waits at most a quarter of the time that the last commit took. It stops waiting as
//! soon as as many threads are there as last time. A single thread never waits, and no thread does
//! while commits are fast.

use std::time::Duration;

/// The leader waits for others only if the last commit took at least this long.
const WORTH_WAITING: Duration = Duration::from_micros(400);
/// The longest wait of a leader.
const LONGEST: Duration = Duration::from_millis(4);

/// How many threads wait for commits, and how long commits take.
#[derive(Debug, Default)]
pub(crate) struct Gathering {
    /// Threads that wait for the running transaction.
    waiting: u32,
    /// Threads that wait for the transaction being written.
    served: u32,
    /// Threads that will wait for the running transaction if all those that the last commit served
    /// return.
    expected: u32,
    /// The duration of the last commit.
    took: Duration,
}

impl Gathering {
    /// Adds a thread that waits for the running transaction. Returns whether all expected threads
    /// are there.
    pub(crate) fn join(&mut self) -> bool {
        self.waiting += 1;
        self.waiting >= self.expected
    }

    /// How long a leader should wait for other threads, if at all.
    pub(crate) fn time_to_wait(&self) -> Option<Duration> {
        let worth = self.waiting < self.expected && self.took >= WORTH_WAITING;
        worth.then(|| (self.took / 4).min(LONGEST))
    }

    /// The running transaction was closed: threads that come now wait for the next one.
    pub(crate) fn close(&mut self) {
        self.served = std::mem::take(&mut self.waiting);
    }

    /// The closed transaction is committed, which took this long.
    pub(crate) fn end(&mut self, took: Duration) {
        self.expected = self.waiting + std::mem::take(&mut self.served);
        self.took = took;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: Duration = Duration::from_millis(8);

    #[test]
    fn the_leader_waits_for_threads_served_last() {
        let mut gathering = Gathering::default();
        assert!(gathering.join() && gathering.join());
        assert_eq!(gathering.time_to_wait(), None, "no thread was served yet");
        gathering.close();
        gathering.join();
        gathering.end(SLOW);
        // One thread waits; the two that were served may return.
        assert_eq!(gathering.time_to_wait(), Some(Duration::from_millis(2)));
        assert!(!gathering.join());
        assert!(gathering.join());
        assert_eq!(gathering.time_to_wait(), None);
        // Two threads did not return. The next leader waits for them once, and later ones do not.
        gathering.close();
        gathering.end(SLOW);
        gathering.join();
        gathering.close();
        gathering.end(SLOW);
        gathering.join();
        assert_eq!(gathering.time_to_wait(), None);
    }

    #[test]
    fn no_leader_waits_while_commits_are_fast() {
        let mut gathering = Gathering::default();
        gathering.join();
        gathering.join();
        gathering.close();
        gathering.end(Duration::from_micros(50));
        gathering.join();
        assert_eq!(gathering.time_to_wait(), None);
    }
}
