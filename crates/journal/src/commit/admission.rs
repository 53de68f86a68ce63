//! Which handles may join the running transaction, and how much they may add to it.

use crate::cache::block::Seq;
use crate::commit::contribution::{Credits, Done, Place};
use crate::commit::leader::Handles;
use crate::commit::transactions::{State, Transactions};
use extant_base::lock::Patience;
use extant_base::{Error, Result};

/// What a handle that wants to start has to do first.
enum Admission {
    Granted,
    /// The running transaction is full.
    Commit(Seq),
    /// The log is.
    MakeSpace(u64),
}

impl Transactions {
    /// Lets a handle into the running transaction; its place there. Waits while it is full or
    /// about to be written, and works on that.
    ///
    /// Errors: `Aborted`, `Device`, `TransactionTooLarge`; `ReadOnly` after the journal was closed.
    pub(crate) fn start(&self, credits: Credits) -> Result<Place> {
        let mut state = self.state.lock();
        let mut patience = Patience::default();
        loop {
            self.cache.refuse_if_aborted()?;
            if state.closed {
                return Err(Error::ReadOnly);
            }
            if state.locked {
                self.opened.wait_soon(&mut state, &mut patience);
                continue;
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

    /// Refuses what no transaction has room for.
    pub(crate) fn check_size(&self, credits: Credits) -> Result<()> {
        let needed = self.area.needed(u64::from(credits.blocks), u64::from(credits.revokes));
        let limit = self.limits.hard;
        if needed > limit { Err(Error::TransactionTooLarge { needed, limit }) } else { Ok(()) }
    }

    /// Promises a running handle more, without waiting; `false` when there is no room.
    pub(crate) fn extend(&self, more: Credits) -> Result<bool> {
        let mut state = self.state.lock();
        let granted = matches!(self.admit(&state, more), Ok(Admission::Granted));
        if granted {
            state.running.promise(more);
        } else if self.one {
            let needed = state.running.needed(&self.area, more);
            return Err(Error::TransactionTooLarge { needed, limit: self.limits.hard });
        }
        Ok(granted)
    }

    /// Takes in what a handle did and promises it `next`, in the same transaction. An error leaves
    /// it with nothing promised.
    pub(crate) fn renew(
        &self,
        credits: Credits,
        place: Place,
        done: &mut Done,
        next: Credits,
    ) -> Result<()> {
        let mut state = self.state.lock();
        self.take_in(&mut state, credits, place, done);
        match self.admit(&state, next)? {
            Admission::Granted => state.running.promise(next),
            Admission::Commit(_) | Admission::MakeSpace(_) => {
                let needed = state.running.needed(&self.area, next);
                return Err(Error::TransactionTooLarge { needed, limit: self.limits.hard });
            }
        }
        Ok(())
    }
}
