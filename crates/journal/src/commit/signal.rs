//! Requests of other threads to the background thread.

use parking_lot::{Condvar, Mutex};
use std::time::Duration;

/// The work that is requested.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Requests {
    pub(super) commit: bool,
    pub(super) checkpoint: bool,
    pub(super) end: bool,
}

/// Where the background thread waits for requests.
#[derive(Default)]
pub(crate) struct Signal {
    /// Innermost of all locks.
    requests: Mutex<Requests>,
    requested: Condvar,
}

impl Signal {
    /// Requests a commit, because the running transaction is large.
    pub(crate) fn request_commit(&self) {
        self.request(|requests| requests.commit = true);
    }

    /// Requests a checkpoint, because log space is short.
    pub(crate) fn request_checkpoint(&self) {
        self.request(|requests| requests.checkpoint = true);
    }

    pub(super) fn request(&self, change: impl FnOnce(&mut Requests)) {
        change(&mut self.requests.lock());
        self.requested.notify_all();
    }

    /// Waits for a request, `time` at most, and takes all of them.
    pub(super) fn wait(&self, time: Duration) -> Requests {
        let mut requests = self.requests.lock();
        if !(requests.commit || requests.checkpoint || requests.end) {
            self.requested.wait_for(&mut requests, time);
        }
        std::mem::take(&mut *requests)
    }
}
