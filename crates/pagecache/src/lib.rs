//! The page cache: file bytes in memory, between the engine and the device.
//!
//! ```text
//!   read_hit, overwrite_hit          read, write, populate             take_dirty, discard
//!        │ folio locks only               │ caller holds the inode lock     │ write-back, truncate
//!        ▼                                ▼                                 ▼
//!   index (atomics) ──────────► slots: one folio each ◄───────── each file's ordered index
//!                                 │ RwLock, per-block bitmaps
//!                                 ▼
//!                               frames: memory, 4 KiB … 2 MiB
//! ```
//!
//! The cache has no knowledge of inodes, extents or journals. It reads missing file bytes through a
//! [`Fill`] and writes dirty bytes back through an [`Owner`].

#![deny(unsafe_code)]
#![warn(missing_debug_implementations)]
// Casts that can lose bits are in `extant_base::narrow` only.
#![cfg_attr(
    not(test),
    warn(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)
)]

mod bits;
mod cache;
mod config;
mod content;
mod file;
mod folio;
mod frames;
mod index;
mod interface;
mod memory;
mod owner;
mod readahead;
mod reclaim;
mod shared;
mod slots;
mod stats;
#[doc(hidden)]
pub mod visits;
mod writeback;

pub use cache::PageCache;
pub use config::{CacheConfig, DontCachePolicy};
pub use content::Content;
pub use file::FileCache;
pub use file::borrow::{FolioMut, FolioRef};
pub use file::dirty::{Landing, Taken};
pub use interface::{Demand, Fill, Source, Use};
pub use owner::Owner;
pub use readahead::ReadStream;
pub use stats::CacheStats;
pub use writeback::WritePermit;
