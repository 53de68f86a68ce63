//! What a handle changed, in words that a fast commit can repeat.
//!
//! ```text
//!   engine ──note──► Handle ──stop──► running transaction ──fsync──► fold ──► records
//!                                                             ▲
//!                                     Snapshot ───────────────┘  inodes and maps as they are now
//! ```
//!
//! A note says which inode, range or name; what it looks like is asked for when it is told. So a
//! file that was written a thousand times since the last fsync is told once.

use crate::records::ineligible::Ineligible;
use extant_base::{BlockNr, Ino, Result};

/// What a handle changed. Every change of metadata is told by one of these, or by [`Change::Full`]:
/// a handle that changed blocks and noted nothing makes the next commit a full one.
///
/// Of a rename the new name comes before the old one: an inode that has a name keeps one
/// throughout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// Fields of an inode: size, times, mode, links and so on. Of an inode that is not a regular
    /// file it is not told, and its fsync is a full commit.
    Inode(Ino),
    /// What the blocks of a file from `first` to `last` map to, and fields.
    Range {
        /// The file.
        ino: Ino,
        /// First block in the file.
        first: u32,
        /// Last one; 2^32 - 1 for the rest of the file.
        last: u32,
    },
    /// A new inode gets its first name.
    Create {
        /// The directory.
        parent: Ino,
        /// What gets the name.
        ino: Ino,
        /// 1..=255 bytes.
        name: &'a [u8],
    },
    /// An inode gets a name.
    Link {
        /// The directory.
        parent: Ino,
        /// What gets the name.
        ino: Ino,
        /// 1..=255 bytes.
        name: &'a [u8],
    },
    /// A name goes. Where it is an inode's last one and the inode goes at once, [`Change::Gone`]
    /// follows before the next sync; an inode that is still in use takes a full commit.
    Unlink {
        /// The directory.
        parent: Ino,
        /// What had the name.
        ino: Ino,
        /// 1..=255 bytes.
        name: &'a [u8],
    },
    /// An inode number was taken. The inode need not have a name yet, nor get one.
    Made(Ino),
    /// An inode is gone: its blocks are free and its number is.
    Gone(Ino),
    /// Nothing that recovery would not find out for itself, as counters and sums.
    Nothing,
    /// Something that no record describes: a full commit is needed.
    Full(Ineligible),
}

/// What is told of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeTold {
    /// Names that lead to it.
    pub links: u32,
    /// It is a regular file. Other kinds are told by full commits.
    pub regular: bool,
    /// Its blocks are told as ranges; `false` when its content is in the inode.
    pub mapped: bool,
}

/// A piece of a file's map.
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
/// Asked while no handle runs and none can start: what waits for a handle to start must not be
/// waited for, so no lock of a rank below `Handle` may be taken. An error makes the commit a full
/// one.
pub trait Snapshot: Sync {
    /// Puts the inode's bytes into `raw`, which is empty: 128 + extra_isize, or the whole inode
    /// when it holds its content. `None`: records cannot tell it.
    fn inode(&self, ino: Ino, raw: &mut Vec<u8>) -> Result<Option<InodeTold>>;

    /// Calls `each` for what is mapped of the blocks from `first` to `last`, ascending.
    fn pieces(&self, ino: Ino, first: u32, last: u32, each: &mut dyn FnMut(Piece)) -> Result<()>;
}
