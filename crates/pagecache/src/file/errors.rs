//! Errors of write-back, told once to each opener.
//!
//! ```text
//!   63                     16 15        0
//!   │ errors so far          │  errno   │      an opener keeps the word it has seen
//! ```

use super::FileCache;
use extant_base::{ByteOffset, Error, IoOp, Result};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

impl FileCache {
    /// Write-back failed: every opener is told once.
    pub fn note_error(&self, error: &Error) {
        let errno = error.errno() as u64 & 0xffff;
        let next = |word: u64| Some((word >> 16).wrapping_add(1) << 16 | errno);
        let _ = self.changing.errors.fetch_update(AcqRel, Acquire, next);
    }

    /// The mark of a new opener, to be kept for [`FileCache::check_error`].
    pub fn error_seen(&self) -> u64 {
        self.changing.errors.load(Acquire)
    }

    /// The error that this opener has not been told of, once: the last one, if there were several.
    pub fn check_error(&self, seen: &AtomicU64) -> Result<()> {
        let now = self.changing.errors.load(Acquire);
        if seen.load(Acquire) == now || seen.swap(now, AcqRel) == now {
            return Ok(());
        }
        Err(match now & 0xffff {
            28 => Error::NoSpace,
            122 => Error::QuotaExceeded,
            30 => Error::ReadOnly,
            12 => Error::NoMemory,
            errno => Error::Device {
                op: IoOp::Write,
                at: ByteOffset(0),
                len: 0,
                source: std::io::Error::from_raw_os_error(errno as i32),
            },
        })
    }
}
