//! Inodes and their blocks: looked up, stored, created, mapped, checksummed, recorded as orphans
//! and for fast commits.

pub(crate) mod create;
pub(crate) mod data_csum;
pub(crate) mod fast_commit;
pub(crate) mod file;
pub(crate) mod inline;
pub(crate) mod journal_map;
pub(crate) mod lookup;
pub(crate) mod map;
pub(crate) mod metadata;
pub(crate) mod mount;
pub(crate) mod orphan;
pub(crate) mod statfs;
pub(crate) mod store;

use crate::volume::Volume;
/// The inodes of a volume: by number, in memory or from their table.
#[derive(Clone, Copy)]
pub(crate) struct Inodes<'a> {
    volume: &'a Volume,
}

impl Volume {
    /// The inodes of this volume, by number.
    pub(crate) fn inodes(&self) -> Inodes<'_> {
        Inodes { volume: self }
    }
}
