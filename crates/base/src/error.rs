//! One error type for every layer: what, where, and one errno.

use crate::site::Site;
use crate::what::What;
use crate::words::Tid;
use core::fmt;

/// Shorthand for results across the layers.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// Which bit field a feature stands in.
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
    /// Not a bit: a format version or an option of a feature.
    Option,
}

/// A feature that this engine does not keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Feature {
    /// The field it stands in.
    pub set: FeatureSet,
    /// Its bits in that field, or the unknown value.
    pub bits: u32,
    /// Its name in e2fsprogs, or a short description; empty when nobody has named it.
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
    /// Telling the device that blocks are free.
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

/// Who holds a volume, as the volume itself says (multiple mount protection).
#[cfg(feature = "std")]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    /// Name of its host; empty when it gave none.
    pub node: String,
    /// Name of the volume's device there; empty when it gave none.
    pub device: String,
    /// When it last said so, seconds since 1970.
    pub seen: u64,
    /// A checker: it says nothing while it works, so nobody can tell whether it still does.
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

/// Everything that can go wrong. `?` carries it across the layers unchanged.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// No such name.
    NotFound,
    /// The name is taken.
    Exists,
    /// A path component is not a directory.
    NotADirectory,
    /// A file was asked for and a directory is there.
    IsADirectory,
    /// The directory still holds names.
    NotEmpty,
    /// A name is longer than 255 bytes, or a path or target too long.
    NameTooLong,
    /// A name is not valid UTF-8 in a directory that demands it.
    NameNotUtf8,
    /// Too many symlinks on the way.
    TooManyLinks,
    /// An inode has as many links as its format can count.
    LinkLimit,
    /// No blocks or inodes left.
    NoSpace,
    /// The system has no memory left.
    NoMemory,
    /// The owner, group or project may not use more.
    QuotaExceeded,
    /// A file would become larger than its format allows.
    FileTooLarge,
    /// An attribute that is not there.
    NoAttribute,
    /// An argument that makes no sense.
    Invalid(&'static str),
    /// The file or its directory is marked immutable or append-only, or is of a kind that this is
    /// never done to.
    NotPermitted,
    /// A kind of attribute that only another kind of file has.
    Denied(&'static str),
    /// Names of one file would stand in directories of different projects.
    CrossProject,
    /// The operation is not offered for this kind of file.
    NotSupported(&'static str),
    /// An attribute's name is empty or longer than 255 bytes.
    OutOfRange,
    /// An attribute's value is longer than 64 KiB.
    TooBig,
    /// The volume is open read-only.
    ReadOnly,
    /// Somebody else uses the volume.
    Busy,
    /// Another process of this machine has locked the file or device.
    Locked {
        /// The process, by number.
        pid: u32,
    },
    /// It would have to wait, and was not to.
    WouldBlock,
    /// The caller's memory is not there.
    Fault,
    /// Somebody holds the volume, perhaps on another host.
    #[cfg(feature = "std")]
    Held {
        /// Who.
        holder: Box<Holder>,
    },
    /// The file's content is encrypted and no key is known.
    Encrypted,
    /// Bytes on the disk are wrong.
    Corrupt {
        /// Which check failed.
        what: What,
        /// Where.
        at: Site,
    },
    /// The volume uses something this engine does not keep.
    Unsupported {
        /// What it is.
        feature: Feature,
    },
    /// The device failed.
    #[cfg(feature = "std")]
    Device {
        /// What was tried.
        op: IoOp,
        /// Where, in bytes from the device's start.
        at: crate::words::ByteOffset,
        /// How many bytes.
        len: usize,
        /// What the system said.
        source: std::io::Error,
    },
    /// A member of a layout cannot be what it is named for.
    #[cfg(feature = "std")]
    Member(Box<crate::MemberError>),
    /// A change is larger than the log takes as one step.
    TransactionTooLarge {
        /// Log blocks that it needs.
        needed: u64,
        /// Log blocks that one step can have.
        limit: u64,
    },
    /// The journal gave up in this transaction; the volume is read-only now.
    Aborted {
        /// The transaction that could not be kept.
        tid: Tid,
    },
}

impl Error {
    /// The same answer for one more who waits for it.
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
            Error::TransactionTooLarge { needed, limit } => {
                Error::TransactionTooLarge { needed: *needed, limit: *limit }
            }
            Error::Aborted { tid } => Error::Aborted { tid: *tid },
        }
    }

    /// The errno a system call would return, as Linux numbers it.
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
            Error::Corrupt { what: What::DataChecksum, .. } => 5, // EIO, as for a block that cannot be read
            Error::Corrupt { .. } => 117,                         // EUCLEAN
            Error::Unsupported { .. } => 95,                      // EOPNOTSUPP
            #[cfg(feature = "std")]
            Error::Device { source, .. } => source.raw_os_error().unwrap_or(5), // EIO
            #[cfg(feature = "std")]
            Error::Member(member) => match member.problem {
                crate::MemberProblem::CannotOpen { errno }
                | crate::MemberProblem::Failed { errno } => errno,
                _ => 22, // EINVAL
            },
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
            Error::TooManyLinks => f.write_str("too many symbolic links on the way"),
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
            Error::WouldBlock => f.write_str("it would have to wait"),
            Error::Fault => f.write_str("the memory of the caller is not there"),
            Error::Busy => f.write_str("the volume is in use"),
            Error::Locked { pid } => write!(f, "process {pid} has locked it"),
            #[cfg(feature = "std")]
            Error::Held { holder } => {
                write!(f, "the volume is in use by {holder}, last seen at {} s", holder.seen)
            }
            Error::Encrypted => f.write_str("the content is encrypted and no key is known"),
            // Most often another file was named, and nothing is damaged.
            Error::Corrupt { what: What::SuperblockMagic, at } if at.group.is_none() => {
                f.write_str("not an ext2, ext3 or ext4 volume")
            }
            Error::Corrupt { what, at } => write!(f, "corrupt: {} ({at})", what.text()),
            Error::Unsupported { feature } => write!(f, "unsupported: {feature}"),
            // An open has no place, and a flush is about all of the device.
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
            Error::TransactionTooLarge { needed, limit } => write!(
                f,
                "the change needs {needed} blocks of the journal at once and can have {limit}: make \
                 it in smaller steps, or give the volume a larger journal"
            ),
            Error::Aborted { tid } => {
                write!(f, "the journal gave up in transaction {tid}; the volume is read-only now")
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

/// The kind that the standard library has for the errno, with this error and all that it says inside:
/// [`get_ref`](std::io::Error::get_ref) gives it back.
#[cfg(feature = "std")]
impl From<Error> for std::io::Error {
    fn from(error: Error) -> std::io::Error {
        let kind = std::io::Error::from_raw_os_error(error.errno()).kind();
        std::io::Error::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::{BlockNr, Ino};
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
    fn an_io_error_keeps_what_and_where() {
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
