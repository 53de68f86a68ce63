//! The files that have dirty bytes, and whose turn it is.
//!
//! ```text
//!                     pick: oldest first
//!   dirtied ──► waiting ──────────────► visited ──┬─► clean: leaves the list
//!                  ▲ ▲                            ├─► data left ──► waiting
//!                  │ └────────────────────────────┘
//!                  │  time over                   └─► failed, or only its tail is left
//!                  └──────────────────── resting ◄──────────┘
//! ```
//!
//! A file's age is that of its oldest dirty byte. A visit writes a bounded part, from where the
//! last one ended; once as much has been written as was dirty when the pass began, all that is left
//! is younger than the pass, so the file is given the pass's age and goes behind the others. So no
//! file holds up the rest by being written to all the time, and no part of a file its other parts.
//!
//! *Tail*: the page in which the last don't-cache write ended, when it did not fill it. The next
//! write most likely goes on there; written now, the page would be written twice, and as its folio
//! leaves the cache read back in between. It is spared until nobody touched it for [`TAIL_REST`].

use super::{DirtyFile, nanos};
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How long the page in which a writer stopped waits for the writer to go on.
pub(super) const TAIL_REST: Duration = Duration::from_millis(50);
/// How long a file rests of which nothing could be written, without an error.
const NOTHING_REST: Duration = Duration::from_millis(10);
/// How long a file rests after its first failure; twice as long after each further one.
const FAILED_REST: Duration = Duration::from_millis(100);
const FAILED_REST_MAX: Duration = Duration::from_secs(5);

const NO_TAIL: u64 = u64::MAX;

/// What write-back knows of one file without a lock. Shared by the file and the list.
pub(crate) struct FileState {
    /// Unlike any other's in this process.
    id: u64,
    /// The list knows that the file has drop-behind data, and the file does not rest for its tail.
    known: AtomicBool,
    /// Where the page begins that the last don't-cache write left unfinished.
    tail: AtomicU64,
    /// When that was ([`nanos`]).
    touched: AtomicU64,
    /// Somebody writes the file back within a write call (rate-limited policy).
    pub(super) in_flight: AtomicBool,
    /// Bytes that calls have left to whoever is writing the file back.
    pub(super) owed: AtomicU64,
}

impl Default for FileState {
    fn default() -> FileState {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        FileState {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            known: AtomicBool::new(false),
            tail: AtomicU64::new(NO_TAIL),
            touched: AtomicU64::new(0),
            in_flight: AtomicBool::new(false),
            owed: AtomicU64::new(0),
        }
    }
}

impl FileState {
    /// A don't-cache write of `range` has ended. Whether it finished a page of `page` bytes.
    pub fn wrote(&self, range: &Range<u64>, page: u64) -> bool {
        let end = range.end / page * page;
        if end == range.end {
            self.tail.store(NO_TAIL, Ordering::Relaxed);
        } else {
            self.touched.store(nanos(Instant::now()), Ordering::Relaxed);
            self.tail.store(end, Ordering::Relaxed);
        }
        range.start < end
    }

    /// Names the file in the list.
    pub fn id(&self) -> u64 {
        self.id
    }

    pub fn is_known(&self) -> bool {
        self.known.load(Ordering::Relaxed)
    }

    /// The tail, while it is to be spared, and when that ends.
    fn tail(&self, now: Instant) -> Option<(u64, Instant)> {
        let tail = self.tail.load(Ordering::Relaxed);
        let age = nanos(now).saturating_sub(self.touched.load(Ordering::Relaxed));
        let left = TAIL_REST.checked_sub(Duration::from_nanos(age))?;
        (tail != NO_TAIL && !left.is_zero()).then_some((tail, now + left))
    }
}

/// Why a file is picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// Room is wanted: whatever is oldest.
    Oldest,
    /// Drop-behind bytes are owed: whatever is oldest, and the oldest file that has such bytes, in
    /// turns. Any bytes written relieve the device's queue as much and gather into large writes; but
    /// the drop-behind bytes have a small cap, and must not stand behind gigabytes.
    DropBehind {
        /// Tails are spared.
        spare_tails: bool,
    },
    /// Only what has been dirty since this time or before.
    Since(Instant),
}

/// A part of a file that is to be written now.
pub(super) struct Visit<F> {
    pub file: Arc<F>,
    pub range: Range<u64>,
    pub limit: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Waiting,
    Visited,
    Resting { until: Instant, for_tail: bool },
}

/// Writing a file once, in as many visits as it takes.
struct Pass {
    started: Instant,
    /// Bytes that were dirty then and are not written yet.
    left: u64,
}

struct Entry<F> {
    /// A file lives while it has folios, so while it is dirty; the list keeps none alive.
    file: Weak<F>,
    state: Arc<FileState>,
    /// No byte has been dirty for longer.
    since: Instant,
    place: Place,
    drop_behind: bool,
    /// Where the next visit begins.
    cursor: u64,
    pass: Option<Pass>,
    /// Visits that failed, since the last one that did not.
    failures: u32,
}

/// The dirty files; see the module.
pub(super) struct DirtyList<F> {
    page: u64,
    files: HashMap<u64, Entry<F>>,
    waiting: BTreeSet<(Instant, u64)>,
    /// Those of `waiting` that have drop-behind data.
    marked: BTreeSet<(Instant, u64)>,
    resting: BTreeSet<(Instant, u64)>,
    marked_turn: bool,
    failing: usize,
}

impl<F: DirtyFile> DirtyList<F> {
    /// An empty list; pages of `page` bytes are written whole.
    pub fn new(page: u64) -> DirtyList<F> {
        DirtyList {
            page,
            files: HashMap::new(),
            waiting: BTreeSet::new(),
            marked: BTreeSet::new(),
            resting: BTreeSet::new(),
            marked_turn: false,
            failing: 0,
        }
    }

    fn seat(&mut self, id: u64, place: Place) {
        let Some(entry) = self.files.get_mut(&id) else { return };
        match entry.place {
            Place::Waiting => {
                self.waiting.remove(&(entry.since, id));
                self.marked.remove(&(entry.since, id));
            }
            Place::Resting { until, .. } => {
                self.resting.remove(&(until, id));
            }
            Place::Visited => {}
        }
        entry.place = place;
        let for_tail = matches!(place, Place::Resting { for_tail: true, .. });
        entry.state.known.store(entry.drop_behind && !for_tail, Ordering::Relaxed);
        match place {
            Place::Waiting => {
                self.waiting.insert((entry.since, id));
                if entry.drop_behind {
                    self.marked.insert((entry.since, id));
                }
            }
            Place::Resting { until, .. } => {
                self.resting.insert((until, id));
            }
            Place::Visited => {}
        }
    }

    fn remove(&mut self, id: u64) {
        self.seat(id, Place::Visited);
        let Some(entry) = self.files.remove(&id) else { return };
        entry.state.known.store(false, Ordering::Relaxed);
        self.failing -= usize::from(entry.failures > 0);
    }

    /// `file` was clean and is dirty. Whether it is the only one that waits.
    pub fn dirtied(&mut self, file: &Arc<F>, now: Instant) -> bool {
        let id = file.state().id;
        match self.files.get_mut(&id) {
            None => {
                let entry = Entry {
                    file: Arc::downgrade(file),
                    state: file.state().clone(),
                    since: now,
                    place: Place::Visited,
                    drop_behind: false,
                    cursor: 0,
                    pass: None,
                    failures: 0,
                };
                self.files.insert(id, entry);
                self.seat(id, Place::Waiting);
            }
            // It was written by somebody else in between; a visit under way does the rest itself.
            Some(entry) if entry.place == Place::Waiting => {
                self.seat(id, Place::Visited);
                if let Some(entry) = self.files.get_mut(&id) {
                    entry.since = now;
                    entry.pass = None;
                }
                self.seat(id, Place::Waiting);
            }
            Some(_) => {}
        }
        self.waiting.len() == 1
    }

    /// A don't-cache write went to the file, and [`FileState::is_known`] said no.
    pub fn drop_behind(&mut self, id: u64) {
        let Some(entry) = self.files.get_mut(&id) else { return };
        entry.drop_behind = true;
        let place = match entry.place {
            Place::Resting { for_tail: true, .. } => Place::Waiting,
            place => place,
        };
        // Out of its old seat first: the set of marked files follows from the new one.
        self.seat(id, place);
    }

    /// Takes a file to write about `limit` bytes of it; [`DirtyList::done`] gives it back. Files that
    /// are clean by now leave the list; `gone` is to be dropped outside of its lock.
    pub fn pick(
        &mut self,
        why: Why,
        limit: u64,
        now: Instant,
        gone: &mut Vec<Arc<F>>,
    ) -> Option<Visit<F>> {
        while let Some((until, id)) = self.resting.first().copied().filter(|rest| rest.0 <= now) {
            self.resting.remove(&(until, id));
            self.seat(id, Place::Waiting);
        }
        self.marked_turn = !self.marked_turn;
        loop {
            let oldest = self.waiting.first();
            let next = match why {
                Why::Oldest => oldest,
                Why::DropBehind { .. } if self.marked_turn => self.marked.first().or(oldest),
                Why::DropBehind { .. } => oldest,
                Why::Since(time) => oldest.filter(|oldest| oldest.0 <= time),
            };
            let id = next?.1;
            let spare_tails = why == Why::DropBehind { spare_tails: true };
            let entry = self.files.get_mut(&id)?;
            let Some(file) = entry.file.upgrade() else {
                self.remove(id);
                continue;
            };
            if !file.is_dirty() {
                self.remove(id);
                gone.push(file);
                continue;
            }
            // All of it is on its way by somebody else, who may yet fail.
            if file.dirty_bytes() == 0 {
                gone.push(file);
                let until = now + NOTHING_REST;
                self.seat(id, Place::Resting { until, for_tail: false });
                continue;
            }
            let tail = entry.state.tail(now).filter(|_| spare_tails && entry.drop_behind);
            if let Some((_, until)) = tail
                && file.dirty_bytes() <= self.page
            {
                gone.push(file);
                self.seat(id, Place::Resting { until, for_tail: true });
                continue;
            }
            let end = tail.map_or(u64::MAX, |tail| tail.0);
            if entry.cursor >= end {
                entry.cursor = 0;
            }
            if entry.pass.is_none() {
                entry.pass = Some(Pass { started: now, left: file.dirty_bytes() });
            }
            let range = entry.cursor..end;
            self.seat(id, Place::Visited);
            return Some(Visit { file, range, limit });
        }
    }

    /// The end of a visit: `written` bytes, or it failed.
    pub fn done(&mut self, visit: &Visit<F>, written: Option<u64>, now: Instant) {
        let id = visit.file.state().id;
        // Asked for under the list's lock: who dirties the file from here on, having found it
        // clean, comes to the list after this and puts it in again.
        if !visit.file.is_dirty() {
            return self.remove(id);
        }
        let Some(entry) = self.files.get_mut(&id) else { return };
        let failed_before = entry.failures > 0;
        let rest = |until| Place::Resting { until, for_tail: false };
        let place = match written {
            None => {
                let delay = FAILED_REST.saturating_mul(1 << entry.failures.min(10));
                entry.failures += 1;
                entry.cursor = 0;
                rest(now + delay.min(FAILED_REST_MAX))
            }
            Some(0) if visit.range.start == 0 => {
                let tail = entry.state.tail(now);
                match tail.filter(|tail| tail.0 == visit.range.end) {
                    Some((_, until)) => Place::Resting { until, for_tail: true },
                    None => rest(now + NOTHING_REST),
                }
            }
            Some(written) => {
                entry.failures = 0;
                let to_the_end = written < visit.limit;
                let from = visit.range.start;
                entry.cursor = if to_the_end { 0 } else { from.saturating_add(written) };
                if let Some(pass) = &mut entry.pass {
                    pass.left = pass.left.saturating_sub(written);
                    if pass.left == 0 || (to_the_end && from == 0) {
                        entry.since = pass.started;
                        entry.pass = None;
                    }
                }
                Place::Waiting
            }
        };
        self.failing += usize::from(entry.failures > 0);
        self.failing -= usize::from(failed_before);
        self.seat(id, place);
    }

    /// Whether a file waits for its turn.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether files are dirty and each of them failed when it was written last.
    pub fn is_stuck(&self) -> bool {
        self.failing > 0 && self.failing == self.files.len()
    }

    /// The time for which somebody has to be awake again, if nobody calls before: a file has been
    /// dirty for `expire`, or one has rested.
    pub fn next_due(&self, expire: Duration) -> Option<Instant> {
        let oldest = self.waiting.first().map(|oldest| oldest.0 + expire);
        let rested = self.resting.first().map(|rest| rest.0);
        match (oldest, rested) {
            (Some(oldest), Some(rested)) => Some(oldest.min(rested)),
            (oldest, rested) => oldest.or(rested),
        }
    }

    /// The files, oldest first.
    pub fn files(&self) -> Vec<Arc<F>> {
        let mut files: Vec<_> = self.files.values().collect();
        files.sort_by_key(|entry| (entry.since, entry.state.id));
        files.into_iter().filter_map(|entry| entry.file.upgrade()).collect()
    }
}
