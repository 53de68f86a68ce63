//! The groups whose free extents are in memory, so that the oldest can be dropped.
//!
//! ```text
//!   read from the bitmap ─► [oldest … newest]   more runs than the limit ─► the oldest are dropped
//! ```
//!
//! On a fragmented volume the runs take more memory than the bitmaps. A tree is dropped, and read
//! again when its group is next used for an allocation. The group index keeps the group's entry.

use crate::space::group::Groups;
use extant_base::GroupNr;
use extant_base::lock::{Mutex, Rank};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs in memory, counted when they are read: about 50 MB.
const RUNS_MAX: usize = 2 << 20;
/// The fixed memory of a group, in runs: two nodes of a tree, however few runs they hold.
const FIXED_RUNS: usize = 12;

/// The groups whose free extents are in memory. See the module's picture.
pub(crate) struct LoadedTrees {
    queue: Mutex<VecDeque<(GroupNr, usize)>>,
    runs: AtomicUsize,
}

impl LoadedTrees {
    pub(crate) fn new() -> LoadedTrees {
        LoadedTrees { queue: Mutex::new(Rank::Leaf, VecDeque::new()), runs: AtomicUsize::new(0) }
    }

    /// Notes that `runs` runs of `nr` were read. Locks: takes `Leaf`.
    pub(crate) fn note(&self, nr: GroupNr, runs: usize) {
        let runs = runs + FIXED_RUNS;
        self.queue.lock().push_back((nr, runs));
        self.runs.fetch_add(runs, Ordering::Relaxed);
    }

    /// Removes and returns the group whose tree must be dropped, if any.
    fn pop_excess(&self, most: usize) -> Option<GroupNr> {
        if self.runs.load(Ordering::Relaxed) <= most {
            return None;
        }
        let mut queue = self.queue.lock();
        // The newest stays, however large.
        let (nr, runs) = if queue.len() > 1 { queue.pop_front()? } else { return None };
        self.runs.fetch_sub(runs, Ordering::Relaxed);
        Some(nr)
    }

    /// Drops the free extents that were read first, while there are too many. Locks: takes `Group`.
    pub(super) fn drop_excess(&self, groups: &Groups) {
        while let Some(nr) = self.pop_excess(RUNS_MAX) {
            groups.get(nr).state.lock().free = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_leave_first_and_the_newest_stays() {
        let trees = LoadedTrees::new();
        trees.note(GroupNr(4), 60);
        assert_eq!(trees.pop_excess(50), None, "alone");
        trees.note(GroupNr(2), 30);
        trees.note(GroupNr(7), 10);
        assert_eq!(trees.pop_excess(100 + 3 * FIXED_RUNS), None);
        assert_eq!(trees.pop_excess(50 + 2 * FIXED_RUNS), Some(GroupNr(4)));
        assert_eq!(trees.pop_excess(50 + 2 * FIXED_RUNS), None);
    }
}
