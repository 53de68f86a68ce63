//! The free space of one group as two trees of runs, sorted by place and by length.
//!
//! ```text
//!   bitmap     1 1 0 0 0 1 0 1 1 1 0 0 1 …          1 = in use
//!                  └─┬─┘   │       └┬┘
//!   by place      5: 2    7: 6     12: 10            end → start
//!   by length    (1, 7)  (2, 12)  (3, 5)             (length, end): shortest first, then lowest
//! ```
//!
//! The trees are built once from the bitmap, at the first allocation in the group, and then updated
//! under the group lock. No search reads bits again: finding, taking and releasing a run cost the
//! logarithm of the number of runs, however full or fragmented the group is. The key of a run is
//! its end: files grow forward, and taking clusters from the front of a run leaves its key as it
//! is. Units are clusters, counted from the group's start.

use extant_ondisk::bitmap;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A run of clusters in one group. Never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// First cluster, counted from the group's start.
    pub start: u32,
    /// Length in clusters, at least 1.
    pub len: u32,
}

impl Span {
    /// The first cluster after the run.
    pub fn end(self) -> u32 {
        self.start + self.len
    }
}

/// The free runs of one group. No two of them are adjacent.
#[derive(Debug, Default)]
pub(crate) struct FreeExtents {
    by_place: BTreeMap<u32, u32>,
    by_length: BTreeSet<(u32, u32)>,
    free: u32,
}

impl FreeExtents {
    /// Reads the free runs of `map`, of which the first `clusters` bits count.
    pub fn from_bitmap(map: &[u8], clusters: u32) -> FreeExtents {
        let runs: Vec<Range<u32>> = bitmap::zero_runs(map, 0..clusters).collect();
        FreeExtents {
            free: runs.iter().map(|run| run.end - run.start).sum(),
            by_length: runs.iter().map(|run| (run.end - run.start, run.end)).collect(),
            by_place: runs.into_iter().map(|run| (run.end, run.start)).collect(),
        }
    }

    /// Free clusters in all runs together.
    pub fn free(&self) -> u32 {
        self.free
    }

    /// Number of runs.
    pub fn runs(&self) -> usize {
        self.by_place.len()
    }

    /// Length of the longest run; 0 when nothing is free.
    pub fn longest_len(&self) -> u32 {
        self.by_length.last().map_or(0, |&(len, _)| len)
    }

    /// The first free clusters at or after `place`, at most `want`.
    pub fn next_from(&self, place: u32, want: u32) -> Option<Span> {
        let (&end, &start) = self.by_place.range(place.saturating_add(1)..).next()?;
        let start = start.max(place);
        Some(Span { start, len: want.min(end - start) })
    }

    /// `want` free clusters that start exactly at `place`, fewer if the run ends there.
    pub fn at(&self, place: u32, want: u32) -> Option<Span> {
        self.next_from(place, want).filter(|span| span.start == place)
    }

    /// The free run that contains `place`.
    pub fn containing(&self, place: u32) -> Option<Span> {
        let (&end, &start) = self.by_place.range(place.saturating_add(1)..).next()?;
        (start <= place).then_some(Span { start, len: end - start })
    }

    /// The shortest run that holds `want` clusters, cut to `want`.
    pub fn best_fit(&self, want: u32) -> Option<Span> {
        let &(len, end) = self.by_length.range((want, 0)..).next()?;
        Some(Span { start: end - len, len: want })
    }

    /// The longest run, cut to `want`.
    pub fn longest(&self, want: u32) -> Option<Span> {
        let &(len, end) = self.by_length.last()?;
        Some(Span { start: end - len, len: len.min(want) })
    }

    /// Removes `span`, all of which must be free.
    pub fn take(&mut self, span: Span) {
        let (&end, start) = self
            .by_place
            .range_mut(span.end()..)
            .next()
            .expect("a span to take lies in a free run");
        let first = *start;
        assert!(first <= span.start, "a span to take lies in one free run");
        self.by_length.remove(&(end - first, end));
        if span.end() < end {
            *start = span.end();
            self.by_length.insert((end - span.end(), end));
        } else {
            self.by_place.remove(&end);
        }
        if first < span.start {
            self.add_run(first, span.start);
        }
        self.free -= span.len;
        if self.free == 0 {
            // An empty tree keeps a node.
            *self = FreeExtents::default();
        }
    }

    /// Removes the free parts of `span`.
    pub fn take_any(&mut self, span: Span) {
        let mut at = span.start;
        while let Some(free) = self.next_from(at, u32::MAX).filter(|free| free.start < span.end()) {
            let end = free.end().min(span.end());
            self.take(Span { start: free.start, len: end - free.start });
            at = end;
        }
    }

    /// Adds `span`, none of which may be free already. Joins it with its neighbours.
    pub fn release(&mut self, span: Span) {
        let (mut start, mut end) = (span.start, span.end());
        if let Some(&before) = self.by_place.get(&start) {
            self.drop_run(before, start);
            start = before;
        }
        if let Some((&after, &first)) = self.by_place.range(span.start + 1..).next() {
            assert!(first >= end, "a span to release is not free yet");
            if first == end {
                self.drop_run(first, after);
                end = after;
            }
        }
        self.add_run(start, end);
        self.free += span.len;
    }

    fn add_run(&mut self, start: u32, end: u32) {
        self.by_place.insert(end, start);
        self.by_length.insert((end - start, end));
    }

    fn drop_run(&mut self, start: u32, end: u32) {
        self.by_place.remove(&end);
        self.by_length.remove(&(end - start, end));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(free: &FreeExtents) -> Vec<(u32, u32)> {
        free.by_place.iter().map(|(&end, &start)| (start, end - start)).collect()
    }

    #[test]
    fn runs_are_read_from_the_bitmap_up_to_its_end() {
        // bits 2-4, 6, 10-11 free, and everything from 13 on, of which 16 clusters count
        let free = FreeExtents::from_bitmap(&[0b1010_0011, 0b0001_0011, 0, 0], 16);
        assert_eq!(spans(&free), [(2, 3), (6, 1), (10, 2), (13, 3)]);
        assert_eq!((free.free(), free.longest(9)), (9, Some(Span { start: 13, len: 3 })));
    }

    #[test]
    fn taking_splits_and_releasing_joins() {
        let mut free = FreeExtents::from_bitmap(&[0; 8], 64);
        free.take(Span { start: 10, len: 5 });
        free.take(Span { start: 20, len: 1 });
        assert_eq!(spans(&free), [(0, 10), (15, 5), (21, 43)]);
        free.release(Span { start: 10, len: 5 });
        assert_eq!(spans(&free), [(0, 20), (21, 43)]);
        free.release(Span { start: 20, len: 1 });
        assert_eq!(spans(&free), [(0, 64)]);
        assert_eq!(free.free(), 64);
    }

    #[test]
    fn a_search_by_place_goes_forward_only() {
        let mut free = FreeExtents::from_bitmap(&[0; 8], 64);
        free.take(Span { start: 8, len: 8 });
        assert_eq!(free.next_from(4, 100), Some(Span { start: 4, len: 4 }));
        assert_eq!(free.next_from(8, 3), Some(Span { start: 16, len: 3 }));
        assert_eq!(free.at(8, 3), None);
        free.take(Span { start: 16, len: 48 });
        assert_eq!(free.next_from(8, 1), None);
    }

    #[test]
    fn a_search_by_length_takes_the_shortest_run_that_holds() {
        let mut free = FreeExtents::from_bitmap(&[0; 8], 64);
        free.take(Span { start: 4, len: 1 });
        free.take(Span { start: 20, len: 1 });
        assert_eq!(free.best_fit(10), Some(Span { start: 5, len: 10 }));
        assert_eq!(free.best_fit(4), Some(Span { start: 0, len: 4 }));
        assert_eq!(free.best_fit(44), None);
        assert_eq!(free.longest(100), Some(Span { start: 21, len: 43 }));
    }

    #[test]
    fn taking_any_free_clusters_leaves_the_rest() {
        let mut free = FreeExtents::from_bitmap(&[0; 8], 64);
        free.take(Span { start: 8, len: 8 });
        free.take_any(Span { start: 4, len: 16 });
        assert_eq!(spans(&free), [(0, 4), (20, 44)]);
        free.take_any(Span { start: 5, len: 10 });
        assert_eq!((free.free(), free.longest_len(), free.runs()), (48, 44, 2));
    }

    #[test]
    fn free_extents_agree_with_a_bitmap_after_random_changes() {
        const CLUSTERS: u32 = 700;
        let mut map = vec![0u8; 96];
        bitmap::fill_padding(&mut map, CLUSTERS);
        let mut free = FreeExtents::from_bitmap(&map, CLUSTERS);
        let mut seed = 0x5eed_u64;
        for _ in 0..20_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let place = (seed >> 33) as u32 % CLUSTERS;
            let want = 1 + (seed >> 50) as u32 % 20;
            let next = bitmap::next_zero_run(&map, place..CLUSTERS)
                .map(|run| Span { start: run.start, len: want.min(run.end - run.start) });
            assert_eq!(free.next_from(place, want), next);
            let runs: Vec<u32> =
                bitmap::zero_runs(&map, 0..CLUSTERS).map(|run| run.end - run.start).collect();
            assert_eq!(free.longest_len(), runs.iter().copied().max().unwrap_or(0));
            assert_eq!(free.best_fit(want).is_some(), runs.iter().any(|len| *len >= want));
            assert_eq!(free.runs(), runs.len());
            if seed & 1 == 0 {
                let pick =
                    [next, free.best_fit(want), free.longest(want)][(seed >> 1) as usize % 3];
                if let Some(span) = pick {
                    assert_eq!(bitmap::set_range(&mut map, span.start..span.end()), span.len);
                    free.take(span);
                }
            } else {
                let used: Vec<Range<u32>> = bitmap::set_runs(&map, place..CLUSTERS).collect();
                if let Some(run) = used.first() {
                    let len = want.min(run.end - run.start);
                    bitmap::clear_range(&mut map, run.start..run.start + len);
                    free.release(Span { start: run.start, len });
                }
            }
            assert_eq!(free.free(), bitmap::count_zeros(&map, 0..CLUSTERS));
        }
    }

    #[test]
    #[should_panic(expected = "not free yet")]
    fn releasing_twice_is_caught() {
        let mut free = FreeExtents::from_bitmap(&[0; 8], 64);
        free.release(Span { start: 3, len: 2 });
    }
}
