//! The wire format: the requests and replies of FUSE protocol 7.45.
//!
//! ```text
//!   request   ┌───────────┬──────────────────┬───────────────────────────┐
//!             │ InHeader  │ the operation's  │ names, each ended by NUL; │
//!             │ 40 bytes  │ struct, 0..=88   │ or data                   │
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

/// The protocol's major version. No other version exists.
pub const MAJOR: u32 = 7;
/// The minor version for which this crate is written.
pub const MINOR: u32 = 45;
/// The oldest minor version that this crate supports: that of Linux 5.4.
pub const OLDEST_MINOR: u32 = 31;
/// The smallest buffer into which the kernel delivers a request.
pub const MIN_READ_BUFFER: usize = 8192;
/// Page size. The protocol counts a request's payload in pages.
pub const PAGE: usize = 4096;
/// Longest name of a directory entry, in bytes.
pub const NAME_MAX: usize = 255;
/// Longest value of an extended attribute, and longest list of attribute names, in bytes.
pub const XATTR_MAX: usize = 65536;

/// Bit of [`GetattrIn::getattr_flags`]: `fh` is valid.
pub const GETATTR_FH: u32 = 1;
/// Bit of [`FsyncIn::fsync_flags`]: data only.
pub const FSYNC_FDATASYNC: u32 = 1;
/// Bit of [`SetxattrIn::setxattr_flags`]: the set-group-ID bit is cleared.
pub const SETXATTR_ACL_KILL_SGID: u32 = 1;
/// Bits of [`StatxOut`]'s mask: the fields that `stat` has.
pub const STATX_BASIC_STATS: u32 = 0x7ff;
/// Bit of [`StatxOut`]'s mask: the time of birth.
pub const STATX_BTIME: u32 = 0x800;
/// Notification code, sent in place of an errno with a unique number of 0: the kernel drops what it
/// has cached of an inode.
pub const NOTIFY_INVAL_INODE: i32 = 2;
/// `ioctl` number that attaches a newly opened `/dev/fuse` to the connection of another one, which
/// the argument names by its fd.
pub const DEV_IOC_CLONE: u32 = 0x8004_e500;

/// Rounds the size of a directory record up to a multiple of 8 bytes.
pub const fn record_align(bytes: usize) -> usize {
    (bytes + 7) & !7
}
