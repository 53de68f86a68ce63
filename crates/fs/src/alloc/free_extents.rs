//! The free space of one group as a tree of runs, found by place and by length.
//!
//! ```text
//!   bitmap     1 1 0 0 0 1 0 1 1 1 0 0 1 …          1 = in use
//!                  └─┬─┘   │       └┬┘
//!   by place      2: 3    6: 1     10: 2             start → length
//!   by length    (1, 6)  (2, 10)  (3, 2)             shortest first, then lowest
//! ```
//!
//! Built once from the bitmap when the group is first allocated from, and kept in step under the
//! group lock from then on, so that no search reads bits again: finding, taking and giving back a
//! run cost the logarithm of the number of runs, however full or fragmented the group is.
//! Units are clusters, counted from the group's start.

use extant_ondisk::bitmap;
use std::collections::{BTreeMap, BTreeSet};

/// A run of clusters in one group. Never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// First cluster, counted from the group's start.
    pub start: u32,
    /// Length in clusters, at least 1.
    pub len: u32,
}

impl Span {
    /// The first cluster behind the run.
    pub fn end(self) -> u32 {
        self.start + self.len
    }
}

/// The free runs of one group, never touching each other.
#[derive(Debug, Default)]
pub(crate) struct FreeExtents {
    by_place: BTreeMap<u32, u32>,
    by_length: BTreeSet<(u32, u32)>,
    free: u32,
}

impl FreeExtents {
    /// Reads the free runs out of `map`, whose first `clusters` bits count.
    pub fn from_bitmap(map: &[u8], clusters: u32) -> FreeExtents {
        let runs: Vec<(u32, u32)> = bitmap::zero_runs(map, 0..clusters)
            .map(|run| (run.start, run.end - run.start))
            .collect();
        FreeExtents {
            free: runs.iter().map(|&(_, len)| len).sum(),
            by_length: runs.iter().map(|&(start, len)| (len, start)).collect(),
            by_place: runs.into_iter().collect(),
        }
    }

    /// Free clusters in all runs together.
    pub fn free(&self) -> u32 {
        self.free
    }

    /// The first free clusters at or behind `place`, up to `want` of them.
    pub fn next_from(&self, place: u32, want: u32) -> Option<Span> {
        if let Some((&start, &len)) = self.by_place.range(..=place).next_back()
            && start + len > place
        {
            return Some(Span { start: place, len: want.min(start + len - place) });
        }
        let (&start, &len) = self.by_place.range(place..).next()?;
        Some(Span { start, len: want.min(len) })
    }

    /// `want` free clusters that start exactly at `place`, fewer if the run ends there.
    pub fn at(&self, place: u32, want: u32) -> Option<Span> {
        self.next_from(place, want).filter(|span| span.start == place)
    }

    /// The shortest run that holds `want` clusters, cut to `want`.
    pub fn best_fit(&self, want: u32) -> Option<Span> {
        let &(_, start) = self.by_length.range((want, 0)..).next()?;
        Some(Span { start, len: want })
    }

    /// The longest run, cut to `want`.
    pub fn longest(&self, want: u32) -> Option<Span> {
        let &(len, start) = self.by_length.last()?;
        Some(Span { start, len: len.min(want) })
    }

    /// Takes `span` out; all of it must be free.
    pub fn take(&mut self, span: Span) {
        let (&start, &len) = self
            .by_place
            .range(..=span.start)
            .next_back()
            .expect("a span to take lies in a free run");
        let (end, span_end) = (start + len, span.end());
        assert!(span_end <= end, "a span to take lies in one free run");
        self.drop_run(start, len);
        if start < span.start {
            self.add_run(start, span.start - start);
        }
        if span_end < end {
            self.add_run(span_end, end - span_end);
        }
        self.free -= span.len;
    }

    /// Gives `span` back; none of it may be free already. Joins its neighbours.
    pub fn release(&mut self, span: Span) {
        let (mut start, mut end) = (span.start, span.end());
        if let Some((&before, &len)) = self.by_place.range(..start).next_back() {
            assert!(before + len <= start, "a span to release is not free yet");
            if before + len == start {
                self.drop_run(before, len);
                start = before;
            }
        }
        if let Some((&after, &len)) = self.by_place.range(span.start..).next() {
            assert!(after >= end, "a span to release is not free yet");
            if after == end {
                self.drop_run(after, len);
                end += len;
            }
        }
        self.add_run(start, end - start);
        self.free += span.len;
    }

    fn add_run(&mut self, start: u32, len: u32) {
        self.by_place.insert(start, len);
        self.by_length.insert((len, start));
    }

    fn drop_run(&mut self, start: u32, len: u32) {
        self.by_place.remove(&start);
        self.by_length.remove(&(len, start));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(free: &FreeExtents) -> Vec<(u32, u32)> {
        free.by_place.iter().map(|(&start, &len)| (start, len)).collect()
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
    #[should_panic(expected = "not free yet")]
    fn releasing_twice_is_caught() {
        let mut free = FreeExtents::from_bitmap(&[0; 8], 64);
        free.release(Span { start: 3, len: 2 });
    }
}
