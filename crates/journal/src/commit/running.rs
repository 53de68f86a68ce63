//! The running transaction: what its handles did so far, and what of it no fast commit told.

use crate::cache::block::{Block, Seq};
use crate::commit::contribution::{Credits, Done, Place};
use crate::log::stream::LogArea;
use crate::records::ineligible::Ineligible;
use extant_base::{BlockNr, Ino};
use hashbrown::HashSet;
use std::sync::Arc;
use std::time::Instant;

/// What a fast commit has to tell.
#[derive(Default)]
pub(crate) struct Untold {
    /// Notes of stopped handles since the last fast commit.
    pub(crate) notes: Vec<u8>,
    /// Inodes that were made in this transaction, and no fast commit told: none had a name.
    pub(crate) hidden: HashSet<Ino>,
    /// Why nothing less than a full commit will do; notes are not kept then.
    pub(crate) full: Option<Ineligible>,
    /// Most bytes of notes that are worth keeping.
    limit: usize,
}

impl Untold {
    fn take_in(&mut self, order: u64, done: &mut Done) {
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
                self.give_up(why);
            }
            None => done.notes.hand_over(order, &mut self.notes),
        }
        if self.notes.len() > self.limit {
            self.give_up(Ineligible::LogFull);
        }
    }

    /// Only a full commit will do.
    pub(crate) fn give_up(&mut self, why: Ineligible) {
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
    /// What those may do at most: blocks and revokes.
    promised: (u64, u64),
    pub(crate) blocks: Vec<Arc<Block>>,
    pub(crate) revoked: Vec<BlockNr>,
    pub(crate) forgotten: Vec<Arc<Block>>,
    /// A stopped handle has changed a block, maybe one that a running handle was first to change.
    changed: bool,
    /// When the first change came.
    pub(crate) since: Option<Instant>,
    /// The background has been told that it is large.
    pub(crate) told: bool,
    /// `None` while fast commits are off.
    pub(crate) untold: Option<Untold>,
}

impl Running {
    /// A transaction that has nothing in it. `notes` are the most bytes of notes that it keeps for
    /// fast commits, `None` while those are off.
    pub(crate) fn new(seq: Seq, notes: Option<usize>) -> Running {
        Running {
            seq,
            handles: 0,
            promised: (0, 0),
            blocks: Vec::new(),
            revoked: Vec::new(),
            forgotten: Vec::new(),
            changed: false,
            since: None,
            told: false,
            untold: notes.map(|limit| Untold { limit, ..Untold::default() }),
        }
    }

    /// Whether no stopped handle has changed anything.
    pub(crate) fn is_empty(&self) -> bool {
        !self.changed && self.blocks.is_empty() && self.revoked.is_empty()
    }

    /// Whether nobody can change anything in it without starting.
    pub(crate) fn is_idle(&self) -> bool {
        self.handles == 0
    }

    /// Log blocks that it takes when all handles do what they promised, and `more` is added.
    pub(crate) fn needed(&self, area: &LogArea, more: Credits) -> u64 {
        let blocks = self.blocks.len() as u64 + self.promised.0 + u64::from(more.blocks);
        let revokes = self.revoked.len() as u64 + self.promised.1 + u64::from(more.revokes);
        area.needed(blocks, revokes)
    }

    pub(crate) fn promise(&mut self, credits: Credits) {
        self.promised.0 += u64::from(credits.blocks);
        self.promised.1 += u64::from(credits.revokes);
    }

    /// Lets a handle in, as number `nr`.
    pub(crate) fn enter(&mut self, credits: Credits, nr: u64) -> Place {
        self.promise(credits);
        self.handles += 1;
        let keeps_notes = self.untold.as_ref().is_some_and(|untold| untold.full.is_none());
        Place { seq: self.seq, nr, order: nr, keeps_notes }
    }

    /// Takes in what the handle at `place` did with its `credits`.
    pub(crate) fn take_in(&mut self, credits: Credits, place: Place, done: &mut Done) {
        self.promised.0 -= u64::from(credits.blocks);
        self.promised.1 -= u64::from(credits.revokes);
        if let Some(untold) = &mut self.untold {
            untold.take_in(place.order, done);
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
