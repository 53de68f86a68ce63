//! Admission: which handles may join the running transaction, and how much they may add to it.
//!
//! ```text
//!   start(credits) ──► locked?              wait until the next transaction opens
//!                      transaction full?    commit it
//!                      log space short?     make space
//!                      else                 credits are reserved, the handle runs
//! ```

use crate::cache::block::Seq;
use crate::commit::contribution::{Credits, HandleChanges, HandlePosition};
use crate::commit::leader::Handles;
use crate::commit::transactions::{NewHandles, State, Transactions};
use extant_base::lock::Patience;
use extant_base::{Error, Result};

/// What must happen before a handle can start.
enum Admission {
    Granted,
    /// The running transaction is full: commit it.
    Commit(Seq),
    /// The log is short of space: free this many blocks.
    MakeSpace(u64),
}

impl Transactions {
    /// Admits a handle to the running transaction and returns its position there. While the
    /// transaction is locked, waits; while it is full or log space is short, commits or makes
    /// space.
    ///
    /// Errors: `Aborted`, `Device`, `TransactionTooLarge`; `ReadOnly` after the journal was closed.
    pub(crate) fn start(&self, credits: Credits) -> Result<HandlePosition> {
        let mut state = self.state.lock();
        let mut patience = Patience::default();
        loop {
            self.cache.refuse_if_aborted()?;
            match state.new_handles {
                NewHandles::Admitted if state.holds == 0 => {}
                NewHandles::Admitted | NewHandles::Waiting => {
                    self.opened.wait_soon(&mut state, &mut patience);
                    continue;
                }
                NewHandles::Refused => return Err(Error::ReadOnly),
            }
            match self.admit(&state, credits)? {
                Admission::Granted => return Ok(state.running.enter(credits, self.next_nr())),
                Admission::Commit(seq) => {
                    drop(state);
                    self.commit_seq(seq, Handles::Await)?;
                }
                Admission::MakeSpace(wanted) => {
                    drop(state);
                    self.make_space(wanted)?;
                }
            }
            state = self.state.lock();
        }
    }

    fn admit(&self, state: &State, credits: Credits) -> Result<Admission> {
        let after = state.running.needed(&self.area, credits);
        if after <= self.limits.hard {
            let wanted = after + self.limits.margin;
            return Ok(match wanted <= state.space.unreserved() {
                true => Admission::Granted,
                false => Admission::MakeSpace(wanted),
            });
        }
        if self.one {
            return Err(Error::TransactionTooLarge { needed: after, limit: self.limits.hard });
        }
        self.check_size(credits)?;
        Ok(Admission::Commit(state.running.seq))
    }

    /// Refuses credits that exceed the limit of a transaction.
    pub(crate) fn check_size(&self, credits: Credits) -> Result<()> {
        let needed = self.area.needed(u64::from(credits.blocks), u64::from(credits.revokes));
        let limit = self.limits.hard;
        if needed > limit { Err(Error::TransactionTooLarge { needed, limit }) } else { Ok(()) }
    }

    /// Reserves more credits for a running handle, without waiting. Returns `false` if they do not
    /// fit.
    pub(crate) fn extend(&self, more: Credits) -> Result<bool> {
        let mut state = self.state.lock();
        let granted = matches!(self.admit(&state, more), Ok(Admission::Granted));
        if granted {
            state.running.reserve(more);
        } else if self.one {
            let needed = state.running.needed(&self.area, more);
            return Err(Error::TransactionTooLarge { needed, limit: self.limits.hard });
        }
        Ok(granted)
    }

    /// Merges a handle's changes and reserves `next` for it, in the same transaction. After an
    /// error it has no credits.
    pub(crate) fn renew(
        &self,
        credits: Credits,
        place: HandlePosition,
        done: &mut HandleChanges,
        next: Credits,
    ) -> Result<()> {
        let mut state = self.state.lock();
        self.merge(&mut state, credits, place, done);
        match self.admit(&state, next)? {
            Admission::Granted => state.running.reserve(next),
            Admission::Commit(_) | Admission::MakeSpace(_) => {
                let needed = state.running.needed(&self.area, next);
                return Err(Error::TransactionTooLarge { needed, limit: self.limits.hard });
            }
        }
        Ok(())
    }
}
