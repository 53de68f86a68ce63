//! Counts of commits, and reasons for full ones.

use crate::records::ineligible::Ineligible;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of one journal since it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalStats {
    /// Whether the journal writes fast commits.
    pub fast_commits_on: bool,
    /// Transactions committed in full.
    pub commits: u64,
    /// Fast commits written.
    pub fast_commits: u64,
    /// Bytes of their records.
    pub fast_commit_bytes: u64,
    /// Counts of the byte log; `None` while it is not used.
    pub byte_log: Option<ByteLogStats>,
    /// Syncs that took a full commit although fast commits are on, by reason. Only reasons that
    /// occurred are listed.
    pub full_because: Vec<(Ineligible, u64)>,
}

/// Counts of a byte log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteLogStats {
    /// Records with a header of their own.
    pub records: u64,
    /// Bytes stored, headers and padding included.
    pub bytes: u64,
}

/// The counters of a journal.
pub(crate) struct Counts {
    pub(crate) commits: AtomicU64,
    pub(crate) fast_commits: AtomicU64,
    pub(crate) fast_commit_bytes: AtomicU64,
    full_because: [AtomicU64; Ineligible::ALL.len()],
}

impl Default for Counts {
    fn default() -> Counts {
        Counts {
            commits: AtomicU64::new(0),
            fast_commits: AtomicU64::new(0),
            fast_commit_bytes: AtomicU64::new(0),
            full_because: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl Counts {
    pub(crate) fn full(&self, why: Ineligible) {
        self.full_because[why as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self, fast_commits_on: bool) -> JournalStats {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let reasons =
            Ineligible::ALL.iter().map(|why| (*why, get(&self.full_because[*why as usize])));
        JournalStats {
            fast_commits_on,
            commits: get(&self.commits),
            fast_commits: get(&self.fast_commits),
            fast_commit_bytes: get(&self.fast_commit_bytes),
            byte_log: None,
            full_because: reasons.filter(|(_, count)| *count > 0).collect(),
        }
    }
}
