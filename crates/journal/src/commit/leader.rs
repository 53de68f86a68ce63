//! The leader: one thread commits, and other threads wait for it.
//!
//! ```text
//!   commit request ──► durable or recorded already?      return
//!                      another thread commits?           wait, then look again
//!                      else: lead                        fast commit if possible, or full commit
//!                                                        then wake all waiters
//! ```

use crate::cache::block::Seq;
use crate::commit::fast_commit::FastCommit;
use crate::commit::point::CommitPoint;
use crate::commit::transactions::{State, Transactions};
use crate::records::changes::Snapshot;
use extant_base::lock::{Patience, Rank, RankMark};
use extant_base::{Result, Tid};
use std::time::Instant;

/// Whether a commit includes the changes of handles that are still running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handles {
    /// No: it is for changes of stopped handles.
    Ignore,
    /// Yes: it is to free log space.
    Await,
}

/// A thread's request for a commit.
struct Request<'a> {
    /// The transaction that must become durable, with all before it.
    seq: Seq,
    handles: Handles,
    /// A fast commit is enough.
    fast: Option<FastRequest<'a>>,
}

/// A request for a fast commit.
struct FastRequest<'a> {
    /// The handle whose changes must become durable.
    nr: u64,
    snapshot: &'a dyn Snapshot,
}

impl Request<'_> {
    fn is_recorded(&self, state: &State) -> bool {
        self.fast.as_ref().is_some_and(|fast| state.recorded.covers(self.seq, fast.nr))
    }
}

/// Whether a commit flushed all file data that was written before the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flushed {
    /// It did.
    Since,
    /// Not surely: its flush may have come before that data, or there was none.
    Earlier,
}

/// What a thread must do for its request.
enum Role {
    /// Nothing: the changes are durable.
    Done(Flushed),
    /// Commit, and clear `State::committing` afterwards.
    Lead(Flushed),
}

/// Ends the leadership of this thread; aborts the journal if the thread panics.
struct Leadership<'a> {
    transactions: &'a Transactions,
    began: Instant,
}

impl Drop for Leadership<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.transactions.abort(None);
        }
        let mut state = self.transactions.state.lock();
        state.committing = false;
        state.gathering.end(self.began.elapsed());
        self.transactions.ended.notify_all();
    }
}

impl Transactions {
    /// Returns when transaction `tid` is durable. Does nothing if it is, or if it has no changes.
    pub(crate) fn commit(&self, tid: Tid) -> Result<Flushed> {
        match self.seq_of(tid) {
            Some(seq) => self.commit_seq(seq, Handles::Ignore),
            None => Ok(Flushed::Earlier),
        }
    }

    /// Returns when the changes up to `point` are durable. With a `snapshot`, by a fast commit if
    /// possible.
    pub(crate) fn commit_to(
        &self,
        point: CommitPoint,
        snapshot: Option<&dyn Snapshot>,
    ) -> Result<()> {
        let Some(seq) = self.seq_of(point.tid) else { return Ok(()) };
        let fast = snapshot.filter(|_| self.has_fast_commits());
        let fast = fast.map(|snapshot| FastRequest { nr: point.nr, snapshot });
        self.commit_as(&Request { seq, handles: Handles::Ignore, fast }).map(drop)
    }

    /// The transaction number for `tid`; `None` when it is durable.
    pub(crate) fn seq_of(&self, tid: Tid) -> Option<Seq> {
        let durable = self.durable();
        let ahead = tid.0.wrapping_sub(self.tid_of(durable).0) as i32;
        (ahead > 0).then(|| durable + u64::from(ahead as u32))
    }

    /// Makes the changes of all stopped handles durable.
    pub(crate) fn commit_all(&self, handles: Handles) -> Result<Flushed> {
        let seq = self.state.lock().running.seq;
        self.commit_seq(seq, handles)
    }

    /// Returns when transaction `seq` is durable, and all before it. A transaction without changes
    /// is not committed; with [`Handles::Await`], that holds only if no handle is in it.
    pub(crate) fn commit_seq(&self, seq: Seq, handles: Handles) -> Result<Flushed> {
        self.commit_as(&Request { seq, handles, fast: None })
    }

    fn commit_as(&self, request: &Request<'_>) -> Result<Flushed> {
        let _mark = RankMark::enter(Rank::Handle);
        let flushed = match self.wait_or_lead(request)? {
            Role::Done(flushed) => return Ok(flushed),
            Role::Lead(flushed) => flushed,
        };
        let _leadership = Leadership { transactions: self, began: Instant::now() };
        let done = self.lead(request);
        done.map(|done| if done { flushed } else { Flushed::Earlier })
            .inspect_err(|error| self.abort(Some(error)))
    }

    /// Commits as the leader. Returns whether there were changes to commit.
    fn lead(&self, request: &Request<'_>) -> Result<bool> {
        if let Some(fast) = &request.fast {
            self.cache.refuse_if_aborted()?;
            match self.fast_commit(fast.snapshot)? {
                FastCommit::NeedsFull(why) => self.counts.full(why),
                FastCommit::Durable => return Ok(true),
            }
        }
        self.full_commit()
    }

    /// Waits until the request is fulfilled, or until this thread is the leader.
    fn wait_or_lead(&self, request: &Request<'_>) -> Result<Role> {
        let (seq, handles) = (request.seq, request.handles);
        let mut state = self.state.lock();
        // If the transaction is not closed yet, its commit flushes after this moment.
        let flushed = if seq >= state.running.seq { Flushed::Since } else { Flushed::Earlier };
        let mut counted = flushed == Flushed::Earlier;
        let mut patience = Patience::default();
        loop {
            if self.durable() >= seq || request.is_recorded(&state) {
                return Ok(Role::Done(flushed));
            }
            self.cache.refuse_if_aborted()?;
            let running = &state.running;
            let nothing = running.is_empty() && (handles == Handles::Ignore || running.is_idle());
            let wanted = if nothing { running.seq - 1 } else { running.seq };
            if self.durable() >= seq.min(wanted) {
                return Ok(Role::Done(Flushed::Earlier));
            }
            if !std::mem::replace(&mut counted, true) && state.gathering.join() {
                self.gathered.notify_all();
            }
            if !state.committing {
                break;
            }
            self.ended.wait_soon(&mut state, &mut patience);
        }
        state.committing = true;
        if handles == Handles::Ignore
            && let Some(time) = state.gathering.time_to_wait()
        {
            self.gathered.wait_for(&mut state, time);
        }
        Ok(Role::Lead(flushed))
    }
}
