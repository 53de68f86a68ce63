//! Checkpoints: committed blocks go home, and their place in the log becomes free.
//!
//! ```text
//!   blocks of the oldest transactions ─► home ─► flush home ─► superblock: new tail, durable ─► free
//!        └ changed again since: they go home with the transaction that has them now
//! ```
//!
//! Rule J5: the log's place of a transaction is written again only after all its blocks are home
//! or superseded, that is durable, and the superblock says that the log begins later.

use crate::cache::write_out::Share;
use crate::commit::transactions::Transactions;
use extant_base::Result;

impl Transactions {
    /// Brings that `share` of the committed transactions home, as far as no later one has changed
    /// their blocks, and gives the log's place of all that is home back.
    pub(crate) fn checkpoint(&self, share: Share) -> Result<()> {
        self.try_checkpoint(share).inspect_err(|error| self.give_up(Some(error)))
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
        // Another thread may have come further: an older tail must not follow a newer one.
        let current = self.state.lock_second().space.tail(0);
        if new.seq > current.seq {
            log.restart_at(new.start, self.tid_of(new.seq))?;
            self.state.lock_second().space.release(new);
        }
        Ok(())
    }
}
