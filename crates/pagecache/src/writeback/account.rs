//! Counts the bytes in each state.
//!
//! ```text
//!                dirtied            taken             written
//!     clean ───────────────► dirty ────────► writing ────────► clean
//!                              │  ◄──────────────┘
//!                              ▼     redirtied
//!                          discarded
//! ```
//! `marked` means that the folio is drop-behind. Each call is made under the folio's lock, so the
//! mark cannot change during it. A folio that loses its mark moves all of its bytes by `unmarked`.
//! A block that is dirtied while it is under write-back counts in both states.
//!
//! The counts are exact at any time, because the flusher must not miss the last small write. Moving
//! a byte from dirty to writing is one step of one counter (`dirty`). The counter `held` (dirty
//! plus writing) does not change then, so its peak is exact, too.

use super::gate::Gate;
use super::readers::Readers;
use super::throttle::{Thresholds, Throttle};
use crate::stats::CacheStats;
use std::sync::atomic::{AtomicI64, Ordering};

/// A count of bytes and its maximum. Signed: another thread may see a transition half done.
#[derive(Default)]
struct Gauge {
    now: AtomicI64,
    peak: AtomicI64,
}

impl Gauge {
    // SeqCst, for `Throttle` and `Gate`. A thread that waits first increments the number of waiters
    // and then reads the count. A thread that lowers the count then reads the number of waiters.
    // One of the two sees the other's change.
    fn add(&self, bytes: i64) {
        let now = self.now.fetch_add(bytes, Ordering::SeqCst) + bytes;
        if bytes > 0 && now > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(now, Ordering::Relaxed);
        }
    }

    fn now(&self) -> u64 {
        self.now.load(Ordering::SeqCst).max(0).cast_unsigned()
    }

    fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed).max(0).cast_unsigned()
    }
}

/// The bytes of one class of folios that are not on the device yet.
#[derive(Default)]
struct Unwritten {
    /// Dirty and not under write-back.
    dirty: Gauge,
    /// Dirty or under write-back.
    held: Gauge,
}

impl Unwritten {
    fn dirtied(&self, bytes: i64) {
        self.held.add(bytes);
        self.dirty.add(bytes);
    }
}

/// The number of bytes of the cache in each state, exact at any time, and the queues in which
/// writers wait.
pub(crate) struct Account {
    pub readers: Readers,
    cached: Gauge,
    /// Bytes in marked folios, in any state.
    drop_behind: Gauge,
    all: Unwritten,
    /// The part of `all` that is in marked folios.
    marked: Unwritten,
    /// Limits all writers while too many bytes are dirty.
    pub(super) throttle: Throttle,
    /// Limits don't-cache writers while too many of their bytes are dirty.
    pub(super) marked_throttle: Throttle,
    /// Where don't-cache writers wait before a write that would exceed the cap.
    pub(super) gate: Gate,
}

impl Account {
    /// An account with all counts zero. Writers wait at `dirty_limit` bytes. Don't-cache writers
    /// wait early enough that their dirty bytes stay within `dont_cache_cap` bytes.
    pub fn new(dirty_limit: u64, dont_cache_cap: u64) -> Account {
        Account {
            readers: Readers::default(),
            cached: Gauge::default(),
            drop_behind: Gauge::default(),
            all: Unwritten::default(),
            marked: Unwritten::default(),
            throttle: Throttle::new(Thresholds { start: dirty_limit / 2, full: dirty_limit }),
            // The throttle acts after a write, so a quarter is left for calls under way. The gate
            // is exact.
            marked_throttle: Throttle::new(Thresholds {
                start: dont_cache_cap / 2,
                full: dont_cache_cap / 4 * 3,
            }),
            gate: Gate::new(dont_cache_cap),
        }
    }

    /// Adds `bytes` of new folios (negative: removed folios).
    pub fn cached(&self, bytes: i64) {
        self.cached.add(bytes);
    }

    /// A new folio of `bytes`, all clean, is drop-behind.
    pub fn marked(&self, bytes: u64) {
        self.drop_behind.add(bytes.cast_signed());
    }

    /// A folio of `bytes` is no longer drop-behind: an ordinary user found it, or it is removed.
    /// `dirty` and `writing` are its bytes in these states.
    pub fn unmarked(&self, bytes: u64, dirty: u64, writing: u64) {
        self.drop_behind.add(-bytes.cast_signed());
        if dirty + writing > 0 {
            self.marked.dirty.add(-dirty.cast_signed());
            self.marked.held.add(-(dirty + writing).cast_signed());
            self.marked_fell();
        }
    }

    /// Clean bytes became dirty.
    pub fn dirtied(&self, bytes: u64, marked: bool) {
        self.all.dirtied(bytes.cast_signed());
        if marked {
            self.marked.dirtied(bytes.cast_signed());
        }
    }

    /// Write-back of dirty bytes starts.
    pub fn taken(&self, bytes: u64, marked: bool) {
        self.all.dirty.add(-bytes.cast_signed());
        if marked {
            self.marked.dirty.add(-bytes.cast_signed());
        }
    }

    /// Write-back of `bytes` succeeded.
    pub fn written(&self, bytes: u64, marked: bool) {
        self.all.held.add(-bytes.cast_signed());
        self.throttle.level_fell(|| self.held());
        if marked {
            self.marked.held.add(-bytes.cast_signed());
            self.marked_fell();
        }
    }

    /// Write-back of `bytes` failed; they are dirty again.
    pub fn redirtied(&self, bytes: u64, marked: bool) {
        self.all.dirty.add(bytes.cast_signed());
        if marked {
            self.marked.dirty.add(bytes.cast_signed());
        }
    }

    /// Dirty bytes were discarded.
    pub fn discarded(&self, bytes: u64, marked: bool) {
        self.taken(bytes, marked);
        self.written(bytes, marked);
    }

    fn marked_fell(&self) {
        self.marked_throttle.level_fell(|| self.marked_held());
        self.gate.level_fell(|| self.marked_held());
    }

    /// Bytes that are dirty and not under write-back.
    pub fn dirty(&self) -> u64 {
        self.all.dirty.now()
    }

    /// Bytes that are dirty or under write-back.
    pub fn held(&self) -> u64 {
        self.all.held.now()
    }

    /// Drop-behind bytes that are dirty and not under write-back: the bytes that the flusher has to
    /// write.
    pub fn marked_dirty(&self) -> u64 {
        self.marked.dirty.now()
    }

    /// Drop-behind bytes that are dirty or under write-back.
    pub fn marked_held(&self) -> u64 {
        self.marked.held.now()
    }

    /// Stores the byte counts and their maxima in `stats`.
    pub fn fill_in(&self, stats: &mut CacheStats) {
        stats.cached = self.cached.now();
        stats.dirty = self.dirty();
        stats.writing = self.held().saturating_sub(stats.dirty);
        stats.drop_behind = self.drop_behind.now();
        stats.drop_behind_dirty = self.marked_held();
        stats.cached_peak = self.cached.peak();
        stats.dirty_peak = self.all.held.peak();
        stats.drop_behind_peak = self.drop_behind.peak();
        stats.drop_behind_dirty_peak = self.marked.held.peak();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(account: &Account) -> CacheStats {
        let mut stats = CacheStats::default();
        account.fill_in(&mut stats);
        stats
    }

    #[test]
    fn bytes_move_from_state_to_state_and_peaks_stay() {
        let account = Account::new(1 << 30, 1 << 26);
        account.cached(8192);
        account.marked(8192);
        account.dirtied(8192, true);
        account.taken(8192, true);
        let now = stats(&account);
        assert_eq!((now.dirty, now.writing, now.drop_behind_dirty), (0, 8192, 8192));
        account.redirtied(4096, true);
        account.written(4096, true);
        let now = stats(&account);
        assert_eq!((now.dirty, now.writing, now.drop_behind_dirty), (4096, 0, 4096));
        account.discarded(4096, true);
        account.unmarked(8192, 0, 0);
        account.cached(-8192);
        let peaks = CacheStats {
            cached_peak: 8192,
            dirty_peak: 8192,
            drop_behind_peak: 8192,
            drop_behind_dirty_peak: 8192,
            ..CacheStats::default()
        };
        assert_eq!(stats(&account), peaks);
    }

    #[test]
    fn unmarking_removes_the_bytes_from_the_marked_counts() {
        let account = Account::new(1 << 30, 1 << 26);
        account.marked(65536);
        account.dirtied(12288, true);
        account.taken(8192, true);
        account.unmarked(65536, 4096, 8192);
        account.written(8192, false);
        let now = stats(&account);
        assert_eq!((now.dirty, now.writing), (4096, 0));
        assert_eq!((now.drop_behind, now.drop_behind_dirty), (0, 0));
    }
}
