//! A node of an extent tree that was checked before: its entries by number, and changing them.
//!
//! ```text
//!   0        2        4     6       8            12         24
//!   ┌────────┬────────┬─────┬───────┬────────────┬──────────┬──────────┬───
//!   │ F30A   │entries │ max │ depth │ generation │ entry 0  │ entry 1  │ …     12 bytes each
//!   └────────┴────────┴─────┴───────┴────────────┴──────────┴──────────┴───
//! ```
//!
//! Works on the bytes of a root or a block alike. Everything here may assume what
//! [`ExtentNode::check`] found when the node was read, and leaves it so.

use extant_base::{BlockNr, LogicalBlock, Site};
use extant_ondisk::extent::{self, Extent, ExtentIndex, ExtentNode, ExtentNodeMut};

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

/// The node to read, checked before.
pub(crate) fn view(bytes: &[u8]) -> ExtentNode<'_> {
    ExtentNode::trusted(bytes, Site::NOWHERE).expect("the node was checked when it was read")
}

pub(crate) fn extent(bytes: &[u8], n: usize) -> Extent {
    view(bytes).extent(n)
}

/// Makes an empty node of whatever size `bytes` is.
pub(crate) fn init(bytes: &mut [u8], depth: u16) {
    bytes.fill(0);
    ExtentNodeMut::init(bytes, depth);
}

pub(crate) fn insert(bytes: &mut [u8], n: usize, entry: Entry) {
    let mut node = ExtentNodeMut::new(bytes);
    match entry {
        Entry::Leaf(extent) => node.insert_extent(n, &extent),
        Entry::Index(index) => node.insert_index(n, &index),
    }
}

pub(crate) fn set(bytes: &mut [u8], n: usize, entry: Entry) {
    let mut node = ExtentNodeMut::new(bytes);
    match entry {
        Entry::Leaf(extent) => node.set_extent(n, &extent),
        Entry::Index(index) => node.set_index(n, &index),
    }
}

pub(crate) fn set_key(bytes: &mut [u8], n: usize, key: LogicalBlock) {
    ExtentNodeMut::new(bytes).set_key(n, key);
}

pub(crate) fn remove(bytes: &mut [u8], n: usize) {
    ExtentNodeMut::new(bytes).remove(n..n + 1);
}

/// Drops the entries from `n` on.
pub(crate) fn truncate(bytes: &mut [u8], n: usize) {
    let all = entries(bytes);
    ExtentNodeMut::new(bytes).remove(n..all);
}

/// Copies the entries of `from`, from its `n`th on, behind those of `bytes`.
pub(crate) fn append_from(bytes: &mut [u8], from: &[u8], n: usize) {
    let have = entries(bytes);
    let moved = &from[ENTRY * (n + 1)..ENTRY * (entries(from) + 1)];
    ExtentNodeMut::new(bytes).insert_entries(have, moved);
}

pub(crate) fn set_checksum(bytes: &mut [u8], seed: Option<u32>) {
    if let Some(seed) = seed {
        extent::set_checksum(bytes, seed);
    }
}
