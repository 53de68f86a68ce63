//! Commit points: positions in the order of handles, up to which changes are durable.

use crate::cache::block::Seq;
use extant_base::Tid;

/// A position in the order of handles: a transaction, and the number of a handle in it. Handles are
/// numbered in the order in which they start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitPoint {
    /// The transaction.
    pub tid: Tid,
    /// The handle's number in it, from 1 on.
    pub nr: u64,
}

impl CommitPoint {
    /// Whether this point comes after `other`.
    pub fn is_later(self, other: CommitPoint) -> bool {
        self.tid.is_after(other.tid) || self.tid == other.tid && self.nr > other.nr
    }

    /// The later of the two points.
    pub fn later(self, other: CommitPoint) -> CommitPoint {
        if other.is_later(self) { other } else { self }
    }
}

/// The last handle whose changes are recorded by fast commits, and its transaction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RecordedMark {
    pub(crate) seq: Seq,
    pub(crate) nr: u64,
}

impl RecordedMark {
    /// Whether the changes of handle `nr` of transaction `seq` are recorded.
    pub(crate) fn covers(self, seq: Seq, nr: u64) -> bool {
        self.seq == seq && self.nr >= nr
    }
}
