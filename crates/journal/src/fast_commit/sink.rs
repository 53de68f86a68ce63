//! The interface of a place for fast commits.

use crate::records::ineligible::Ineligible;
use extant_base::{Result, Tid};

/// A place for fast commits, epoch after epoch. An epoch is the time between two full commits.
///
/// One thread at a time uses it. After an error it is not used again.
pub(crate) trait Sink: Send {
    /// The most bytes of records that the next fast commit can have. Fewer bytes may fail to fit,
    /// too.
    fn capacity(&self) -> usize;

    /// Makes a fast commit of transaction `tid` durable, with all file data that was written before
    /// the call. `records` holds at least one record, all of them whole and none of them PAD, TAIL
    /// or HEAD; see [`whole_records`](extant_ondisk::fast_commit::whole_records).
    ///
    /// `false`: it does not fit, and nothing was written. After a power cut during the call, the
    /// device holds all of it or none, and all earlier fast commits. Errors: `Device`.
    fn put(&mut self, tid: Tid, records: &[u8]) -> Result<bool>;

    /// Begins a new epoch: the transaction of all earlier fast commits is committed in full, so
    /// they are void. Also called once before the first full commit, because the device may hold
    /// fast commits of an earlier session.
    fn new_epoch(&mut self) -> Result<()>;

    /// The reason to report when a fast commit does not fit.
    fn full_reason(&self) -> Ineligible {
        Ineligible::LogFull
    }
}

/// State that the committing thread keeps between fast commits.
pub(crate) struct FastCommits {
    pub(crate) sink: Box<dyn Sink>,
    /// Recovery would read fast commits now.
    pub(crate) open: bool,
    /// The memory for records.
    pub(crate) records: Vec<u8>,
}

impl FastCommits {
    pub(crate) fn new(sink: Box<dyn Sink>) -> FastCommits {
        FastCommits { sink, open: false, records: Vec::new() }
    }
}
