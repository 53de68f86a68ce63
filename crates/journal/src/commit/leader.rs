//! Which thread commits, and which threads wait for it.

use crate::cache::block::Seq;
use crate::commit::point::CommitPoint;
use crate::commit::transactions::{State, Transactions};
use crate::records::changes::Snapshot;
use extant_base::lock::{Patience, Rank, RankMark};
use extant_base::{Result, Tid};
use std::time::Instant;

/// Whether a commit is about what running handles are going to do, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handles {
    /// It is about what stopped handles did.
    Ignore,
    /// It is to make room.
    Await,
}

/// What a thread asks for.
struct Wish<'a> {
    /// This transaction, and all before it.
    seq: Seq,
    handles: Handles,
    /// Less than all of it will do.
    fast: Option<Fast<'a>>,
}

/// A wish for a fast commit.
struct Fast<'a> {
    /// The handle whose changes it is about.
    nr: u64,
    snapshot: &'a dyn Snapshot,
}

impl Wish<'_> {
    fn is_told(&self, state: &State) -> bool {
        self.fast.as_ref().is_some_and(|fast| state.told.covers(self.seq, fast.nr))
    }
}

/// Whether a commit's flush also made the file data durable that was written before the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flushed {
    /// It did.
    Since,
    /// It may have come before that data, or there was none.
    Earlier,
}

/// What a thread that wants a commit has to do.
enum Turn {
    /// Nothing: it is durable.
    Over(Flushed),
    /// To commit, and to let go of `State::committing` after it.
    Lead(Flushed),
}

/// Clears the leader's mark, and aborts when the leader panics.
struct Lead<'a> {
    transactions: &'a Transactions,
    began: Instant,
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.transactions.give_up(None);
        }
        let mut state = self.transactions.state.lock();
        state.committing = false;
        state.gathering.end(self.began.elapsed());
        self.transactions.ended.notify_all();
    }
}

impl Transactions {
    /// Returns when transaction `tid` is durable. No work when it is already, or changed nothing.
    pub(crate) fn commit(&self, tid: Tid) -> Result<Flushed> {
        match self.seq_of(tid) {
            Some(seq) => self.commit_seq(seq, Handles::Ignore),
            None => Ok(Flushed::Earlier),
        }
    }

    /// Returns when the changes of `step` are durable, by a fast commit where there is a `snapshot`
    /// to tell them by.
    pub(crate) fn commit_step(
        &self,
        step: CommitPoint,
        snapshot: Option<&dyn Snapshot>,
    ) -> Result<()> {
        let Some(seq) = self.seq_of(step.tid) else { return Ok(()) };
        let fast = snapshot.filter(|_| self.has_fast_commits());
        let fast = fast.map(|snapshot| Fast { nr: step.nr, snapshot });
        self.commit_as(&Wish { seq, handles: Handles::Ignore, fast }).map(drop)
    }

    /// The number of transaction `tid` among ours; `None` when it is durable.
    pub(crate) fn seq_of(&self, tid: Tid) -> Option<Seq> {
        let durable = self.durable();
        let ahead = tid.0.wrapping_sub(self.tid_of(durable).0) as i32;
        (ahead > 0).then(|| durable + u64::from(ahead as u32))
    }

    /// Makes everything durable that stopped handles have changed.
    pub(crate) fn commit_all(&self, handles: Handles) -> Result<Flushed> {
        let seq = self.state.lock().running.seq;
        self.commit_seq(seq, handles)
    }

    /// Returns when transaction `seq` is durable, and all before it. One that changed nothing so
    /// far is left alone; with [`Handles::Await`] only if no handle is in it.
    pub(crate) fn commit_seq(&self, seq: Seq, handles: Handles) -> Result<Flushed> {
        self.commit_as(&Wish { seq, handles, fast: None })
    }

    fn commit_as(&self, wish: &Wish<'_>) -> Result<Flushed> {
        let _mark = RankMark::enter(Rank::Handle);
        let flushed = match self.wait_or_lead(wish)? {
            Turn::Over(flushed) => return Ok(flushed),
            Turn::Lead(flushed) => flushed,
        };
        let _lead = Lead { transactions: self, began: Instant::now() };
        let done = self.lead(wish);
        done.map(|done| if done { flushed } else { Flushed::Earlier })
            .inspect_err(|error| self.give_up(Some(error)))
    }

    /// Commits, as the only one; whether anything was to be committed.
    fn lead(&self, wish: &Wish<'_>) -> Result<bool> {
        if let Some(fast) = &wish.fast {
            self.cache.refuse_if_aborted()?;
            match self.fast_commit(fast.snapshot)? {
                Some(why) => self.counts.full(why),
                None => return Ok(true),
            }
        }
        self.full_commit()
    }

    /// Waits until what `wish` asks for is durable, or until this thread is the one that commits
    /// it.
    fn wait_or_lead(&self, wish: &Wish<'_>) -> Result<Turn> {
        let (seq, handles) = (wish.seq, wish.handles);
        let mut state = self.state.lock();
        // Whoever closes it from now on flushes after that.
        let flushed = if seq >= state.running.seq { Flushed::Since } else { Flushed::Earlier };
        let mut counted = flushed == Flushed::Earlier;
        let mut patience = Patience::default();
        loop {
            if self.durable() >= seq || wish.is_told(&state) {
                return Ok(Turn::Over(flushed));
            }
            self.cache.refuse_if_aborted()?;
            let running = &state.running;
            let nothing = running.is_empty() && (handles == Handles::Ignore || running.is_idle());
            let wanted = if nothing { running.seq - 1 } else { running.seq };
            if self.durable() >= seq.min(wanted) {
                return Ok(Turn::Over(Flushed::Earlier));
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
        Ok(Turn::Lead(flushed))
    }
}
