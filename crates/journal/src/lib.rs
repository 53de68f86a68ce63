//! The jbd2 journal: metadata blocks, the handles that change them, transactions, and recovery of
//! the log.
//!
//! ```text
//!   engine ──get──► MetaCache ──► MetaBlock ──read()──► MetaRef        shared bytes
//!      │                              │
//!      └─start──► Handle ───────── write(&handle) ──► MetaMut ──bytes_mut()──► MetaBytesMut
//!                   │                                                              │ joins
//!                   └─stop──► running transaction ◄────────────────────────────────┘
//!                                  │ commit: log, flush, commit block, flush
//!                     device ◄── write-out, device order, large writes; then the log's tail moves
//! ```
//!
//! Metadata changes only through a [`Handle`]: that is what lets a transaction stand behind it.
//! [`Journal::with_log`] makes every handle whole or absent whenever the power goes.
//! [`Journal::off`] gives the same types without a log, for bulk loads of images that are thrown
//! away on failure, for volumes without a journal and for recovery.

#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

#[cfg(test)]
mod abort_test;
mod append;
mod background;
mod block;
mod byte_log;
mod cache;
#[cfg(test)]
mod cache_test;
mod changes;
mod checkpoint;
mod commit;
#[cfg(test)]
mod commit_test;
#[cfg(test)]
mod crash_test;
mod fast_commit;
mod fast_commit_area;
#[cfg(test)]
mod fast_commit_area_test;
mod fast_commit_log;
#[cfg(test)]
mod fast_commit_test;
mod flushes;
mod fold;
#[cfg(test)]
mod fold_test;
mod gathering;
mod handle;
mod homeward;
mod journal;
mod log;
mod log_space;
mod log_stream;
mod meta_block;
mod notes;
mod ranges;
mod reach;
mod recovery;
#[cfg(test)]
mod recovery_cut_test;
#[cfg(test)]
mod recovery_hostile_test;
mod replay;
mod reread;
mod revoke;
mod running;
mod scan;
mod shard;
mod sink;
mod stats;
mod superblock_last;
mod tell;
#[cfg(test)]
mod test_device;
#[cfg(test)]
mod test_hook;
#[cfg(test)]
mod test_journal;
#[cfg(test)]
mod test_log;
mod transactions;
mod write_out;

pub use cache::{CacheOptions, CacheStats, MetaCache};
pub use changes::{Change, CommitPoint, InodeTold, Piece, Snapshot};
pub use fast_commit_log::FastCommitLog;
pub use flushes::Watched;
pub use handle::{Credits, Handle};
pub use journal::Journal;
pub use log::{HomeLimits, Log, LogMap, LogRun};
pub use meta_block::{MetaBlock, MetaBytesMut, MetaMut, MetaRef};
pub use recovery::{Amend, Recovery};
pub use reread::Worth;
pub use scan::LogUsage;
pub use stats::{ByteLogStats, Ineligible, JournalStats};
pub use transactions::{CommitClock, JournalOptions};
