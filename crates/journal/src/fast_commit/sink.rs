//! Where fast commits go.

use crate::records::ineligible::Ineligible;
use extant_base::{Result, Tid};

/// A place for the fast commits of one transaction after the other.
///
/// One thread at a time uses it. After an error nothing more is asked of it.
pub(crate) trait Sink: Send {
    /// Bytes of records that the next fast commit may have at most; fewer may be too many, too.
    fn room(&self) -> usize;

    /// Makes a fast commit of transaction `tid` durable, and all file data that was written before
    /// the call. `records` are whole ones, none of them PAD, TAIL or HEAD, at least one; see
    /// [`whole_records`](extant_ondisk::fast_commit::whole_records).
    ///
    /// `false`: there is no room, and nothing was written. Cut before it returns, the device holds
    /// all of it or none, and all fast commits before. Errors: `Device`.
    fn put(&mut self, tid: Tid, records: &[u8]) -> Result<bool>;

    /// What was put is worth nothing any more: its transaction is committed. The next fast commit
    /// is the first of the next one. Also called once before the first commit of all: what lies
    /// there is of an older life.
    fn new_epoch(&mut self) -> Result<()>;

    /// How it is called when there is no room.
    fn full(&self) -> Ineligible {
        Ineligible::LogFull
    }
}

/// What the thread that commits keeps from one fast commit to the next.
pub(crate) struct FastCommits {
    pub(crate) sink: Box<dyn Sink>,
    /// Whoever recovers the volume looks for fast commits.
    pub(crate) open: bool,
    /// The records; memory that is used again and again.
    pub(crate) records: Vec<u8>,
}

impl FastCommits {
    pub(crate) fn new(sink: Box<dyn Sink>) -> FastCommits {
        FastCommits { sink, open: false, records: Vec::new() }
    }
}
