//! The jbd2 journal: metadata blocks, the handles that change them, and recovery of the log.
//!
//! ```text
//!   engine ──get──► MetaCache ──► MetaBlock ──read()──► MetaRef        shared bytes
//!      │                              │
//!      └─start──► Handle ───────── write(&handle) ──► MetaMut ──bytes_mut()──► MetaBytesMut
//!                                                                                  │ dirty
//!                     device ◄── write-out, device order, large writes ◄───────────┘
//! ```
//!
//! Metadata changes only through a [`Handle`]: that is what lets a transaction stand behind the
//! same types. [`Journal::off`] gives the types without a log, for bulk loads of images that are
//! thrown away on failure, for volumes without a journal and for recovery.

#![forbid(unsafe_code)]

mod cache;
mod device_stub;
mod handle;
mod journal;
mod meta_block;
#[cfg(test)]
mod test_device;
mod write_out;

pub use cache::{CacheOptions, CacheStats, MetaCache};
pub use device_stub::BlockDevice;
pub use handle::{Credits, Handle};
pub use journal::Journal;
pub use meta_block::{MetaBlock, MetaBytesMut, MetaMut, MetaRef};
