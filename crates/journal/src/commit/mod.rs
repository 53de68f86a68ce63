//! Transactions, from the start of a handle to the checkpoint.
//!
//! ```text
//!   background                     commits and checkpoints by clock and on request
//!   admission                      handles join the running transaction; credits
//!   make_space                     log space by commits and checkpoints; close
//!   leader                         one thread commits, others wait for it
//!   full_commit   fast_commit      the two kinds of commit
//!   checkpoint                     committed blocks go home, the tail moves
//!   transactions                   state of the journal; close and lock the running transaction
//!   running, gathering, signal, stats, contribution, point, one_handle       its parts
//! ```

#[cfg(test)]
mod abort_test;
pub(crate) mod admission;
pub(crate) mod background;
pub(crate) mod checkpoint;
#[cfg(test)]
mod commit_test;
pub(crate) mod contribution;
#[cfg(test)]
pub(crate) mod crash_test;
pub(crate) mod fast_commit;
#[cfg(test)]
pub(crate) mod fast_commit_test;
pub(crate) mod full_commit;
pub(crate) mod gathering;
pub(crate) mod leader;
pub(crate) mod make_space;
pub(crate) mod one_handle;
pub(crate) mod point;
pub(crate) mod running;
pub(crate) mod signal;
pub(crate) mod stats;
pub(crate) mod transactions;
