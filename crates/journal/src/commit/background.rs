//! The background thread: it commits by the clock, and makes log space before handles have to wait.
//!
//! ```text
//!   timer: a transaction is old ──────────┐
//!   a handle: it is large ─► Signal ──────┼─► commit, checkpoint
//!   a commit: the log is half full ───────┘
//! ```
//!
//! The thread holds a strong reference to the transactions only while it works. Dropping the
//! journal ends it.

use crate::cache::write_out::Share;
use crate::commit::leader::Handles;
use crate::commit::signal::Signal;
use crate::commit::transactions::Transactions;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// The background thread; dropping this ends it.
pub(crate) struct Background {
    signal: Arc<Signal>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Starts the thread. If the system refuses one, handles do all the work.
    pub(crate) fn start(transactions: &Arc<Transactions>, interval: Duration) -> Background {
        let signal = Arc::clone(&transactions.signal);
        let (requested, weak) = (Arc::clone(&signal), Arc::downgrade(transactions));
        let thread = std::thread::Builder::new()
            .name("extant-journal".into())
            .spawn(move || run(&requested, &weak, interval));
        Background { signal, thread: thread.ok() }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.signal.request(|requests| requests.end = true);
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, the journal is aborted, and later calls report that.
            let _ = thread.join();
        }
    }
}

fn run(signal: &Signal, transactions: &Weak<Transactions>, interval: Duration) {
    let mut wait = interval;
    loop {
        let requests = signal.wait(wait);
        if requests.end {
            return;
        }
        let Some(transactions) = transactions.upgrade() else { return };
        // After an error the journal is aborted. The next start or commit reports that, and the
        // thread ends.
        if transactions.work(requests.commit, requests.checkpoint, interval).is_err() {
            return;
        }
        wait = transactions.time_left(interval).max(Duration::from_millis(1));
    }
}

impl Transactions {
    /// One round: the requested work, and a commit if the transaction is old.
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
