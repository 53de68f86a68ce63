//! A commit: the running transaction becomes durable.
//!
//! ```text
//!   who asks:   one leads, the others wait for it; those who come during it share the next one
//!
//!   close_running   no handle joins, the last one stops, the next transaction opens
//!   announce        superblock: the log is not empty, features it needs; no fast commits
//!                   of an older life behind it                                   first time only
//!   log_revokes     │revoke│
//!   log_copies      │revoke│descriptor│copies …│            one write where it fits
//!   seal            flush ─► │commit block│ flush                durable
//!   settle          blocks may go home, waiters go on
//! ```
//!
//! Rule J1: every block that a commit block closes is durable before it. A failure anywhere
//! aborts: a later commit must not make this one's blocks look whole.

use crate::cache::block::{Block, Seq};
use crate::cache::homeward::HomeList;
use crate::cache::write_out::Share;
use crate::commit::checkpoint::is_same_device;
use crate::commit::running::Running;
use crate::commit::transactions::{State, Transactions};
use crate::log::space::Placed;
use crate::log::stream::LogStream;
use crate::records::changes::{CommitPoint, Snapshot};
use extant_base::lock::{Patience, Rank, RankMark};
use extant_base::{BlockNr, Error, Result, Tid};
use extant_ondisk::jbd2::commit::TransactionCrc;
use extant_ondisk::jbd2::{Commit, DescriptorWriter, RevokeWriter, header};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// A closed transaction on its way into the log.
struct Closing {
    seq: Seq,
    tid: Tid,
    /// To be copied, in device order.
    blocks: Vec<Arc<Block>>,
    /// Ascending, without those that were taken into use again.
    revoked: Vec<BlockNr>,
    /// Freed blocks whose older copies nobody needs once this is durable.
    forgotten: Vec<Arc<Block>>,
}

impl Closing {
    fn of(running: Running, tid: Tid) -> Closing {
        let Running { seq, mut blocks, mut revoked, forgotten, .. } = running;
        blocks.retain(|block| !block.was_forgotten_in(seq));
        blocks.sort_unstable_by_key(|block| block.nr);
        revoked.sort_unstable();
        revoked.dedup();
        // Rule J7: a revoke hides this transaction's own copy too: freed and used again is not revoked.
        revoked.retain(|nr| blocks.binary_search_by_key(nr, |block| block.nr).is_err());
        Closing { seq, tid, blocks, revoked, forgotten }
    }
}

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
        let Some(running) = self.close_running() else { return Ok(false) };
        let tid = self.tid_of(running.seq);
        let closing = Closing::of(running, tid);
        let (start, len) = self.write_transaction(&closing)?;
        self.settle(closing, start, len);
        self.counts.commits.fetch_add(1, Ordering::Relaxed);
        self.end_epoch()?;
        Ok(true)
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

    /// Writes `closing` to the log and makes it durable; its first block and how many it has.
    fn write_transaction(&self, closing: &Closing) -> Result<(u32, u32)> {
        self.cache.refuse_if_aborted()?;
        let needed = self.area.needed(closing.blocks.len() as u64, closing.revoked.len() as u64);
        self.find_space(needed)?;
        let start = self.state.lock().space.head;
        self.log.lock().announce(start, closing.tid, !closing.revoked.is_empty())?;
        self.begin_epochs()?;
        let mut buffer = self.buffer.lock();
        let mut stream = LogStream::new(&self.area, &mut buffer, start);
        self.log_revokes(closing, &mut stream)?;
        self.log_copies(closing, &mut stream)?;
        let at = stream.write_out()?;
        let len = stream.blocks + 1;
        self.seal(closing.tid, at)?;
        Ok((start, len))
    }

    /// What changed more than it promised may need more of the log than was kept for it.
    fn find_space(&self, needed: u64) -> Result<()> {
        if needed <= self.state.lock().space.free() {
            return Ok(());
        }
        self.checkpoint(Share::UpTo(Seq::MAX))?;
        let limit = self.state.lock().space.free();
        if needed > limit { Err(Error::TransactionTooLarge { needed, limit }) } else { Ok(()) }
    }

    /// Revokes go before the commit block: replay trusts only what a commit block closes.
    fn log_revokes(&self, closing: &Closing, stream: &mut LogStream<'_>) -> Result<()> {
        let format = self.area.format;
        for revoked in closing.revoked.chunks(format.revokes_per_block()) {
            let mut writer = RevokeWriter::new(stream.take(1)?, format, closing.tid);
            for nr in revoked {
                let fits = writer.push(*nr);
                assert!(fits, "a revoke block holds as many records as its format says");
            }
            writer.finish();
        }
        Ok(())
    }

    fn log_copies(&self, closing: &Closing, stream: &mut LogStream<'_>) -> Result<()> {
        let format = self.area.format;
        let size = format.block_size.bytes();
        for blocks in closing.blocks.chunks(self.area.copies_per_descriptor()) {
            let (descriptor, copies) = stream.take(1 + blocks.len())?.split_at_mut(size);
            let mut writer = DescriptorWriter::new(descriptor, format, closing.tid);
            for (block, copy) in blocks.iter().zip(copies.chunks_exact_mut(size)) {
                block.copy_for_log(closing.seq, copy);
                let escape = header::needs_escape(copy);
                if escape {
                    header::escape(copy);
                }
                let sum = if format.has_tail() { format.copy_sum(closing.tid, copy) } else { 0 };
                let fits = writer.push(block.nr, escape, sum);
                assert!(fits, "a descriptor holds as many tags as its format says");
            }
            writer.finish();
        }
        Ok(())
    }

    /// Makes everything before it durable, then the commit block.
    fn seal(&self, tid: Tid, at: u32) -> Result<()> {
        // File data went to the volume's device, the copies to the log's.
        if !is_same_device(self.cache.device(), self.area.device()) {
            self.cache.device().flush()?;
        }
        self.area.device().flush()?;
        let mut block = extant_blockdev::AlignedBuf::zeroed(self.area.format.block_size.bytes());
        let now = (self.clock)();
        Commit::write(&mut block, &self.area.format, tid, now, TransactionCrc::default());
        self.area.write_fua(at, &block)
    }

    /// Lets the blocks of a durable transaction go home, and its waiters go on.
    fn settle(&self, closing: Closing, start: u32, len: u32) {
        for block in &closing.blocks {
            if block.set_logged(closing.seq) {
                self.cache.add_dirty_bytes();
            }
        }
        for block in &closing.forgotten {
            block.release_logged();
        }
        let list = HomeList { seq: closing.seq, blocks: closing.blocks };
        let mut state = self.state.lock();
        let head = self.area.cycle.after(start, len);
        state.space.place(Placed { seq: closing.seq, start, len }, head);
        // After the place in the log is noted: until then nobody may count it as given back. Before
        // waiters go on: who closes the journal brings home what is listed.
        self.cache.homeward.lock().push(list);
        self.durable.store(closing.seq, Ordering::Release);
        let short = state.space.unreserved() < u64::from(self.area.cycle.len()) / 2;
        drop(state);
        if short || self.cache.is_half_dirty() {
            self.signal.ask_for_checkpoint();
        }
    }
}
