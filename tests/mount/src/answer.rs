//! Answers of calls as text: equal text means equal answers.

use rustix::fs::{FileType, Statx};
use rustix::io::Errno;
use std::fmt::Write;

/// A result of a call.
pub trait Shown {
    /// The part of it that can be equal on two volumes.
    fn shown(&self) -> String;
}

impl Shown for () {
    fn shown(&self) -> String {
        "ok".into()
    }
}

impl Shown for rustix::fd::OwnedFd {
    fn shown(&self) -> String {
        "opened".into()
    }
}

impl Shown for std::ffi::CString {
    fn shown(&self) -> String {
        text(self.as_bytes())
    }
}

impl Shown for Vec<u8> {
    fn shown(&self) -> String {
        text(self)
    }
}

macro_rules! as_displayed {
    ($($kind:ty),+) => {
        $(impl Shown for $kind {
            fn shown(&self) -> String {
                self.to_string()
            }
        })+
    };
}

as_displayed!(usize, u64, i64, u32, bool, String, &str);

impl<T: Shown> Shown for Option<T> {
    fn shown(&self) -> String {
        self.as_ref().map_or("none".into(), Shown::shown)
    }
}

impl<T: Shown> Shown for Result<T, Errno> {
    fn shown(&self) -> String {
        match self {
            Ok(answer) => answer.shown(),
            Err(error) => errno_name(*error),
        }
    }
}

/// Type, permissions, links, owner, size and device: what `stat` shows of any file at any time.
impl Shown for Statx {
    fn shown(&self) -> String {
        let mode = u32::from(self.stx_mode);
        let kind = FileType::from_raw_mode(mode);
        let mut all = format!("{kind:?} {:04o} nlink {}", mode & 0o7777, self.stx_nlink);
        write!(all, " owner {}:{}", self.stx_uid, self.stx_gid).expect("a String takes all");
        if kind != FileType::Directory {
            write!(all, " size {}", self.stx_size).expect("a String takes all");
        }
        if matches!(kind, FileType::CharacterDevice | FileType::BlockDevice) {
            let (major, minor) = (self.stx_rdev_major, self.stx_rdev_minor);
            write!(all, " device {major}:{minor}").expect("a String takes all");
        }
        all
    }
}

/// Bytes for a reader: unchanged if short and printable, otherwise their number and a checksum.
pub fn text(bytes: &[u8]) -> String {
    if bytes.len() <= 64 {
        return format!("'{}'", bytes.escape_ascii());
    }
    let sum = bytes.iter().fold(0xCBF2_9CE4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3)
    });
    let zeros = bytes.iter().filter(|byte| **byte == 0).count();
    format!("{} bytes, {zeros} of them 0, sum {sum:016x}", bytes.len())
}

macro_rules! names {
    ($($name:ident)+) => {
        /// The name of an errno, such as `ENOENT`.
        pub fn errno_name(errno: Errno) -> String {
            match errno {
                $(Errno::$name => concat!("E", stringify!($name)).into(),)+
                other => format!("errno {}", other.raw_os_error()),
            }
        }
    };
}

names! {
    ACCESS AGAIN BADF BUSY EXIST FAULT FBIG INVAL IO ISDIR LOOP MLINK NAMETOOLONG NODATA NODEV NOENT
    NOMEM NOSPC NOSYS NOTCONN NOTDIR NOTEMPTY NOTTY NXIO OPNOTSUPP OVERFLOW PERM PIPE RANGE ROFS
    SPIPE STALE TXTBSY TOOBIG XDEV UCLEAN DQUOT
}
