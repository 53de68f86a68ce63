//! Changes of the index: added entries, splits of nodes and leaves.

use super::{
    BLOCK_MASK, ENTRY_LEN, Index, NODE_ENTRIES, ROOT_ENTRIES, ROOT_INFO, RawCountLimit,
    RawIndexEntry, RawRootInfo, RootInfo, TAIL_LEN, limit_node, limit_root,
};
use crate::dirent::{DirBlockMut, DirFormat, DirPacker, EntryKind};
use crate::hash::NameHash;
use alloc::vec::Vec;
use core::mem::offset_of;
use extant_base::{Ino, LogicalBlock, Result, Site, What};
use extant_crc32c::{append_zeros, combine, crc32c, splice_delta};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32};

/// A stored checksum that an incremental update starts from.
#[derive(Clone, Copy)]
struct StoredChecksum {
    sum: u32,
    /// Whether it was right; only debug builds compute this.
    is_right: bool,
}

/// A root or inner node to change. Every edit updates the checksum: if it was right before, it is
/// right afterwards.
#[derive(Debug)]
pub struct IndexMut<'a> {
    block: &'a mut [u8],
    base: usize,
    limit: usize,
    count: usize,
    checksums: bool,
    seed: u32,
}

impl<'a> IndexMut<'a> {
    /// A root to edit, checked as by [`Index::root`].
    ///
    /// # Errors
    /// Those of [`Index::root`].
    pub fn root(
        block: &'a mut [u8],
        format: &DirFormat,
        levels_max: u8,
        inode_seed: u32,
        at: Site,
    ) -> Result<IndexMut<'a>> {
        let (_, Index { base, limit, count, checksums, .. }) =
            Index::root(block, format, levels_max, at)?;
        Ok(IndexMut { block, base, limit, count, checksums, seed: inode_seed })
    }

    /// A node to edit, checked as by [`Index::node`].
    ///
    /// # Errors
    /// Those of [`Index::node`].
    pub fn node(
        block: &'a mut [u8],
        format: &DirFormat,
        inode_seed: u32,
        at: Site,
    ) -> Result<IndexMut<'a>> {
        let Index { base, limit, count, checksums, .. } = Index::node(block, format, at)?;
        Ok(IndexMut { block, base, limit, count, checksums, seed: inode_seed })
    }

    /// Overwrites `block` with a root that has one entry, which leads to `child`.
    pub fn init_root(
        block: &'a mut [u8],
        format: &DirFormat,
        inode_seed: u32,
        (own, parent): (Ino, Ino),
        info: RootInfo,
        child: LogicalBlock,
    ) -> IndexMut<'a> {
        // Without a tail the entry ".." ends at the block's end, as an index root requires.
        DirBlockMut::new(block, format.without_tail(), 0, Site::NOWHERE).init_first(own, parent);
        let raw = RawRootInfo {
            reserved_zero: U32::ZERO,
            hash_version: info.hash_version.code(),
            info_length: 8,
            indirect_levels: info.levels,
            unused_flags: 0,
        };
        block[ROOT_INFO..ROOT_ENTRIES].copy_from_slice(raw.as_bytes());
        let limit = limit_root(block.len(), format.checksums);
        IndexMut::start(block, ROOT_ENTRIES, limit, format, inode_seed, child)
    }

    /// Overwrites `block` with an inner node that has one entry, which leads to `child`.
    pub fn init_node(
        block: &'a mut [u8],
        format: &DirFormat,
        inode_seed: u32,
        child: LogicalBlock,
    ) -> IndexMut<'a> {
        DirBlockMut::new(block, format.without_tail(), 0, Site::NOWHERE).init_empty();
        let limit = limit_node(block.len(), format.checksums, format.hash_words);
        IndexMut::start(block, NODE_ENTRIES, limit, format, inode_seed, child)
    }

    fn start(
        block: &'a mut [u8],
        base: usize,
        limit: usize,
        format: &DirFormat,
        seed: u32,
        child: LogicalBlock,
    ) -> IndexMut<'a> {
        let checksums = format.checksums;
        let mut index = IndexMut { block, base, limit, count: 1, checksums, seed };
        index.put_block(0, child);
        index.finish();
        index
    }

    /// The same block, to read.
    pub fn view(&self) -> Index<'_> {
        Index {
            block: self.block,
            base: self.base,
            limit: self.limit,
            count: self.count,
            checksums: self.checksums,
            at: Site::NOWHERE,
        }
    }

    /// Inserts an entry after entry `after`. Returns `false` and changes nothing if the block is
    /// full. `key` may have the collision bit.
    ///
    /// # Panics
    /// If `after` is not in use.
    pub fn insert_after(&mut self, after: usize, key: u32, block: LogicalBlock) -> bool {
        assert!(after < self.count, "there is no entry {after} of {}", self.count);
        if self.count == self.limit {
            return false;
        }
        let stored = self.stored_checksum();
        let from = self.base + (after + 1) * ENTRY_LEN;
        let end = self.base + self.count * ENTRY_LEN;
        let moved = crc32c(0, &self.block[from..end]);
        self.block.copy_within(from..end, from + ENTRY_LEN);
        self.block[from..from + 4].copy_from_slice(&key.to_le_bytes());
        self.put_block(after + 1, block);
        self.count += 1;
        let Some(before) = stored else {
            self.finish();
            return true;
        };
        // The checksum covers 8 zero bytes after the entries. In the old checksum, they take the
        // place of the entry that is now the last, so both cover the same length.
        let old = append_zeros(moved, ENTRY_LEN as u64);
        let entry = crc32c(0, &self.block[from..from + ENTRY_LEN]);
        let new = combine(entry, moved, (end - from) as u64);
        let counted = self.put_count();
        let sum = append_zeros(before.sum ^ old ^ new ^ counted, TAIL_LEN as u64);
        self.put_checksum(before, sum);
        true
    }

    /// Appends entries with ascending keys, for a caller that builds a whole block.
    ///
    /// # Panics
    /// If they do not fit: the caller counts them first.
    pub fn extend(&mut self, entries: impl IntoIterator<Item = (u32, LogicalBlock)>) {
        for (key, block) in entries {
            assert!(self.count < self.limit, "an index block holds {} entries", self.limit);
            let at = self.base + self.count * ENTRY_LEN;
            self.block[at..at + 4].copy_from_slice(&key.to_le_bytes());
            self.put_block(self.count, block);
            self.count += 1;
        }
        self.finish();
    }

    /// Makes entry `i` lead to another block.
    pub fn set_block(&mut self, i: usize, block: LogicalBlock) {
        assert!(i < self.count, "there is no entry {i} of {}", self.count);
        assert!(block.0 <= BLOCK_MASK, "an index names 28-bit blocks");
        let at = self.base + i * ENTRY_LEN + offset_of!(RawIndexEntry, block);
        self.patch(at, block.0);
    }

    /// Moves the upper half of the entries into `new`, which becomes an inner node. Returns the key
    /// for the parent's entry of `new`, which follows the entry of this block.
    ///
    /// Both checksums are computed from all entries. Nothing is cheaper: a checksum covers only the
    /// entries in use, half a block each, and neither half has a checksum to update.
    ///
    /// # Panics
    /// If there are fewer than 2 entries.
    pub fn split_into(&mut self, new: &mut [u8], format: &DirFormat) -> u32 {
        assert!(self.count >= 2, "one entry cannot be split");
        let keep = self.count - self.count / 2;
        let first = self.view().entry(keep).expect("keep < count, because count >= 2");
        let mut node = IndexMut::init_node(new, format, self.seed, first.block);
        let moved = self.base + (keep + 1) * ENTRY_LEN..self.base + self.count * ENTRY_LEN;
        node.count = self.count - keep;
        let to = node.base + ENTRY_LEN;
        node.block[to..to + moved.len()].copy_from_slice(&self.block[moved]);
        node.finish();
        self.truncate(keep);
        first.key
    }

    /// Moves all entries of this root into `new`, which becomes an inner node in logical block
    /// `new_block`; the root keeps one entry that leads there and counts one level more.
    ///
    /// Both checksums are computed from all entries: the node is new, and the root's covers only
    /// 40 bytes.
    pub fn push_down(&mut self, new: &mut [u8], format: &DirFormat, new_block: LogicalBlock) {
        assert!(self.base == ROOT_ENTRIES, "only a root grows a level");
        let first = self.view().entry(0).expect("count >= 1");
        let mut node = IndexMut::init_node(new, format, self.seed, first.block);
        let moved = self.base + ENTRY_LEN..self.base + self.count * ENTRY_LEN;
        node.count = self.count;
        let to = node.base + ENTRY_LEN;
        node.block[to..to + moved.len()].copy_from_slice(&self.block[moved]);
        node.finish();
        self.put_block(0, new_block);
        self.block[ROOT_INFO + offset_of!(RawRootInfo, indirect_levels)] += 1;
        self.truncate(1);
    }

    /// Makes ".." of a root name another parent.
    pub fn set_parent(&mut self, parent: Ino) {
        assert!(self.base == ROOT_ENTRIES, "only a root names the parent");
        self.patch(12, parent.get());
    }

    fn truncate(&mut self, count: usize) {
        let end = self.base + self.count * ENTRY_LEN;
        self.block[self.base + count * ENTRY_LEN..end].fill(0);
        self.count = count;
        self.finish();
    }

    fn put_block(&mut self, i: usize, block: LogicalBlock) {
        assert!(block.0 <= BLOCK_MASK, "an index names 28-bit blocks");
        let at = self.base + i * ENTRY_LEN + offset_of!(RawIndexEntry, block);
        self.block[at..at + 4].copy_from_slice(&block.0.to_le_bytes());
    }

    fn finish(&mut self) {
        self.put_count();
        self.set_checksum();
    }

    /// Stores limit and count. Returns by how much (xor) that changes a checksum that ends with the
    /// entries.
    fn put_count(&mut self) -> u32 {
        let fits = "limit and count fit 16 bits: a block holds at most 8188 entries";
        let raw = RawCountLimit {
            limit: U16::new(u16::try_from(self.limit).expect(fits)),
            count: U16::new(u16::try_from(self.count).expect(fits)),
        };
        let trailing = self.count * ENTRY_LEN - size_of::<RawCountLimit>();
        let stored = &mut self.block[self.base..self.base + size_of::<RawCountLimit>()];
        let delta = splice_delta(trailing as u64, stored, raw.as_bytes());
        stored.copy_from_slice(raw.as_bytes());
        delta
    }

    /// Changes 4 bytes before the end of the entries and updates the checksum.
    fn patch(&mut self, at: usize, word: u32) {
        let stored = self.stored_checksum();
        let trailing = self.base + self.count * ENTRY_LEN + TAIL_LEN - (at + 4);
        let new = word.to_le_bytes();
        let delta = splice_delta(trailing as u64, &self.block[at..at + 4], &new);
        self.block[at..at + 4].copy_from_slice(&new);
        match stored {
            Some(before) => self.put_checksum(before, before.sum ^ delta),
            None => self.set_checksum(),
        }
    }

    /// The stored checksum, if an incremental update may start from it: the reserved word before it
    /// is zero.
    fn stored_checksum(&self) -> Option<StoredChecksum> {
        let at = self.base + self.limit * ENTRY_LEN;
        let (reserved, sum) = self.block.get(at..at + TAIL_LEN)?.split_first_chunk::<4>()?;
        let sum = u32::from_le_bytes([sum[0], sum[1], sum[2], sum[3]]);
        let is_right = cfg!(debug_assertions) && self.view().verify_checksum(self.seed).is_ok();
        (self.checksums && *reserved == [0; 4]).then_some(StoredChecksum { sum, is_right })
    }

    /// Stores `sum`, the checksum that was computed incrementally from `before`.
    fn put_checksum(&mut self, before: StoredChecksum, sum: u32) {
        let at = self.base + self.limit * ENTRY_LEN + 4;
        self.block[at..at + 4].copy_from_slice(&sum.to_le_bytes());
        debug_assert!(
            !before.is_right || self.view().verify_checksum(self.seed).is_ok(),
            "the incremental checksum differs from the full one"
        );
    }

    /// Computes the checksum of the block's present content and stores it.
    pub fn set_checksum(&mut self) {
        if self.checksums {
            let at = self.base + self.limit * ENTRY_LEN;
            self.block[at..at + 4].fill(0);
            let sum = self.view().compute_checksum(self.seed);
            self.block[at + 4..at + 8].copy_from_slice(&sum.to_le_bytes());
        }
    }
}

/// Splits a full leaf by hash: the names with the higher hashes move to `new`, and both blocks are
/// packed. Returns the key for the index entry of `new`, with the collision bit if both blocks hold
/// names with the same hash.
///
/// Calls `hash` once for each name. Each part gets as near to half of the bytes as the order of
/// hashes allows, and at least one name, so that a split always makes progress. The names are
/// packed in the order of their hashes, so nearly every byte of both blocks changes, and both
/// checksums are computed from the whole block.
///
/// # Errors
/// `Corrupt` if the leaf is malformed or holds "." or ".."; `NoSpace` if it holds fewer than two
/// names. On an error both blocks are unchanged.
pub fn split_leaf(
    old: DirBlockMut<'_>,
    new: DirBlockMut<'_>,
    mut hash: impl FnMut(&[u8]) -> Result<NameHash>,
) -> Result<u32> {
    struct Name {
        hash: NameHash,
        ino: Ino,
        kind: EntryKind,
        stored_hash: Option<(u32, u32)>,
        name: Vec<u8>,
    }
    let (format, at) = (old.format(), old.site());
    let mut names = Vec::new();
    for entry in old.view().entries() {
        let entry = entry?;
        if let Some(ino) = entry.ino {
            if entry.is_dot_or_dotdot() {
                return Err(at.offset(entry.offset).corrupt(What::DirentDot));
            }
            let name = entry.name.to_vec();
            let (kind, stored_hash) = (entry.kind, entry.stored_hash);
            names.push(Name { hash: hash(&name)?, ino, kind, stored_hash, name });
        }
    }
    if names.len() < 2 {
        return Err(extant_base::Error::NoSpace);
    }
    names.sort_by_key(|name| name.hash.hash);
    let half = format.entries_end(old.view().len()) / 2;
    let (mut moved, mut cut) = (0, names.len());
    while cut > 1 {
        let size = format.need(&names[cut - 1].name);
        if moved + size / 2 > half {
            break;
        }
        moved += size;
        cut -= 1;
    }
    // The names never reach half a block, or one part is empty: split by count.
    if cut <= 1 || cut == names.len() {
        cut = names.len() / 2;
    }
    let key = names[cut].hash.hash;
    let key = key | u32::from(names[cut - 1].hash.hash == key);
    for (block, part) in [(old, &names[..cut]), (new, &names[cut..])] {
        let mut packer = DirPacker::new(block);
        for name in part {
            let fits = packer.push(&name.name, name.ino, name.kind, name.stored_hash);
            assert!(fits, "a part of a block's entries, packed, fits a block of the same size");
        }
        packer.finish();
    }
    Ok(key)
}
