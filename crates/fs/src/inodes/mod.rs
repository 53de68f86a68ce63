//! Inodes and their blocks: looked up, stored, created, mapped, checksummed, recorded as orphans
//! and for fast commits.

pub(crate) mod create;
pub(crate) mod data_csum;
pub(crate) mod fast_commit;
pub(crate) mod inline;
pub(crate) mod journal_map;
pub(crate) mod lookup;
pub(crate) mod map;
pub(crate) mod metadata;
pub(crate) mod mount;
pub(crate) mod orphan;
pub(crate) mod statfs;
pub(crate) mod store;
