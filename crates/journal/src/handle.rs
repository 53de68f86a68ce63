//! A handle: the permission to change metadata, as one step that is whole or absent.
//!
//! ```text
//!   start(credits) ──► Handle ──► MetaBlock::write(&handle) ──► MetaMut … dropped ──► stop()
//!                        │                                                              ▲
//!                        └── restart(credits): what was done so far may commit alone ───┘
//! ```

use crate::journal::Journal;
use extant_base::lock::{Rank, RankMark};
use extant_base::{BlockNr, Result};
use std::cell::Cell;
use std::marker::PhantomData;

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
}

/// Permission to change metadata. Dropping it stops it.
///
/// It belongs to the thread that started it.
pub struct Handle<'j> {
    journal: &'j Journal,
    credits: Cell<Credits>,
    _held: HeldByThread,
    _mark: RankMark,
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

impl<'j> Handle<'j> {
    #[track_caller]
    pub(crate) fn begin(journal: &'j Journal, credits: Credits) -> Handle<'j> {
        Handle {
            journal,
            credits: Cell::new(credits),
            _held: HeldByThread::enter(),
            _mark: RankMark::enter(Rank::Handle),
        }
    }

    /// The journal this handle changes blocks under.
    pub fn journal(&self) -> &'j Journal {
        self.journal
    }

    /// What this handle reserved, extensions included.
    pub fn credits(&self) -> Credits {
        self.credits.get()
    }

    /// Tries to reserve more without waiting. `false`: there is no room in the running
    /// transaction; make the state on disk consistent and [`Handle::restart`].
    pub fn extend(&self, more: Credits) -> Result<bool> {
        self.journal.cache().refuse_if_aborted()?;
        let now = self.credits.get();
        self.credits.set(Credits {
            blocks: now.blocks.saturating_add(more.blocks),
            revokes: now.revokes.saturating_add(more.revokes),
        });
        Ok(true)
    }

    /// Lets what was done so far commit, and goes on with fresh `credits`.
    ///
    /// The state on disk must be consistent here (a truncation has its orphan record). Can wait:
    /// no lock above `Rank::Handle` may be held.
    pub fn restart(&mut self, credits: Credits) -> Result<()> {
        self.journal.cache().refuse_if_aborted()?;
        self.journal.cache().relieve()?;
        self.credits.set(credits);
        Ok(())
    }

    /// The metadata block `nr` is freed: its content is dropped and never written home again by
    /// this journal. Waits for a write of it that is on its way.
    ///
    /// Call it before the block can be allocated anew.
    pub fn forget(&self, nr: BlockNr) {
        self.journal.cache().forget(nr);
    }

    /// Ends the change. Errors: `Aborted` when the journal gave up meanwhile.
    pub fn stop(self) -> Result<()> {
        self.journal.cache().refuse_if_aborted()
    }
}
