//! Inodes in use, by number.
//!
//! ```text
//!   part 0          part 3                256 numbers each; a part without inodes takes no memory
//!   ┌───┬───┬─ … ┐  ┌───┬───┬─ … ┐
//!   │ – │ N │    │  │ N │ – │    │        12 bytes for each number
//!   └───┴───┴─ … ┘  └───┴───┴─ … ┘
//! ```

use extant_ondisk::inode::{FileKind, InodeFlags};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

const PART: u32 = 256;

/// An inode in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) mode: u16,
    /// The link count as it is stored.
    pub(crate) links: u16,
    pub(crate) flags: InodeFlags,
    /// It has no name: a reserved number, or an internal file.
    pub(crate) hidden: bool,
    /// Its checksum was wrong.
    pub(crate) suspect: bool,
    /// It has content, attributes or a map.
    pub(crate) has_content: bool,
}

impl Node {
    pub(crate) fn kind(&self) -> Option<FileKind> {
        FileKind::from_mode(self.mode)
    }

    pub(crate) fn is_dir(&self) -> bool {
        self.kind() == Some(FileKind::Directory) && !self.hidden
    }

    /// Whether it holds the value of an attribute.
    pub(crate) fn is_value(&self) -> bool {
        self.flags.contains(InodeFlags::EA_INODE)
    }
}

/// All inodes in use.
#[derive(Default)]
pub(crate) struct Nodes {
    parts: BTreeMap<u32, Box<[Option<Node>; PART as usize]>>,
}

impl Nodes {
    pub(crate) fn get(&self, ino: u32) -> Option<Node> {
        self.parts.get(&(ino / PART))?[(ino % PART) as usize]
    }

    /// Whether `ino` is in use.
    pub(crate) fn has(&self, ino: u32) -> bool {
        self.get(ino).is_some()
    }

    /// Whether `ino` is a directory that may have a name.
    pub(crate) fn has_dir(&self, ino: u32) -> bool {
        self.get(ino).is_some_and(|node| node.is_dir())
    }

    pub(crate) fn insert(&mut self, ino: u32, node: Node) {
        let part = self.parts.entry(ino / PART);
        part.or_insert_with(|| Box::new([None; PART as usize]))[(ino % PART) as usize] = Some(node);
    }

    pub(crate) fn remove(&mut self, ino: u32) -> Option<Node> {
        self.parts.get_mut(&(ino / PART))?[(ino % PART) as usize].take()
    }

    /// All in order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, Node)> + '_ {
        self.range(0..=u32::MAX)
    }

    /// Those with these numbers, in order.
    pub(crate) fn range(
        &self,
        inos: RangeInclusive<u32>,
    ) -> impl Iterator<Item = (u32, Node)> + '_ {
        let parts = self.parts.range(inos.start() / PART..=inos.end() / PART);
        parts
            .flat_map(|(n, part)| (0..PART).map(move |k| (n * PART + k, part[k as usize])))
            .filter_map(|(ino, node)| Some((ino, node?)))
            .filter(move |(ino, _)| inos.contains(ino))
    }

    /// The numbers of those that `wanted` accepts.
    pub(crate) fn inos(&self, wanted: impl Fn(&Node) -> bool) -> Vec<u32> {
        self.iter().filter(|(_, node)| wanted(node)).map(|(ino, _)| ino).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inodes_come_in_order_and_within_their_range() {
        let mut nodes = Nodes::default();
        let node = |links| Node {
            mode: 0x81A4,
            links,
            flags: InodeFlags::empty(),
            hidden: false,
            suspect: false,
            has_content: false,
        };
        for (n, ino) in [(1, u32::MAX), (2, 700), (3, 2), (4, 255), (5, 256)] {
            nodes.insert(ino, node(n));
        }
        assert_eq!(nodes.inos(|_| true), [2, 255, 256, 700, u32::MAX]);
        assert_eq!(nodes.range(255..=699).map(|(ino, _)| ino).collect::<Vec<_>>(), [255, 256]);
        assert_eq!(nodes.remove(256), Some(node(5)));
        assert!(!nodes.has(256) && nodes.get(700) == Some(node(2)) && nodes.remove(3).is_none());
    }
}
