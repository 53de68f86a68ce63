//! Priority of readers over write-back: a reader waits for the device, a flusher does not have to.
//!
//! ```text
//!   reader       │ read 2 MiB ──► │ next ──► │           waits for each
//!   write-back   │ 2 MiB │ 2 MiB │ 2 MiB │ 2 MiB │ …    4 files, 4 writes in flight each
//! ```
//! A device that serves requests in order gives each thread a share equal to its part of the queue:
//! the reader a fifth, or less. While a thread reads from the device, and for [`LINGER`] after it,
//! one flusher thread works, with one write in flight: reader and flusher get about half each. A
//! writer that is faster than that is throttled, as with any device that slow. Writes of `fsync`
//! are not delayed.

use super::{nanos, nanos_of};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A sequential reader continues within this time.
const LINGER: Duration = Duration::from_millis(3);

/// The threads that read from the device, for a caller or for read-ahead.
#[derive(Default)]
pub(crate) struct Readers {
    now: AtomicU64,
    /// When the last read ended ([`nanos`]); 0 means never.
    last: AtomicU64,
}

/// One read under way.
pub(crate) struct Reading<'a>(&'a Readers);

impl Readers {
    /// Counts a reader until the result is dropped.
    pub fn begin(&self) -> Reading<'_> {
        self.now.fetch_add(1, Ordering::Relaxed);
        Reading(self)
    }

    /// Whether a thread reads now, or did within [`LINGER`].
    pub fn are_active(&self) -> bool {
        if self.now.load(Ordering::Relaxed) > 0 {
            return true;
        }
        let last = self.last.load(Ordering::Relaxed);
        last > 0 && nanos(Instant::now()).saturating_sub(last) < nanos_of(LINGER)
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.last.store(nanos(Instant::now()).max(1), Ordering::Relaxed);
        self.0.now.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_are_there_until_the_last_has_ended_and_rested() {
        let readers = Readers::default();
        assert!(!readers.are_active());
        let (first, second) = (readers.begin(), readers.begin());
        drop(first);
        std::thread::sleep(2 * LINGER);
        assert!(readers.are_active());
        drop(second);
        std::thread::sleep(2 * LINGER);
        assert!(!readers.are_active());
    }
}
