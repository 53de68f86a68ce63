//! What an fsync does on this volume, and what it survives.
//!
//! ```text
//!   byte log   enabled, and all it needs is there ──► stores, cache-line write-backs, one fence
//!              disabled, or something is missing  ──► writes and a flush
//! ```
//!
//! The byte log needs a journal on the volume with the feature `fast_commit`, a contiguous
//! fast-commit area, and a device that offers a window onto it (see
//! [`DaxMode`](extant_blockdev::DaxMode)).

use crate::api::filesystem::Filesystem;
use extant_blockdev::{PersistenceDomain, Way};
use std::fmt;

/// Whether fsyncs go to the byte log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ByteLogMode {
    /// No.
    #[default]
    Off,
    /// If it can be used; [`Filesystem::sync_way`] tells whether it is.
    On,
    /// Yes: opening a volume for writing fails if the byte log cannot be used.
    Force,
}

/// How an fsync makes changes durable, in the usual case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SyncWay {
    /// Writes to their home locations and a flush: there is no journal.
    Home,
    /// A commit and a flush.
    Commits,
    /// A fast commit in blocks and a flush.
    FastCommits,
    /// A fast commit stored into the byte log.
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

/// For people: a sentence without its subject "fsync".
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
    /// What an fsync does on this volume, and what it survives.
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
