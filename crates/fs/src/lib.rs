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

mod attributes;
pub mod bulk;
mod cached;
pub mod check;
mod context;
mod create;
mod data;
mod dir;
mod direct;
mod exclusive;
mod fast_commit;
mod file;
mod filesystem;
mod inline;
mod inline_change;
mod inode;
mod journal_map;
mod map;
mod metadata;
pub mod mkfs;
mod mount;
mod names;
mod node;
mod open;
mod orphan;
mod parallel;
mod path;
mod quota;
mod read_dir;
mod recovery;
mod remove_inode;
pub mod resize;
pub mod scrub;
mod space;
mod staged;
mod statfs;
mod sums;
pub mod survey;
mod sync_way;
#[cfg(test)]
mod tests;
pub mod tune;
mod volume;
mod walk;
mod xattr;

pub use attributes::SetAttributes;
pub use context::damage::DamagePolicy;
pub use context::environment::{
    Clock, Environment, FixedClock, Rng, SeededRng, SystemClock, SystemRng,
};
pub use data::DataMode;
pub use direct::{Bounce, DirectDone, DirectOptions, DirectQueue, DirectStats};
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
pub use file::{FallocateMode, File, FileExtent};
pub use filesystem::{Filesystem, Stats};
pub use metadata::{Metadata, system_time};
pub use names::NewFile;
pub use names::rename::RenameFlags;
pub use node::{LastAccess, Node};
pub use open::{OpenOptions, recover};
pub use read_dir::{DirEntry, DirPlaces, ReadDir};

pub use recovery::RecoveryReport;
pub use statfs::SpaceInfo;
pub use sync_way::{ByteLogMode, SyncWay};
pub use walk::{Walk, WalkEntry};
pub use xattr::door::XattrMode;
