//! The thread that commits by the clock, and works ahead so that others seldom wait.
//!
//! ```text
//!   timer: a transaction is old ──────────┐
//!   a handle: it is large ─► Signal ──────┼─► commit, checkpoint
//!   a commit: the log is half full ───────┘
//! ```
//!
//! It holds the journal only while it works: dropping the journal stops it.

use crate::cache::write_out::Share;
use crate::commit::leader::Handles;
use crate::commit::signal::Signal;
use crate::commit::transactions::Transactions;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// The running thread; dropping this ends it.
pub(crate) struct Background {
    signal: Arc<Signal>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Starts the thread. Without one, should the system refuse it, handles do all the work.
    pub(crate) fn start(transactions: &Arc<Transactions>, interval: Duration) -> Background {
        let signal = Arc::clone(&transactions.signal);
        let (asked, weak) = (Arc::clone(&signal), Arc::downgrade(transactions));
        let thread = std::thread::Builder::new()
            .name("extant-journal".into())
            .spawn(move || run(&asked, &weak, interval));
        Background { signal, thread: thread.ok() }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.signal.ask(|wishes| wishes.end = true);
        if let Some(thread) = self.thread.take() {
            // Should it have panicked, the journal is aborted, and says so to whoever asks.
            let _ = thread.join();
        }
    }
}

fn run(signal: &Signal, transactions: &Weak<Transactions>, interval: Duration) {
    let mut wait = interval;
    loop {
        let wishes = signal.wait(wait);
        if wishes.end {
            return;
        }
        let Some(transactions) = transactions.upgrade() else { return };
        // An error has aborted the journal: the next one to start or commit is told, and nothing
        // is left to do here.
        if transactions.work(wishes.commit, wishes.checkpoint, interval).is_err() {
            return;
        }
        wait = transactions.time_left(interval).max(Duration::from_millis(1));
    }
}

impl Transactions {
    /// One round of the background: what was asked for, and a transaction that is old.
    fn work(&self, commit: bool, checkpoint: bool, interval: Duration) -> extant_base::Result<()> {
        self.cache.refuse_if_aborted()?;
        if commit || self.time_left(interval).is_zero() {
            self.commit_all(Handles::Ignore)?;
        }
        if checkpoint {
            if self.cache.is_half_dirty() {
                self.checkpoint(Share::DirtyDownTo(self.cache.dirty_limit_bytes() / 4))?;
            }
            self.make_space(u64::from(self.area.cycle.len()) * 3 / 4)?;
        }
        Ok(())
    }
}
