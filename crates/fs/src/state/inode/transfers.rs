//! The direct transfers of a file that are in flight.
//!
//! ```text
//!   begin(range), under the inode's lock ──► entry ──► end
//!
//!   change of map or size    close ─► wait for all, none begins ─► its locks ─► open
//!   buffered write           wait for writes that overlap its blocks; others may begin meanwhile
//! ```
//!
//! An entry can belong to a queue on which no thread is waiting at the moment. A thread that waits
//! for such an entry therefore helps: it finishes the transfers whose requests the device has
//! completed.

use extant_base::lock::{Condvar, Mutex, Rank};
use std::fmt;
use std::ops::Range;
use std::sync::Weak;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Finishes transfers that another thread has begun.
pub(crate) trait Help: Send + Sync {
    /// Finishes some of them, possibly after waiting for the device. The caller holds no lock above
    /// `Write`.
    fn help(&self);
}

/// The direct transfers of one file.
pub(crate) struct DirectTransfers {
    state: Mutex<State>,
    changed: Condvar,
    writes: AtomicUsize,
}

#[derive(Default)]
struct State {
    entries: Vec<Entry>,
    next: u64,
    /// How many threads keep new transfers out.
    closed: u32,
}

struct Entry {
    id: u64,
    range: Range<u64>,
    writes: bool,
    helper: Option<Weak<dyn Help>>,
}

/// Keeps new transfers out while it exists.
pub(crate) struct Closed<'a>(&'a DirectTransfers);

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.state.lock().closed -= 1;
        self.0.changed.notify_all();
    }
}

impl DirectTransfers {
    pub(crate) fn new() -> DirectTransfers {
        DirectTransfers {
            state: Mutex::new(Rank::Leaf, State::default()),
            changed: Condvar::new(),
            writes: AtomicUsize::new(0),
        }
    }

    /// Begins a transfer of the bytes `range`. Returns its number, or `None` while the file is
    /// closed to transfers; see [`DirectTransfers::wait_open`]. Locks: the caller holds the
    /// inode's.
    pub(crate) fn begin(
        &self,
        range: Range<u64>,
        writes: bool,
        helper: Option<Weak<dyn Help>>,
    ) -> Option<u64> {
        self.begin_in(&mut self.state.lock(), range, writes, helper)
    }

    fn begin_in(
        &self,
        state: &mut State,
        range: Range<u64>,
        writes: bool,
        helper: Option<Weak<dyn Help>>,
    ) -> Option<u64> {
        if state.closed > 0 {
            return None;
        }
        let id = state.next;
        state.next += 1;
        state.entries.push(Entry { id, range, writes, helper });
        if writes {
            self.writes.fetch_add(1, Ordering::Release);
        }
        Some(id)
    }

    /// As [`DirectTransfers::begin`], for a write that must overlap no other write. `None` also
    /// when it would.
    pub(crate) fn begin_exclusive(
        &self,
        range: Range<u64>,
        helper: Option<Weak<dyn Help>>,
    ) -> Option<u64> {
        let mut state = self.state.lock();
        if state.entries.iter().any(|entry| entry.overlaps(&range, true)) {
            return None;
        }
        self.begin_in(&mut state, range, true, helper)
    }

    /// Ends a transfer.
    pub(crate) fn end(&self, id: u64) {
        let mut state = self.state.lock();
        let at = state.entries.iter().position(|entry| entry.id == id);
        let entry = state.entries.swap_remove(at.expect("an entry ends once"));
        if entry.writes {
            self.writes.fetch_sub(1, Ordering::Release);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Waits until transfers may begin. The caller must not keep them out itself.
    pub(crate) fn wait_open(&self) {
        let mut state = self.state.lock();
        while state.closed > 0 {
            self.changed.wait(&mut state);
        }
    }

    /// Whether anything is being written directly.
    pub(crate) fn any_writes(&self) -> bool {
        self.writes.load(Ordering::Acquire) > 0
    }

    /// Whether a direct write touches one of the bytes `range`.
    pub(crate) fn writes_overlap(&self, range: &Range<u64>) -> bool {
        self.any_writes()
            && self.state.lock().entries.iter().any(|entry| entry.overlaps(range, true))
    }

    /// Keeps new transfers out, and returns when none is in flight. Locks: the caller holds none
    /// above `Write`.
    pub(crate) fn close(&self) -> Closed<'_> {
        self.state.lock().closed += 1;
        let closed = Closed(self);
        self.wait(&(0..u64::MAX), false);
        closed
    }

    /// Waits for the writes that overlap `range`, or for all transfers that do.
    pub(crate) fn wait(&self, range: &Range<u64>, only_writes: bool) {
        loop {
            let mut state = self.state.lock();
            let Some(entry) = state.entries.iter().find(|entry| entry.overlaps(range, only_writes))
            else {
                return;
            };
            match entry.helper.as_ref().and_then(Weak::upgrade) {
                Some(helper) => {
                    drop(state);
                    helper.help();
                }
                // The thread that began it also ends it.
                None => self.changed.wait_for(&mut state, Duration::from_millis(50)),
            }
        }
    }
}

impl Entry {
    fn overlaps(&self, range: &Range<u64>, only_writes: bool) -> bool {
        (self.writes || !only_writes)
            && self.range.start < range.end
            && range.start < self.range.end
    }
}

impl fmt::Debug for DirectTransfers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectTransfers").field("writes", &self.writes).finish_non_exhaustive()
    }
}
