//! Which files are open for writing: the kernel may hold bytes of them that it has not sent.
//!
//! ```text
//!   OPEN for writing ──► counted ──► writes stay with the kernel ──► last close: sent ──► RELEASE ──► not counted
//! ```

use crate::operations::NodeId;
use extant_base::lock::{Mutex, Rank};
use hashbrown::HashMap;
use std::time::Duration;

/// How long a closing that is on its way gets, in steps.
const STEPS: u32 = 100;
const STEP: Duration = Duration::from_millis(1);

/// The files that are open for writing, with the number of openings.
pub(super) struct Writers {
    open: Mutex<HashMap<u64, u32>>,
}

impl Writers {
    pub(super) fn new() -> Writers {
        Writers { open: Mutex::new(Rank::Leaf, HashMap::new()) }
    }

    /// `node` was opened for writing.
    pub(super) fn opened(&self, node: NodeId) {
        *self.open.lock().entry(node.0).or_insert(0) += 1;
    }

    /// Such an opening ended.
    pub(super) fn closed(&self, node: NodeId) {
        let mut open = self.open.lock();
        if let Some(count) = open.get_mut(&node.0) {
            *count -= 1;
            if *count == 0 {
                open.remove(&node.0);
            }
        }
    }

    /// Whether nobody has `node` open for writing. The kernel tells of a closing without waiting for us, so
    /// that another thread may still have it in hand: a moment is waited for it.
    pub(super) fn have_gone(&self, node: NodeId) -> bool {
        for _ in 0..STEPS {
            if !self.open.lock().contains_key(&node.0) {
                return true;
            }
            std::thread::sleep(STEP);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_writers_until_the_last_one_closes_it() {
        let (writers, node) = (Writers::new(), NodeId(12));
        assert!(writers.have_gone(node));
        writers.opened(node);
        writers.opened(node);
        writers.closed(node);
        assert!(!writers.have_gone(node) && writers.have_gone(NodeId(13)));
        std::thread::scope(|threads| {
            threads.spawn(|| writers.closed(node));
            assert!(writers.have_gone(node));
        });
    }
}
