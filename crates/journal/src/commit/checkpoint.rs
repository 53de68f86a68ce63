//! Checkpoints: committed blocks go home, and their log space becomes free.
//!
//! ```text
//!   blocks of the oldest transactions ─► home ─► flush home ─► superblock: new tail, FUA ─► free
//!        └ changed again since: they go home with the later transaction that has them
//! ```
//!
//! Rule J5: the log space of a transaction is reused only after each of its blocks is durable at
//! home, or superseded by a later transaction, and the superblock durably says that the log begins
//! later.

use crate::cache::write_out::Share;
use crate::commit::transactions::Transactions;
use extant_base::Result;

impl Transactions {
    /// Writes the `share` of committed transactions home, except blocks that a later one has
    /// changed, and frees the log space of all transactions that are completely home.
    pub(crate) fn checkpoint(&self, share: Share) -> Result<()> {
        self.try_checkpoint(share).inspect_err(|error| self.abort(Some(error)))
    }

    fn try_checkpoint(&self, share: Share) -> Result<()> {
        let oldest = self.cache.write_home(share)?;
        let (old, new) = {
            let state = self.state.lock();
            (state.space.tail(0), state.space.tail(oldest))
        };
        if new.seq <= old.seq {
            return Ok(());
        }
        self.cache.flush()?;
        let mut log = self.log.lock();
        // Another thread may have moved the tail further. It must not move back.
        let current = self.state.lock_second().space.tail(0);
        if new.seq > current.seq {
            log.restart_at(new.start, self.tid_of(new.seq))?;
            self.state.lock_second().space.release(new);
        }
        Ok(())
    }
}
