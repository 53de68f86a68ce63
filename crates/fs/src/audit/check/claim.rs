//! Which clusters are in use, and which are claimed more than once.
//!
//! ```text
//!   group 0            group 1      group 2
//!   ┌──────────────┐   ┌────────┐                claimed   runs while they are few,
//!   │ 0..3, 4..=32 │   │ 1110…1 │   │    –                otherwise one bit per cluster
//!   └──────────────┘   └────────┘                shared    bits, from the first double claim on
//! ```
//!
//! Long files make few runs, so a full volume of 64 TiB needs a few bytes per group instead of 2
//! GiB of bits. All threads make claims; each group has a lock, which is held for one claim. A
//! thread collects runs that continue each other, and takes its budget in large pieces: most files
//! are small and lie one after the other.

use extant_base::lock::{Mutex, Rank};
use extant_base::narrow::{fits_u32, len_u32};
use extant_base::{BlockNr, GroupNr};
use extant_ondisk::bitmap;
use extant_ondisk::geometry::Geometry;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many runs a group may have before it changes to bits: 256 bytes of runs.
const RUNS_MAX: usize = 32;

/// The clusters of one group that were claimed.
#[derive(Debug)]
enum Claimed {
    /// Sorted and not adjacent.
    Runs(Vec<Range<u32>>),
    /// One bit per cluster.
    Bits(Box<[u64]>),
}

impl Claimed {
    /// Adds `bits`, and passes those that were already claimed to `again`.
    fn add(&mut self, bits: Range<u32>, clusters: u32, again: impl FnMut(Range<u32>)) {
        match self {
            Claimed::Bits(words) => add_bits(words, bits, again),
            Claimed::Runs(runs) => {
                add_run(runs, bits, again);
                if runs.len() > RUNS_MAX {
                    let mut words = vec![0; (clusters as usize).div_ceil(64)].into_boxed_slice();
                    runs.iter().for_each(|run| add_bits(&mut words, run.clone(), |_| {}));
                    *self = Claimed::Bits(words);
                }
            }
        }
    }
}

fn add_run(runs: &mut Vec<Range<u32>>, new: Range<u32>, mut again: impl FnMut(Range<u32>)) {
    let first = runs.partition_point(|run| run.end < new.start);
    let last = first + runs[first..].partition_point(|run| run.start <= new.end);
    let mut all = new.clone();
    for run in &runs[first..last] {
        let both = run.start.max(new.start)..run.end.min(new.end);
        if !both.is_empty() {
            again(both);
        }
        all = all.start.min(run.start)..all.end.max(run.end);
    }
    runs.splice(first..last, [all]);
}

fn add_bits(words: &mut [u64], bits: Range<u32>, mut again: impl FnMut(Range<u32>)) {
    for (word, mask) in masks(bits) {
        let mut old = words[word] & mask;
        words[word] |= mask;
        while old != 0 {
            let bit = len_u32(word) * 64 + old.trailing_zeros();
            again(bit..bit + 1);
            old &= old - 1;
        }
    }
}

/// The clusters in use.
pub(in crate::audit) struct Usage {
    geometry: Geometry,
    claimed: Box<[Mutex<Claimed>]>,
    /// Bits of groups in which clusters were claimed again.
    shared: Mutex<HashMap<u32, Box<[u64]>>>,
    shared_clusters: AtomicU64,
    /// How many more clusters may be claimed before the check treats the volume as forged.
    budget: AtomicU64,
}

impl Usage {
    pub(in crate::audit) fn new(geometry: Geometry) -> Usage {
        let none = |_| Mutex::new(Rank::Group, Claimed::Runs(Vec::new()));
        Usage {
            geometry,
            claimed: (0..geometry.groups_count()).map(none).collect(),
            shared: Mutex::new(Rank::Leaf, HashMap::new()),
            shared_clusters: AtomicU64::new(0),
            budget: AtomicU64::new(geometry.clusters_count().saturating_mul(8).max(1 << 20)),
        }
    }

    /// The clusters of `blocks` as bits, group by group. Blocks outside the groups are omitted.
    fn parts(&self, blocks: Range<u64>) -> impl Iterator<Item = (u32, Range<u32>)> + use<> {
        let geometry = self.geometry;
        let range = geometry.block_range();
        let mut at = blocks.start.max(range.start);
        let end = blocks.end.min(range.end);
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let group = geometry.group_of_block(BlockNr(at))?;
            let of_group = geometry.blocks_of_group(group)?;
            let stop = end.min(of_group.end);
            let log = geometry.log_cluster_ratio();
            let first = fits_u32((at - of_group.start) >> log);
            let last = fits_u32((stop - 1 - of_group.start) >> log);
            at = stop;
            Some((group.0, first..last + 1))
        })
    }

    /// Claims the clusters of `blocks`. Returns how many were claimed before.
    pub(in crate::audit) fn claim(&self, blocks: Range<u64>) -> u64 {
        let mut count = 0;
        for (group, bits) in self.parts(blocks) {
            let again = self.add(group, bits);
            count += again.iter().map(|run| u64::from(run.end - run.start)).sum::<u64>();
            if !again.is_empty() {
                self.share(group, again);
            }
        }
        count
    }

    /// Claims clusters that may be claimed already, because metadata of one group may share a
    /// cluster.
    pub(in crate::audit) fn mark(&self, blocks: Range<u64>) {
        for (group, bits) in self.parts(blocks) {
            self.add(group, bits);
        }
    }

    /// Claims bits of a group. Returns those that were claimed before.
    fn add(&self, group: u32, bits: Range<u32>) -> Vec<Range<u32>> {
        let mut again: Vec<Range<u32>> = Vec::new();
        let clusters = self.geometry.clusters_per_group();
        self.claimed[group as usize].lock().add(bits, clusters, |run| match again.last_mut() {
            Some(last) if last.end == run.start => last.end = run.end,
            _ => again.push(run),
        });
        again
    }

    /// Records that these clusters were claimed again.
    fn share(&self, group: u32, again: Vec<Range<u32>>) {
        let words = (self.geometry.clusters_per_group() as usize).div_ceil(64);
        let mut shared = self.shared.lock();
        let bits = shared.entry(group).or_insert_with(|| vec![0; words].into());
        let mut fresh = 0;
        for run in again {
            for (word, mask) in masks(run) {
                fresh += u64::from((mask & !bits[word]).count_ones());
                bits[word] |= mask;
            }
        }
        self.shared_clusters.fetch_add(fresh, Ordering::Relaxed);
    }

    /// Takes `clusters` from the budget. Returns false if it is used up, which happens when many
    /// maps contain the same blocks.
    fn spend(&self, clusters: u64) -> bool {
        self.budget
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(clusters))
            .is_ok()
    }

    /// Clusters claimed more than once.
    pub(in crate::audit) fn shared_clusters(&self) -> u64 {
        self.shared_clusters.load(Ordering::Relaxed)
    }

    /// The runs of `blocks` that were claimed more than once, in blocks.
    pub(in crate::audit) fn shared_in(&self, blocks: Range<u64>) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        let shared = self.shared.lock();
        for (group, bits) in self.parts(blocks.clone()) {
            let Some(words) = shared.get(&group) else { continue };
            for (word, mask) in masks(bits) {
                let mut hit = words[word] & mask;
                while hit != 0 {
                    let bit = len_u32(word) * 64 + hit.trailing_zeros();
                    hit &= hit - 1;
                    let Some(block) = self.geometry.block_of_bit(GroupNr(group), bit) else {
                        break;
                    };
                    let len = u64::from(self.geometry.cluster_ratio());
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

    /// Whether the cluster of `block` was claimed.
    pub(in crate::audit) fn holds(&self, block: u64) -> bool {
        self.parts(block..block + 1).any(|(group, bits)| {
            match &*self.claimed[group as usize].lock() {
                Claimed::Runs(runs) => {
                    let n = runs.partition_point(|run| run.end <= bits.start);
                    runs.get(n).is_some_and(|run| run.start <= bits.start)
                }
                Claimed::Bits(words) => {
                    words[bits.start as usize / 64] >> (bits.start % 64) & 1 != 0
                }
            }
        })
    }

    /// Sets the bits of one group's claimed clusters in `map`, which has one bit per cluster.
    pub(in crate::audit) fn fill(&self, group: GroupNr, map: &mut [u8]) {
        match &*self.claimed[group.0 as usize].lock() {
            Claimed::Runs(runs) => {
                for run in runs {
                    bitmap::set_range(map, run.clone());
                }
            }
            Claimed::Bits(words) => {
                for (to, word) in map.chunks_mut(8).zip(words) {
                    to.copy_from_slice(&word.to_le_bytes()[..to.len()]);
                }
            }
        }
    }

    /// The approximate memory of the claims, in bytes.
    #[cfg(test)]
    fn bytes(&self) -> usize {
        let of = |claimed: &Mutex<Claimed>| match &*claimed.lock() {
            Claimed::Runs(runs) => runs.capacity() * size_of::<Range<u32>>(),
            Claimed::Bits(words) => size_of_val(&**words),
        };
        self.claimed.iter().map(of).sum::<usize>() + size_of_val(&*self.claimed)
    }
}

/// Clusters that a thread takes from the budget at a time.
const BUDGET_STEP: u64 = 1 << 12;

/// The claims of one thread. They are in the [`Usage`] at the latest when this is dropped.
pub(in crate::audit) struct Claims<'u> {
    usage: &'u Usage,
    /// A run that is not claimed yet.
    collected: Range<u64>,
    /// Clusters taken from the budget that may still be claimed.
    budget: u64,
}

impl<'u> Claims<'u> {
    pub(in crate::audit) fn new(usage: &'u Usage) -> Claims<'u> {
        Claims { usage, collected: 0..0, budget: 0 }
    }

    /// Claims `blocks`, which are in `clusters` clusters. False, without a claim, if the budget is
    /// used up.
    pub(in crate::audit) fn data(&mut self, blocks: Range<u64>, clusters: u64) -> bool {
        if !self.spend(clusters) {
            return false;
        }
        // Runs of two files that meet within a cluster would hide that both claim it.
        let is_next =
            blocks.start == self.collected.end && self.usage.geometry.cluster_ratio() == 1;
        if is_next {
            self.collected.end = blocks.end;
        } else {
            self.flush();
            self.collected = blocks;
        }
        true
    }

    /// Claims the block of a map's node. False if the budget is used up or the block was claimed.
    pub(in crate::audit) fn node(&mut self, block: u64) -> bool {
        self.flush();
        self.spend(1) && self.usage.claim(block..block + 1) == 0
    }

    fn spend(&mut self, clusters: u64) -> bool {
        if self.budget < clusters {
            let more = clusters - self.budget;
            match self.usage.spend(more + BUDGET_STEP) {
                true => self.budget += more + BUDGET_STEP,
                false if self.usage.spend(more) => self.budget += more,
                false => return false,
            }
        }
        self.budget -= clusters;
        true
    }

    fn flush(&mut self) {
        if !self.collected.is_empty() {
            self.usage.claim(std::mem::take(&mut self.collected));
        }
    }
}

impl Drop for Claims<'_> {
    fn drop(&mut self) {
        self.flush();
    }
}

/// The indexes of the words that contain `bits`, and the mask of bits in each.
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
    use super::{Claimed, Claims, Geometry, Usage, masks};
    use crate::context::environment::Environment;
    use crate::offline::mkfs::{MkfsOptions, format};
    use crate::volume::{Volume, VolumeOptions};
    use extant_base::GroupNr;
    use extant_blockdev::MemoryDevice;
    use extant_ondisk::bitmap;
    use std::sync::Arc;

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

    #[test]
    fn runs_and_bits_record_first_and_repeated_claims() {
        let mut random = 11u64;
        for _ in 0..200 {
            let mut claimed = Claimed::Runs(Vec::new());
            let mut model = [false; 1000];
            for _ in 0..120 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
                let start = (random >> 33) as u32 % 990;
                let bits = start..start + 1 + (random >> 50) as u32 % 9;
                let mut again = Vec::new();
                claimed.add(bits.clone(), 1000, |run| again.extend(run));
                let before: Vec<u32> = bits.clone().filter(|bit| model[*bit as usize]).collect();
                assert_eq!(again, before);
                bits.for_each(|bit| model[bit as usize] = true);
            }
            let there = |bit: usize| match &claimed {
                Claimed::Runs(runs) => runs.iter().any(|run| run.contains(&(bit as u32))),
                Claimed::Bits(words) => words[bit / 64] >> (bit % 64) & 1 != 0,
            };
            assert!((0..1000).all(|bit| there(bit) == model[bit]));
        }
    }

    #[test]
    fn a_full_volume_of_long_files_needs_little_memory_and_a_fragmented_one_its_bitmap() {
        let device = Arc::new(MemoryDevice::new(1 << 40));
        let options = MkfsOptions::new().zeroed(true);
        format(device.clone(), &options, &Environment::default()).unwrap();
        let volume = Volume::open_parts(device, &VolumeOptions::default()).unwrap();
        let geometry = *volume.geometry();
        let usage = Usage::new(geometry);
        assert_eq!(usage.claim(geometry.block_range()), 0);
        assert!(usage.bytes() <= 8192 * 160, "{} bytes for 8192 groups", usage.bytes());
        let mut map = vec![0; 4096];
        usage.fill(GroupNr(77), &mut map);
        assert!(map.iter().all(|byte| *byte == 0xFF));

        let usage = Usage::new(geometry);
        let group = geometry.blocks_of_group(GroupNr(3)).unwrap();
        group.clone().step_by(2).for_each(|block| assert_eq!(usage.claim(block..block + 1), 0));
        usage.fill(GroupNr(3), &mut map);
        assert!(usage.bytes() <= 8192 * 64 + 4096, "{} bytes", usage.bytes());
        assert_eq!(usage.claim(group.start + 100..group.start + 110), 5);
        assert_eq!(usage.shared_clusters(), 5);
        assert_eq!(usage.shared_in(group.start + 103..group.start + 106).len(), 1);
        map.fill(0);
        usage.fill(GroupNr(3), &mut map);
        assert_eq!(bitmap::count_set(&map, 0..32768), 16384 + 5);
    }

    fn geometry(features: &str) -> Geometry {
        let device = Arc::new(MemoryDevice::new(64 << 20));
        let options = MkfsOptions::new().features(features).unwrap();
        format(device.clone(), &options, &Environment::default()).unwrap();
        *Volume::open_parts(device, &VolumeOptions::default()).unwrap().geometry()
    }

    #[test]
    fn collected_claims_count_as_those_that_were_made_at_once() {
        let mut random = 5u64;
        let mut below = |limit: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
            (random >> 33) % limit
        };
        for features in ["", "bigalloc"] {
            let geometry = geometry(features);
            for _ in 0..50 {
                let (at_once, collected) = (Usage::new(geometry), Usage::new(geometry));
                let mut claims = Claims::new(&collected);
                let mut end = 100;
                for _ in 0..100 {
                    // Runs that continue the last one, meet it in a cluster or lie elsewhere.
                    let start = match below(3) {
                        0 => below(geometry.blocks_count() - 100),
                        _ => end,
                    };
                    if below(8) == 0 {
                        let again = at_once.claim(start..start + 1);
                        assert_eq!(claims.node(start), again == 0);
                        continue;
                    }
                    end = (start + 1 + below(40)).min(geometry.blocks_count() - 1);
                    at_once.claim(start..end);
                    assert!(claims.data(start..end, 1));
                }
                drop(claims);
                assert_eq!(collected.shared_clusters(), at_once.shared_clusters());
                let all = geometry.block_range();
                assert_eq!(collected.shared_in(all.clone()), at_once.shared_in(all));
                for group in (0..geometry.groups_count()).map(GroupNr) {
                    let mut maps = [vec![0; 4096], vec![0; 4096]];
                    collected.fill(group, &mut maps[0]);
                    at_once.fill(group, &mut maps[1]);
                    assert_eq!(maps[0], maps[1]);
                }
            }
        }
    }

    #[test]
    fn the_budget_of_clusters_is_used_up_exactly() {
        let usage = Usage::new(geometry(""));
        let mut claims = Claims::new(&usage);
        let mut left = 1 << 20;
        while left > 0 {
            let clusters = left.min(10_000);
            assert!(claims.data(100..10_100, clusters));
            left -= clusters;
        }
        assert!(!claims.data(20..21, 1));
        assert!(!claims.node(20));
        drop(claims);
        assert_eq!(usage.claim(20..21), 0, "a refused claim was made");
    }
}
