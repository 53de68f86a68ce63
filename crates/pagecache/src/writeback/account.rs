//! How many bytes are in which state.
//!
//! ```text
//!                dirtied            taken             written
//!     clean ───────────────► dirty ────────► writing ────────► clean
//!                              │  ◄──────────────┘
//!                              ▼     redirtied
//!                          discarded
//! ```
//! `marked`: the folio is drop-behind. Each call is made under the folio's lock, so it sees the
//! mark as it is: a folio that loses its mark moves all its bytes by `unmarked`. A block that is
//! dirtied while it is being written counts in both states.
//!
//! The sums are exact at any time, for the flusher must not miss the last small write. A byte on
//! its way from dirty to writing is one step of one counter (`dirty`); `held`, dirty and writing
//! together, does not move then, so peaks are exact, too.

use super::gate::Gate;
use super::readers::Readers;
use super::throttle::{Fill, Line};
use crate::stats::CacheStats;
use std::sync::atomic::{AtomicI64, Ordering};

/// A number of bytes and the most it ever was. Signed: a transition may be seen half done.
#[derive(Default)]
struct Sum {
    now: AtomicI64,
    peak: AtomicI64,
}

impl Sum {
    // SeqCst, for `Line`: one who waits counts himself and then reads the sum, one who lowers the
    // sum then looks whether anybody waits; one of the two sees the other.
    fn add(&self, bytes: i64) {
        let now = self.now.fetch_add(bytes, Ordering::SeqCst) + bytes;
        if bytes > 0 && now > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(now, Ordering::Relaxed);
        }
    }

    fn now(&self) -> u64 {
        self.now.load(Ordering::SeqCst).max(0) as u64
    }

    fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed).max(0) as u64
    }
}

/// The bytes of one class of folios that are not on the device.
#[derive(Default)]
struct Unwritten {
    /// Not on their way to the device.
    dirty: Sum,
    /// Dirty, or on their way.
    held: Sum,
}

impl Unwritten {
    fn dirtied(&self, bytes: i64) {
        self.held.add(bytes);
        self.dirty.add(bytes);
    }
}

/// How many bytes of the cache are in which state, exactly at any time; and the two lines in which
/// writers wait for room in it.
pub(crate) struct Account {
    pub readers: Readers,
    cached: Sum,
    /// In marked folios, in whatever state.
    drop_behind: Sum,
    all: Unwritten,
    /// What of `all` is in marked folios.
    marked: Unwritten,
    /// Where writers wait while too much is dirty.
    pub(super) all_line: Line,
    /// Where don't-cache writers wait while too much of theirs is.
    pub(super) marked_line: Line,
    /// Where they wait before a write that would pass the cap.
    pub(super) gate: Gate,
}

impl Account {
    /// Nothing is cached; writers wait at `dirty_limit` bytes, and don't-cache writers so early
    /// that theirs stay within `dont_cache_cap` bytes.
    pub fn new(dirty_limit: u64, dont_cache_cap: u64) -> Account {
        Account {
            readers: Readers::default(),
            cached: Sum::default(),
            drop_behind: Sum::default(),
            all: Unwritten::default(),
            marked: Unwritten::default(),
            all_line: Line::new(Fill { start: dirty_limit / 2, full: dirty_limit }),
            // Brakes work after a write: room for calls under way is left, and the gate is exact.
            marked_line: Line::new(Fill {
                start: dont_cache_cap / 2,
                full: dont_cache_cap / 4 * 3,
            }),
            gate: Gate::new(dont_cache_cap),
        }
    }

    /// Folios came (or left, negative).
    pub fn cached(&self, bytes: i64) {
        self.cached.add(bytes);
    }

    /// A folio of `bytes`, all clean, became drop-behind (when it was made).
    pub fn marked(&self, bytes: u64) {
        self.drop_behind.add(bytes as i64);
    }

    /// A folio of `bytes` is not drop-behind any more: an ordinary user found it, or it leaves.
    /// `dirty` and `writing` are its bytes in these states.
    pub fn unmarked(&self, bytes: u64, dirty: u64, writing: u64) {
        self.drop_behind.add(-(bytes as i64));
        if dirty + writing > 0 {
            self.marked.dirty.add(-(dirty as i64));
            self.marked.held.add(-((dirty + writing) as i64));
            self.marked_moved();
        }
    }

    /// Clean bytes became dirty.
    pub fn dirtied(&self, bytes: u64, marked: bool) {
        self.all.dirtied(bytes as i64);
        if marked {
            self.marked.dirtied(bytes as i64);
        }
    }

    /// Dirty bytes are on their way to the device.
    pub fn taken(&self, bytes: u64, marked: bool) {
        self.all.dirty.add(-(bytes as i64));
        if marked {
            self.marked.dirty.add(-(bytes as i64));
        }
    }

    /// They arrived.
    pub fn written(&self, bytes: u64, marked: bool) {
        self.all.held.add(-(bytes as i64));
        self.all_line.moved(|| self.held());
        if marked {
            self.marked.held.add(-(bytes as i64));
            self.marked_moved();
        }
    }

    /// They did not and are dirty again.
    pub fn redirtied(&self, bytes: u64, marked: bool) {
        self.all.dirty.add(bytes as i64);
        if marked {
            self.marked.dirty.add(bytes as i64);
        }
    }

    /// Dirty bytes left with their blocks.
    pub fn discarded(&self, bytes: u64, marked: bool) {
        self.taken(bytes, marked);
        self.written(bytes, marked);
    }

    fn marked_moved(&self) {
        self.marked_line.moved(|| self.marked_held());
        self.gate.moved(|| self.marked_held());
    }

    /// Bytes that are dirty and not on their way.
    pub fn dirty(&self) -> u64 {
        self.all.dirty.now()
    }

    /// Bytes that are dirty or on their way.
    pub fn held(&self) -> u64 {
        self.all.held.now()
    }

    /// Drop-behind bytes that are dirty and not on their way: what the flusher owes.
    pub fn marked_dirty(&self) -> u64 {
        self.marked.dirty.now()
    }

    /// Drop-behind bytes that are dirty or on their way.
    pub fn marked_held(&self) -> u64 {
        self.marked.held.now()
    }

    /// Puts the byte counts and their peaks into `stats`.
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
    fn a_mark_that_is_lost_takes_its_bytes_along() {
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
