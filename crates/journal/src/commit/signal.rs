//! How other threads wake the background thread.

use parking_lot::{Condvar, Mutex};
use std::time::Duration;

/// What the thread is asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wishes {
    pub(super) commit: bool,
    pub(super) checkpoint: bool,
    pub(super) end: bool,
}

/// How the thread is asked.
#[derive(Default)]
pub(crate) struct Signal {
    /// Innermost of all locks.
    wishes: Mutex<Wishes>,
    asked: Condvar,
}

impl Signal {
    /// The running transaction is large: commit it.
    pub(crate) fn ask_for_commit(&self) {
        self.ask(|wishes| wishes.commit = true);
    }

    /// The log fills up: make room.
    pub(crate) fn ask_for_checkpoint(&self) {
        self.ask(|wishes| wishes.checkpoint = true);
    }

    pub(super) fn ask(&self, wish: impl FnOnce(&mut Wishes)) {
        wish(&mut self.wishes.lock());
        self.asked.notify_all();
    }

    /// Waits for a wish, `time` at most; takes all of them.
    pub(super) fn wait(&self, time: Duration) -> Wishes {
        let mut wishes = self.wishes.lock();
        if !(wishes.commit || wishes.checkpoint || wishes.end) {
            self.asked.wait_for(&mut wishes, time);
        }
        std::mem::take(&mut *wishes)
    }
}
