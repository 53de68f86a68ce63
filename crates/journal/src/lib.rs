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
//! Metadata changes only through a [`Handle`], so every change belongs to a transaction. With
//! [`Journal::with_log`], a power cut at any moment leaves each handle's changes whole or absent.
//! [`Journal::off`] gives the same types without a log: for bulk loads of images that are discarded
//! when they fail, for volumes without a journal, and for recovery.
//!
//! The *home* of a block is its place on the volume; a block goes home when it is written there.
//!
//! The modules lie in strata, which are folders. A module uses its own stratum and those below, and
//! the modules of a stratum form no cycle.
//!
//! ```text
//!   journal, handle, meta_mut     the API
//!   commit         running transaction, leader, full and fast commits, checkpoints, log space
//!   recovery       scan, revokes, replay; a change appended to a recovered log
//!   fast_commit    where fast commits lie: blocks after the log, or the byte log; written and read
//!   records        what handles changed, folded into records of a fast commit
//!   log            the log's map, superblock and space; the device that counts writes and flushes
//!   cache          metadata blocks in memory, written home in device order
//! ```

#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

mod cache;
mod commit;
mod fast_commit;
mod handle;
mod journal;
mod log;
mod meta_mut;
mod records;
mod recovery;
#[cfg(test)]
mod test_journal;
#[cfg(test)]
mod test_log;

pub use cache::meta_block::{MetaBlock, MetaRef};
pub use cache::meta_cache::{CacheOptions, CacheStats, MetaCache};
pub use cache::reread::Worth;
pub use commit::contribution::Credits;
pub use commit::point::CommitPoint;
pub use commit::stats::{ByteLogStats, JournalStats};
pub use commit::transactions::{CommitClock, JournalOptions};
pub use fast_commit::fast_commit_log::FastCommitLog;
pub use handle::Handle;
pub use journal::Journal;
pub use log::map::{LogMap, LogRun};
pub use log::open_log::Log;
pub use log::watched::Watched;
pub use meta_mut::{MetaBytesMut, MetaMut};
pub use records::changes::{Change, Piece, RecordedInode, Snapshot};
pub use records::ineligible::Ineligible;
pub use recovery::history::{LogHistory, OldCommit, OldCopy, UntaggedBlock};
pub use recovery::recover::Recovery;
pub use recovery::replay::HomeLimits;
pub use recovery::scan::LogUsage;
pub use recovery::superblock_last::Amend;
