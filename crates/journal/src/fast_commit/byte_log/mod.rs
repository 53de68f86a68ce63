//! The byte log: fast commits stored, cache line by cache line, into memory that keeps its content.
//!
//! ```text
//!   first fast commit of an epoch      records ─store, write back, fence─► ring
//!                                      HEAD ANCHOR TAIL ─forced write────► block 0
//!   every later one                    records ─store, write back, fence─► ring, appended
//!   full commit, durable               the epoch is over; the next one starts at the ring's base
//!
//!   block 0        ring                                  kept by a replay of transaction T
//!   HEAD T ANCHOR  T,0 ─ T,1 A ─ T,2 A ─ T,3 ▒▒▒▒▒▒▒▒     up to the last ANCHOR (A): T,2
//!   HEAD T-1 …     T,0 ─ T,1 A ─ T-1,2 A                  nothing: the epoch was never opened
//! ```
//!
//! Rules, in addition to those of the fast-commit area:
//! - No acknowledged byte is overwritten. Records are appended during an epoch. A new epoch starts
//!   after a full commit has durably replaced the records of the old one.
//! - The commit point of a fast commit is the ANCHOR in its last record. Its checksum covers the
//!   epoch so far. So records of an earlier session do not continue the epoch, even if their own
//!   checksums are right.
//! - The log ends at the last ANCHOR before the first error.
//! - All fast commits of one transaction are in the ring, or all of them are in blocks.

#[cfg(test)]
mod journal_test;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

pub(crate) use writer::{ByteLog, ByteLogState};
