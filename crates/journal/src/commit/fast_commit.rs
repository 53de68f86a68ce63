//! A fast commit: makes the changes of an fsync durable, and writes little more than what changed.
//!
//! ```text
//!   leader      one thread commits, others wait for it; full and fast commits exclude each other
//!
//!   take        no handle starts, the running ones stop: no metadata changes meanwhile
//!   fold        notes ─► records, with inodes and maps as they are now       in memory
//!   return      handles start again, in the same transaction
//!   put         records ─► flush, if file data was written ─► TAIL            durable
//!   mark        all handles up to here are recorded, waiters continue
//!
//!   cannot be recorded │ does not fit │ no full commit yet ──► a full commit, by the same thread
//! ```
//!
//! Rule C1: a fast commit adds to the last full commit and is void after the next one. So it is
//! written only while the log's superblock durably says that the log is not empty and may have fast
//! commits after it.
//!
//! Rule C3: its changes are folded while no handle runs.

use crate::commit::point::RecordedMark;
use crate::commit::running::PendingRecords;
use crate::commit::transactions::Transactions;
use crate::records::changes::Snapshot;
use crate::records::fold::{Fold, FoldedInode};
use crate::records::ineligible::Ineligible;
use crate::records::notes::{Read, in_order};
use crate::records::writer::RecordWriter;
use extant_base::Result;
use std::sync::atomic::Ordering;

/// The result of a fast commit.
pub(super) enum FastCommit {
    /// The changes are durable.
    Durable,
    /// Nothing was written: a full commit is needed.
    NeedsFull(Ineligible),
}

impl Transactions {
    /// Whether the journal writes fast commits.
    pub(crate) fn has_fast_commits(&self) -> bool {
        self.fast.is_some()
    }

    /// Makes the changes of all handles durable that have stopped, if records can describe them.
    /// The caller is the leader, and the running transaction is not empty.
    ///
    /// Errors: `Device`, `Aborted`; the caller aborts the journal.
    pub(super) fn fast_commit(&self, snapshot: &dyn Snapshot) -> Result<FastCommit> {
        let Some(fast) = &self.fast else { return Ok(FastCommit::NeedsFull(Ineligible::Feature)) };
        let (mut records, capacity, area_full) = {
            let mut fast = fast.lock();
            if !fast.open {
                return Ok(FastCommit::NeedsFull(Ineligible::First));
            }
            (std::mem::take(&mut fast.records), fast.sink.capacity(), fast.sink.full_reason())
        };
        records.clear();
        // No lock of the journal is held here, because the snapshot takes others.
        let (mark, folded) = match self.take_pending() {
            Ok((mark, mut pending)) => {
                let mut folded = write_records(&mut pending, snapshot, &mut records, capacity);
                if folded == Err(Ineligible::LogFull) {
                    folded = Err(area_full);
                }
                self.return_pending(pending, folded.err());
                (mark, folded)
            }
            Err(why) => (RecordedMark::default(), Err(why)),
        };
        // A handle may have aborted the journal before its changes were complete.
        self.cache.refuse_if_aborted()?;
        let mut fast = fast.lock();
        let done = match folded {
            Err(why) => Ok(FastCommit::NeedsFull(why)),
            Ok(()) if records.is_empty() => Ok(FastCommit::Durable),
            Ok(()) => match fast.sink.put(self.tid_of(mark.seq), &records) {
                Ok(true) => Ok(FastCommit::Durable),
                Ok(false) => Ok(FastCommit::NeedsFull(area_full)),
                Err(error) => Err(error),
            },
        };
        let bytes = records.len() as u64;
        fast.records = records;
        drop(fast);
        if matches!(done, Ok(FastCommit::Durable)) {
            self.state.lock().recorded = mark;
            self.counts.fast_commits.fetch_add(u64::from(bytes > 0), Ordering::Relaxed);
            self.counts.fast_commit_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        done
    }

    /// Locks the running transaction until [`Transactions::return_pending`], and takes its pending
    /// records. Errors: why a full commit is needed; the transaction is not locked then.
    fn take_pending(&self) -> std::result::Result<(RecordedMark, PendingRecords), Ineligible> {
        let mut state = self.state.lock();
        let full = |pending: &Option<PendingRecords>| match pending {
            Some(pending) => pending.full,
            None => Some(Ineligible::Feature),
        };
        if let Some(why) = full(&state.running.pending) {
            return Err(why);
        }
        self.lock_running(&mut state);
        match state.running.pending.as_mut() {
            Some(pending) if pending.full.is_none() => {
                let pending = std::mem::take(pending);
                let nr = self.numbers.load(Ordering::Acquire);
                let mark = RecordedMark { seq: state.running.seq, nr };
                state.gathering.close();
                Ok((mark, pending))
            }
            _ => {
                let why = full(&state.running.pending).unwrap_or(Ineligible::Unclear);
                self.unlock_running(&mut state);
                Err(why)
            }
        }
    }

    /// Unlocks the running transaction and gives it `pending`, which a fast commit has used. `full`
    /// is the reason if a full commit is needed instead.
    fn return_pending(&self, mut pending: PendingRecords, full: Option<Ineligible>) {
        pending.notes.clear();
        if let Some(why) = full {
            pending.require_full_commit(why);
        }
        let mut state = self.state.lock();
        state.running.pending = Some(pending);
        self.unlock_running(&mut state);
    }

    /// Before the first commit: removes fast commits of an earlier session.
    pub(crate) fn begin_epochs(&self) -> Result<()> {
        let mut fast = self.fast.as_ref().map(|fast| fast.lock());
        match fast.as_mut().filter(|fast| !fast.open) {
            Some(fast) => fast.sink.new_epoch(),
            None => Ok(()),
        }
    }

    /// After a full commit: the fast commits of its transaction are void.
    pub(crate) fn end_epoch(&self) -> Result<()> {
        let Some(fast) = &self.fast else { return Ok(()) };
        let open = self.log.lock().allows_fast_commits();
        let mut fast = fast.lock();
        fast.open = open;
        fast.sink.new_epoch()
    }
}

/// Writes the changes of `pending` to `records`, and updates its hidden inodes.
fn write_records(
    pending: &mut PendingRecords,
    snapshot: &dyn Snapshot,
    records: &mut Vec<u8>,
    capacity: usize,
) -> std::result::Result<(), Ineligible> {
    let inodes: Vec<FoldedInode> = {
        let mut fold = Fold::new(&pending.hidden);
        for change in in_order(&pending.notes).into_iter().flat_map(Read) {
            fold.add(change)?;
        }
        RecordWriter::new(snapshot, records, capacity).write(&fold)?;
        fold.inodes
    };
    Fold::update_hidden(&inodes, &mut pending.hidden);
    Ok(())
}
