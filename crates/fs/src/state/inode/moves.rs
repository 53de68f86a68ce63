//! Where names of a directory have moved since it was loaded: from which block to which new block.
//!
//! ```text
//!   linear, full     0 ──all names──► 1          leaf 7, full     7 ──upper half──► 23
//! ```
//!
//! Names move only to new blocks at the end, so a listing in block order misses no name that stays.
//! With this list it returns no name twice: it skips a new block whose names came from a block that
//! it has already read. The cost is 8 bytes for each split; the list ends when the inode leaves
//! memory.

use extant_base::LogicalBlock;
use std::collections::HashSet;
use std::sync::Arc;

/// The moves of one directory, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moves {
    all: Option<Arc<Vec<(u32, u32)>>>,
    /// How often names were added, removed or moved.
    changes: u64,
}

impl Moves {
    /// Records that names of block `from` are now in block `to`, which is new.
    pub(crate) fn note(&mut self, from: LogicalBlock, to: LogicalBlock) {
        Arc::make_mut(self.all.get_or_insert_default()).push((from.0, to.0));
    }

    /// Records that a name is added, removed, or gets another inode.
    pub(crate) fn change(&mut self) {
        self.changes += 1;
    }

    /// A number that differs after each change.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    fn all(&self) -> &[(u32, u32)] {
        self.all.as_deref().map_or(&[], Vec::as_slice)
    }
}

/// What one listing knows about the moves.
#[derive(Clone, Debug, Default)]
pub(crate) struct Followed {
    /// How many moves it has processed; `None` before its first block.
    known: Option<usize>,
    /// Blocks that are yet to be read but hold names that were already returned.
    read_before: HashSet<u32>,
}

impl Followed {
    /// Processes the moves since the last call. Blocks below `next` had been read by then.
    pub(crate) fn follow(&mut self, moves: &Moves, next: u32) {
        let all = moves.all();
        let since = self.known.map_or(&[][..], |known| all.get(known..).unwrap_or_default());
        for (from, to) in since {
            if *from < next || self.read_before.contains(from) {
                self.read_before.insert(*to);
            }
        }
        self.known = Some(all.len());
    }

    /// Whether the names of a block were already returned, from another block.
    pub(crate) fn skips(&mut self, at: LogicalBlock) -> bool {
        self.read_before.remove(&at.0)
    }
}
