//! A handle: the permission to change metadata, as one step that is whole or absent.
//!
//! ```text
//!   start(credits) ──► Handle ──► MetaBlock::write(&handle) ──► MetaMut … dropped ──► stop()
//!                        │                                                              ▲
//!                        └── restart(credits): what was done so far may commit alone ───┘
//! ```
//!
//! Rule J10: a handle keeps what it changed to itself and hands it to the transaction when it stops: the
//! transaction cannot close before.

use crate::block::{Block, Content, Join, Seq};
use crate::changes::{Change, CommitPoint};
use crate::journal::Journal;
use crate::notes::Notes;
use extant_base::lock::{Rank, RankMark};
use extant_base::{BlockNr, Error, Result, Tid};
use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::sync::Arc;

thread_local! {
    static HAS_HANDLE: Cell<bool> = const { Cell::new(false) };
}

/// How much a handle may change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Credits {
    /// Metadata blocks that may be dirtied, each counted once.
    pub blocks: u32,
    /// Metadata blocks that may be freed.
    pub revokes: u32,
}

impl Credits {
    /// Room for `blocks` changed blocks and no freed ones.
    pub const fn blocks(blocks: u32) -> Credits {
        Credits { blocks, revokes: 0 }
    }

    /// These and `more`.
    pub const fn plus(self, more: Credits) -> Credits {
        Credits {
            blocks: self.blocks.saturating_add(more.blocks),
            revokes: self.revokes.saturating_add(more.revokes),
        }
    }
}

/// What a handle did, for its transaction.
#[derive(Default)]
pub(crate) struct Done {
    /// Blocks that it was the first to change in this transaction.
    pub(crate) joined: Vec<Arc<Block>>,
    /// Blocks that it freed.
    pub(crate) revoked: Vec<BlockNr>,
    /// Of those, what was cached: their older copies count until the transaction is durable.
    pub(crate) forgotten: Vec<Arc<Block>>,
    /// It changed a block that another handle of the transaction had changed before.
    pub(crate) again: bool,
    /// What its changes mean.
    pub(crate) notes: Notes,
}

impl Done {
    /// Whether it changed metadata at all.
    pub(crate) fn has_changed(&self) -> bool {
        self.again || !(self.joined.is_empty() && self.revoked.is_empty())
    }
}

/// A handle's place in a transaction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    /// The transaction; 0 without a log.
    pub(crate) seq: Seq,
    /// Its number there.
    pub(crate) nr: u64,
    /// Where its notes come among those of others.
    pub(crate) order: u64,
    /// Its notes are of use.
    pub(crate) keeps_notes: bool,
}

/// Permission to change a block. Dropping it stops it; a panic that drops it aborts the journal,
/// because what was changed may be half a step.
///
/// It belongs to the thread that started it.
pub struct Handle<'j> {
    journal: &'j Journal,
    credits: Cell<Credits>,
    place: Cell<Place>,
    done: RefCell<Done>,
    /// Its changes are the transaction's already.
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

/// Keeps a thread from starting a handle inside another.
struct HeldByThread(PhantomData<*const ()>);

impl HeldByThread {
    #[track_caller]
    fn enter() -> HeldByThread {
        assert!(!HAS_HANDLE.replace(true), "a handle is started inside another one");
        HeldByThread(PhantomData)
    }
}

impl Drop for HeldByThread {
    fn drop(&mut self) {
        HAS_HANDLE.set(false);
    }
}

/// Panics when this thread has a handle: what it is about to do waits for handles to stop.
#[track_caller]
pub(crate) fn assert_no_handle() {
    assert!(!HAS_HANDLE.get(), "a commit is waited for inside a handle that it waits for");
}

/// Counts every block that a handle changes, also one that the transaction had before: the next
/// time it may be the first.
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

impl<'j> Handle<'j> {
    #[track_caller]
    pub(crate) fn begin(journal: &'j Journal, credits: Credits) -> Result<Handle<'j>> {
        let (held, mark) = (HeldByThread::enter(), RankMark::enter(Rank::Handle));
        let place = match journal.transactions() {
            Some(transactions) => transactions.start(credits)?,
            None => Place::default(),
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

    /// The journal this handle changes blocks under.
    pub fn journal(&self) -> &'j Journal {
        self.journal
    }

    /// What this handle reserved, extensions included.
    pub fn credits(&self) -> Credits {
        self.credits.get()
    }

    /// What is left of it: at least that many blocks can still be changed and freed.
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
    /// Errors: as [`Handle::extend`].
    pub fn ensure(&self, credits: Credits) -> Result<bool> {
        let left = self.left();
        let more = Credits {
            blocks: credits.blocks.saturating_sub(left.blocks),
            revokes: credits.revokes.saturating_sub(left.revokes),
        };
        if more == Credits::default() { Ok(true) } else { self.extend(more) }
    }

    /// The transaction that makes this handle's changes durable. Another one, maybe, after
    /// [`Handle::restart`]. Without a log always 0.
    pub fn tid(&self) -> Tid {
        match self.journal.transactions() {
            Some(transactions) => transactions.tid_of(self.seq()),
            None => Tid(0),
        }
    }

    /// This handle's place among all: what its changes are durable with. Another one after
    /// [`Handle::restart`].
    pub fn step(&self) -> CommitPoint {
        CommitPoint { tid: self.tid(), nr: self.place.get().nr }
    }

    /// Says what was changed, so that a fast commit can tell it. Costs next to nothing where none
    /// is going to.
    #[inline]
    pub fn note(&self, change: Change<'_>) {
        if self.place.get().keeps_notes {
            self.note_down(change);
        }
    }

    fn note_down(&self, change: Change<'_>) {
        if matches!(change, Change::Made(_) | Change::Gone(_))
            && let Some(transactions) = self.journal.transactions()
        {
            // Another handle may take the number that this one frees, whichever started first.
            let order = transactions.next_nr();
            self.place.set(Place { order, ..self.place.get() });
        }
        self.done.borrow_mut().notes.push(change);
    }

    #[inline]
    fn seq(&self) -> Seq {
        self.place.get().seq
    }

    /// Tries to reserve more without waiting. `false`: there is no room in the running
    /// transaction; make the state on disk consistent and [`Handle::restart`].
    ///
    /// Errors: `Aborted`; `TransactionTooLarge` where everything is one transaction.
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

    /// Lets what was done so far commit, and goes on with fresh `credits`.
    ///
    /// The state on disk must be consistent here (a truncation has its orphan record). Can wait:
    /// no lock above `Rank::Handle` may be held. Errors: `Aborted`, `Device`;
    /// `TransactionTooLarge` where everything is one transaction. After an error the handle can
    /// only be stopped.
    pub fn restart(&mut self, credits: Credits) -> Result<()> {
        let Some(transactions) = self.journal.transactions() else {
            self.journal.cache().refuse_if_aborted()?;
            self.journal.cache().relieve()?;
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

    /// The metadata block `nr` is freed: its content is dropped, and no copy of it in the log is
    /// brought home once this handle's transaction has committed. Waits for a write of it that is
    /// on its way.
    ///
    /// Rule J6: call it before the block can be allocated anew; until the transaction is durable
    /// ([`Journal::is_durable`]) nothing else may be written there.
    pub fn forget(&self, nr: BlockNr) {
        let gone = self.journal.cache().take_out(nr, self.seq());
        if self.has_log() {
            let mut done = self.done.borrow_mut();
            done.revoked.push(nr);
            done.forgotten.extend(gone);
        }
    }

    /// Ends the change. Errors: `Aborted` when the journal gave up meanwhile.
    pub fn stop(self) -> Result<()> {
        self.journal.cache().refuse_if_aborted()
    }

    /// Whether a transaction stands behind the handle.
    #[inline]
    pub(crate) fn has_log(&self) -> bool {
        !self.journal.is_off()
    }

    /// `ReadOnly` after a restart that found the journal closed: the handle is in no transaction.
    #[inline]
    pub(crate) fn refuse_if_stopped(&self) -> Result<()> {
        if self.stopped.get() && self.has_log() { Err(Error::ReadOnly) } else { Ok(()) }
    }

    /// Makes a block part of this handle's transaction. The caller holds its byte lock
    /// exclusively.
    #[inline]
    pub(crate) fn join(&self, block: &Arc<Block>, content: &mut Content) {
        let join = block.join(content, self.seq());
        #[cfg(debug_assertions)]
        if join != Join::Gone {
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
            Join::Gone => {}
        }
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        if self.stopped.get() {
            return;
        }
        let transactions = self.journal.transactions().expect("a handle with a number has a log");
        if std::thread::panicking() {
            transactions.give_up(None);
        }
        transactions.stop(self.credits.get(), self.place.get(), self.done.get_mut());
    }
}
