//! Freed clusters that cannot be allocated yet.
//!
//! ```text
//!   free in transaction 7 ─► bits clear, counters up ─► pending (7) ──7 is durable──► free extents
//!                                                          │ crash before that: the clusters
//!                                                          ▼ belong to the old file, untouched
//! ```
//!
//! Rule D8: clusters that a transaction freed are not allocated again before that transaction is
//! durable. No event says when a transaction becomes durable: the next allocation asks the journal
//! about the oldest entry of the queue. An entry stays in the queue until its clusters are in the
//! free extents. So a thread that finds the queue empty knows that no other thread is still moving
//! such clusters. Without a log nothing has to wait. Source: ext4 documentation, "Journal (jbd2)".

use crate::space::Space;
use crate::space::free_extents::Span;
use crate::space::free_space::FreeSpace;
use crate::space::group_edit::release_pending;
use extant_base::lock::{Mutex, Rank};
use extant_base::narrow::low_u32;
use extant_base::{CachePadded, Error, GroupNr, Result, Tid};
use extant_journal::Handle;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// The clusters of one group that wait for a transaction. Guarded by the group's lock.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    spans: VecDeque<(Tid, Span)>,
}

impl Pending {
    /// Makes `span` wait for `tid`. True if nothing of the group waited for `tid` before.
    pub(crate) fn push(&mut self, tid: Tid, span: Span) -> bool {
        match self.spans.back_mut() {
            Some((last, before)) if *last == tid && before.end() == span.start => {
                before.len += span.len;
                false
            }
            Some((last, before)) if *last == tid && span.end() == before.start => {
                *before = Span { start: span.start, len: span.len + before.len };
                false
            }
            Some((last, _)) => {
                let first_of_tid = *last != tid;
                self.spans.push_back((tid, span));
                first_of_tid
            }
            None => {
                self.spans.push_back((tid, span));
                true
            }
        }
    }

    /// Removes and returns the next span whose transaction is durable.
    pub(crate) fn pop_durable(&mut self, is_durable: impl Fn(Tid) -> bool) -> Option<Span> {
        let &(tid, span) = self.spans.front()?;
        if !is_durable(tid) {
            return None;
        }
        self.spans.pop_front();
        Some(span)
    }

    /// All spans that wait.
    pub(crate) fn spans(&self) -> impl Iterator<Item = Span> + '_ {
        self.spans.iter().map(|&(_, span)| span)
    }
}

/// The groups with pending clusters, oldest transaction first.
pub(crate) struct PendingGroups {
    queue: Mutex<VecDeque<(Tid, GroupNr)>>,
    /// The transaction of the first entry, with bit 32 set if there is one.
    oldest: AtomicU64,
    /// Pending clusters of all groups.
    clusters: CachePadded<AtomicI64>,
    /// How many runs have come back to the free extents.
    releases: CachePadded<AtomicU64>,
}

const SOME: u64 = 1 << 32;

impl PendingGroups {
    pub(crate) fn new() -> PendingGroups {
        PendingGroups {
            queue: Mutex::new(Rank::Leaf, VecDeque::new()),
            oldest: AtomicU64::new(0),
            clusters: CachePadded::default(),
            releases: CachePadded::default(),
        }
    }

    /// Clusters that count as free and wait for a commit.
    pub(crate) fn clusters(&self) -> i64 {
        self.clusters.load(Ordering::SeqCst)
    }

    /// Counts clusters that start to wait. Called before they count as free.
    pub(crate) fn count_waiting(&self, clusters: u32) {
        self.clusters.fetch_add(clusters.into(), Ordering::SeqCst);
    }

    /// Counts clusters that no longer wait. The caller holds the group's lock and puts them into
    /// the free extents before it unlocks the group.
    pub(crate) fn count_durable(&self, clusters: u32) {
        self.clusters.fetch_sub(clusters.into(), Ordering::SeqCst);
    }

    /// A number that changes whenever clusters come back to the free extents of a group, before the
    /// group is unlocked.
    pub(crate) fn releases(&self) -> u64 {
        self.releases.load(Ordering::Acquire)
    }

    /// Notes that clusters came back to the free extents of a locked group.
    pub(crate) fn count_release(&self) {
        self.releases.fetch_add(1, Ordering::AcqRel);
    }

    /// Notes that clusters of `nr` wait for `tid`. Locks: takes `Leaf`.
    pub(crate) fn note(&self, tid: Tid, nr: GroupNr) {
        let mut queue = self.queue.lock();
        queue.push_back((tid, nr));
        self.note_oldest(&queue);
    }

    fn note_oldest(&self, queue: &VecDeque<(Tid, GroupNr)>) {
        let oldest = queue.front().map_or(0, |(tid, _)| SOME | u64::from(tid.0));
        self.oldest.store(oldest, Ordering::Release);
    }

    /// The next entry whose transaction is durable.
    fn next_durable(&self, is_durable: impl Fn(Tid) -> bool) -> Option<(Tid, GroupNr)> {
        let oldest = self.oldest.load(Ordering::Acquire);
        if oldest & SOME == 0 || !is_durable(Tid(low_u32(oldest))) {
            return None;
        }
        self.queue.lock().front().copied().filter(|&(tid, _)| is_durable(tid))
    }

    /// Removes `entry`, whose clusters are in the free extents, unless another thread removed it.
    fn remove(&self, entry: (Tid, GroupNr)) {
        let mut queue = self.queue.lock();
        if queue.front() == Some(&entry) {
            queue.pop_front();
            self.note_oldest(&queue);
        }
    }

    /// The newest transaction for which clusters wait.
    fn newest(&self) -> Option<Tid> {
        let newer = |a: Tid, b: Tid| if b.is_after(a) { b } else { a };
        self.queue.lock().iter().map(|&(tid, _)| tid).reduce(newer)
    }
}

impl FreeSpace {
    /// The transaction for which the clusters that `handle` frees have to wait; `None` without a
    /// log.
    pub(super) fn frees_wait_for(&self, handle: &Handle<'_>) -> Option<Tid> {
        (!self.context().journal().is_off()).then(|| handle.tid())
    }

    /// Returns freed clusters whose transaction became durable to the free extents, in at most
    /// `most` groups. Returns the number of groups. Locks: takes `Group`.
    pub(super) fn release_durable(&self, most: usize) -> usize {
        let is_durable = |tid| self.context().journal().is_durable(tid);
        (0..most)
            .map_while(|_| self.pending().next_durable(is_durable))
            .map(|entry| {
                release_pending(self, entry.1, is_durable);
                self.pending().remove(entry);
            })
            .count()
    }
}

impl Space {
    /// Makes pending clusters usable, and unused preallocations. Returns whether there were any.
    ///
    /// Commits, so the caller holds no handle and no lock above `Rank::Handle`. Errors: `Device`,
    /// `Aborted`.
    pub(crate) fn reclaim_pending(&self) -> Result<bool> {
        let discarded = self.discard_all_preallocations();
        let newest = self.free_space.pending().newest();
        if let Some(newest) = newest
            && !self.context.journal().is_durable(newest)
            && !self.context.journal().is_one_transaction()
        {
            self.context.journal().commit(newest)?;
        }
        // Another thread may have made the pending clusters usable meanwhile. Retrying pays then,
        // too.
        Ok(self.release_durable(usize::MAX) > 0 || newest.is_some() || discarded)
    }

    /// Runs `operation`, which starts and stops its own handle. Runs it once more if it found no
    /// space although clusters were waiting for a commit.
    ///
    /// `operation` leaves the volume consistent when it fails. The caller holds no handle.
    pub(crate) fn with_space_retry<T>(
        &self,
        mut operation: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        match operation() {
            Err(Error::NoSpace) if self.reclaim_pending()? => operation(),
            done => done,
        }
    }

    /// As [`Space::with_space_retry`], for an operation on reserved clusters. These are normally
    /// free now (see `reservations`): only blocks that were freed back to dirty data wait for a
    /// commit. One commit makes all of them free, and no request without a reservation gets them
    /// before. Further commits are for the blocks that other threads freed meanwhile because their
    /// write-back failed.
    pub(crate) fn with_reserved_space<T>(
        &self,
        mut operation: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        for _ in 0..RESERVED_SPACE_COMMITS {
            match operation() {
                Err(Error::NoSpace) if self.reclaim_pending()? => {}
                done => return done,
            }
        }
        operation()
    }
}

/// Most commits for one reservation. So a volume whose counters are wrong does not commit for ever.
const RESERVED_SPACE_COMMITS: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn span(start: u32, len: u32) -> Span {
        Span { start, len }
    }

    #[test]
    fn spans_wait_for_their_own_transaction() {
        let mut pending = Pending::default();
        assert!(pending.push(Tid(7), span(10, 2)));
        assert!(!pending.push(Tid(7), span(12, 1)), "joined with the one before");
        assert!(!pending.push(Tid(7), span(30, 1)));
        assert!(!pending.push(Tid(7), span(28, 2)), "joined with the one after it");
        assert!(pending.push(Tid(8), span(40, 1)));
        assert_eq!(pending.spans().count(), 3);
        let durable = |tid: Tid| tid == Tid(7);
        assert_eq!(pending.pop_durable(durable), Some(span(10, 3)));
        assert_eq!(pending.pop_durable(durable), Some(span(28, 3)));
        assert_eq!(pending.pop_durable(durable), None);
    }

    #[test]
    fn groups_come_back_oldest_first() {
        let groups = PendingGroups::new();
        assert_eq!(groups.next_durable(|_| true), None);
        groups.note(Tid(u32::MAX), GroupNr(3));
        groups.note(Tid(0), GroupNr(1));
        assert_eq!(groups.newest(), Some(Tid(0)));
        let first = |tid| tid == Tid(u32::MAX);
        let entry = groups.next_durable(first).unwrap();
        assert_eq!(entry, (Tid(u32::MAX), GroupNr(3)));
        assert_eq!(groups.next_durable(first), Some(entry), "until it is handed over");
        groups.remove(entry);
        groups.remove(entry);
        assert_eq!(groups.next_durable(first), None);
        let entry = groups.next_durable(|_| true).unwrap();
        assert_eq!(entry.1, GroupNr(1));
        groups.remove(entry);
        assert_eq!(groups.newest(), None);
    }
}
