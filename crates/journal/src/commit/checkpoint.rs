//! Checkpoints: committed blocks go home, and their place in the log becomes free.
//!
//! ```text
//!   blocks of the oldest transactions ─► home ─► flush home ─► superblock: new tail, durable ─► free
//!        └ changed again since: they go home with the transaction that has them now
//! ```
//!
//! Rule J5: the log's place of a transaction is written again only after all its blocks are home
//! or superseded, that is durable, and the superblock says that the log begins later.

use crate::cache::block::Seq;
use crate::cache::write_out::Share;
use crate::commit::full_commit::Handles;
use crate::commit::transactions::Transactions;
use extant_base::{Error, Result};
use extant_blockdev::BlockDevice;
use std::sync::Arc;

/// Whether two handles on devices are the same one: then one flush is for both.
pub(crate) fn is_same_device(a: &Arc<dyn BlockDevice>, b: &Arc<dyn BlockDevice>) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(a), Arc::as_ptr(b))
}

impl Transactions {
    /// Works until `wanted` blocks of the log are free, or other threads have to go on first.
    /// The caller has no handle.
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
            // Its only transaction must not commit for the sake of space.
            let limit = self.state.lock().space.unreserved();
            return Err(Error::TransactionTooLarge { needed: wanted, limit });
        }
        // What keeps the log are blocks that the running transaction changes again and again:
        // once it has committed, their older copies are superseded.
        self.commit_seq(running, Handles::Await)?;
        let upto = self.state.lock().space.home_for(wanted);
        self.checkpoint(Share::UpTo(upto))
    }

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

    /// Commits and brings home everything and leaves the log empty. No handle starts after it.
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
        empty().inspect_err(|error| self.give_up(Some(error)))
    }
}
