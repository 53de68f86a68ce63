//! Write-back errors; each opener gets each error once.
//!
//! ```text
//!   63                     16 15        0
//!   │ errors so far          │  errno   │      each opener keeps the last word it has seen
//! ```

use super::FileCache;
use extant_base::narrow::low_u32;
use extant_base::{ByteOffset, Error, IoOp, Result};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

impl FileCache {
    /// Records a write-back error. [`FileCache::check_error`] returns it once to each opener.
    pub fn note_error(&self, error: &Error) {
        let errno = u64::from(error.errno().cast_unsigned()) & 0xffff;
        let next = |word: u64| Some((word >> 16).wrapping_add(1) << 16 | errno);
        let _ = self.changing.errors.fetch_update(AcqRel, Acquire, next);
    }

    /// The current error word, which a new opener keeps for [`FileCache::check_error`].
    pub fn error_seen(&self) -> u64 {
        self.changing.errors.load(Acquire)
    }

    /// Returns the last error that this opener has not seen, once, and updates `seen`.
    ///
    /// # Errors
    /// The last error recorded since `seen`.
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
                source: std::io::Error::from_raw_os_error(low_u32(errno).cast_signed()),
            },
        })
    }
}
