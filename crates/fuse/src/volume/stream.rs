//! Streams: much data read or written in order through one opening.
//!
//! ```text
//!   read  │ 16 MiB in order … │ read: what was not in the cache leaves it again
//!   write │ 16 MiB in order … │ write: bytes leave the cache once they are on the device
//!                             └── device too slow: they stay, and wait as others do
//! ```
//!
//! The kernel's cache has these bytes, too, so a second copy of them saves little. And memory that
//! is used for the first time is slow: the kernel clears it, and on a virtual machine the host must
//! find it. A stream whose bytes leave the cache uses the same memory again and again.

use extant::cache::CacheUse;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// This many bytes in order are a stream.
const LONG: u64 = 16 << 20;
/// While more bytes of streams wait for the device, further ones stay in the cache: the writer
/// should not be slowed down to the device's rate earlier than other writers.
const BEHIND: u64 = 16 << 20;
/// After this many bytes, the device is examined again.
const STEP_LOG2: u32 = 20;
/// The kernel sends some reads at once, and they may be served in another order: a read is in order
/// if it starts at most this many of its lengths before or after the end of the one before.
const SLACK: u64 = 2;

/// The streams through one opening. Threads that use it at the same time may confuse it; the result
/// is only a hint.
#[derive(Default)]
pub(super) struct Streams {
    read: InOrder,
    written: InOrder,
    /// Whether the device kept up when it was last examined.
    keeps_up: AtomicBool,
}

impl Streams {
    /// Notes a read of `len` bytes at `offset`. Returns how it shall use the cache.
    pub(super) fn read(&self, offset: u64, len: u64) -> CacheUse {
        let (_, run) = self.read.note(offset, len, len.saturating_mul(SLACK));
        if run > LONG { CacheUse::DropBehind } else { CacheUse::Keep }
    }

    /// Notes a write of `len` bytes at `offset`. Returns how it shall use the cache. `behind`
    /// returns how many bytes of streams wait for the device.
    pub(super) fn write(&self, behind: impl FnOnce() -> u64, offset: u64, len: u64) -> CacheUse {
        let (before, run) = self.written.note(offset, len, 0);
        if run <= LONG {
            return CacheUse::Keep;
        }
        if before <= LONG || before >> STEP_LOG2 != run >> STEP_LOG2 {
            self.keeps_up.store(behind() < BEHIND, Ordering::Relaxed);
        }
        match self.keeps_up.load(Ordering::Relaxed) {
            true => CacheUse::DropBehind,
            false => CacheUse::Keep,
        }
    }
}

/// Bytes in order.
#[derive(Default)]
struct InOrder {
    /// Where the last piece ended.
    end: AtomicU64,
    /// Bytes in order up to there.
    run: AtomicU64,
}

impl InOrder {
    /// Notes `len` bytes at `offset`, in order if that is at most `slack` bytes from the last end.
    /// Returns the number of bytes in order before and after them.
    fn note(&self, offset: u64, len: u64, slack: u64) -> (u64, u64) {
        let end = self.end.swap(offset.saturating_add(len), Ordering::Relaxed);
        let before = match end.abs_diff(offset) <= slack {
            true => self.run.load(Ordering::Relaxed),
            false => 0,
        };
        let run = before.saturating_add(len);
        self.run.store(run, Ordering::Relaxed);
        (before, run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use CacheUse::{DropBehind, Keep};

    const MIB: u64 = 1 << 20;

    #[test]
    fn long_writes_in_order_are_a_stream_while_the_device_keeps_up() {
        let streams = Streams::default();
        let write = |at: u64, behind| streams.write(|| behind, at * MIB, MIB);
        assert!((0..16).all(|at| write(at, 0) == Keep));
        assert!((16..20).all(|at| write(at, 0) == DropBehind));
        assert_eq!(write(20, BEHIND), Keep);
        assert_eq!(write(21, 0), DropBehind);
        // A gap ends it.
        assert!((30..46).all(|at| write(at, 0) == Keep));
        assert_eq!(write(46, 0), DropBehind);
        // Small writes examine the device once for each MiB.
        let small = |n: u64, behind| streams.write(|| behind, 47 * MIB + n * 4096, 4096);
        assert!((0..255).all(|n| small(n, BEHIND) == DropBehind));
        assert_eq!(small(255, BEHIND), Keep);
    }

    #[test]
    fn reads_that_were_sent_at_once_are_one_stream() {
        let streams = Streams::default();
        let read = |at: u64| streams.read(at * MIB, MIB);
        assert!(
            [1, 0, 2, 3, 5, 4, 7, 6, 8, 10, 9, 11, 13, 12, 14, 15]
                .iter()
                .all(|&at| read(at) == Keep)
        );
        assert_eq!(read(16), DropBehind);
        assert_eq!(read(18), DropBehind);
        assert_eq!(read(17), DropBehind);
        // Elsewhere.
        assert_eq!(read(40), Keep);
    }
}
