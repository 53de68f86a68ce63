//! Points in the order of handles up to which changes are durable.

use crate::cache::block::Seq;
use extant_base::Tid;

/// One handle's place among all: the transaction it was in, and its number there.
///
/// Numbers rise in the order in which handles started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitPoint {
    /// The transaction.
    pub tid: Tid,
    /// The handle's number in it, from 1 on.
    pub nr: u64,
}

/// The last handle whose changes fast commits told, and its transaction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ToldMark {
    pub(crate) seq: Seq,
    pub(crate) nr: u64,
}

impl ToldMark {
    /// Whether handle `nr` of transaction `seq` is told.
    pub(crate) fn covers(self, seq: Seq, nr: u64) -> bool {
        self.seq == seq && self.nr >= nr
    }
}
