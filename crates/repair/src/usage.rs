//! Which clusters are in use, as the scan finds it, and where free ones are.
//!
//! ```text
//!   chunk 0        chunk 1        chunk 5         32,768 clusters each; a chunk without used
//!   ┌──────────┐   ┌──────────┐   ┌──────────┐    clusters takes no memory
//!   │ bits     │   │ bits     │   │ bits     │
//!   └──────────┘   └──────────┘   └──────────┘
//! ```

use extant_base::narrow::fits_usize;
use extant_ondisk::geometry::Geometry;
use hashbrown::HashMap;
use std::ops::Range;

const CHUNK: u64 = 32_768;
const WORDS: usize = fits_usize(CHUNK) / 64;

/// A set of clusters; blocks are given, whole clusters are meant.
pub(crate) struct Usage {
    chunks: HashMap<u64, Box<[u64; WORDS]>>,
    first: u64,
    log_ratio: u32,
    clusters: u64,
    was_reduced: bool,
}

impl Usage {
    /// An empty set.
    pub(crate) fn new(geometry: &Geometry) -> Usage {
        Usage {
            chunks: HashMap::new(),
            first: geometry.first_data_block().0,
            log_ratio: geometry.log_cluster_ratio(),
            clusters: geometry.clusters_count(),
            was_reduced: false,
        }
    }

    /// The cluster of `block`.
    pub(crate) fn cluster(&self, block: u64) -> u64 {
        block.saturating_sub(self.first) >> self.log_ratio
    }

    /// The first block of `cluster`.
    pub(crate) fn block(&self, cluster: u64) -> u64 {
        (cluster << self.log_ratio) + self.first
    }

    /// Whether the cluster of `block` is in the set.
    pub(crate) fn has(&self, block: u64) -> bool {
        self.has_cluster(self.cluster(block))
    }

    /// Whether `cluster` is in the set.
    pub(crate) fn has_cluster(&self, cluster: u64) -> bool {
        let bit = fits_usize(cluster % CHUNK);
        self.chunks.get(&(cluster / CHUNK)).is_some_and(|c| c[bit / 64] >> (bit % 64) & 1 != 0)
    }

    /// Adds `cluster`. Returns whether it was not in the set.
    pub(crate) fn add_cluster(&mut self, cluster: u64) -> bool {
        if cluster >= self.clusters {
            return false;
        }
        let chunk = self.chunks.entry(cluster / CHUNK).or_insert_with(|| Box::new([0; WORDS]));
        let bit = fits_usize(cluster % CHUNK);
        let was = chunk[bit / 64] >> (bit % 64) & 1;
        chunk[bit / 64] |= 1 << (bit % 64);
        was == 0
    }

    /// Removes the cluster of `block`.
    pub(crate) fn remove(&mut self, block: u64) {
        self.was_reduced = true;
        let cluster = self.cluster(block);
        let bit = fits_usize(cluster % CHUNK);
        if let Some(chunk) = self.chunks.get_mut(&(cluster / CHUNK)) {
            chunk[bit / 64] &= !(1 << (bit % 64));
        }
    }

    /// Whether anything was ever removed.
    pub(crate) fn was_reduced(&self) -> bool {
        self.was_reduced
    }

    /// Whether any cluster of a range of blocks is in the set.
    pub(crate) fn has_any(&self, blocks: Range<u64>) -> bool {
        let Some(last) = blocks.end.checked_sub(1) else { return false };
        self.next_used(self.cluster(blocks.start)..self.cluster(last) + 1).is_some()
    }

    /// Adds all clusters of a range of blocks.
    pub(crate) fn add_blocks(&mut self, blocks: Range<u64>) {
        if blocks.start < blocks.end {
            for cluster in self.cluster(blocks.start)..=self.cluster(blocks.end - 1) {
                self.add_cluster(cluster);
            }
        }
    }

    /// Whether the set is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.values().all(|chunk| chunk.iter().all(|word| *word == 0))
    }

    /// Takes the first cluster from `goal` on that is not in the set, within `within`, and returns
    /// its first block. Searches from the start of `within` if there is none after the goal.
    pub(crate) fn take(&mut self, goal: u64, within: &Range<u64>) -> Option<u64> {
        let start = self.cluster(within.start);
        let end = self.cluster(within.end.checked_sub(1)?) + 1;
        let goal = self.cluster(goal).clamp(start, end);
        let found = self.first_free(goal..end).or_else(|| self.first_free(start..goal))?;
        self.add_cluster(found);
        Some(self.block(found))
    }

    /// Whether `count` clusters within `within` are not in the set.
    pub(crate) fn can_take(&self, count: u64, within: &Range<u64>) -> bool {
        let Some(last) = within.end.checked_sub(1) else { return count == 0 };
        let end = self.cluster(last) + 1;
        let mut from = self.cluster(within.start);
        for _ in 0..count {
            let Some(free) = self.first_free(from..end) else { return false };
            from = free + 1;
        }
        true
    }

    /// Takes `count` adjacent clusters within `within`, if there are any.
    pub(crate) fn take_run(&mut self, count: u64, within: &Range<u64>) -> Option<u64> {
        let end = self.cluster(within.end.checked_sub(1)?) + 1;
        let mut from = self.cluster(within.start);
        loop {
            let start = self.first_free(from..end)?;
            let mut next = start;
            while next < end && next - start < count && !self.has_cluster(next) {
                next += 1;
            }
            if next - start == count {
                (start..next).for_each(|cluster| {
                    self.add_cluster(cluster);
                });
                return Some(self.block(start));
            }
            from = next + 1;
        }
    }

    /// The first cluster of a range that is in the set.
    pub(crate) fn next_used(&self, range: Range<u64>) -> Option<u64> {
        let mut cluster = range.start;
        while cluster < range.end {
            let Some(chunk) = self.chunks.get(&(cluster / CHUNK)) else {
                cluster = (cluster / CHUNK + 1) * CHUNK;
                continue;
            };
            let bit = fits_usize(cluster % CHUNK);
            let used = chunk[bit / 64] >> (bit % 64);
            if used != 0 {
                let found = cluster + u64::from(used.trailing_zeros());
                return (found < range.end).then_some(found);
            }
            cluster += 64 - (cluster % 64);
        }
        None
    }

    fn first_free(&self, range: Range<u64>) -> Option<u64> {
        let end = range.end.min(self.clusters);
        let mut cluster = range.start;
        while cluster < end {
            let Some(chunk) = self.chunks.get(&(cluster / CHUNK)) else { return Some(cluster) };
            let bit = fits_usize(cluster % CHUNK);
            let free = !chunk[bit / 64] >> (bit % 64);
            if free != 0 {
                let found = cluster + u64::from(free.trailing_zeros());
                return (found < end).then_some(found);
            }
            cluster += 64 - (cluster % 64);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(clusters: u64) -> Usage {
        Usage { chunks: HashMap::new(), first: 1, log_ratio: 0, clusters, was_reduced: false }
    }

    #[test]
    fn free_clusters_are_found_after_the_goal_and_then_before_it() {
        let mut usage = usage(100_000);
        usage.add_blocks(1..70_001);
        let all = 1..100_001;
        assert_eq!(usage.take(5, &all), Some(70_001));
        assert_eq!(usage.take(99_999, &all), Some(99_999));
        usage.add_blocks(70_001..100_001);
        assert_eq!(usage.take(5, &all), None);
        usage.remove(500);
        assert!(!usage.has(500) && usage.has(501));
        assert!(usage.can_take(1, &all) && !usage.can_take(2, &all));
        assert_eq!(usage.take(90_000, &all), Some(500));
    }

    #[test]
    fn a_run_needs_adjacent_clusters() {
        let mut usage = usage(200);
        for block in (1..101).step_by(3) {
            usage.add_cluster(usage.cluster(block));
        }
        assert_eq!(usage.take_run(2, &(1..201)), Some(2));
        assert_eq!(usage.take_run(50, &(1..201)), Some(101));
        assert_eq!(usage.take_run(500, &(1..201)), None);
    }
}
