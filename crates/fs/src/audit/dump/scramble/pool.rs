//! Random names that have a place: of a wanted length, unused, and with a hash in a wanted range.
//!
//! ```text
//!   for each length:   random name ──hash──► leaf ── still wants one of this length? ──► taken
//! ```
//!
//! Hashes are spread evenly, and so are the wants, so that few names are drawn in vain.

use crate::context::environment::{Rng, SeededRng};
use extant_base::narrow::fits_usize;
use extant_ondisk::hash::NameHasher;
use hashbrown::HashSet;
use std::collections::{BTreeMap, HashMap};

/// Characters of names in directories that fold case.
const LOWER: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
/// Characters of all other names.
const MIXED: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

/// The hashes that the names of one leaf may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeafRange {
    /// The leaf's logical block.
    pub(super) leaf: u32,
    /// The smallest.
    pub(super) low: u32,
    /// The first that is too large; `None` for the last leaf.
    pub(super) end: Option<u32>,
}

impl LeafRange {
    fn holds(&self, hash: u32) -> bool {
        self.low <= hash && self.end.is_none_or(|end| hash < end)
    }
}

/// The leaves of an index, in the order of their hashes.
pub(super) struct Leaves {
    pub(super) hasher: NameHasher,
    pub(super) ranges: Vec<LeafRange>,
}

impl Leaves {
    /// The leaf in which a name belongs.
    fn leaf_of(&self, name: &[u8]) -> Option<u32> {
        let hash = self.hasher.hash(name).hash;
        let n = self.ranges.partition_point(|range| range.low <= hash).checked_sub(1)?;
        self.ranges[n].holds(hash).then_some(self.ranges[n].leaf)
    }
}

/// A name to replace.
pub(super) struct Want {
    /// The name, folded in a directory that folds case.
    pub(super) name: Vec<u8>,
    /// The logical block that has it.
    pub(super) leaf: u32,
}

/// A source of names.
pub(super) struct Pool {
    rng: SeededRng,
}

impl Pool {
    pub(super) fn new(seed: u64) -> Pool {
        Pool { rng: SeededRng::new(seed) }
    }

    fn draw(&self, len: usize, characters: &[u8]) -> Vec<u8> {
        let one = |_| characters[fits_usize(self.rng.next_u64() % characters.len() as u64)];
        (0..len).map(one).collect()
    }

    /// A name for each of `wants`; `None` where no other one was found. No new name equals an old
    /// one. A name that is outside its leaf's range gets one with any hash.
    pub(super) fn names(
        &self,
        wants: &[Want],
        leaves: Option<&Leaves>,
        folds_case: bool,
    ) -> Vec<Option<Vec<u8>>> {
        let characters = if folds_case { LOWER } else { MIXED };
        let mut used: HashSet<Vec<u8>> = wants.iter().map(|want| want.name.clone()).collect();
        let mut found: Vec<Option<Vec<u8>>> = wants.iter().map(|_| None).collect();
        // By length, then by leaf; without a leaf where any hash will do.
        let mut open: BTreeMap<usize, HashMap<Option<u32>, Vec<usize>>> = BTreeMap::new();
        for (n, want) in wants.iter().enumerate() {
            let leaf = leaves
                .and_then(|leaves| leaves.leaf_of(&want.name))
                .filter(|leaf| *leaf == want.leaf);
            open.entry(want.name.len()).or_default().entry(leaf).or_default().push(n);
        }
        let all_leaves = leaves.map_or(1, |leaves| leaves.ranges.len());
        for (len, mut by_leaf) in open {
            let count: usize = by_leaf.values().map(Vec::len).sum();
            let mut tries = 1000 + 8 * count + 30 * all_leaves;
            while !by_leaf.is_empty() && tries > 0 {
                tries -= 1;
                let name = self.draw(len, characters);
                let leaf = leaves.and_then(|leaves| leaves.leaf_of(&name));
                let key = [leaf, None].into_iter().find(|key| by_leaf.contains_key(key));
                let Some(key) = key.filter(|_| !used.contains(&name)) else { continue };
                let Some(wants) = by_leaf.get_mut(&key) else { continue };
                if let Some(n) = wants.pop() {
                    used.insert(name.clone());
                    found[n] = Some(name);
                }
                if wants.is_empty() {
                    by_leaf.remove(&key);
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::{LeafRange, Leaves, Pool, Want};
    use extant_ondisk::hash::{HashVersion, NameHasher};
    use std::collections::HashSet;

    #[test]
    fn names_stay_in_their_leaf_and_keep_their_length() {
        let hasher = NameHasher::new(HashVersion::HalfMd4, false, [1, 2, 3, 4]);
        let step = u32::MAX / 50;
        let ranges = (0..50).map(|leaf| LeafRange {
            leaf,
            low: leaf * step,
            end: (leaf < 49).then(|| (leaf + 1) * step),
        });
        let leaves = Leaves { hasher, ranges: ranges.collect() };
        let wants: Vec<Want> = (0..5000)
            .map(|n| format!("{}{n}", "a-file-with-a-name".get(n % 15..).unwrap()))
            .map(|name| Want { leaf: leaves.leaf_of(name.as_bytes()).unwrap(), name: name.into() })
            .collect();
        let names = Pool::new(3).names(&wants, Some(&leaves), false);
        let mut seen: HashSet<&[u8]> = wants.iter().map(|want| &want.name[..]).collect();
        for (want, name) in wants.iter().zip(&names) {
            let name = name.as_ref().expect("long names always have a place");
            assert_eq!(name.len(), want.name.len());
            assert_eq!(leaves.leaf_of(name), Some(want.leaf));
            assert!(seen.insert(name), "twice");
        }
    }

    #[test]
    fn names_without_another_choice_stay() {
        let wants: Vec<Want> =
            super::MIXED.iter().map(|byte| Want { name: vec![*byte], leaf: 0 }).collect();
        assert!(Pool::new(3).names(&wants, None, false).iter().all(Option::is_none));
    }
}
