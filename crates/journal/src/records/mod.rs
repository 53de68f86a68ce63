//! What handles changed, as records of fast commits.

pub(crate) mod changes;
pub(crate) mod fold;
#[cfg(test)]
mod fold_test;
pub(crate) mod ineligible;
pub(crate) mod notes;
pub(crate) mod ranges;
pub(crate) mod writer;
