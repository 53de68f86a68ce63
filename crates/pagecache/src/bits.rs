//! One bit per block of a folio.
//!
//! ```text
//!   up to 64 blocks: one word in place          more: a boxed slice of words, 2 MiB / 1 KiB = 32
//! ```
//! Every operation touches the words of its range and no others.

use crate::visits;
use extant_base::narrow::len_u32;
use std::ops::Range;

/// A set of blocks.
#[derive(Debug)]
pub(crate) enum Bits {
    Few(u64),
    Many(Box<[u64]>),
}

impl Bits {
    /// The empty set, for a folio of `blocks` blocks.
    pub fn none(blocks: u32) -> Bits {
        match blocks {
            0..=64 => Bits::Few(0),
            _ => Bits::Many(vec![0; blocks.div_ceil(64) as usize].into()),
        }
    }

    fn words(&self) -> &[u64] {
        match self {
            Bits::Few(word) => std::slice::from_ref(word),
            Bits::Many(words) => words,
        }
    }

    fn words_mut(&mut self) -> &mut [u64] {
        match self {
            Bits::Few(word) => std::slice::from_mut(word),
            Bits::Many(words) => words,
        }
    }

    /// Whether the set contains all of `range`.
    pub fn all(&self, range: Range<u32>) -> bool {
        visits::count(&range);
        let words = self.words();
        masks(range).all(|(n, mask)| words[n] & mask == mask)
    }

    /// Whether the set contains any of `range`.
    pub fn any(&self, range: Range<u32>) -> bool {
        let words = self.words();
        masks(range).any(|(n, mask)| words[n] & mask != 0)
    }

    /// Adds `range`; returns how many blocks are new.
    pub fn set(&mut self, range: Range<u32>) -> u32 {
        visits::count(&range);
        let words = self.words_mut();
        let set = |(n, mask): (usize, u64)| {
            let new = (mask & !words[n]).count_ones();
            words[n] |= mask;
            new
        };
        masks(range).map(set).sum()
    }

    /// Removes `range`; returns how many blocks were in the set.
    pub fn clear(&mut self, range: Range<u32>) -> u32 {
        let words = self.words_mut();
        let clear = |(n, mask): (usize, u64)| {
            let old = (mask & words[n]).count_ones();
            words[n] &= !mask;
            old
        };
        masks(range).map(clear).sum()
    }

    /// The first run of blocks in `range` that are in the set (`value` true) or not in it.
    pub fn run(&self, range: Range<u32>, value: bool) -> Option<Range<u32>> {
        let start = self.next(range.clone(), value)?;
        let end = self.next(start..range.end, !value).unwrap_or(range.end);
        Some(start..end)
    }

    /// The first block of `range` that is in the set (`value` true) or not in it.
    pub fn next(&self, range: Range<u32>, value: bool) -> Option<u32> {
        let words = self.words();
        masks(range).find_map(|(n, mask)| {
            let found = mask & if value { words[n] } else { !words[n] };
            (found != 0).then(|| len_u32(n) * 64 + found.trailing_zeros())
        })
    }
}

/// The words that `range` touches, each with its mask of bits in `range`.
fn masks(range: Range<u32>) -> impl Iterator<Item = (usize, u64)> {
    let words = if range.is_empty() { 0..0 } else { range.start / 64..range.end.div_ceil(64) };
    words.map(move |n| {
        let low = range.start.saturating_sub(n * 64);
        let high = (range.end - n * 64).min(64);
        (n as usize, (u64::MAX << low) & (u64::MAX >> (64 - high)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_behave_like_a_vector_of_flags() {
        for blocks in [1u32, 7, 64, 65, 512, 2048] {
            let mut bits = Bits::none(blocks);
            let mut model = vec![false; blocks as usize];
            let mut seed = u64::from(blocks);
            for _ in 0..400 {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let a = (seed >> 33) as u32 % (blocks + 1);
                let b = (seed >> 13) as u32 % (blocks + 1);
                let (range, on) = (a.min(b)..a.max(b), seed & 64 != 0);
                let part = &mut model[range.start as usize..range.end as usize];
                let differ = part.iter().filter(|bit| **bit != on).count() as u32;
                assert_eq!(bits.all(range.clone()), part.iter().all(|bit| *bit));
                assert_eq!(bits.any(range.clone()), part.iter().any(|bit| *bit));
                let first = part.iter().position(|bit| *bit == on).map(|n| n as u32 + range.start);
                assert_eq!(bits.next(range.clone(), on), first);
                part.fill(on);
                let changed = if on { bits.set(range) } else { bits.clear(range) };
                assert_eq!(changed, differ);
            }
        }
    }

    #[test]
    fn a_run_ends_where_the_value_changes() {
        let mut bits = Bits::none(200);
        bits.set(60..130);
        assert_eq!(bits.run(0..200, true), Some(60..130));
        assert_eq!(bits.run(70..100, true), Some(70..100));
        assert_eq!(bits.run(60..200, false), Some(130..200));
        assert_eq!(bits.run(60..130, false), None);
    }
}
