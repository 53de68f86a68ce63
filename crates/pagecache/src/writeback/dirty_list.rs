//! The files that have dirty bytes, and the order in which the flusher visits them.
//!
//! ```text
//!                     pick: oldest first
//!   dirtied ──► waiting ──────────────► visited ──┬─► clean: leaves the list
//!                  ▲ ▲                            ├─► data left ──► waiting
//!                  │ └────────────────────────────┘
//!                  │  delay over                  └─► failed, or only its tail is left
//!                  └──────────────────── delayed ◄──────────┘
//! ```
//!
//! A file's age is that of its oldest dirty byte. A visit writes a bounded part of the file and
//! starts where the last visit ended. A *pass* is a series of visits that has written as many bytes
//! as were dirty when it began. After a pass every dirty byte left is younger than the pass, so the
//! file gets the pass's start as its age and moves to the back of the queue. A file that is written
//! to all the time therefore does not delay other files, and no part of a file delays its other
//! parts.
//!
//! *Tail*: the page in which the last don't-cache write ended without filling it. The next write
//! most likely continues there. Writing the page now would write it twice, and, because its folio
//! leaves the cache, read it back in between. The flusher spares the tail until no write has
//! touched it for [`TAIL_DELAY`].

use super::{DirtyFile, nanos};
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How long the flusher spares an unfinished page for its writer to continue.
pub(super) const TAIL_DELAY: Duration = Duration::from_millis(50);
/// Delay of a file when a visit wrote nothing and met no error.
const NOTHING_DELAY: Duration = Duration::from_millis(10);
/// Delay of a file after its first failure; it doubles after each further one.
const FAILED_DELAY: Duration = Duration::from_millis(100);
const FAILED_DELAY_MAX: Duration = Duration::from_secs(5);

const NO_TAIL: u64 = u64::MAX;

/// Write-back state of one file that is read without a lock. The file and the list share it.
pub(crate) struct FileState {
    /// Unique in this process.
    id: u64,
    /// The list has the file as one with drop-behind data, and the file is not delayed for its
    /// tail.
    listed_as_drop_behind: AtomicBool,
    /// Byte offset of the page that the last don't-cache write left unfinished.
    tail: AtomicU64,
    /// Time of that write ([`nanos`]).
    touched: AtomicU64,
    /// A write call writes the file back (rate-limited policy).
    pub(super) in_flight: AtomicBool,
    /// Bytes that calls left to the thread that writes the file back.
    pub(super) pending: AtomicU64,
}

impl Default for FileState {
    fn default() -> FileState {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        FileState {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            listed_as_drop_behind: AtomicBool::new(false),
            tail: AtomicU64::new(NO_TAIL),
            touched: AtomicU64::new(0),
            in_flight: AtomicBool::new(false),
            pending: AtomicU64::new(0),
        }
    }
}

impl FileState {
    /// Records a don't-cache write of `range`; returns whether it finished a page of `page` bytes.
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

    /// Identifies the file in the list.
    pub fn id(&self) -> u64 {
        self.id
    }

    pub fn is_listed_as_drop_behind(&self) -> bool {
        self.listed_as_drop_behind.load(Ordering::Relaxed)
    }

    /// The tail's offset while the flusher spares it, and when that ends.
    fn tail(&self, now: Instant) -> Option<(u64, Instant)> {
        let tail = self.tail.load(Ordering::Relaxed);
        let age = nanos(now).saturating_sub(self.touched.load(Ordering::Relaxed));
        let left = TAIL_DELAY.checked_sub(Duration::from_nanos(age))?;
        (tail != NO_TAIL && !left.is_zero()).then_some((tail, now + left))
    }
}

/// Why the flusher picks a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// Too much is dirty: the oldest file.
    Oldest,
    /// Drop-behind bytes must be written: alternately the oldest file, and the oldest file that has
    /// such bytes. Writing any bytes shortens the device's queue as much, and merges into large
    /// writes. But drop-behind bytes have a small cap and must not wait for gigabytes of others.
    DropBehind {
        /// Do not write tails.
        spare_tails: bool,
    },
    /// Only files that have been dirty since this time or longer.
    Since(Instant),
}

/// A part of a file to be written now: about `limit` bytes of `range`.
pub(super) struct Visit<F> {
    pub file: Arc<F>,
    pub range: Range<u64>,
    pub limit: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Waiting,
    InVisit,
    Delayed { until: Instant, for_tail: bool },
}

/// One pass over a file, in as many visits as it takes.
struct Pass {
    started: Instant,
    /// Bytes that were dirty when the pass began and are not written yet.
    left: u64,
}

struct Entry<F> {
    /// A file object exists while it has folios, so while it is dirty. The list keeps none alive.
    file: Weak<F>,
    state: Arc<FileState>,
    /// Every dirty byte became dirty at this time or later.
    since: Instant,
    place: Place,
    drop_behind: bool,
    /// Byte offset at which the next visit starts.
    cursor: u64,
    pass: Option<Pass>,
    /// Consecutive visits that failed.
    failures: u32,
}

/// The dirty files; see the module documentation.
pub(super) struct DirtyList<F> {
    page: u64,
    files: HashMap<u64, Entry<F>>,
    waiting: BTreeSet<(Instant, u64)>,
    /// The part of `waiting` that has drop-behind data.
    marked: BTreeSet<(Instant, u64)>,
    delayed: BTreeSet<(Instant, u64)>,
    marked_next: bool,
    failing: usize,
}

impl<F: DirtyFile> DirtyList<F> {
    /// An empty list. The flusher writes whole pages of `page` bytes.
    pub fn new(page: u64) -> DirtyList<F> {
        DirtyList {
            page,
            files: HashMap::new(),
            waiting: BTreeSet::new(),
            marked: BTreeSet::new(),
            delayed: BTreeSet::new(),
            marked_next: false,
            failing: 0,
        }
    }

    fn move_to(&mut self, id: u64, place: Place) {
        let Some(entry) = self.files.get_mut(&id) else { return };
        match entry.place {
            Place::Waiting => {
                self.waiting.remove(&(entry.since, id));
                self.marked.remove(&(entry.since, id));
            }
            Place::Delayed { until, .. } => {
                self.delayed.remove(&(until, id));
            }
            Place::InVisit => {}
        }
        entry.place = place;
        let for_tail = matches!(place, Place::Delayed { for_tail: true, .. });
        entry.state.listed_as_drop_behind.store(entry.drop_behind && !for_tail, Ordering::Relaxed);
        match place {
            Place::Waiting => {
                self.waiting.insert((entry.since, id));
                if entry.drop_behind {
                    self.marked.insert((entry.since, id));
                }
            }
            Place::Delayed { until, .. } => {
                self.delayed.insert((until, id));
            }
            Place::InVisit => {}
        }
    }

    fn remove(&mut self, id: u64) {
        self.move_to(id, Place::InVisit);
        let Some(entry) = self.files.remove(&id) else { return };
        entry.state.listed_as_drop_behind.store(false, Ordering::Relaxed);
        self.failing -= usize::from(entry.failures > 0);
    }

    /// Adds `file`, which was clean and is dirty now. Returns whether it is the only file that
    /// waits.
    pub fn dirtied(&mut self, file: &Arc<F>, now: Instant) -> bool {
        let id = file.state().id;
        match self.files.get_mut(&id) {
            None => {
                let entry = Entry {
                    file: Arc::downgrade(file),
                    state: file.state().clone(),
                    since: now,
                    place: Place::InVisit,
                    drop_behind: false,
                    cursor: 0,
                    pass: None,
                    failures: 0,
                };
                self.files.insert(id, entry);
                self.move_to(id, Place::Waiting);
            }
            // Another thread wrote it meanwhile. If a visit is under way, the visit handles this
            // itself.
            Some(entry) if entry.place == Place::Waiting => {
                self.move_to(id, Place::InVisit);
                if let Some(entry) = self.files.get_mut(&id) {
                    entry.since = now;
                    entry.pass = None;
                }
                self.move_to(id, Place::Waiting);
            }
            Some(_) => {}
        }
        self.waiting.len() == 1
    }

    /// Records that the file has drop-behind data. Called when
    /// [`FileState::is_listed_as_drop_behind`] is false.
    pub fn drop_behind(&mut self, id: u64) {
        let Some(entry) = self.files.get_mut(&id) else { return };
        entry.drop_behind = true;
        let place = match entry.place {
            Place::Delayed { for_tail: true, .. } => Place::Waiting,
            place => place,
        };
        // Remove the entry from its old queue first: `move_to` derives the set of marked files from
        // the new place.
        self.move_to(id, place);
    }

    /// Picks a file to write about `limit` bytes of it; [`DirtyList::done`] returns it. Files that
    /// are clean by now leave the list. The caller drops `gone` without the list's lock.
    pub fn pick(
        &mut self,
        reason: Reason,
        limit: u64,
        now: Instant,
        gone: &mut Vec<Arc<F>>,
    ) -> Option<Visit<F>> {
        while let Some((until, id)) =
            self.delayed.first().copied().filter(|delayed| delayed.0 <= now)
        {
            self.delayed.remove(&(until, id));
            self.move_to(id, Place::Waiting);
        }
        self.marked_next = !self.marked_next;
        loop {
            let oldest = self.waiting.first();
            let next = match reason {
                Reason::Oldest => oldest,
                Reason::DropBehind { .. } if self.marked_next => self.marked.first().or(oldest),
                Reason::DropBehind { .. } => oldest,
                Reason::Since(time) => oldest.filter(|oldest| oldest.0 <= time),
            };
            let id = next?.1;
            let spare_tails = reason == Reason::DropBehind { spare_tails: true };
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
            // Another thread has all of it under write-back, and may still fail.
            if file.dirty_bytes() == 0 {
                gone.push(file);
                let until = now + NOTHING_DELAY;
                self.move_to(id, Place::Delayed { until, for_tail: false });
                continue;
            }
            let tail = entry.state.tail(now).filter(|_| spare_tails && entry.drop_behind);
            if let Some((_, until)) = tail
                && file.dirty_bytes() <= self.page
            {
                gone.push(file);
                self.move_to(id, Place::Delayed { until, for_tail: true });
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
            self.move_to(id, Place::InVisit);
            return Some(Visit { file, range, limit });
        }
    }

    /// Ends a visit that wrote `written` bytes, or failed (`None`).
    pub fn done(&mut self, visit: &Visit<F>, written: Option<u64>, now: Instant) {
        let id = visit.file.state().id;
        // Checked under the list's lock: a thread that finds the file clean and dirties it from
        // here on takes this lock afterwards and adds the file again.
        if !visit.file.is_dirty() {
            return self.remove(id);
        }
        let Some(entry) = self.files.get_mut(&id) else { return };
        let failed_before = entry.failures > 0;
        let delay_until = |until| Place::Delayed { until, for_tail: false };
        let place = match written {
            None => {
                let delay = FAILED_DELAY.saturating_mul(1 << entry.failures.min(10));
                entry.failures += 1;
                entry.cursor = 0;
                delay_until(now + delay.min(FAILED_DELAY_MAX))
            }
            Some(0) if visit.range.start == 0 => {
                let tail = entry.state.tail(now);
                match tail.filter(|tail| tail.0 == visit.range.end) {
                    Some((_, until)) => Place::Delayed { until, for_tail: true },
                    None => delay_until(now + NOTHING_DELAY),
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
        self.move_to(id, place);
    }

    /// Whether a file waits for a visit.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether there are dirty files and the last visit of every one failed.
    pub fn is_stuck(&self) -> bool {
        self.failing > 0 && self.failing == self.files.len()
    }

    /// The next time at which a thread must wake, if no event comes before: when a file has been
    /// dirty for `expire`, though not before `soonest`, or when a delay ends.
    pub fn next_due(&self, expire: Duration, soonest: Instant) -> Option<Instant> {
        let oldest = self.waiting.first().map(|oldest| (oldest.0 + expire).max(soonest));
        let delayed_until = self.delayed.first().map(|delayed| delayed.0);
        match (oldest, delayed_until) {
            (Some(oldest), Some(delayed_until)) => Some(oldest.min(delayed_until)),
            (oldest, delayed_until) => oldest.or(delayed_until),
        }
    }

    /// The dirty files, oldest first. Files that are clean by now leave the list, so that many
    /// calls do not examine them again. The caller drops `gone` without the list's lock.
    pub fn dirty_files(&mut self, gone: &mut Vec<Arc<F>>) -> Vec<Arc<F>> {
        let (mut dirty, mut clean) = (Vec::new(), Vec::new());
        for (id, entry) in &self.files {
            let file = entry.file.upgrade();
            match file {
                Some(file) if file.is_dirty() => dirty.push((entry.since, *id, file)),
                // The end of the visit removes it.
                _ if entry.place == Place::InVisit => gone.extend(file),
                _ => {
                    clean.push(*id);
                    gone.extend(file);
                }
            }
        }
        // Checked under the list's lock, as in `done`.
        clean.into_iter().for_each(|id| self.remove(id));
        dirty.sort_unstable_by_key(|(since, id, _)| (*since, *id));
        dirty.into_iter().map(|(_, _, file)| file).collect()
    }
}
