//! ext4 in user space: open, make, read and change real ext4 volumes.
//!
//! ```text
//!   Filesystem ─┬─ paths ──► read, write, rename, metadata, walk, …      in the manner of std::fs
//!   (clones     ├─ File ───► read_at, write_at, append, sync_data, …     in the manner of FileExt
//!    share it)  └─ Node ───► a file or directory, whatever happens to its names
//!        │
//!   OpenOptions ── image, block device, partition, several members, or any BlockDevice
//! ```
//!
//! - [`Filesystem::open`] opens an image for reading, [`OpenOptions`] for everything else. Nothing
//!   is written to an image that is opened for reading; a volume that needs recovery is then
//!   recovered in memory.
//! - All types that stand for an open volume can be shared between threads, and every method takes
//!   `&self`.
//! - Content of an image can be anything: damaged or forged structures give an
//!   [`Error`], which says what is wrong and where, and has the errno that Linux would return. `?`
//!   converts it to a [`std::io::Error`] that contains it.
//! - A change is durable after [`File::sync_data`], [`Filesystem::sync`] or
//!   [`Filesystem::close`]. After a crash at any time, the next opening recovers a consistent
//!   volume.
//!
//! | task | where |
//! |---|---|
//! | make a volume | [`mkfs`]; the crate `extant-image` fills one from files and archives |
//! | recover a volume | opening it does; [`recover`] without opening it |
//! | check it, report on it | [`check`], [`survey`] |
//! | find deleted files | [`undelete`] |
//! | copy its metadata for a report of a bug | [`dump`] |
//! | change its size, its features | [`resize`], [`tune`] |
//! | mirrors and stripes | [`raid`], [`scrub`] |
//! | past the page cache, without copies | [`direct`], [`File::borrow`] |
//! | a device of your own | [`BlockDevice`] |
//! | the same bytes in every run | [`Environment::fixed`] |
//!
//! # Examples
//!
//! ```
//! # let _here = extant_guide_tests::scratch_as_home();
//! use extant::mkfs::{self, MkfsOptions};
//! use extant::{Environment, FileDevice, Filesystem, NewFile, OpenOptions};
//! use std::sync::Arc;
//!
//! let device = Arc::new(FileDevice::create("disk.img", 64 << 20)?);
//! mkfs::format(device, &MkfsOptions::new().zeroed(true), &Environment::default())?;
//!
//! let fs = OpenOptions::new().write(true).open("disk.img")?;
//! fs.create_dir_all("/srv/app", &NewFile::directory())?;
//! fs.write("/srv/app/config", "answer = 42\n")?;
//! fs.rename("/srv/app", "/srv/main")?;
//! fs.close()?; // durable, and needs no recovery
//!
//! let fs = Filesystem::open("disk.img")?;
//! assert_eq!(fs.read_to_string("/srv/main/config")?, "answer = 42\n");
//! let mut files = 0;
//! for entry in fs.walk("/srv") {
//!     files += u32::from(entry?.metadata()?.is_file());
//! }
//! assert_eq!(files, 1);
//! # Ok::<(), extant::Error>(())
//! ```

#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]
// Casts that can lose bits are in `extant_base::narrow` only.
#![cfg_attr(
    not(test),
    warn(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)
)]

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

pub use audit::{check, dump, scrub, survey, undelete};
pub use offline::{bulk, compact, mkfs, resize, tune};

pub use api::file::{File, FileExtent};
pub use api::filesystem::{Filesystem, Stats};
pub use api::free_space::{FreeRuns, FreeSpaceDefragmented};
pub use api::node::{LastAccess, Node};
pub use api::quotas::QuotaUsage;
pub use api::read_dir::{DirCursor, DirEntry, ReadDir};
pub use api::walk::{Walk, WalkEntry};
pub use context::damage::DamagePolicy;
pub use context::environment::Environment;
pub use extant_base::{BlockNr, BlockSize, ByteOffset, Error, GroupNr, Ino, Result, Site, What};
pub use extant_blockdev::{BlockDevice, FileDevice, FileOptions, MemoryDevice};
pub use extant_ondisk::inode::{DeviceNumber, FileKind, InodeFlags};
pub use extant_ondisk::quota::QuotaKind;
pub use extant_ondisk::time::Timestamp;
/// Volumes on several devices.
pub use extant_raid as raid;
pub use files::attributes::SetAttributes;
pub use files::file::{Defragmented, FallocateMode};
pub use inodes::metadata::{Metadata, system_time};
pub use inodes::statfs::SpaceInfo;
pub use open::{OpenOptions, recover};
pub use progress::{Phase, Progress};
pub use recovery::RecoveryReport;
pub use state::quota::limits::QuotaLimits;
pub use tree::names::NewFile;
pub use tree::names::rename::RenameFlags;
pub use tree::xattr::by_name::XattrMode;
pub use volume::DataMode;

/// The page cache: its statistics, hints for it, and its bytes in place.
pub mod cache {
    pub use extant_pagecache::{CacheStats, DontCachePolicy, FolioMut, FolioRef, Use as CacheUse};
}

/// Devices as memory, and fast commits that are stored there.
pub mod dax {
    pub use crate::api::sync_way::{ByteLogMode, SyncWay};
    pub use extant_blockdev::{Dax, DaxMode, PersistenceDomain, Way};
    pub use extant_journal::ByteLogStats;
}

/// What implementations of [`BlockDevice`] need, and devices over other devices.
pub mod device {
    pub use crate::open::HeldDevice;
    pub use extant_blockdev::{Descriptor, Overlay, ReadOnly, Slice};
}

/// Direct I/O: between the caller's memory and the device, past the page cache.
pub mod direct {
    pub use crate::api::direct_queue::{DirectDone, DirectQueue};
    pub use crate::files::direct::{Bounce, DirectOptions};
    pub use crate::state::bounce::DirectStats;
    pub use extant_blockdev::{
        Access, AlignedBuf, CallerMemory, Faults, OwnedMemory, QueueWay, SharedCursor,
        SharedMemory, Source, Span, Target,
    };
}

/// Disks with partition tables.
pub mod disk {
    pub use extant_disk::{
        Copy, Disk, Guid, Partition, PartitionType, Selector, TableKind, parse_uuid, split_address,
        volume_part,
    };
}

/// Clocks and sources of randomness for [`Environment`].
pub mod environment {
    pub use crate::context::environment::{
        Clock, FixedClock, Rng, SeededRng, SystemClock, SystemRng,
    };
}

/// Types in the variants of [`Error`].
pub mod error {
    pub use extant_base::{DiskError, Holder, IoOp, MemberError, MemberProblem};
}

/// Feature bits of a superblock.
pub mod features {
    pub use extant_base::{Feature, FeatureSet};
    pub use extant_ondisk::features::{Compat, FeatureBit, Features, Incompat, RoCompat};
}

/// The journal as it is on disk, and statistics of commits.
pub mod journal {
    pub use extant_journal::{Ineligible, JournalStats, LogUsage};
    pub use extant_ondisk::jbd2::JournalSuperblock;
}

/// The fields of a superblock.
pub mod superblock {
    pub use extant_ondisk::superblock::{
        DefaultMountOpts, ErrorPolicy, ErrorRecord, SuperFlags, Superblock, VolumeState,
    };
}
