//! A fast commit: what an fsync asks for becomes durable, and little more is written than changed.
//!
//! ```text
//!   who asks:   one leads, the others wait for it, as for a full commit; the two exclude each other
//!
//!   hold        no handle joins, the last one stops: nothing changes meanwhile
//!   fold, tell  notes ─► records, with inodes and maps as they are now       memory alone
//!   let go      handles join again, in the same transaction
//!   put         records ─► flush, where file data was written ─► TAIL         durable
//!   settle      the steps so far are told, waiters go on
//!
//!   not to be told │ no room │ no full commit yet ──► a full commit, by the same thread
//! ```
//!
//! Rule C1: it counts on top of the last full commit and is void with the next one. So it is written
//! only when the log's superblock says durably that the log is not empty and may have fast commits
//! behind it. Rule C3: what it tells is folded while no handle runs.

use crate::commit::point::ToldMark;
use crate::commit::running::Untold;
use crate::commit::transactions::Transactions;
use crate::records::changes::Snapshot;
use crate::records::fold::{Fold, Touched};
use crate::records::ineligible::Ineligible;
use crate::records::notes::{Read, in_order};
use crate::records::writer::RecordWriter;
use extant_base::Result;
use std::sync::atomic::Ordering;

impl Transactions {
    /// Whether fast commits are on.
    pub(crate) fn has_fast_commits(&self) -> bool {
        self.fast.is_some()
    }

    /// Makes all steps durable that have stopped, or says why that takes a full commit. The caller
    /// is who commits, and the running transaction has something in it.
    ///
    /// Errors: `Device`, `Aborted`; the caller gives up.
    pub(crate) fn fast_commit(&self, snapshot: &dyn Snapshot) -> Result<Option<Ineligible>> {
        let Some(fast) = &self.fast else { return Ok(Some(Ineligible::Feature)) };
        let (mut records, room, no_room) = {
            let mut fast = fast.lock();
            if !fast.open {
                return Ok(Some(Ineligible::First));
            }
            (std::mem::take(&mut fast.records), fast.sink.room(), fast.sink.full())
        };
        records.clear();
        // No lock of the journal's own is held here: the snapshot takes others.
        let (mark, told) = match self.hold() {
            Ok((mark, mut untold)) => {
                let mut told = tell(&mut untold, snapshot, &mut records, room);
                if told == Err(Ineligible::LogFull) {
                    told = Err(no_room);
                }
                self.let_go(untold, told.err());
                (mark, told)
            }
            Err(why) => (ToldMark::default(), Err(why)),
        };
        // A handle that was waited for may have given up in the middle of its step.
        self.cache.refuse_if_aborted()?;
        let mut fast = fast.lock();
        let done = match told {
            Err(why) => Ok(Some(why)),
            Ok(()) if records.is_empty() => Ok(None),
            Ok(()) => match fast.sink.put(self.tid_of(mark.seq), &records) {
                Ok(true) => Ok(None),
                Ok(false) => Ok(Some(no_room)),
                Err(error) => Err(error),
            },
        };
        let bytes = records.len() as u64;
        fast.records = records;
        drop(fast);
        if matches!(done, Ok(None)) {
            self.state.lock().told = mark;
            self.counts.fast_commits.fetch_add(u64::from(bytes > 0), Ordering::Relaxed);
            self.counts.fast_commit_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        done
    }

    /// Keeps handles out of the running transaction and waits for those in it, until
    /// [`Transactions::let_go`]. Takes what is to be told. Errors: nothing less than a full commit
    /// will do; nobody is kept out.
    fn hold(&self) -> std::result::Result<(ToldMark, Untold), Ineligible> {
        let mut state = self.state.lock();
        let full = |untold: &Option<Untold>| match untold {
            Some(untold) => untold.full,
            None => Some(Ineligible::Feature),
        };
        if let Some(why) = full(&state.running.untold) {
            return Err(why);
        }
        self.lock_running(&mut state);
        match state.running.untold.as_mut() {
            Some(untold) if untold.full.is_none() => {
                let untold = std::mem::take(untold);
                let nr = self.numbers.load(Ordering::Acquire);
                let mark = ToldMark { seq: state.running.seq, nr };
                state.gathering.close();
                Ok((mark, untold))
            }
            _ => {
                let why = full(&state.running.untold).unwrap_or(Ineligible::Unclear);
                self.unlock_running(&mut state);
                Err(why)
            }
        }
    }

    /// Lets handles in again. `untold` is what a fast commit leaves, or `full` says why there is
    /// none.
    fn let_go(&self, mut untold: Untold, full: Option<Ineligible>) {
        untold.notes.clear();
        if let Some(why) = full {
            untold.give_up(why);
        }
        let mut state = self.state.lock();
        state.running.untold = Some(untold);
        self.unlock_running(&mut state);
    }

    /// Before the first commit: no older life's fast commits are to be found behind it.
    pub(crate) fn begin_epochs(&self) -> Result<()> {
        let mut fast = self.fast.as_ref().map(|fast| fast.lock());
        match fast.as_mut().filter(|fast| !fast.open) {
            Some(fast) => fast.sink.new_epoch(),
            None => Ok(()),
        }
    }

    /// The running transaction's fast commits are void: it is committed in full, as the log says.
    pub(crate) fn end_epoch(&self) -> Result<()> {
        let Some(fast) = &self.fast else { return Ok(()) };
        let open = self.log.lock().is_open_to_fast_commits();
        let mut fast = fast.lock();
        fast.open = open;
        fast.sink.new_epoch()
    }
}

/// Puts what `untold` has noted into `records`, and keeps in it what stays hidden.
fn tell(
    untold: &mut Untold,
    snapshot: &dyn Snapshot,
    records: &mut Vec<u8>,
    room: usize,
) -> std::result::Result<(), Ineligible> {
    let inodes: Vec<Touched> = {
        let mut fold = Fold::new(&untold.hidden);
        for change in in_order(&untold.notes).into_iter().flat_map(Read) {
            fold.add(change)?;
        }
        RecordWriter::new(snapshot, records, room).tell(&fold)?;
        fold.inodes
    };
    Fold::settle(&inodes, &mut untold.hidden);
    Ok(())
}
