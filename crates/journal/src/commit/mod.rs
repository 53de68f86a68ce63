//! Transactions, from the first handle to the checkpoint.

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
