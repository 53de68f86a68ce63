//! One part of the cache's table: an index, a ring, and a clock that evicts blocks.
//!
//! ```text
//!   index   nr → block, position
//!   ring    ●──●──○──●──○        ● REFERENCED: kept once more
//!                 ▲ hand         ○ not: evicted, if it is clean and has no other reference
//!   dirty   numbers of blocks to write home
//! ```

use crate::cache::block::{Block, DIRTY, LOADED, REFERENCED, WRITING};
use extant_base::BlockNr;
use hashbrown::HashMap;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// One part of the table, with its own lock. Aligned to cache lines of its own, because other
/// threads lock the neighbours.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Shard {
    /// Each block and its position in the ring.
    index: HashMap<u64, (Arc<Block>, u32)>,
    ring: Vec<Arc<Block>>,
    hand: usize,
    /// Blocks that became dirty since the last write-out took them.
    pub(crate) dirty: Vec<u64>,
}

/// References that the shard itself has to each block: the index and the ring.
const OWN_REFERENCES: usize = 2;

impl Shard {
    /// The cached block `nr`.
    #[inline]
    pub(crate) fn find(&self, nr: BlockNr) -> Option<&Arc<Block>> {
        self.index.get(&nr.0).map(|(block, _)| block)
    }

    /// Adds a block that is not in the table.
    pub(crate) fn insert(&mut self, block: Arc<Block>) {
        let place = u32::try_from(self.ring.len()).expect("a shard holds fewer than 2^32 blocks");
        self.index.insert(block.nr.0, (Arc::clone(&block), place));
        self.ring.push(block);
    }

    /// Removes a block from the table; other references to it stay valid.
    pub(crate) fn remove(&mut self, nr: BlockNr) -> Option<Arc<Block>> {
        let (block, place) = self.index.remove(&nr.0)?;
        self.ring.swap_remove(place as usize);
        if let Some(moved) = self.ring.get(place as usize) {
            let entry = self.index.get_mut(&moved.nr.0).expect("the ring's blocks are indexed");
            entry.1 = place;
        }
        Some(block)
    }

    /// Moves the hand at most once round, and takes out up to `want` clean blocks without other
    /// references.
    pub(crate) fn sweep(&mut self, want: usize, out: &mut Vec<Arc<Block>>) {
        let mut steps = self.ring.len();
        let goal = out.len() + want;
        while steps > 0 && out.len() < goal && !self.ring.is_empty() {
            steps -= 1;
            if self.hand >= self.ring.len() {
                self.hand = 0;
            }
            let block = &self.ring[self.hand];
            // Under the shard's lock no new outside reference can appear. The count is read first:
            // a thread that held the block set its flags before it dropped its reference.
            let unheld = Arc::strong_count(block) == OWN_REFERENCES;
            fence(Ordering::Acquire);
            let flags = block.flags.load(Ordering::Relaxed);
            let free = unheld && flags & (LOADED | DIRTY | WRITING) == LOADED;
            if free && flags & REFERENCED == 0 {
                let nr = block.nr;
                out.extend(self.remove(nr));
                // Next is the block that moved to this position.
                continue;
            }
            if free {
                block.flags.fetch_and(!REFERENCED, Ordering::Relaxed);
            }
            self.hand += 1;
        }
    }
}
