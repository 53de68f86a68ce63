//! What a handle changed, in terms that a fast commit can record.
//!
//! ```text
//!   engine ──note──► Handle ──stop──► running transaction ──fsync──► fold ──► records
//!                                                             ▲
//!                                     Snapshot ───────────────┘  inodes and maps as they are now
//! ```
//!
//! A note names an inode, a range or a name. Its content is read when the fast commit is written.
//! So a file that was written a thousand times since the last fsync is recorded once.

use crate::records::ineligible::Ineligible;
use extant_base::{BlockNr, Ino, Result};

/// What a handle changed. Each change of metadata has one of these notes, or [`Change::Full`]. If a
/// handle changed blocks and noted nothing, the next commit is a full one.
///
/// For a rename, note the new name before the old one, so that the inode has a name at every
/// moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// Fields of an inode: size, times, mode, links and so on. If the inode is not a regular file,
    /// this is not recorded, and an fsync of it takes a full commit.
    Inode(Ino),
    /// The mapping of a file's blocks from `first` to `last`, and fields of its inode.
    Range {
        /// The file.
        ino: Ino,
        /// First block in the file.
        first: u32,
        /// Last block; 2^32 - 1 for the rest of the file.
        last: u32,
    },
    /// A new inode got its first name.
    Create {
        /// The directory.
        parent: Ino,
        /// The inode.
        ino: Ino,
        /// 1..=255 bytes.
        name: &'a [u8],
    },
    /// An inode got a name.
    Link {
        /// The directory.
        parent: Ino,
        /// The inode.
        ino: Ino,
        /// 1..=255 bytes.
        name: &'a [u8],
    },
    /// An inode lost a name. If it was the last one and the inode is freed at once,
    /// [`Change::InodeFreed`] follows before the next sync. An inode that is still open takes a
    /// full commit.
    Unlink {
        /// The directory.
        parent: Ino,
        /// The inode.
        ino: Ino,
        /// 1..=255 bytes.
        name: &'a [u8],
    },
    /// An inode number was allocated. The inode may get a name later, or never.
    InodeAllocated(Ino),
    /// An inode was freed, with its blocks and its number.
    InodeFreed(Ino),
    /// Nothing that needs a record: recovery computes it, as counters and checksums.
    Nothing,
    /// A change that no record describes: a full commit is needed.
    Full(Ineligible),
}

/// The fields of an inode that decide how it is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedInode {
    /// Its number of names.
    pub links: u32,
    /// It is a regular file. Other kinds take a full commit.
    pub regular: bool,
    /// Its blocks are recorded as ranges; `false` if its content is in the inode.
    pub mapped: bool,
}

/// A range of a file's map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// First block in the file.
    pub logical: u32,
    /// First block on the volume.
    pub physical: BlockNr,
    /// Blocks, at least 1. May be more than one extent holds.
    pub len: u32,
    /// Whether the blocks hold data; otherwise they read as zeros.
    pub written: bool,
}

/// The volume's metadata as it is now, for a fast commit.
///
/// The journal calls this while no handle runs and none can start. So an implementation takes no
/// lock of a rank below `Handle`: its holder may be waiting for a handle. If a call fails, the
/// commit is a full one.
pub trait Snapshot: Sync {
    /// Appends the inode's bytes to `raw`, which is empty: 128 + extra_isize bytes, or the whole
    /// inode if it holds its content. `None`: records cannot describe it.
    ///
    /// # Errors
    /// Any; the commit is a full one then.
    fn inode(&self, ino: Ino, raw: &mut Vec<u8>) -> Result<Option<RecordedInode>>;

    /// Calls `each` for the mapped ranges between the blocks `first` and `last`, ascending.
    ///
    /// # Errors
    /// Any; the commit is a full one then.
    fn pieces(&self, ino: Ino, first: u32, last: u32, each: &mut dyn FnMut(Piece)) -> Result<()>;
}
