//! Readers beside write-back: who waits for the device goes before who need not.
//!
//! ```text
//!   reader       │ read 2 MiB ──► │ next ──► │           waits for each
//!   write-back   │ 2 MiB │ 2 MiB │ 2 MiB │ 2 MiB │ …    4 files, 4 flights each; nobody waits
//! ```
//! A device that serves in order gives each as much as it has in the queue: the reader a fifth, or less.
//! While somebody reads from the device, and for [`REST`] after it, one thread of the flusher works,
//! with one flight: both get about half. Who writes faster than that meets the brakes, as with any
//! device that is as slow. What `fsync` writes is not held up.

use super::nanos;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A reader that goes on does so within this time.
const REST: Duration = Duration::from_millis(3);

/// Those who read from the device, for themselves or ahead of somebody.
#[derive(Default)]
pub(crate) struct Readers {
    now: AtomicU64,
    /// When the last one had its bytes ([`nanos`]); 0: never.
    last: AtomicU64,
}

/// One of them.
pub(crate) struct Reading<'a>(&'a Readers);

impl Readers {
    /// Somebody begins to read, until what comes back is dropped.
    pub fn begin(&self) -> Reading<'_> {
        self.now.fetch_add(1, Ordering::Relaxed);
        Reading(self)
    }

    /// Whether somebody reads, or did a moment ago.
    pub fn are_there(&self) -> bool {
        if self.now.load(Ordering::Relaxed) > 0 {
            return true;
        }
        let last = self.last.load(Ordering::Relaxed);
        last > 0 && nanos(Instant::now()).saturating_sub(last) < REST.as_nanos() as u64
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
        assert!(!readers.are_there());
        let (first, second) = (readers.begin(), readers.begin());
        drop(first);
        std::thread::sleep(2 * REST);
        assert!(readers.are_there());
        drop(second);
        std::thread::sleep(2 * REST);
        assert!(!readers.are_there());
    }
}
