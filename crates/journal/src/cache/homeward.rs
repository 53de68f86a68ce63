//! What is committed and waits to go home, oldest transaction first.
//!
//! ```text
//!   commit n durable ──push──►  [n: blocks] … [7: ·] [5: blocks]  ──write_home──► device
//!                                newest                oldest
//!   a block counts for the newest list whose transaction logged it: older lists let it go
//! ```

use crate::cache::block::{Block, Seq};
use std::collections::VecDeque;
use std::sync::Arc;

/// The blocks that one transaction logged, in device order.
pub(crate) struct HomeList {
    pub(crate) seq: Seq,
    pub(crate) blocks: Vec<Arc<Block>>,
}

impl HomeList {
    /// Lets go of what is home, freed for good, or logged again by a later transaction.
    pub(crate) fn settle(&mut self) {
        self.blocks.retain(|block| block.logged() == self.seq);
    }
}

/// All of those lists.
#[derive(Default)]
pub(crate) struct Homeward {
    lists: VecDeque<HomeList>,
    /// The last transaction that was pushed.
    newest: Seq,
}

impl Homeward {
    /// Adds what the newest transaction logged.
    pub(crate) fn push(&mut self, list: HomeList) {
        self.newest = list.seq;
        if !list.blocks.is_empty() {
            self.lists.push_back(list);
        }
    }

    /// Takes the oldest list out.
    pub(crate) fn pop(&mut self) -> Option<HomeList> {
        self.lists.pop_front()
    }

    /// Puts back what of lists taken out is not home, oldest last.
    pub(crate) fn put_back(&mut self, list: HomeList) {
        if !list.blocks.is_empty() {
            self.lists.push_front(list);
        }
    }

    /// The oldest transaction of which a copy may still be needed; every older one is home. Sound
    /// only while no list is taken out.
    pub(crate) fn oldest_needed(&mut self) -> Seq {
        while let Some(oldest) = self.lists.front_mut() {
            oldest.settle();
            if !oldest.blocks.is_empty() {
                return oldest.seq;
            }
            self.lists.pop_front();
        }
        self.newest + 1
    }
}
