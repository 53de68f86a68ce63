//! What handles changed, as records of fast commits.
//!
//! ```text
//!   Change ──notes──► bytes in a handle, then in its transaction ──fold──► inodes, names
//!                                                                             │ writer, Snapshot
//!   Ineligible: why a full commit is needed instead                           └──► records
//! ```
//!
//! Source of the records' format: `extant_ondisk::fast_commit`.

pub(crate) mod changes;
pub(crate) mod fold;
#[cfg(test)]
mod fold_test;
pub(crate) mod ineligible;
pub(crate) mod notes;
pub(crate) mod ranges;
pub(crate) mod writer;
