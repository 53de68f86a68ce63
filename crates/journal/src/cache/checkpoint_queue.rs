//! Committed blocks that wait to be written home, oldest transaction first.
//!
//! ```text
//!   commit n durable ──push──►  [n: blocks] … [7: ·] [5: blocks]  ──write_home──► device
//!                                newest                oldest
//!   a block belongs to the newest transaction that logged it: `drop_stale` leaves it there only
//! ```

use crate::cache::block::{Block, Seq};
use std::collections::VecDeque;
use std::sync::Arc;

/// The blocks that one transaction logged, in device order.
pub(crate) struct CheckpointList {
    pub(crate) seq: Seq,
    pub(crate) blocks: Vec<Arc<Block>>,
}

impl CheckpointList {
    /// Drops the blocks that are home, freed durably, or logged again by a later transaction.
    pub(crate) fn drop_stale(&mut self) {
        self.blocks.retain(|block| block.logged() == self.seq);
    }
}

/// The lists of all committed transactions with blocks that are not home.
#[derive(Default)]
pub(crate) struct CheckpointQueue {
    lists: VecDeque<CheckpointList>,
    /// The last transaction that was pushed.
    newest: Seq,
}

impl CheckpointQueue {
    /// Adds the list of the newest transaction.
    pub(crate) fn push(&mut self, list: CheckpointList) {
        self.newest = list.seq;
        if !list.blocks.is_empty() {
            self.lists.push_back(list);
        }
    }

    /// Takes the oldest list out.
    pub(crate) fn pop(&mut self) -> Option<CheckpointList> {
        self.lists.pop_front()
    }

    /// Puts a list back whose blocks are not all home. Called for the newest list first.
    pub(crate) fn put_back(&mut self, list: CheckpointList) {
        if !list.blocks.is_empty() {
            self.lists.push_front(list);
        }
    }

    /// The oldest transaction whose copies in the log may still be needed; all older ones are home.
    /// Correct only while no list is taken out.
    pub(crate) fn oldest_needed(&mut self) -> Seq {
        while let Some(oldest) = self.lists.front_mut() {
            oldest.drop_stale();
            if !oldest.blocks.is_empty() {
                return oldest.seq;
            }
            self.lists.pop_front();
        }
        self.newest + 1
    }
}
