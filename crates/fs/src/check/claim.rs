//! Which clusters are in use, and which more than once.
//!
//! ```text
//!   group 0        group 1        group 2
//!   ┌──────────┐   ┌──────────┐                 used     1 = claimed
//!   │1110110000│   │          │      –          shared   1 = claimed again
//!   └──────────┘   └──────────┘                 made when a group is first claimed in
//! ```
//!
//! Claims come from all threads: bits are atomic, and the thread that sets one owns it.

use extant_base::{BlockNr, GroupNr};
use extant_ondisk::layout::Layout;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

type Words = OnceLock<Box<[AtomicU64]>>;

/// The clusters in use.
pub(super) struct Usage {
    layout: Layout,
    used: Box<[Words]>,
    shared: Box<[Words]>,
    shared_clusters: AtomicU64,
    /// Clusters that may still be claimed before the volume is taken for a trap.
    budget: AtomicU64,
}

impl Usage {
    pub(super) fn new(layout: Layout) -> Usage {
        let groups = layout.groups_count();
        let words = || (0..groups).map(|_| Words::new()).collect();
        Usage {
            layout,
            used: words(),
            shared: words(),
            shared_clusters: AtomicU64::new(0),
            budget: AtomicU64::new(layout.clusters_count().saturating_mul(8).max(1 << 20)),
        }
    }

    fn words_of<'a>(&self, map: &'a [Words], group: u32) -> &'a [AtomicU64] {
        map[group as usize].get_or_init(|| {
            let words = (self.layout.clusters_per_group() as usize).div_ceil(64);
            (0..words).map(|_| AtomicU64::new(0)).collect()
        })
    }

    /// The clusters of `blocks`, group by group, as bits; what lies outside the groups is left out.
    fn parts(&self, blocks: Range<u64>) -> impl Iterator<Item = (u32, Range<u32>)> + use<> {
        let layout = self.layout;
        let range = layout.block_range();
        let mut at = blocks.start.max(range.start);
        let end = blocks.end.min(range.end);
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let group = layout.group_of_block(BlockNr(at))?;
            let of_group = layout.blocks_of_group(group)?;
            let stop = end.min(of_group.end);
            let log = layout.log_cluster_ratio();
            let first = ((at - of_group.start) >> log) as u32;
            let last = ((stop - 1 - of_group.start) >> log) as u32;
            at = stop;
            Some((group.0, first..last + 1))
        })
    }

    /// Claims the clusters of `blocks`. Gives the number that were claimed before.
    pub(super) fn claim(&self, blocks: Range<u64>) -> u64 {
        let mut again = 0;
        for (group, bits) in self.parts(blocks) {
            let words = self.words_of(&self.used, group);
            for (word, mask) in masks(bits) {
                let old = words[word].fetch_or(mask, Ordering::Relaxed) & mask;
                if old != 0 {
                    let shared = self.words_of(&self.shared, group);
                    let before = shared[word].fetch_or(old, Ordering::Relaxed);
                    let fresh = u64::from((old & !before).count_ones());
                    self.shared_clusters.fetch_add(fresh, Ordering::Relaxed);
                    again += u64::from(old.count_ones());
                }
            }
        }
        again
    }

    /// Claims clusters that may be claimed before: metadata of one group in one cluster.
    pub(super) fn mark(&self, blocks: Range<u64>) {
        for (group, bits) in self.parts(blocks) {
            let words = self.words_of(&self.used, group);
            for (word, mask) in masks(bits) {
                words[word].fetch_or(mask, Ordering::Relaxed);
            }
        }
    }

    /// Takes `clusters` off the budget; false when it is used up: many maps name the same blocks.
    pub(super) fn spend(&self, clusters: u64) -> bool {
        self.budget
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(clusters))
            .is_ok()
    }

    /// Clusters claimed more than once.
    pub(super) fn shared_clusters(&self) -> u64 {
        self.shared_clusters.load(Ordering::Relaxed)
    }

    /// The runs of `blocks` that were claimed more than once, in blocks.
    pub(super) fn shared_in(&self, blocks: Range<u64>) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for (group, bits) in self.parts(blocks.clone()) {
            let Some(words) = self.shared[group as usize].get() else { continue };
            for (word, mask) in masks(bits) {
                let mut hit = words[word].load(Ordering::Relaxed) & mask;
                while hit != 0 {
                    let bit = word as u32 * 64 + hit.trailing_zeros();
                    hit &= hit - 1;
                    let Some(block) = self.layout.block_of_bit(GroupNr(group), bit) else { break };
                    let len = u64::from(self.layout.cluster_ratio());
                    let start = block.0.max(blocks.start);
                    let end = (block.0 + len).min(blocks.end);
                    match runs.last_mut() {
                        Some(run) if run.end == start => run.end = end,
                        _ => runs.push(start..end),
                    }
                }
            }
        }
        runs
    }

    /// The bits of one group, 64 to a word; `None` when nothing is claimed in it.
    pub(super) fn group(&self, group: GroupNr) -> Option<&[AtomicU64]> {
        self.used[group.0 as usize].get().map(|words| &**words)
    }
}

/// The words that `bits` touch, and which bits of each.
fn masks(bits: Range<u32>) -> impl Iterator<Item = (usize, u64)> {
    let (start, end) = (bits.start as usize, bits.end as usize);
    (start / 64..end.div_ceil(64)).map(move |word| {
        let low = start.saturating_sub(word * 64).min(63);
        let high = (end - word * 64).min(64);
        let mask = (!0u64 << low) & (!0u64 >> (64 - high));
        (word, mask)
    })
}

#[cfg(test)]
mod tests {
    use super::masks;

    #[test]
    fn masks_cover_exactly_the_bits() {
        for start in 0..130 {
            for end in start + 1..200 {
                let mut bits = [false; 256];
                for (word, mask) in masks(start..end) {
                    for bit in 0..64 {
                        bits[word * 64 + bit] |= mask >> bit & 1 != 0;
                    }
                }
                let count = bits.iter().filter(|bit| **bit).count() as u32;
                assert_eq!(count, end - start);
                assert!(bits[start as usize..end as usize].iter().all(|bit| *bit));
            }
        }
    }
}
