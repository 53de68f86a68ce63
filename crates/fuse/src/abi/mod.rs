//! The wire: what the kernel and a FUSE server say to each other, as protocol 7.45 has it.
//!
//! ```text
//!   request   ┌───────────┬──────────────────┬───────────────────────────┐
//!             │ InHeader  │ the operation's  │ names, each ended by NUL; │
//!             │ 40 bytes  │ struct, 0..=104  │ or data                   │
//!             └───────────┴──────────────────┴───────────────────────────┘
//!   reply     ┌───────────┬──────────────────────────────────────────────┐
//!             │ OutHeader │ nothing after an error, else a struct, data, │
//!             │ 16 bytes  │ or directory records padded to 8 bytes       │
//!             └───────────┴──────────────────────────────────────────────┘
//! ```
//!
//! All numbers are in the machine's byte order. Names and values are those of `linux/fuse.h`.

#[allow(missing_docs, reason = "the names are those of linux/fuse.h")]
mod flags;
mod opcode;
mod structs;

pub use flags::{Fattr, InitFlags, IoctlFlags, OpenReply, WriteRequest};
pub use opcode::Opcode;
pub use structs::*;

/// The protocol's major version; there is no other.
pub const MAJOR: u32 = 7;
/// The minor version this crate was written for.
pub const MINOR: u32 = 45;
/// The oldest minor version spoken: Linux 5.4.
pub const OLDEST_MINOR: u32 = 31;
/// The smallest buffer that the kernel reads a request into.
pub const MIN_READ_BUFFER: usize = 8192;
/// A page of the machine, in which the protocol counts what a request may carry.
pub const PAGE: usize = 4096;
/// Longest name of a directory entry, in bytes.
pub const NAME_MAX: usize = 255;
/// Longest value of an extended attribute, and longest list of their names, in bytes.
pub const XATTR_MAX: usize = 65536;

/// Bit of [`GetattrIn::getattr_flags`]: `fh` is valid.
pub const GETATTR_FH: u32 = 1;
/// Bit of [`FsyncIn::fsync_flags`]: data only.
pub const FSYNC_FDATASYNC: u32 = 1;
/// Bit of [`SetxattrIn::setxattr_flags`]: the set-group-ID bit goes.
pub const SETXATTR_ACL_KILL_SGID: u32 = 1;
/// Bit of [`StatxOut`]'s mask: what `stat` has.
pub const STATX_BASIC_STATS: u32 = 0x7ff;
/// Bit of [`StatxOut`]'s mask: the time of birth.
pub const STATX_BTIME: u32 = 0x800;
/// In place of an errno, with a unique number of 0: the kernel shall forget what it keeps of an inode.
pub const NOTIFY_INVAL_INODE: i32 = 2;
/// `ioctl` number that gives a freshly opened `/dev/fuse` the connection of another, named by its fd.
pub const DEV_IOC_CLONE: u32 = 0x8004_e500;

/// Bytes that a directory record's size is rounded up to.
pub const fn record_align(bytes: usize) -> usize {
    (bytes + 7) & !7
}
