//! Sets of bits, with the names that the protocol gives them.

use bitflags::bitflags;

bitflags! {
    /// Features that the kernel offers and the server accepts in INIT. Bits from 32 on travel in
    /// `flags2`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct InitFlags: u64 {
        /// The kernel sends several reads of one file at the same time.
        const ASYNC_READ = 1;
        /// The server handles locks of byte ranges.
        const POSIX_LOCKS = 1 << 1;
        /// `open` truncates.
        const ATOMIC_O_TRUNC = 1 << 3;
        /// LOOKUP accepts "." and "..".
        const EXPORT_SUPPORT = 1 << 4;
        /// Writes larger than a page.
        const BIG_WRITES = 1 << 5;
        /// The server applies the umask.
        const DONT_MASK = 1 << 6;
        /// The server handles `flock`.
        const FLOCK_LOCKS = 1 << 10;
        /// `ioctl` on directories.
        const HAS_IOCTL_DIR = 1 << 11;
        /// The kernel drops the cached pages of a file when the file's time of change differs.
        const AUTO_INVAL_DATA = 1 << 12;
        /// The server supports READDIRPLUS.
        const DO_READDIRPLUS = 1 << 13;
        /// The kernel sends READDIRPLUS only where it is likely to save requests.
        const READDIRPLUS_AUTO = 1 << 14;
        /// The kernel's page cache holds writes for some time (write-back mode).
        const WRITEBACK_CACHE = 1 << 16;
        /// OPEN may be answered ENOSYS.
        const NO_OPEN_SUPPORT = 1 << 17;
        /// The kernel sends lookups and listings of one directory at the same time.
        const PARALLEL_DIROPS = 1 << 18;
        /// The kernel checks access lists.
        const POSIX_ACL = 1 << 20;
        /// Reading the device after an abort gives ECONNABORTED.
        const ABORT_ERROR = 1 << 21;
        /// `max_pages` is valid.
        const MAX_PAGES = 1 << 22;
        /// Targets of symlinks stay in the kernel's cache.
        const CACHE_SYMLINKS = 1 << 23;
        /// OPENDIR may be answered ENOSYS.
        const NO_OPENDIR_SUPPORT = 1 << 24;
        /// The server clears set-ID bits as the flags of a request say.
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        /// SETXATTR's struct has 16 bytes.
        const SETXATTR_EXT = 1 << 29;
        /// `flags2` is valid.
        const INIT_EXT = 1 << 30;
        /// Openings with O_DIRECT may be mapped as shared memory.
        const DIRECT_IO_ALLOW_MMAP = 1 << 36;
        /// Requests travel over io_uring.
        const OVER_IO_URING = 1 << 41;
        const _ = !0;
    }

    /// What SETATTR changes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Fattr: u32 {
        const MODE = 1;
        const UID = 1 << 1;
        const GID = 1 << 2;
        const SIZE = 1 << 3;
        const ATIME = 1 << 4;
        const MTIME = 1 << 5;
        const FH = 1 << 6;
        const ATIME_NOW = 1 << 7;
        const MTIME_NOW = 1 << 8;
        const LOCKOWNER = 1 << 9;
        const CTIME = 1 << 10;
        const KILL_SUIDGID = 1 << 11;
        const _ = !0;
    }

    /// How the kernel treats an opening: flags in the reply to OPEN, OPENDIR and CREATE.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct OpenReply: u32 {
        /// No read or write goes through the kernel's cache.
        const DIRECT_IO = 1;
        /// Opening does not drop what the kernel has cached.
        const KEEP_CACHE = 1 << 1;
        /// The listing may be cached.
        const CACHE_DIR = 1 << 3;
        /// Closing sends no FLUSH.
        const NO_FLUSH = 1 << 5;
        /// The kernel may send several direct writes at the same time.
        const PARALLEL_DIRECT_WRITES = 1 << 6;
    }

    /// Origin of the bytes of a WRITE, and what else the write does.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct WriteRequest: u32 {
        /// From the kernel's cache.
        const CACHE = 1;
        /// `lock_owner` is valid.
        const LOCKOWNER = 1 << 1;
        /// The write clears the set-ID bits.
        const KILL_SUIDGID = 1 << 2;
        const _ = !0;
    }

    /// Origin of an IOCTL.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct IoctlFlags: u32 {
        /// From a 32-bit program.
        const COMPAT = 1;
        /// The command may follow pointers: only for devices.
        const UNRESTRICTED = 1 << 1;
        /// On a directory.
        const DIR = 1 << 4;
        const _ = !0;
    }
}
