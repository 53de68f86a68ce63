//! The byte log: fast commits stored into memory that lasts, line by line.
//!
//! ```text
//!   first fast commit of an epoch      records ─store, write back, fence─► ring
//!                                      HEAD ANCHOR TAIL ─forced write────► block 0
//!   every later one                    records ─store, write back, fence─► ring behind them
//!   full commit, durable               the epoch is over; the next one starts at the ring's base
//!
//!   block 0        ring                                  kept by a replay of transaction T
//!   HEAD T ANCHOR  T,0 ─ T,1 A ─ T,2 A ─ T,3 ▒▒▒▒▒▒▒▒     up to the last ANCHOR (A): T,2
//!   HEAD T-1 …     T,0 ─ T,1 A ─ T-1,2 A                  nothing: the epoch was never opened
//! ```
//!
//! Rules, in addition to those of the ordinary area:
//! - Nothing acknowledged is overwritten: records are appended as long as the epoch lasts, and
//!   a new epoch starts when a full commit has made the old one's records obsolete, durably.
//! - The commit point of a fast commit is the ANCHOR in its last record. Its sum covers the epoch so
//!   far, so what is left of an older life of the log does not fit on, whatever its own sums say.
//! - Anything wrong behind the last ANCHOR is the end of the log.
//! - One transaction's fast commits are all in the ring, or all in blocks.

#[cfg(test)]
mod journal_test;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

pub(crate) use writer::{ByteLog, ByteLogState};
