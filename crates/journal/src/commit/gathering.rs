//! Threads that commit again and again share commits.
//!
//! ```text
//!   without gathering    a b │ commit │ c d      c d │ commit │ a b      half of them each time
//!                              c d wait              a b came too late
//!   with it              a b c d │ commit │ a b c d ┆ │ commit │         all of them
//!                                                   └ the next leader waits a moment for those
//!                                                     who were served last
//! ```
//!
//! The wait is a quarter of what the last commit took, and is over as soon as as many threads are
//! there as last time. One thread alone never waits, nor does anyone where commits are fast.

use std::time::Duration;

/// A commit that is faster than this is not waited for.
const WORTH_WAITING: Duration = Duration::from_micros(400);
/// Nobody waits longer.
const LONGEST: Duration = Duration::from_millis(4);

/// Who asks for commits, and how long they take.
#[derive(Debug, Default)]
pub(crate) struct Gathering {
    /// Threads that wait for the running transaction.
    waiting: u32,
    /// Threads that wait for the one being written.
    served: u32,
    /// Threads that will wait for this one, if all come back that the last one served.
    expected: u32,
    /// What the last commit took.
    took: Duration,
}

impl Gathering {
    /// A thread waits for the running transaction; whether that makes them all.
    pub(crate) fn join(&mut self) -> bool {
        self.waiting += 1;
        self.waiting >= self.expected
    }

    /// How long a leader that starts now should wait for others.
    pub(crate) fn time_to_wait(&self) -> Option<Duration> {
        let worth = self.waiting < self.expected && self.took >= WORTH_WAITING;
        worth.then(|| (self.took / 4).min(LONGEST))
    }

    /// The running transaction is closed: who comes now waits for the next one.
    pub(crate) fn close(&mut self) {
        self.served = std::mem::take(&mut self.waiting);
    }

    /// The closed one is committed.
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
    fn those_served_last_are_waited_for() {
        let mut gathering = Gathering::default();
        assert!(gathering.join() && gathering.join());
        assert_eq!(gathering.time_to_wait(), None, "nobody was served yet");
        gathering.close();
        gathering.join();
        gathering.end(SLOW);
        // One waits; the two that were served may come back.
        assert_eq!(gathering.time_to_wait(), Some(Duration::from_millis(2)));
        assert!(!gathering.join());
        assert!(gathering.join());
        assert_eq!(gathering.time_to_wait(), None);
        // Two did not come: the next one is not waited for longer than once.
        gathering.close();
        gathering.end(SLOW);
        gathering.join();
        gathering.close();
        gathering.end(SLOW);
        gathering.join();
        assert_eq!(gathering.time_to_wait(), None);
    }

    #[test]
    fn nobody_waits_where_commits_are_fast() {
        let mut gathering = Gathering::default();
        gathering.join();
        gathering.join();
        gathering.close();
        gathering.end(Duration::from_micros(50));
        gathering.join();
        assert_eq!(gathering.time_to_wait(), None);
    }
}
