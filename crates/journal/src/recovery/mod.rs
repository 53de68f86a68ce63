//! Recovery: writes home what a log holds after a crash.
//!
//! ```text
//!   history                     old copies that the log still holds
//!   old_fast_commits            old fast commits that their area still holds
//!   append                      one more change: a transaction of the log, then home
//!   recover                     the passes in order, and the end of a recovery
//!   replay                      third pass: newest copies go home
//!   revoke, volume_end          second pass: dead copies; end of a volume being enlarged
//!   scan                        first pass: committed transactions, end of the log
//!   superblock_last             the volume's superblock goes home after all other blocks
//! ```

pub(crate) mod append;
#[cfg(test)]
pub(crate) mod cut_test;
pub(crate) mod history;
#[cfg(test)]
mod hostile_test;
mod old_fast_commits;
pub(crate) mod recover;
pub(crate) mod replay;
pub(crate) mod revoke;
pub(crate) mod scan;
pub(crate) mod superblock_last;
pub(crate) mod volume_end;
