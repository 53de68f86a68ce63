//! What an fsync costs here, and what it is worth.
//!
//! ```text
//!   byte log   on, and all it needs is there ──► stores, cache lines written back, one fence
//!              off, or something is missing  ──► writes and a flush
//! ```
//!
//! The byte log needs: a journal on the volume with the feature `fast_commit`, an area for fast commits
//! that lies in one piece, and a device that offers a window onto it (see
//! [`DaxMode`](extant_blockdev::DaxMode)).

use crate::filesystem::Filesystem;
use extant_blockdev::{PersistenceDomain, Way};
use std::fmt;

/// Whether fsyncs go to the byte log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ByteLogMode {
    /// No.
    #[default]
    Off,
    /// Where it can be used; see [`Filesystem::sync_way`] for whether it is.
    On,
    /// Yes: a volume or device that it cannot be used with fails to open to write.
    Force,
}

/// How what an fsync asks for becomes durable, in the usual case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SyncWay {
    /// Written home and flushed: there is no journal.
    Home,
    /// A commit, flushed.
    Commits,
    /// A fast commit in blocks, flushed.
    FastCommits,
    /// A fast commit stored in the byte log.
    ByteLog {
        /// What it survives.
        persistence_domain: PersistenceDomain,
        /// How cache lines are written back.
        way: Way,
    },
}

impl SyncWay {
    /// What an fsync survives.
    pub fn persistence_domain(self) -> PersistenceDomain {
        match self {
            SyncWay::ByteLog { persistence_domain, .. } => persistence_domain,
            _ => PersistenceDomain::Power,
        }
    }
}

/// For people, as a sentence without its subject: "fsync …".
impl fmt::Display for SyncWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SyncWay::Home => f.write_str("writes and flushes: survives a power cut"),
            SyncWay::Commits => f.write_str("commits and flushes: survives a power cut"),
            SyncWay::FastCommits => {
                f.write_str("writes a fast commit and flushes: survives a power cut")
            }
            SyncWay::ByteLog { persistence_domain: PersistenceDomain::Power, way } => {
                write!(f, "stores into the byte log ({way}): survives a power cut")
            }
            SyncWay::ByteLog { persistence_domain: PersistenceDomain::ProcessCrash, way } => {
                write!(
                    f,
                    "stores into the byte log ({way}), which here is memory of the system: survives the \
                 end of this process, NOT a power cut or a crash of the system"
                )
            }
        }
    }
}

impl Filesystem {
    /// What an fsync does here, and what it is worth.
    pub fn sync_way(&self) -> SyncWay {
        let journal = self.volume().journal();
        match journal.byte_log() {
            _ if journal.is_off() => SyncWay::Home,
            Some((persistence_domain, way)) => SyncWay::ByteLog { persistence_domain, way },
            None if journal.stats().fast_commits_on => SyncWay::FastCommits,
            None => SyncWay::Commits,
        }
    }
}
