//! A handle: permission to change metadata. Its changes are one unit that is whole or absent.
//!
//! ```text
//!   start(credits) ──► Handle ──► MetaBlock::write(&handle) ──► MetaMut … dropped ──► stop()
//!                        │                                                              ▲
//!                        └── restart(credits): what was done so far may commit alone ───┘
//! ```
//!
//! Rule J10: a handle collects its changes and adds them to the transaction when it stops. The
//! transaction cannot close before all its handles have stopped.

use crate::cache::block::{Block, Content, Join, Seq};
use crate::commit::contribution::{Credits, HandleChanges, HandlePosition};
use crate::commit::one_handle::HeldByThread;
use crate::commit::point::CommitPoint;
use crate::journal::Journal;
use crate::records::changes::Change;
use extant_base::lock::{Rank, RankMark};
use extant_base::{BlockNr, Error, Result, Tid};
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// Permission to change blocks. Dropping it stops it. A panic that drops it aborts the journal,
/// because its changes may be incomplete.
///
/// It belongs to the thread that started it.
pub struct Handle<'j> {
    journal: &'j Journal,
    credits: Cell<Credits>,
    place: Cell<HandlePosition>,
    done: RefCell<HandleChanges>,
    /// Its changes were added to the transaction.
    stopped: Cell<bool>,
    #[cfg(debug_assertions)]
    audit: Audit,
    _held: HeldByThread,
    _mark: RankMark,
}

impl std::fmt::Debug for Handle<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle").finish_non_exhaustive()
    }
}

/// Counts every block that a handle changes, even one that the transaction had before: in the next
/// run this handle may be the first to change it.
#[cfg(debug_assertions)]
struct Audit {
    /// Where the handle was started.
    place: &'static std::panic::Location<'static>,
    touched: RefCell<std::collections::HashSet<BlockNr>>,
}

#[cfg(debug_assertions)]
impl Audit {
    fn count(&self, nr: BlockNr, credits: u32) {
        let mut touched = self.touched.borrow_mut();
        touched.insert(nr);
        assert!(
            touched.len() <= credits as usize,
            "the handle started at {} has {credits} credits and changes {} blocks",
            self.place,
            touched.len()
        );
    }
}

impl Journal {
    /// Starts a change that may dirty `credits.blocks` metadata blocks and revoke
    /// `credits.revokes`.
    ///
    /// The call may wait for log space or for a commit, so it comes before any lock above
    /// `Rank::Handle`. A thread has one handle at a time: a nested start is a bug and panics.
    ///
    /// # Errors
    /// `Aborted` after a failed write; `Device` when a write or flush fails that this call makes to
    /// free memory or log space; `TransactionTooLarge`; `ReadOnly` after [`Journal::close`].
    #[track_caller]
    pub fn start(&self, credits: Credits) -> Result<Handle<'_>> {
        self.cache()
            .refuse_if_aborted()
            .and_then(|()| self.cache().limit_dirty())
            .inspect_err(|_| self.record_abort())?;
        Handle::begin(self, credits)
    }
}

impl<'j> Handle<'j> {
    #[track_caller]
    fn begin(journal: &'j Journal, credits: Credits) -> Result<Handle<'j>> {
        let (held, mark) = (HeldByThread::enter(), RankMark::enter(Rank::Handle));
        let place = match journal.transactions() {
            Some(transactions) => transactions.start(credits)?,
            None => HandlePosition::default(),
        };
        Ok(Handle {
            journal,
            credits: Cell::new(credits),
            place: Cell::new(place),
            done: RefCell::default(),
            stopped: Cell::new(place.seq == 0),
            #[cfg(debug_assertions)]
            audit: Audit { place: std::panic::Location::caller(), touched: RefCell::default() },
            _held: held,
            _mark: mark,
        })
    }

    /// The journal that this handle belongs to.
    pub fn journal(&self) -> &'j Journal {
        self.journal
    }

    /// The credits that this handle reserved, extensions included.
    pub fn credits(&self) -> Credits {
        self.credits.get()
    }

    /// The credits that are left: at least that many blocks can still be changed and freed.
    pub fn left(&self) -> Credits {
        let Credits { blocks, revokes } = self.credits.get();
        let done = self.done.borrow();
        #[cfg(debug_assertions)]
        let changed = self.audit.touched.borrow().len();
        #[cfg(not(debug_assertions))]
        let changed = done.joined.len();
        Credits {
            blocks: blocks.saturating_sub(u32::try_from(changed).unwrap_or(u32::MAX)),
            revokes: revokes.saturating_sub(u32::try_from(done.revoked.len()).unwrap_or(u32::MAX)),
        }
    }

    /// Makes sure that at least `credits` are left, as [`Handle::extend`] does.
    ///
    /// # Errors
    /// As [`Handle::extend`].
    pub fn ensure(&self, credits: Credits) -> Result<bool> {
        let left = self.left();
        let more = Credits {
            blocks: credits.blocks.saturating_sub(left.blocks),
            revokes: credits.revokes.saturating_sub(left.revokes),
        };
        if more == Credits::default() { Ok(true) } else { self.extend(more) }
    }

    /// The transaction that makes this handle's changes durable. [`Handle::restart`] may change it.
    /// Without a log always 0.
    pub fn tid(&self) -> Tid {
        match self.journal.transactions() {
            Some(transactions) => transactions.tid_of(self.seq()),
            None => Tid(0),
        }
    }

    /// The commit point of this handle: its changes are durable when that is. [`Handle::restart`]
    /// changes it.
    pub fn commit_point(&self) -> CommitPoint {
        CommitPoint { tid: self.tid(), nr: self.place.get().nr }
    }

    /// Notes a change for fast commits. Nearly free when no fast commit can use it.
    #[inline]
    pub fn note(&self, change: Change<'_>) {
        if self.place.get().keeps_notes {
            self.note_down(change);
        }
    }

    fn note_down(&self, change: Change<'_>) {
        if matches!(change, Change::InodeAllocated(_) | Change::InodeFreed(_))
            && let Some(transactions) = self.journal.transactions()
        {
            // A handle that started earlier may yet take the number that this one frees, or the
            // reverse.
            let order = transactions.next_nr();
            self.place.set(HandlePosition { order, ..self.place.get() });
        }
        self.done.borrow_mut().notes.push(change);
    }

    #[inline]
    fn seq(&self) -> Seq {
        self.place.get().seq
    }

    /// Tries to reserve more credits without waiting. `false`: the running transaction has no space
    /// for them; make the state on disk consistent and call [`Handle::restart`].
    ///
    /// # Errors
    /// `Aborted`; `TransactionTooLarge` under
    /// [`JournalOptions::one_transaction`](crate::JournalOptions::one_transaction).
    pub fn extend(&self, more: Credits) -> Result<bool> {
        self.journal.cache().refuse_if_aborted()?;
        if let Some(transactions) = self.journal.transactions()
            && !transactions.extend(more)?
        {
            return Ok(false);
        }
        self.credits.set(self.credits.get().plus(more));
        Ok(true)
    }

    /// Lets the changes so far commit on their own, and continues with new `credits`.
    ///
    /// The state on disk must be consistent at this point: a truncation, for example, has its
    /// orphan record. The call may wait, so the caller holds no lock above `Rank::Handle`.
    ///
    /// # Errors
    /// `Aborted`, `Device`; `TransactionTooLarge` under
    /// [`JournalOptions::one_transaction`](crate::JournalOptions::one_transaction). After an error
    /// the handle can only be stopped.
    pub fn restart(&mut self, credits: Credits) -> Result<()> {
        let Some(transactions) = self.journal.transactions() else {
            self.journal.cache().refuse_if_aborted()?;
            self.journal.cache().limit_dirty()?;
            self.credits.set(credits);
            return Ok(());
        };
        let before = self.credits.replace(Credits::default());
        if transactions.is_one() {
            transactions.renew(before, self.place.get(), self.done.get_mut(), credits)?;
        } else {
            transactions.check_size(credits).inspect_err(|_| self.credits.set(before))?;
            transactions.stop(before, self.place.get(), self.done.get_mut());
            self.stopped.set(true);
            self.place.set(transactions.start(credits)?);
            self.stopped.set(false);
        }
        self.credits.set(credits);
        #[cfg(debug_assertions)]
        self.audit.touched.borrow_mut().clear();
        Ok(())
    }

    /// Frees the metadata block `nr`: its content is dropped. Once this handle's transaction has
    /// committed, recovery does not write older copies of the block home. Waits for a write of the
    /// block that is in flight.
    ///
    /// Rule J6: call this before the block can be allocated again. Until the transaction is durable
    /// ([`Journal::is_durable`]) nothing else may be written to the block.
    pub fn forget(&self, nr: BlockNr) {
        let gone = self.journal.cache().remove_freed(nr, self.seq());
        if self.has_log() {
            let mut done = self.done.borrow_mut();
            done.revoked.push(nr);
            done.forgotten.extend(gone);
        }
    }

    /// Ends the change.
    ///
    /// # Errors
    /// `Aborted` when the journal was aborted meanwhile.
    pub fn stop(self) -> Result<()> {
        self.journal.cache().refuse_if_aborted()
    }

    /// Whether the handle belongs to a transaction.
    #[inline]
    pub(crate) fn has_log(&self) -> bool {
        !self.journal.is_off()
    }

    /// `ReadOnly` after a restart that found the journal closed: the handle is in no transaction.
    #[inline]
    pub(crate) fn refuse_if_stopped(&self) -> Result<()> {
        if self.stopped.get() && self.has_log() { Err(Error::ReadOnly) } else { Ok(()) }
    }

    /// Makes a block part of this handle's transaction. The caller holds its byte lock exclusively.
    #[inline]
    pub(crate) fn join(&self, block: &Arc<Block>, content: &mut Content) {
        let join = block.join(content, self.seq());
        #[cfg(debug_assertions)]
        if join != Join::Freed {
            self.audit.count(block.nr, self.credits.get().blocks);
        }
        match join {
            Join::New { was_dirty } => {
                if was_dirty {
                    self.journal.cache().sub_dirty_bytes();
                }
                self.done.borrow_mut().joined.push(Arc::clone(block));
            }
            Join::Again => self.done.borrow_mut().again = true,
            Join::Freed => {}
        }
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        if self.stopped.get() {
            return;
        }
        let transactions =
            self.journal.transactions().expect("a handle that is in a transaction has a log");
        if std::thread::panicking() {
            transactions.abort(None);
        }
        transactions.stop(self.credits.get(), self.place.get(), self.done.get_mut());
    }
}
