//! Files on the device: writing, allocating, truncating and syncing, without the page cache.
//!
//! A write is atomic for other writers: they run one at a time. `write.rs` has the rules for the
//! order of data and metadata.

pub(crate) mod allocate;
mod covered;
pub(crate) mod defragment;
pub(crate) mod fresh;
mod inline;
mod journaled;
pub(crate) mod pieces;
pub(crate) mod relocate;
pub(crate) mod set_len;
mod shift;
mod sync;
pub(crate) mod write;

pub use allocate::FallocateMode;
pub use defragment::Defragmented;
