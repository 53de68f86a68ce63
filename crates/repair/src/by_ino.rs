//! Something about each of many inodes, by number.
//!
//! ```text
//!   part 0          part 3                256 numbers each; a part without inodes takes no memory
//!   ┌───┬───┬─ … ┐  ┌───┬───┬─ … ┐
//!   │ – │ T │    │  │ T │ – │    │
//!   └───┴───┴─ … ┘  └───┴───┴─ … ┘
//! ```

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

const PART: u32 = 256;

/// A map from inode numbers, of which neighbours are used together.
pub(crate) struct ByIno<T> {
    parts: BTreeMap<u32, Box<[Option<T>; PART as usize]>>,
}

impl<T> Default for ByIno<T> {
    fn default() -> ByIno<T> {
        ByIno { parts: BTreeMap::new() }
    }
}

impl<T: Copy> ByIno<T> {
    pub(crate) fn get(&self, ino: u32) -> Option<T> {
        self.parts.get(&(ino / PART))?[(ino % PART) as usize]
    }

    /// Whether there is something about `ino`.
    pub(crate) fn has(&self, ino: u32) -> bool {
        self.get(ino).is_some()
    }

    /// The place of `ino`, to read and to change.
    pub(crate) fn place(&mut self, ino: u32) -> &mut Option<T> {
        let part = self.parts.entry(ino / PART).or_insert_with(|| Box::new([None; PART as usize]));
        &mut part[(ino % PART) as usize]
    }

    pub(crate) fn insert(&mut self, ino: u32, value: T) {
        *self.place(ino) = Some(value);
    }

    pub(crate) fn remove(&mut self, ino: u32) -> Option<T> {
        self.parts.get_mut(&(ino / PART))?[(ino % PART) as usize].take()
    }

    /// All in order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, T)> + '_ {
        self.range(0..=u32::MAX)
    }

    /// Those with these numbers, in order.
    pub(crate) fn range(&self, inos: RangeInclusive<u32>) -> impl Iterator<Item = (u32, T)> + '_ {
        let parts = self.parts.range(inos.start() / PART..=inos.end() / PART);
        parts
            .flat_map(|(n, part)| (0..PART).map(move |k| (n * PART + k, part[k as usize])))
            .filter_map(|(ino, value)| Some((ino, value?)))
            .filter(move |(ino, _)| inos.contains(ino))
    }

    /// The numbers of those that `wanted` accepts.
    pub(crate) fn inos(&self, wanted: impl Fn(&T) -> bool) -> Vec<u32> {
        self.iter().filter(|(_, value)| wanted(value)).map(|(ino, _)| ino).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inodes_come_in_order_and_within_their_range() {
        let mut map = ByIno::default();
        for (value, ino) in [(1u8, u32::MAX), (2, 700), (3, 2), (4, 255), (5, 256)] {
            map.insert(ino, value);
        }
        assert_eq!(map.inos(|_| true), [2, 255, 256, 700, u32::MAX]);
        assert_eq!(map.range(255..=699).map(|(ino, _)| ino).collect::<Vec<_>>(), [255, 256]);
        assert_eq!(map.remove(256), Some(5));
        assert!(!map.has(256) && map.get(700) == Some(2) && map.remove(3).is_none());
        *map.place(9) = Some(7);
        assert_eq!(map.iter().nth(1), Some((9, 7)));
    }
}
