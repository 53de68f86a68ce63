//! The running transaction: the changes of its handles, and those that no fast commit has recorded.

use crate::cache::block::{Block, Seq};
use crate::commit::contribution::{Credits, HandleChanges, HandlePosition};
use crate::log::stream::LogArea;
use crate::records::ineligible::Ineligible;
use extant_base::{BlockNr, Ino};
use hashbrown::HashSet;
use std::sync::Arc;
use std::time::Instant;

/// Changes that no fast commit has recorded yet.
#[derive(Default)]
pub(crate) struct PendingRecords {
    /// Notes of stopped handles since the last fast commit.
    pub(crate) notes: Vec<u8>,
    /// Inodes that were allocated in this transaction and not recorded: none of them had a name.
    pub(crate) hidden: HashSet<Ino>,
    /// Why a full commit is needed. Notes are not kept then.
    pub(crate) full: Option<Ineligible>,
    /// Most bytes of notes to keep. A larger fast commit would not fit.
    limit: usize,
}

impl PendingRecords {
    fn merge(&mut self, order: u64, done: &mut HandleChanges) {
        if self.full.is_some() {
            return done.notes.clear();
        }
        let full = match done.notes.full {
            None if done.has_changed() && !done.notes.any => Some(Ineligible::Unnoted),
            full => full,
        };
        match full {
            Some(why) => {
                done.notes.clear();
                self.require_full_commit(why);
            }
            None => done.notes.append_to(order, &mut self.notes),
        }
        if self.notes.len() > self.limit {
            self.require_full_commit(Ineligible::LogFull);
        }
    }

    /// Drops all notes: a full commit is needed.
    pub(crate) fn require_full_commit(&mut self, why: Ineligible) {
        self.full.get_or_insert(why);
        self.notes = Vec::new();
        self.hidden = HashSet::new();
    }
}

/// The running transaction.
pub(crate) struct Running {
    pub(crate) seq: Seq,
    /// Handles that have not stopped.
    pub(crate) handles: u32,
    /// Credits reserved by those: blocks and revokes.
    reserved: (u64, u64),
    pub(crate) blocks: Vec<Arc<Block>>,
    pub(crate) revoked: Vec<BlockNr>,
    pub(crate) forgotten: Vec<Arc<Block>>,
    /// A stopped handle has changed a block that another handle changed first, which may still be
    /// running.
    changed: bool,
    /// When the first change came.
    pub(crate) since: Option<Instant>,
    /// The background thread was asked to commit it, because it is large.
    pub(crate) commit_requested: bool,
    /// `None` while fast commits are off.
    pub(crate) pending: Option<PendingRecords>,
}

impl Running {
    /// An empty transaction. `notes` is the limit, in bytes, of the notes that it keeps for fast
    /// commits; `None` while those are off.
    pub(crate) fn new(seq: Seq, notes: Option<usize>) -> Running {
        Running {
            seq,
            handles: 0,
            reserved: (0, 0),
            blocks: Vec::new(),
            revoked: Vec::new(),
            forgotten: Vec::new(),
            changed: false,
            since: None,
            commit_requested: false,
            pending: notes.map(|limit| PendingRecords { limit, ..PendingRecords::default() }),
        }
    }

    /// Whether no stopped handle has changed anything.
    pub(crate) fn is_empty(&self) -> bool {
        !self.changed && self.blocks.is_empty() && self.revoked.is_empty()
    }

    /// Whether no handle runs in it.
    pub(crate) fn is_idle(&self) -> bool {
        self.handles == 0
    }

    /// Log blocks that it takes if all handles use their credits, and `more` in addition.
    pub(crate) fn needed(&self, area: &LogArea, more: Credits) -> u64 {
        let blocks = self.blocks.len() as u64 + self.reserved.0 + u64::from(more.blocks);
        let revokes = self.revoked.len() as u64 + self.reserved.1 + u64::from(more.revokes);
        area.needed(blocks, revokes)
    }

    pub(crate) fn reserve(&mut self, credits: Credits) {
        self.reserved.0 += u64::from(credits.blocks);
        self.reserved.1 += u64::from(credits.revokes);
    }

    /// Adds a handle with the number `nr`.
    pub(crate) fn enter(&mut self, credits: Credits, nr: u64) -> HandlePosition {
        self.reserve(credits);
        self.handles += 1;
        let keeps_notes = self.pending.as_ref().is_some_and(|pending| pending.full.is_none());
        HandlePosition { seq: self.seq, nr, order: nr, keeps_notes }
    }

    /// Adds the changes of the handle at `place`, and releases its `credits`.
    pub(crate) fn merge(
        &mut self,
        credits: Credits,
        place: HandlePosition,
        done: &mut HandleChanges,
    ) {
        self.reserved.0 -= u64::from(credits.blocks);
        self.reserved.1 -= u64::from(credits.revokes);
        if let Some(pending) = &mut self.pending {
            pending.merge(place.order, done);
        }
        self.blocks.append(&mut done.joined);
        self.revoked.append(&mut done.revoked);
        self.forgotten.append(&mut done.forgotten);
        self.changed |= std::mem::take(&mut done.again);
        if self.since.is_none() && !self.is_empty() {
            self.since = Some(Instant::now());
        }
    }
}
