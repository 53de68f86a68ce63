//! ext4 in user space: open, make, read and change real ext4 volumes.
//!
//! ```text
//!   Filesystem, File, ReadDir, Walk, Metadata        what embedders use, in the manner of std::fs
//!        │ path
//!   path, dir ──► inode ──► map ──► data             names, inodes, blocks, bytes
//!        └──────── group, xattr ──────┘
//!   volume: device, journal and its cache, layout    shared by all threads
//! ```
//!
//! # Examples
//!
//! ```
//! # let _here = extant_guide_tests::with_image();
//! let fs = extant::Filesystem::open("disk.img")?;
//! let passwd = fs.read_to_string("/etc/passwd")?;
//! let size: u64 = fs
//!     .walk("/")
//!     .filter_map(|entry| entry.and_then(|entry| entry.metadata()).ok())
//!     .map(|metadata| metadata.len())
//!     .sum();
//! println!("{} users, {size} bytes", passwd.lines().count());
//! # Ok::<(), extant::Error>(())
//! ```

#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

mod api;
mod audit;
mod context;
mod files;
mod inodes;
mod offline;
mod open;
mod parallel;
mod progress;
mod recovery;
mod space;
mod state;
#[cfg(test)]
mod tests;
mod tree;
mod volume;

pub use audit::{check, scrub, survey};
pub use offline::{bulk, mkfs, resize, tune};

pub use api::direct_queue::{DirectDone, DirectQueue};
pub use api::file::{File, FileExtent};
pub use api::filesystem::{Filesystem, Stats};
pub use api::node::{LastAccess, Node};
pub use api::read_dir::{DirCursor, DirEntry, ReadDir};
pub use context::damage::DamagePolicy;
pub use context::environment::{
    Clock, Environment, FixedClock, Rng, SeededRng, SystemClock, SystemRng,
};
pub use extant_base::{
    BlockNr, BlockSize, ByteOffset, Error, Feature, GroupNr, Holder, Ino, Result, Site, What,
};
pub use extant_blockdev::{
    Access, AlignedBuf, BlockDevice, CallerMemory, DaxMode, Faults, FileDevice, FileOptions,
    MemoryDevice, OwnedMemory, PersistenceDomain, QueueWay, SharedCursor, SharedMemory, Source,
    Span, Target, Way,
};
pub use extant_journal::{ByteLogStats, Ineligible, JournalStats, LogUsage};
pub use extant_ondisk::features::Features;
pub use extant_ondisk::inode::{DeviceNumber, FileKind, InodeFlags};
pub use extant_ondisk::superblock::Superblock;
pub use extant_ondisk::time::Timestamp;
pub use extant_pagecache::{CacheStats, DontCachePolicy, FolioMut, FolioRef, Use as CacheUse};
/// Volumes on several devices.
pub use extant_raid as raid;
pub use files::attributes::SetAttributes;
pub use files::direct::{Bounce, DirectOptions};
pub use files::file::FallocateMode;
pub use inodes::metadata::{Metadata, system_time};
pub use open::{OpenOptions, recover};
pub use state::bounce::DirectStats;
pub use tree::names::NewFile;
pub use tree::names::rename::RenameFlags;
pub use volume::DataMode;

pub use api::sync_way::{ByteLogMode, SyncWay};
pub use api::walk::{Walk, WalkEntry};
pub use inodes::statfs::SpaceInfo;
pub use progress::{Phase, Progress};
pub use recovery::RecoveryReport;
pub use tree::xattr::by_name::XattrMode;
