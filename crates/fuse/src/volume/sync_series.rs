//! Series of syncs: a program writes to several files and then syncs one after the other.
//!
//! ```text
//!   write a b c … p                  the first sync brings a to the device
//!   sync  a  b  c … p                the second follows without a write: b c … p, in one commit
//!            └ no write since        the others find nothing to do
//!
//!   write a b c … p                  after a series, the next one is expected: the first sync
//!   sync  a …                        brings all files to the device
//! ```
//!
//! Without this, a series of 16 syncs costs up to 16 commits. A sync that is no part of a series
//! writes nothing of other open files: they may be written to all the time, and each sync would
//! write the same blocks again.
//!
//! Databases at a checkpoint and copying programs sync in this way. Requests of several programs
//! may confuse the detection; the result is only a hint.

use crate::operations::NodeId;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// The most dirty bytes that a sync brings to the device for other files: not much compared with
/// the time that a flush takes.
pub(super) const MOST_BYTES: u64 = 4 << 20;
/// After a series of this many files, the next one is expected.
const LONG: u32 = 3;

/// See the module.
#[derive(Default)]
pub(super) struct SyncSeries {
    /// A write came after the last sync.
    written: AtomicBool,
    /// The node of the last sync.
    last: AtomicU64,
    /// The syncs of the current series, and of the one before.
    syncs: AtomicU32,
    syncs_before: AtomicU32,
}

impl SyncSeries {
    /// A program writes to a file.
    pub(super) fn note_write(&self) {
        // Writers of several threads do not compete for the cache line.
        if !self.written.load(Ordering::Relaxed) {
            self.written.store(true, Ordering::Relaxed);
        }
    }

    /// A program syncs the file `node`. Returns whether syncs of other files probably follow.
    pub(super) fn note_sync(&self, node: NodeId) -> bool {
        let begins = self.written.swap(false, Ordering::Relaxed);
        let is_same = self.last.swap(node.0, Ordering::Relaxed) == node.0;
        if begins {
            let before = self.syncs.swap(1, Ordering::Relaxed);
            self.syncs_before.store(before, Ordering::Relaxed);
            return before >= LONG;
        }
        if !is_same {
            self.syncs.fetch_add(1, Ordering::Relaxed);
        }
        !is_same
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(series: &SyncSeries, nodes: &[u64]) -> Vec<bool> {
        series.note_write();
        nodes.iter().map(|node| series.note_sync(NodeId(*node))).collect()
    }

    #[test]
    fn the_second_sync_without_a_write_is_part_of_a_series() {
        let series = SyncSeries::default();
        assert_eq!(round(&series, &[1, 2]), [false, true]);
        assert_eq!(round(&series, &[1, 2]), [false, true], "two syncs announce nothing");
    }

    #[test]
    fn after_a_long_series_the_next_one_is_expected_once() {
        let series = SyncSeries::default();
        assert_eq!(round(&series, &[1, 2, 3]), [false, true, true]);
        assert_eq!(round(&series, &[1, 2, 3]), [true, true, true]);
        assert_eq!(round(&series, &[1]), [true]);
        assert_eq!(round(&series, &[1]), [false]);
    }

    #[test]
    fn syncs_of_one_file_are_no_series() {
        let series = SyncSeries::default();
        assert_eq!(round(&series, &[1, 1, 1, 1]), [false; 4]);
        assert_eq!(round(&series, &[1]), [false]);
    }
}
