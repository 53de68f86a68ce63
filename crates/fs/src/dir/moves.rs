//! Where names of a directory went since it came to memory: from which block to which new one.
//!
//! ```text
//!   linear, full     0 ──all names──► 1          leaf 7, full     7 ──upper half──► 23
//! ```
//!
//! Names move only to new blocks at the end, so a listing in the order of blocks misses none of those
//! that stay. With this list it gives none of them twice: what went from a block that it has read to
//! one that it has not is passed over. 8 bytes for each split; none once the inode leaves memory.

use extant_base::LogicalBlock;
use std::collections::HashSet;
use std::sync::Arc;

/// The moves of one directory, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moves {
    all: Option<Arc<Vec<(u32, u32)>>>,
    /// How often names came, went or moved.
    changes: u64,
}

impl Moves {
    /// Names of block `from` are in block `to` now, which is new.
    pub(super) fn note(&mut self, from: LogicalBlock, to: LogicalBlock) {
        Arc::make_mut(self.all.get_or_insert_default()).push((from.0, to.0));
    }

    /// Notes that a name comes, goes, or means another inode.
    pub(super) fn change(&mut self) {
        self.changes += 1;
    }

    /// Another number after each change.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    fn all(&self) -> &[(u32, u32)] {
        self.all.as_deref().map_or(&[], Vec::as_slice)
    }
}

/// What one listing knows of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Followed {
    /// How many it has looked at; `None` before its first block.
    known: Option<usize>,
    /// Blocks that it has yet to come to, with names that it gave already.
    read_before: HashSet<u32>,
}

impl Followed {
    /// Looks at the moves since the last call; blocks below `next` were read by then.
    pub(super) fn follow(&mut self, moves: &Moves, next: u32) {
        let all = moves.all();
        let since = self.known.map_or(&[][..], |known| all.get(known..).unwrap_or_default());
        for (from, to) in since {
            if *from < next || self.read_before.contains(from) {
                self.read_before.insert(*to);
            }
        }
        self.known = Some(all.len());
    }

    /// Whether the names of a block were given already, in another one.
    pub(super) fn passes_over(&mut self, at: LogicalBlock) -> bool {
        self.read_before.remove(&at.0)
    }
}
