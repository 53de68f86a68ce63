//! A node of an extent tree that was checked before: reading its entries by number, and changing
//! them.
//!
//! ```text
//!   0        2        4     6       8            12         24
//!   ┌────────┬────────┬─────┬───────┬────────────┬──────────┬──────────┬───
//!   │ F30A   │entries │ max │ depth │ generation │ entry 0  │ entry 1  │ …     12 bytes each
//!   └────────┴────────┴─────┴───────┴────────────┴──────────┴──────────┴───
//! ```
//!
//! The bytes may be those of a root or of a block. The code here relies on the checks of
//! [`ExtentNode::check`], made when the node was read, and keeps the node valid.

use extant_base::{BlockNr, LogicalBlock, Site};
use extant_ondisk::extent::{self, ChecksumChange, Extent, ExtentIndex, ExtentNode, ExtentNodeMut};
use std::ops::Deref;

const ENTRY: usize = 12;

/// Entries that the root in `i_block` holds.
pub(crate) const ROOT_CAPACITY: usize = 4;

/// An entry of either kind.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Entry {
    Leaf(Extent),
    Index(ExtentIndex),
}

impl Entry {
    pub(crate) fn leaf(extent: Extent) -> Entry {
        Entry::Leaf(extent)
    }

    pub(crate) fn index(logical: LogicalBlock, child: BlockNr) -> Entry {
        Entry::Index(ExtentIndex { logical, child })
    }
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

pub(crate) fn entries(bytes: &[u8]) -> usize {
    usize::from(word(bytes, 2))
}

pub(crate) fn capacity(bytes: &[u8]) -> usize {
    usize::from(word(bytes, 4))
}

pub(crate) fn depth(bytes: &[u8]) -> u16 {
    word(bytes, 6)
}

fn entry(bytes: &[u8], n: usize) -> &[u8] {
    &bytes[ENTRY * (n + 1)..ENTRY * (n + 2)]
}

pub(crate) fn key(bytes: &[u8], n: usize) -> LogicalBlock {
    let key = entry(bytes, n).first_chunk().expect("an entry has 12 bytes");
    LogicalBlock(u32::from_le_bytes(*key))
}

/// A read-only view of the node, which was checked before.
pub(crate) fn view(bytes: &[u8]) -> ExtentNode<'_> {
    ExtentNode::trusted(bytes, Site::NOWHERE).expect("the node was checked when it was read")
}

pub(crate) fn extent(bytes: &[u8], n: usize) -> Extent {
    view(bytes).extent(n)
}

/// A node's bytes to change, and the effect of the changes on its checksum.
pub(crate) struct NodeMut<'a> {
    bytes: &'a mut [u8],
    checksum: ChecksumChange,
}

impl<'a> NodeMut<'a> {
    /// A root, which has no checksum of its own; or a block on a volume without checksums.
    pub(crate) fn without_checksum(bytes: &'a mut [u8]) -> NodeMut<'a> {
        NodeMut { bytes, checksum: ChecksumChange::Untracked }
    }

    /// Changes a block and updates its checksum: from the change alone with `short_cut`, else from
    /// the whole block at the end.
    pub(crate) fn change_block<T>(
        bytes: &'a mut [u8],
        seed: u32,
        short_cut: bool,
        change: impl FnOnce(&mut NodeMut<'_>) -> T,
    ) -> T {
        let was_right = cfg!(debug_assertions) && extent::checksum_is_right(bytes, seed);
        let checksum = if short_cut { ChecksumChange::Delta(0) } else { ChecksumChange::Recompute };
        let mut node = NodeMut { bytes, checksum };
        let done = change(&mut node);
        extent::update_checksum(node.bytes, seed, node.checksum);
        debug_assert!(
            !was_right || extent::checksum_is_right(node.bytes, seed),
            "a short-cut checksum equals the full one"
        );
        done
    }

    fn change(&mut self, change: impl FnOnce(&mut ExtentNodeMut<'_>)) {
        let mut node = ExtentNodeMut::tracking(self.bytes, self.checksum);
        change(&mut node);
        self.checksum = node.checksum_change();
    }
}

impl Deref for NodeMut<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

/// Makes an empty node that fills the bytes.
pub(crate) fn init(node: &mut NodeMut<'_>, depth: u16) {
    let made = ExtentNodeMut::init(node.bytes, depth).checksum_change();
    if node.checksum != ChecksumChange::Untracked {
        node.checksum = made;
    }
}

pub(crate) fn insert(node: &mut NodeMut<'_>, n: usize, entry: Entry) {
    node.change(|node| match entry {
        Entry::Leaf(extent) => node.insert_extent(n, &extent),
        Entry::Index(index) => node.insert_index(n, &index),
    });
}

pub(crate) fn set(node: &mut NodeMut<'_>, n: usize, entry: Entry) {
    node.change(|node| match entry {
        Entry::Leaf(extent) => node.set_extent(n, &extent),
        Entry::Index(index) => node.set_index(n, &index),
    });
}

pub(crate) fn set_key(node: &mut NodeMut<'_>, n: usize, key: LogicalBlock) {
    node.change(|node| node.set_key(n, key));
}

pub(crate) fn remove(node: &mut NodeMut<'_>, n: usize) {
    node.change(|node| node.remove(n..n + 1));
}

/// Drops the entries from `n` on.
pub(crate) fn truncate(node: &mut NodeMut<'_>, n: usize) {
    let all = entries(node);
    node.change(|node| node.remove(n..all));
}

/// Appends the entries of `from`, from its `n`th on, to those of `node`.
pub(crate) fn append_from(node: &mut NodeMut<'_>, from: &[u8], n: usize) {
    let have = entries(node);
    let moved = &from[ENTRY * (n + 1)..ENTRY * (entries(from) + 1)];
    node.change(|node| node.insert_entries(have, moved));
}
