//! The error type of every crate: what went wrong, where, and which errno a system call returns.

use crate::numbers::Tid;
use crate::site::Site;
use crate::what::What;
use core::fmt;

/// A result whose error is [`Error`], unless another is named.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// The bit field that holds a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FeatureSet {
    /// `s_feature_compat`
    Compat,
    /// `s_feature_incompat`
    Incompat,
    /// `s_feature_ro_compat`
    RoCompat,
    /// The incompatible features of the journal superblock.
    Journal,
    /// No bit field: the feature is a format version or an option of another feature.
    Option,
}

/// A feature of a volume that this engine does not support.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Feature {
    /// The field that holds it.
    pub set: FeatureSet,
    /// Its bits in that field; for [`FeatureSet::Option`], the unknown value.
    pub bits: u32,
    /// Its name in e2fsprogs, or a short description; empty if it has no known name.
    pub name: &'static str,
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = match self.set {
            FeatureSet::Compat => "compatible",
            FeatureSet::Incompat => "incompatible",
            FeatureSet::RoCompat => "read-only compatible",
            FeatureSet::Journal => "journal",
            FeatureSet::Option => return write!(f, "{} ({:#x})", self.name, self.bits),
        };
        let name = if self.name.is_empty() { "unknown" } else { self.name };
        write!(f, "{set} feature {name} ({:#x})", self.bits)
    }
}

/// A device operation that failed.
#[cfg(feature = "std")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoOp {
    /// Opening the device or file.
    Open,
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// Making earlier writes durable.
    Flush,
    /// Reporting to the device that blocks are free.
    Discard,
    /// Changing the length.
    Resize,
}

#[cfg(feature = "std")]
impl fmt::Display for IoOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IoOp::Open => "open",
            IoOp::Read => "read",
            IoOp::Write => "write",
            IoOp::Flush => "flush",
            IoOp::Discard => "discard",
            IoOp::Resize => "resize",
        })
    }
}

/// The host that uses a volume, from the volume's multiple mount protection (MMP) block.
#[cfg(feature = "std")]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    /// The host's name; empty if the block has none.
    pub node: String,
    /// The name of the volume's device on that host; empty if the block has none.
    pub device: String,
    /// When the host last updated the block, in seconds since 1970.
    pub seen: u64,
    /// True for a checker. A checker does not update the block, so other hosts cannot find out
    /// whether it is still running.
    pub is_checker: bool,
}

#[cfg(feature = "std")]
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = |name: &'_ str| if name.is_empty() { "unnamed" } else { name }.to_owned();
        let who = if self.is_checker { "a checker" } else { "a writer" };
        let (node, device) = (named(&self.node), named(&self.device));
        write!(f, "{who} on host {node}, device {device}")
    }
}

/// Every error of every crate. `?` passes it through the layers unchanged.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// No such name.
    NotFound,
    /// The name is taken.
    Exists,
    /// A path component is not a directory.
    NotADirectory,
    /// The operation needs another kind of file, and the name is a directory.
    IsADirectory,
    /// The directory still has entries.
    NotEmpty,
    /// A name is longer than 255 bytes, or a path or symlink target is too long.
    NameTooLong,
    /// A name is not valid UTF-8, and its directory accepts only UTF-8 (strict casefold).
    NameNotUtf8,
    /// A path has too many symlinks.
    TooManyLinks,
    /// The inode's link count is at the limit of its format.
    LinkLimit,
    /// The volume has no free blocks or no free inodes left.
    NoSpace,
    /// The system has no memory left.
    NoMemory,
    /// The owner, group or project is at its quota limit.
    QuotaExceeded,
    /// The file would become larger than its format allows.
    FileTooLarge,
    /// The file has no such extended attribute.
    NoAttribute,
    /// An argument is invalid; the text says why.
    Invalid(&'static str),
    /// The file or its directory is immutable or append-only, or files of this kind do not permit
    /// the operation.
    NotPermitted,
    /// The attribute belongs to another kind of file; the text says to which.
    Denied(&'static str),
    /// The file and the directory of its new name belong to different projects.
    CrossProject,
    /// The volume or this kind of file does not support the operation; the text says which.
    NotSupported(&'static str),
    /// An attribute's name is empty or longer than 255 bytes.
    OutOfRange,
    /// An attribute's value is longer than 64 KiB.
    TooBig,
    /// The volume is open read-only.
    ReadOnly,
    /// The volume, or the part of it that the call needs, is in use.
    Busy,
    /// Another process of this machine has locked the file or device.
    Locked {
        /// Its process ID.
        pid: u32,
    },
    /// The operation would have to wait, and the caller asked not to wait.
    WouldBlock,
    /// An address of the caller's buffer is not mapped.
    Fault,
    /// Another user of the volume, perhaps on another host, holds it by multiple mount protection.
    #[cfg(feature = "std")]
    Held {
        /// That user.
        holder: Box<Holder>,
    },
    /// The file's content is encrypted, and the engine has no key.
    Encrypted,
    /// Bytes on disk failed a check.
    Corrupt {
        /// The check that failed.
        what: What,
        /// The place of the bytes.
        at: Site,
    },
    /// The volume uses a feature that this engine does not support.
    Unsupported {
        /// The feature.
        feature: Feature,
    },
    /// The device failed an operation.
    #[cfg(feature = "std")]
    Device {
        /// The operation.
        op: IoOp,
        /// The first byte of the transfer, counted from the device's start.
        at: crate::numbers::ByteOffset,
        /// The length of the transfer in bytes.
        len: usize,
        /// The system's error.
        source: std::io::Error,
    },
    /// A device cannot be used as the member of a layout.
    #[cfg(feature = "std")]
    Member(Box<crate::MemberError>),
    /// The partition that was asked for cannot be opened.
    #[cfg(feature = "std")]
    Disk(Box<crate::DiskError>),
    /// A change needs more log blocks than one transaction can have.
    TransactionTooLarge {
        /// Log blocks that the change needs.
        needed: u64,
        /// Log blocks that one transaction can have.
        limit: u64,
    },
    /// The journal aborted in this transaction; the volume is read-only now.
    Aborted {
        /// The transaction that failed.
        tid: Tid,
    },
}

impl Error {
    /// A copy of the error, for a further thread that waits for the same operation.
    ///
    /// A copied [`Error::Device`] keeps the errno, or else the kind and the text, of its source.
    pub fn again(&self) -> Error {
        match self {
            Error::NotFound => Error::NotFound,
            Error::Exists => Error::Exists,
            Error::NotADirectory => Error::NotADirectory,
            Error::IsADirectory => Error::IsADirectory,
            Error::NotEmpty => Error::NotEmpty,
            Error::NameTooLong => Error::NameTooLong,
            Error::NameNotUtf8 => Error::NameNotUtf8,
            Error::TooManyLinks => Error::TooManyLinks,
            Error::LinkLimit => Error::LinkLimit,
            Error::NoSpace => Error::NoSpace,
            Error::QuotaExceeded => Error::QuotaExceeded,
            Error::FileTooLarge => Error::FileTooLarge,
            Error::NoAttribute => Error::NoAttribute,
            Error::Invalid(why) => Error::Invalid(why),
            Error::NotPermitted => Error::NotPermitted,
            Error::Denied(why) => Error::Denied(why),
            Error::CrossProject => Error::CrossProject,
            Error::NotSupported(why) => Error::NotSupported(why),
            Error::OutOfRange => Error::OutOfRange,
            Error::TooBig => Error::TooBig,
            Error::ReadOnly => Error::ReadOnly,
            Error::Busy => Error::Busy,
            Error::Locked { pid } => Error::Locked { pid: *pid },
            Error::WouldBlock => Error::WouldBlock,
            Error::Fault => Error::Fault,
            Error::NoMemory => Error::NoMemory,
            #[cfg(feature = "std")]
            Error::Held { holder } => Error::Held { holder: holder.clone() },
            Error::Encrypted => Error::Encrypted,
            Error::Corrupt { what, at } => Error::Corrupt { what: *what, at: *at },
            Error::Unsupported { feature } => Error::Unsupported { feature: *feature },
            #[cfg(feature = "std")]
            Error::Device { op, at, len, source } => {
                let source = match source.raw_os_error() {
                    Some(errno) => std::io::Error::from_raw_os_error(errno),
                    None => std::io::Error::new(source.kind(), source.to_string()),
                };
                Error::Device { op: *op, at: *at, len: *len, source }
            }
            #[cfg(feature = "std")]
            Error::Member(error) => Error::Member(error.clone()),
            #[cfg(feature = "std")]
            Error::Disk(error) => Error::Disk(error.clone()),
            Error::TransactionTooLarge { needed, limit } => {
                Error::TransactionTooLarge { needed: *needed, limit: *limit }
            }
            Error::Aborted { tid } => Error::Aborted { tid: *tid },
        }
    }

    /// The errno that a system call returns for this error, as Linux numbers it.
    pub fn errno(&self) -> i32 {
        match self {
            Error::NotFound => 2,         // ENOENT
            Error::Exists => 17,          // EEXIST
            Error::NotADirectory => 20,   // ENOTDIR
            Error::IsADirectory => 21,    // EISDIR
            Error::NotEmpty => 39,        // ENOTEMPTY
            Error::NameTooLong => 36,     // ENAMETOOLONG
            Error::NameNotUtf8 => 22,     // EINVAL, as Linux answers for strict casefold
            Error::TooManyLinks => 40,    // ELOOP
            Error::LinkLimit => 31,       // EMLINK
            Error::NoSpace => 28,         // ENOSPC
            Error::NoMemory => 12,        // ENOMEM
            Error::QuotaExceeded => 122,  // EDQUOT
            Error::FileTooLarge => 27,    // EFBIG
            Error::NoAttribute => 61,     // ENODATA
            Error::Invalid(_) => 22,      // EINVAL
            Error::NotPermitted => 1,     // EPERM
            Error::Denied(_) => 13,       // EACCES
            Error::CrossProject => 18,    // EXDEV
            Error::NotSupported(_) => 95, // EOPNOTSUPP
            Error::OutOfRange => 34,      // ERANGE
            Error::TooBig => 7,           // E2BIG
            Error::ReadOnly => 30,        // EROFS
            Error::Busy => 16,            // EBUSY
            Error::Locked { .. } => 16,   // EBUSY
            Error::WouldBlock => 11,      // EAGAIN
            Error::Fault => 14,           // EFAULT
            #[cfg(feature = "std")]
            Error::Held { .. } => 16, // EBUSY
            Error::Encrypted => 126,      // ENOKEY
            // EIO, as for a block that cannot be read
            Error::Corrupt { what: What::DataChecksum, .. } => 5,
            Error::Corrupt { .. } => 117,    // EUCLEAN
            Error::Unsupported { .. } => 95, // EOPNOTSUPP
            #[cfg(feature = "std")]
            Error::Device { source, .. } => source.raw_os_error().unwrap_or(5), // EIO
            #[cfg(feature = "std")]
            Error::Member(member) => match member.problem {
                crate::MemberProblem::CannotOpen { errno }
                | crate::MemberProblem::Failed { errno } => errno,
                _ => 22, // EINVAL
            },
            #[cfg(feature = "std")]
            Error::Disk(_) => 22, // EINVAL
            Error::TransactionTooLarge { .. } => 28, // ENOSPC, as Linux answers for a log too small
            Error::Aborted { .. } => 30,             // EROFS
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotFound => f.write_str("no such file or directory"),
            Error::Exists => f.write_str("the name exists already"),
            Error::NotADirectory => f.write_str("not a directory"),
            Error::IsADirectory => f.write_str("is a directory"),
            Error::NotEmpty => f.write_str("directory is not empty"),
            Error::NameTooLong => f.write_str("name is too long"),
            Error::NameNotUtf8 => {
                f.write_str("name is not valid UTF-8, which this directory demands")
            }
            Error::TooManyLinks => f.write_str("too many symbolic links in the path"),
            Error::LinkLimit => f.write_str("too many links to one inode"),
            Error::NoSpace => f.write_str("no space left on the volume"),
            Error::NoMemory => f.write_str("out of memory"),
            Error::QuotaExceeded => f.write_str("quota exceeded"),
            Error::FileTooLarge => f.write_str("file would be larger than its format allows"),
            Error::NoAttribute => f.write_str("no such attribute"),
            Error::Invalid(why) => write!(f, "invalid argument: {why}"),
            Error::NotPermitted => f.write_str("not permitted for this file"),
            Error::Denied(why) => write!(f, "permission denied: {why}"),
            Error::CrossProject => f.write_str("the directory belongs to another project"),
            Error::NotSupported(why) => write!(f, "not supported: {why}"),
            Error::OutOfRange => f.write_str("an attribute name has 1 to 255 bytes"),
            Error::TooBig => f.write_str("an attribute value has at most 65536 bytes"),
            Error::ReadOnly => f.write_str("the volume is open read-only"),
            Error::WouldBlock => f.write_str("the operation would have to wait"),
            Error::Fault => f.write_str("an address of the caller's buffer is not mapped"),
            Error::Busy => f.write_str("the volume is in use"),
            Error::Locked { pid } => write!(f, "process {pid} has locked the file or device"),
            #[cfg(feature = "std")]
            Error::Held { holder } => {
                write!(f, "the volume is in use by {holder}, last seen at {} s", holder.seen)
            }
            Error::Encrypted => f.write_str("the content is encrypted and no key is known"),
            // In most cases the caller named the wrong file, and nothing is damaged.
            Error::Corrupt { what: What::SuperblockMagic, at } if at.group.is_none() => {
                f.write_str("not an ext2, ext3 or ext4 volume")
            }
            Error::Corrupt { what, at } => write!(f, "corrupt: {} ({at})", what.text()),
            Error::Unsupported { feature } => write!(f, "unsupported: {feature}"),
            // An open has no offset, and a flush covers the whole device.
            #[cfg(feature = "std")]
            Error::Device { op: op @ (IoOp::Open | IoOp::Flush), source, .. } => {
                write!(f, "device: {op} failed: {source}")
            }
            #[cfg(feature = "std")]
            Error::Device { op, at, len, source } => {
                write!(f, "device: {op} of {len} bytes at byte {at} failed: {source}")
            }
            #[cfg(feature = "std")]
            Error::Member(error) => error.fmt(f),
            #[cfg(feature = "std")]
            Error::Disk(error) => error.fmt(f),
            Error::TransactionTooLarge { needed, limit } => write!(
                f,
                "the change needs {needed} journal blocks in one transaction, which can have {limit}: \
                 make it in smaller steps, or give the volume a larger journal"
            ),
            Error::Aborted { tid } => {
                write!(f, "the journal aborted in transaction {tid}; the volume is read-only now")
            }
        }
    }
}

impl core::error::Error for Error {
    #[cfg(feature = "std")]
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Error::Device { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// The kind is the standard library's for [`Error::errno`]. The new error holds this one, and
/// [`get_ref`](std::io::Error::get_ref) returns it.
#[cfg(feature = "std")]
impl From<Error> for std::io::Error {
    fn from(error: Error) -> std::io::Error {
        let kind = std::io::Error::from_raw_os_error(error.errno()).kind();
        std::io::Error::new(kind, error)
    }
}

impl Site {
    /// The error for the check `what` that failed at this place.
    pub fn corrupt(self, what: What) -> Error {
        Error::Corrupt { what, at: self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbers::{BlockNr, Ino};
    use core::fmt::Write;

    #[test]
    fn an_error_says_what_and_where() {
        let at = Site::of_ino(Ino::new(51).unwrap()).block(BlockNr(8212)).offset(24);
        let mut text = Buffer::default();
        write!(text, "{}", at.corrupt(What::ExtentEmpty)).unwrap();
        assert_eq!(text.as_str(), "corrupt: extent length is zero (ino 51, block 8212, offset 24)");
        assert_eq!(at.corrupt(What::ExtentEmpty).errno(), 117);
    }

    #[cfg(feature = "std")]
    #[test]
    fn an_io_error_holds_the_error_it_is_made_of() {
        let fails = || -> std::io::Result<()> { Err(Error::NotFound)? };
        assert_eq!(fails().unwrap_err().kind(), std::io::ErrorKind::NotFound);
        let at = Site::of_ino(Ino::new(51).unwrap()).block(BlockNr(8212));
        let error = std::io::Error::from(at.corrupt(What::ExtentEmpty));
        assert_eq!(error.to_string(), "corrupt: extent length is zero (ino 51, block 8212)");
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
        assert!(matches!(inner, Some(Error::Corrupt { what: What::ExtentEmpty, .. })));
    }

    struct Buffer([u8; 128], usize);
    impl Default for Buffer {
        fn default() -> Self {
            Buffer([0; 128], 0)
        }
    }
    impl Buffer {
        fn as_str(&self) -> &str {
            core::str::from_utf8(&self.0[..self.1]).unwrap()
        }
    }
    impl Write for Buffer {
        fn write_str(&mut self, s: &str) -> fmt::Result {
            self.0[self.1..self.1 + s.len()].copy_from_slice(s.as_bytes());
            self.1 += s.len();
            Ok(())
        }
    }
}
