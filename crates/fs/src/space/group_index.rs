//! The longest free run of each group, without a look at the groups.
//!
//! ```text
//!   level    1  2  3  4 …  20         a group is on level k while its longest free run
//!   group 0  x  x  x                  has at least 2^(k-1) clusters
//!   group 1  x  x  x  x  x
//!   group 2
//!   group 3  x                        "which group holds 8?" = next bit of level 4's column
//! ```
//!
//! Each level has one column of bits. A column is cut into chunks of 1024 groups with a count each,
//! so a search reads a few words, however many groups are full. A group from which nothing was
//! allocated yet has the level that its descriptor's free count allows at most; the first visit
//! makes it exact. A group's entry changes under the group's lock. Searches take no lock and treat
//! the result as a hint.

use crate::context::lazy_table::LazyTable;
use crate::space::group::Groups;
use extant_base::narrow::len_u8;
use extant_base::{Error, GroupNr, Result};
use extant_ondisk::group_desc::GroupDesc;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

const CHUNK: u32 = 1024;
const WORDS: usize = CHUNK as usize / 64;
/// A group has at most 2^19 clusters, so a run of them is on level 20.
const LEVELS: usize = 20;
/// Nothing is known of the group.
const UNKNOWN: u8 = 0xFF;

/// The level of a longest free run of `len` clusters; 0 when there is none.
pub(crate) fn level_of(len: u32) -> u8 {
    len_u8(((u32::BITS - len.leading_zeros()) as usize).min(LEVELS))
}

/// The lowest level whose every group surely holds a run of `want` clusters.
pub(crate) fn sure_level(want: u32) -> u8 {
    level_of(want.max(1).next_power_of_two())
}

/// The longest free run of each group, by level.
pub(crate) struct GroupIndex {
    chunks: LazyTable<Box<Chunk>>,
}

struct Chunk {
    /// Whether every group here has an entry. Groups that the volume gets later have one from the
    /// start.
    seeded: AtomicBool,
    level: [AtomicU8; CHUNK as usize],
    columns: [[AtomicU64; WORDS]; LEVELS],
    counts: [AtomicU32; LEVELS],
}

impl Chunk {
    fn new() -> Box<Chunk> {
        Box::new(Chunk {
            seeded: AtomicBool::new(false),
            level: [const { AtomicU8::new(UNKNOWN) }; CHUNK as usize],
            columns: [const { [const { AtomicU64::new(0) }; WORDS] }; LEVELS],
            counts: [const { AtomicU32::new(0) }; LEVELS],
        })
    }

    /// The first group of `range` (numbers within the chunk) on `level`, which is at least 1.
    fn find(&self, level: u8, range: Range<u32>) -> Option<u32> {
        let column = usize::from(level) - 1;
        if self.counts[column].load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut at = range.start;
        while at < range.end {
            let word = self.columns[column][at as usize / 64].load(Ordering::Relaxed);
            let word = word >> (at % 64);
            if word != 0 {
                return Some(at + word.trailing_zeros()).filter(|hit| *hit < range.end);
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }
}

impl GroupIndex {
    /// An index for a volume that has `groups` groups now.
    pub(crate) fn new(groups: u32) -> GroupIndex {
        GroupIndex { chunks: LazyTable::new(groups.div_ceil(CHUNK) as usize) }
    }

    fn chunk(&self, nr: u32) -> &Chunk {
        self.chunks.cell(nr / CHUNK).get_or_init(Chunk::new)
    }

    /// The level of `nr`; `None` while nothing is known.
    pub(crate) fn level(&self, nr: GroupNr) -> Option<u8> {
        let level = self.chunk(nr.0).level[(nr.0 % CHUNK) as usize].load(Ordering::Relaxed);
        (level != UNKNOWN).then_some(level)
    }

    /// Records that the longest free run of `nr` has `longest` clusters. The caller holds the
    /// group's lock.
    pub(crate) fn set(&self, nr: GroupNr, longest: u32) {
        let chunk = self.chunk(nr.0);
        let n = (nr.0 % CHUNK) as usize;
        let new = level_of(longest);
        let old = chunk.level[n].load(Ordering::Relaxed);
        if old == new {
            return;
        }
        chunk.level[n].store(new, Ordering::Relaxed);
        let old = if old == UNKNOWN { 0 } else { old };
        let bit = 1u64 << (n % 64);
        for column in usize::from(old)..usize::from(new) {
            chunk.columns[column][n / 64].fetch_or(bit, Ordering::Relaxed);
            chunk.counts[column].fetch_add(1, Ordering::Relaxed);
        }
        for column in usize::from(new)..usize::from(old) {
            chunk.columns[column][n / 64].fetch_and(!bit, Ordering::Relaxed);
            chunk.counts[column].fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The first group of `range` on `level` (at least 1). Reads the descriptors of groups that
    /// have no entry yet as the search reaches them.
    ///
    /// Errors: `Device`. Locks: takes `Group`.
    pub(super) fn next_on(
        &self,
        groups: &Groups,
        level: u8,
        range: Range<u32>,
    ) -> Result<Option<GroupNr>> {
        let count = groups.context().geometry().groups_count();
        let end = range.end.min(count);
        let mut at = range.start;
        while at < end {
            let chunk = self.chunk(at);
            let base = at / CHUNK * CHUNK;
            if !chunk.seeded.load(Ordering::Acquire) {
                self.seed(groups, base..(base + CHUNK).min(count))?;
                chunk.seeded.store(true, Ordering::Release);
            }
            let upto = end.min(base + CHUNK);
            if let Some(hit) = chunk.find(level, at - base..upto - base) {
                return Ok(Some(GroupNr(base + hit)));
            }
            at = upto;
        }
        Ok(None)
    }

    /// Gives each group without an entry the level that its descriptor allows at most. A group
    /// whose descriptor is damaged counts as full.
    fn seed(&self, groups: &Groups, range: Range<u32>) -> Result<()> {
        for nr in range.map(GroupNr) {
            if self.level(nr).is_some() {
                continue;
            }
            let checked = match groups.descriptor(nr) {
                Ok(_) => true,
                Err(error @ Error::Corrupt { .. }) => {
                    groups.context().note_error(&error);
                    false
                }
                Err(error) => return Err(error),
            };
            let (block, place) = groups.descriptor_block(nr)?;
            let _state = groups.get(nr).state.lock();
            // An entry that another thread made meanwhile is more exact.
            if self.level(nr).is_none() {
                let free = GroupDesc::parse(&block.read()[place]).free_clusters;
                self.set(nr, if checked { free } else { 0 });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_powers_of_two() {
        let levels: Vec<u8> = [0, 1, 2, 3, 4, 7, 8, 524_288, u32::MAX].map(level_of).into();
        assert_eq!(levels, [0, 1, 2, 2, 3, 3, 4, 20, 20]);
        let sure: Vec<u8> = [0, 1, 2, 3, 4, 5, 8, 9].map(sure_level).into();
        assert_eq!(sure, [1, 1, 2, 3, 3, 4, 4, 5]);
    }

    #[test]
    fn a_group_is_found_on_its_level_and_those_below() {
        let index = GroupIndex::new(3000);
        assert_eq!(index.level(GroupNr(2999)), None);
        index.set(GroupNr(70), 100);
        index.set(GroupNr(71), 3);
        let find = |level, range: Range<u32>| index.chunk(0).find(level, range);
        assert_eq!(find(7, 0..1024), Some(70));
        assert_eq!(find(8, 0..1024), None);
        assert_eq!(find(2, 71..1024), Some(71));
        assert_eq!(find(1, 0..70), None);
        index.set(GroupNr(70), 0);
        assert_eq!((index.level(GroupNr(70)), find(1, 0..1024)), (Some(0), Some(71)));
        assert_eq!(index.chunk(0).counts[0].load(Ordering::Relaxed), 1);
    }
}
