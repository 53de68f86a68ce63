//! INIT: what the kernel offers, what the filesystem wants, and what both accept.
//!
//! ```text
//!   kernel's InitIn ──┐
//!                     ├──► Agreed ──► InitOut
//!   Settings ─────────┘     only what both have
//! ```
//!
//! Never requested:
//! - ATOMIC_O_TRUNC: the truncation is lost where the server does not receive OPEN.
//! - AUTO_INVAL_DATA: no other machine or process changes the files.
//! - Locks: for a mount on one machine, the kernel handles them correctly by itself.

use crate::abi::{self, InitFlags};
use crate::operations::{Handles, Settings};
use crate::request::Limits;

/// Limit of requests that the kernel has outstanding without a waiting caller: read-ahead,
/// write-back, and direct I/O in parts.
const MAX_BACKGROUND: u16 = 64;
/// From this number on, the kernel treats the device as congested.
const CONGESTION: u16 = 48;
/// Smallest transfer limit. It bounds listings and attribute values too.
const MIN_TRANSFER: u32 = 4096;
/// Largest transfer limit: the pages that Linux permits per request by default.
const MAX_TRANSFER: u32 = 1 << 20;

/// What the kernel and the filesystem agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// Minor version of the protocol in use.
    pub minor: u32,
    /// Features in use.
    pub flags: InitFlags,
    /// Largest READ and WRITE, bytes: a multiple of the page.
    pub max_transfer: u32,
    /// Largest read-ahead, bytes.
    pub max_readahead: u32,
    /// For which openings the kernel sends requests.
    pub handles: Handles,
    /// Granularity of times, nanoseconds.
    pub time_granularity_ns: u32,
}

/// Why the kernel and the server cannot agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The kernel has a newer major version. It expects a reply that names ours, and then sends
    /// INIT again.
    SendMajor,
    /// The kernel's protocol is too old.
    TooOld {
        /// The kernel's major version.
        major: u32,
        /// The kernel's minor version.
        minor: u32,
    },
}

impl Agreed {
    /// Chooses what both sides support. OVER_IO_URING is not requested here: the ring transport
    /// sets it.
    ///
    /// ASYNC_DIO is not requested either. With it, Linux invalidates cached pages before an
    /// asynchronous direct write but not after it, so a page that a buffered read loads in between
    /// keeps the old bytes for ever. Without it, the submission waits for the write, and Linux
    /// invalidates the pages afterwards.
    ///
    /// # Errors
    /// The [`Refusal`] if the versions do not fit.
    pub fn negotiate(offer: &abi::InitIn, want: &Settings) -> Result<Agreed, Refusal> {
        match (offer.major, offer.minor) {
            (abi::MAJOR, abi::OLDEST_MINOR..) => {}
            (major, _) if major > abi::MAJOR => return Err(Refusal::SendMajor),
            (major, minor) => return Err(Refusal::TooOld { major, minor }),
        }
        let mut flags = InitFlags::ASYNC_READ
            | InitFlags::EXPORT_SUPPORT
            | InitFlags::BIG_WRITES
            | InitFlags::DONT_MASK
            | InitFlags::HAS_IOCTL_DIR
            | InitFlags::DO_READDIRPLUS
            | InitFlags::READDIRPLUS_AUTO
            | InitFlags::PARALLEL_DIROPS
            | InitFlags::MAX_PAGES
            | InitFlags::HANDLE_KILLPRIV_V2
            | InitFlags::SETXATTR_EXT
            | InitFlags::INIT_EXT;
        flags.set(InitFlags::WRITEBACK_CACHE, want.writeback_cache);
        flags.set(InitFlags::POSIX_ACL, want.posix_acl);
        flags.set(InitFlags::NO_OPENDIR_SUPPORT, want.handles == Handles::None);
        flags.set(InitFlags::NO_OPEN_SUPPORT, want.handles != Handles::All);
        flags.set(InitFlags::CACHE_SYMLINKS, !want.every_read);
        // Programs also map files that bypass the cache for reads.
        flags.set(InitFlags::DIRECT_IO_ALLOW_MMAP, want.every_read);
        flags &= offered(offer);
        let max_transfer = want.max_transfer.clamp(MIN_TRANSFER, MAX_TRANSFER);
        let max_transfer = max_transfer & !(abi::PAGE as u32 - 1);
        Ok(Agreed {
            minor: offer.minor.min(abi::MINOR),
            flags,
            max_transfer,
            max_readahead: offer.max_readahead.min(max_transfer),
            handles: want.handles,
            time_granularity_ns: want.time_granularity_ns.clamp(1, 1_000_000_000),
        })
    }

    /// The reply to INIT.
    pub fn reply(&self) -> abi::InitOut {
        let bits = self.flags.bits();
        abi::InitOut {
            major: abi::MAJOR,
            minor: abi::MINOR,
            max_readahead: self.max_readahead,
            flags: bits as u32,
            max_background: MAX_BACKGROUND,
            congestion_threshold: CONGESTION,
            max_write: self.max_transfer,
            time_gran: self.time_granularity_ns,
            max_pages: (self.max_transfer as usize / abi::PAGE) as u16,
            flags2: (bits >> 32) as u32,
            ..Default::default()
        }
    }

    /// Limits that requests are checked against.
    pub fn limits(&self) -> Limits {
        Limits {
            max_transfer: self.max_transfer,
            max_reply: self.reply_bytes() as u32,
            setxattr_ext: self.flags.contains(InitFlags::SETXATTR_EXT),
        }
    }

    /// Largest payload of a reply, without its header, in bytes.
    pub fn reply_bytes(&self) -> usize {
        (self.max_transfer as usize).max(abi::XATTR_MAX + abi::PAGE)
    }

    /// Longest request with its header, in bytes.
    pub fn request_bytes(&self) -> usize {
        let front = size_of::<abi::InHeader>() + size_of::<abi::WriteIn>();
        // A SETXATTR carries name and value in one request, however small the largest write is.
        front + (self.max_transfer as usize).max(abi::XATTR_MAX + abi::PAGE)
    }
}

/// The features that the kernel offers.
pub fn offered(offer: &abi::InitIn) -> InitFlags {
    let low = InitFlags::from_bits_retain(offer.flags.into());
    match low.contains(InitFlags::INIT_EXT) {
        true => low | InitFlags::from_bits_retain(u64::from(offer.flags2) << 32),
        false => low,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const WANT: Settings = Settings {
        writeback_cache: true,
        posix_acl: true,
        handles: Handles::None,
        time_granularity_ns: 1,
        max_transfer: 1 << 20,
        every_read: false,
    };

    fn offer(flags: InitFlags) -> abi::InitIn {
        abi::InitIn {
            major: 7,
            minor: 45,
            max_readahead: 128 << 10,
            flags: flags.bits() as u32,
            flags2: (flags.bits() >> 32) as u32,
            ..Default::default()
        }
    }

    /// The agreement of a new kernel with a filesystem that wants everything.
    pub(crate) fn agreed() -> Agreed {
        Agreed::negotiate(&offer(InitFlags::all()), &WANT).unwrap()
    }

    #[test]
    fn only_what_both_have_is_agreed_on() {
        let all = agreed();
        assert!(all.flags.contains(InitFlags::WRITEBACK_CACHE | InitFlags::POSIX_ACL));
        assert!(!all.flags.intersects(InitFlags::ATOMIC_O_TRUNC | InitFlags::AUTO_INVAL_DATA));
        assert!(!all.flags.intersects(InitFlags::POSIX_LOCKS | InitFlags::FLOCK_LOCKS));
        assert!(!all.flags.contains(InitFlags::OVER_IO_URING), "asked for without rings");
        assert_eq!(all.reply().max_pages, 256);
        let little = offer(InitFlags::ASYNC_READ | InitFlags::FLOCK_LOCKS);
        let little = Agreed::negotiate(&little, &WANT).unwrap();
        assert_eq!(little.flags, InitFlags::ASYNC_READ);
    }

    #[test]
    fn transfers_are_whole_pages_within_bounds() {
        for (want, got) in [(0, 4096), (5000, 4096), (1 << 20, 1 << 20), (u32::MAX, 1 << 20)] {
            let want = Settings { max_transfer: want, ..WANT };
            let agreed = Agreed::negotiate(&offer(InitFlags::all()), &want).unwrap();
            assert_eq!(agreed.max_transfer, got);
        }
    }

    #[test]
    fn versions_must_meet() {
        let of = |major, minor| abi::InitIn { major, minor, ..offer(InitFlags::all()) };
        assert_eq!(Agreed::negotiate(&of(8, 0), &WANT), Err(Refusal::SendMajor));
        let old = Err(Refusal::TooOld { major: 7, minor: 30 });
        assert_eq!(Agreed::negotiate(&of(7, 30), &WANT), old);
        assert_eq!(Agreed::negotiate(&of(7, 99), &WANT).unwrap().minor, abi::MINOR);
    }
}
