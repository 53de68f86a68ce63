//! Frees log space for new transactions, by commits and checkpoints.

use crate::cache::block::Seq;
use crate::cache::write_out::Share;
use crate::commit::leader::Handles;
use crate::commit::transactions::Transactions;
use extant_base::{Error, Result};

impl Transactions {
    /// Frees log space until `wanted` blocks are free, or until it can do no more before other
    /// threads continue. The caller has no handle.
    pub(crate) fn make_space(&self, wanted: u64) -> Result<()> {
        let (upto, running) = {
            let state = self.state.lock();
            (state.space.home_for(wanted), state.running.seq)
        };
        self.checkpoint(Share::UpTo(upto))?;
        if self.state.lock().space.unreserved() >= wanted {
            return Ok(());
        }
        if self.is_one() {
            // A journal of one transaction must not commit it to gain space.
            let limit = self.state.lock().space.unreserved();
            return Err(Error::TransactionTooLarge { needed: wanted, limit });
        }
        // The running transaction changes the same blocks again and again, so they cannot go home.
        // Once it has committed, their older copies in the log are superseded.
        self.commit_seq(running, Handles::Await)?;
        let upto = self.state.lock().space.home_for(wanted);
        self.checkpoint(Share::UpTo(upto))
    }

    /// Commits everything, writes everything home and leaves the log empty. No handle starts after
    /// it.
    pub(crate) fn close(&self) -> Result<()> {
        drop(self.refuse_handles());
        self.commit_all(Handles::Await)?;
        self.cache.refuse_if_aborted()?;
        self.checkpoint(Share::UpTo(Seq::MAX))?;
        let empty = || {
            self.cache.flush()?;
            let head = self.state.lock().space.head;
            self.log.lock().set_empty(head, self.tid_of(self.durable()))
        };
        empty().inspect_err(|error| self.abort(Some(error)))
    }
}
