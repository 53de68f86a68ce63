//! htree: the index of a large directory, keyed by the hash of names.
//!
//! ```text
//!   root (block 0)                                   inner node
//!   0    "."  rec_len 12                             0   unused entry, rec_len bs
//!   12   ".." rec_len bs-12                          8   limit u16, count u16
//!   24   0 │ hash_version │ 8 │ levels │ 0           12  block of entry 0
//!   32   limit u16, count u16                        16  entries 1..: hash u32, block u32
//!   36   block of entry 0                            ⋮
//!   40   entries 1..: hash u32, block u32            8 + limit*8  tail
//!   ⋮
//!   32 + limit*8  tail: 0 u32, checksum u32   (metadata_csum only)
//!
//!   checksum = crc32c(inode seed, block[0 .. end of the live entries] + 0 u32 + 0 u32)
//! ```
//!
//! Rules: `limit` is exactly what the block can hold; entry 0 has no key of its own (limit and
//! count lie over it) and stands for everything below entry 1; keys ascend; bit 0 of a key says
//! that names of the same hash also stand in the leaf before. A block number has 28 bits.
//! To code that knows no index, root and nodes look like linear blocks without names.
//! Source: ext4 documentation, "Hash Tree Directories".

use crate::dirent::{DirBlock, DirBlockMut, DirFormat, DirPacker, EntryKind};
use crate::hash::{HashVersion, NameHash};
use alloc::vec::Vec;
use core::mem::offset_of;
use extant_base::{Ino, LogicalBlock, Result, Site, What};
use extant_crc32c::{append_zeros, combine, crc32c, splice_delta};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of an index entry.
pub const ENTRY_LEN: usize = 8;
/// Bytes of the checksum tail of a root or node.
pub const TAIL_LEN: usize = 8;
const ROOT_INFO: usize = 24;
const ROOT_ENTRIES: usize = 32;
const NODE_ENTRIES: usize = 8;
const BLOCK_MASK: u32 = 0x0FFF_FFFF;

/// The largest logical block an index entry can name, plus one.
pub const BLOCKS_MAX: u32 = BLOCK_MASK + 1;

/// The description of the tree in its root.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawRootInfo {
    /// 0.
    pub reserved_zero: U32,
    /// See [`HashVersion`].
    pub hash_version: u8,
    /// 8.
    pub info_length: u8,
    /// Levels of nodes between the root and the leaves.
    pub indirect_levels: u8,
    /// Bit 0 must be 0.
    pub unused_flags: u8,
}
const _: () = assert!(size_of::<RawRootInfo>() == 8 && offset_of!(RawRootInfo, unused_flags) == 7);

/// An entry of the index as stored; in entry 0 `limit` and `count` lie over the hash.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawIndexEntry {
    /// The smallest hash of the names below; bit 0 is the collision bit.
    pub hash: U32,
    /// Logical block of the node or leaf, low 28 bits.
    pub block: U32,
}
const _: () = assert!(size_of::<RawIndexEntry>() == ENTRY_LEN);

/// The count of entries as stored, over the hash of entry 0.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawCountLimit {
    /// Entries the block can hold, entry 0 counted.
    pub limit: U16,
    /// Entries in use, entry 0 counted.
    pub count: U16,
}
const _: () = assert!(size_of::<RawCountLimit>() == 4);

/// Entries a root of `block_len` bytes holds, entry 0 counted.
pub const fn limit_root(block_len: usize, checksums: bool) -> usize {
    (block_len - ROOT_ENTRIES - if checksums { TAIL_LEN } else { 0 }) / ENTRY_LEN
}

/// Entries a node of `block_len` bytes holds, entry 0 counted. `hash_words`: the directory is
/// both encrypted and casefolded, for which Linux counts a longer header.
pub const fn limit_node(block_len: usize, checksums: bool, hash_words: bool) -> usize {
    let head = if hash_words { 16 } else { NODE_ENTRIES };
    (block_len - head - if checksums { TAIL_LEN } else { 0 }) / ENTRY_LEN
}

/// The levels of inner nodes a volume allows: 1, or 2 with `largedir`.
pub const fn levels_max(largedir: bool) -> u8 {
    if largedir { 2 } else { 1 }
}

/// What the root says of the whole tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootInfo {
    /// How names are hashed.
    pub hash_version: HashVersion,
    /// Levels of nodes between root and leaves: 0 means the root points at leaves.
    pub levels: u8,
}

/// One entry of an index block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// The smallest hash below, with the collision bit in bit 0; 0 for entry 0.
    pub key: u32,
    /// The node or leaf.
    pub block: LogicalBlock,
}

impl IndexEntry {
    /// Whether names of exactly `hash` may continue in this entry's block from the one before.
    pub fn continues(&self, hash: u32) -> bool {
        self.key & 1 == 1 && self.key & !1 == hash
    }
}

/// Whether a block has the shape of an inner node: one unused, nameless entry over all of it.
pub fn looks_like_node(block: &[u8]) -> bool {
    match DirBlock::new(block, PROBE, Site::NOWHERE).entries().next() {
        Some(Ok(entry)) => {
            entry.ino.is_none() && entry.name.is_empty() && entry.rec_len == block.len()
        }
        _ => false,
    }
}

const PROBE: DirFormat = DirFormat {
    filetype: false,
    checksums: false,
    hash_words: false,
    opaque_names: false,
    inodes_count: u32::MAX,
};

/// The entries of a root or inner node, checked.
#[derive(Clone, Copy, Debug)]
pub struct Index<'a> {
    block: &'a [u8],
    base: usize,
    limit: usize,
    count: usize,
    checksums: bool,
    at: Site,
}

impl<'a> Index<'a> {
    /// The root in block 0 of a directory.
    ///
    /// `levels_max` is what [`levels_max`] says for the volume. Errors: `Corrupt` with
    /// `DirentDot` (no proper "." and ".."), `HtreeRoot`, `HtreeDepth`, `HtreeNode` (limit, count).
    pub fn root(
        block: &'a [u8],
        format: &DirFormat,
        levels_max: u8,
        at: Site,
    ) -> Result<(RootInfo, Index<'a>)> {
        let mut entries = DirBlock::new(block, format.without_tail(), at).entries();
        for (name, rec_len) in [(&b"."[..], 12), (b"..", block.len() - 12)] {
            let entry = entries.next().ok_or(at.corrupt(What::DirentDot))??;
            if entry.ino.is_none() || entry.name != name || entry.rec_len != rec_len {
                return Err(at.offset(entry.offset).corrupt(What::DirentDot));
            }
        }
        let at_info = at.offset(ROOT_INFO);
        let (raw, _) = RawRootInfo::ref_from_prefix(&block[ROOT_INFO..])
            .map_err(|_| at_info.corrupt(What::HtreeRoot))?;
        let version = HashVersion::from_code(raw.hash_version);
        let (Some(hash_version), 0, 8, 0) =
            (version, raw.reserved_zero.get(), raw.info_length, raw.unused_flags & 1)
        else {
            return Err(at_info.corrupt(What::HtreeRoot));
        };
        if raw.indirect_levels > levels_max {
            return Err(at_info.corrupt(What::HtreeDepth));
        }
        let limit = limit_root(block.len(), format.checksums);
        let index = Index::check(block, ROOT_ENTRIES, limit, format, at)?;
        Ok((RootInfo { hash_version, levels: raw.indirect_levels }, index))
    }

    /// An inner node.
    ///
    /// Errors: `Corrupt` with `HtreeNode`.
    pub fn node(block: &'a [u8], format: &DirFormat, at: Site) -> Result<Index<'a>> {
        if !looks_like_node(block) {
            return Err(at.offset(0).corrupt(What::HtreeNode));
        }
        let limit = limit_node(block.len(), format.checksums, format.hash_words);
        Index::check(block, NODE_ENTRIES, limit, format, at)
    }

    fn check(
        block: &'a [u8],
        base: usize,
        limit: usize,
        format: &DirFormat,
        at: Site,
    ) -> Result<Index<'a>> {
        let at = at.offset(base);
        let (raw, _) = RawCountLimit::ref_from_prefix(&block[base..])
            .map_err(|_| at.corrupt(What::HtreeNode))?;
        let count = usize::from(raw.count.get());
        if usize::from(raw.limit.get()) != limit || count == 0 || count > limit {
            return Err(at.corrupt(What::HtreeNode));
        }
        Ok(Index { block, base, limit, count, checksums: format.checksums, at })
    }

    /// Entries in use, entry 0 counted; at least 1.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Entries the block can hold.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Whether no entry can be added.
    pub fn is_full(&self) -> bool {
        self.count == self.limit
    }

    /// Entry `i`, or `None` from `count` on. The key of entry 0 is given as 0.
    pub fn entry(&self, i: usize) -> Option<IndexEntry> {
        if i >= self.count {
            return None;
        }
        let (raw, _) =
            RawIndexEntry::ref_from_prefix(&self.block[self.base + i * ENTRY_LEN..]).ok()?;
        let key = if i == 0 { 0 } else { raw.hash.get() };
        Some(IndexEntry { key, block: LogicalBlock(raw.block.get() & BLOCK_MASK) })
    }

    /// All entries in order.
    pub fn entries(&self) -> impl Iterator<Item = IndexEntry> + 'a {
        let index = *self;
        (0..index.count).filter_map(move |i| index.entry(i))
    }

    /// Which entry leads to `hash`: the last with a key not above it.
    pub fn search(&self, hash: u32) -> usize {
        let (mut low, mut high) = (1, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            let key = self.entry(middle).map_or(0, |entry| entry.key);
            if key > hash { high = middle } else { low = middle + 1 }
        }
        low - 1
    }

    /// Checks that keys ascend. (Lookups do not need it: a search in any order ends.)
    ///
    /// Errors: `Corrupt` with `HtreeNode` naming the entry.
    pub fn check_order(&self) -> Result<()> {
        let mut before = 0;
        for (i, entry) in self.entries().enumerate().skip(1) {
            if entry.key < before {
                let offset = self.base + i * ENTRY_LEN;
                return Err(self.at.offset(offset).corrupt(What::HtreeNode));
            }
            before = entry.key;
        }
        Ok(())
    }

    fn tail_at(&self) -> usize {
        self.base + self.limit * ENTRY_LEN
    }

    fn sum(&self, inode_seed: u32) -> u32 {
        let live = &self.block[..self.base + self.count * ENTRY_LEN];
        let reserved = &self.block[self.tail_at()..self.tail_at() + 4];
        let sum = crc32c(inode_seed, live);
        crc32c(crc32c(sum, reserved), &[0; 4])
    }

    /// Checks the checksum in the tail. Without checksums there is nothing to check.
    ///
    /// Errors: `Corrupt` with `HtreeChecksum`.
    pub fn verify_checksum(&self, inode_seed: u32) -> Result<()> {
        if !self.checksums {
            return Ok(());
        }
        let at = self.tail_at() + 4;
        if self.block[at..at + 4] != self.sum(inode_seed).to_le_bytes() {
            return Err(self.at.offset(at).corrupt(What::HtreeChecksum));
        }
        Ok(())
    }
}

/// A checksum that a short cut begins from.
#[derive(Clone, Copy)]
struct StoredSum {
    sum: u32,
    /// It was right, as far as a debug build looked.
    is_right: bool,
}

/// A root or inner node to change. The checksum follows every edit: right stays right.
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
    /// A root to edit. Checks and errors are those of [`Index::root`].
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

    /// A node to edit. Checks and errors are those of [`Index::node`].
    pub fn node(
        block: &'a mut [u8],
        format: &DirFormat,
        inode_seed: u32,
        at: Site,
    ) -> Result<IndexMut<'a>> {
        let Index { base, limit, count, checksums, .. } = Index::node(block, format, at)?;
        Ok(IndexMut { block, base, limit, count, checksums, seed: inode_seed })
    }

    /// Makes `block` a root with one entry that leads to `child`; all it held is gone.
    pub fn init_root(
        block: &'a mut [u8],
        format: &DirFormat,
        inode_seed: u32,
        (own, parent): (Ino, Ino),
        info: RootInfo,
        child: LogicalBlock,
    ) -> IndexMut<'a> {
        // Without a tail ".." reaches the block's end, as an index root wants it.
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

    /// Makes `block` an inner node with one entry that leads to `child`; all it held is gone.
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

    /// Puts an entry behind entry `after`; `false`, and no change, when the block is full.
    ///
    /// `key` may carry the collision bit. Panics if `after` is not in use.
    pub fn insert_after(&mut self, after: usize, key: u32, block: LogicalBlock) -> bool {
        assert!(after < self.count, "there is no entry {after} of {}", self.count);
        if self.count == self.limit {
            return false;
        }
        let short_cut = self.stored_sum();
        let from = self.base + (after + 1) * ENTRY_LEN;
        let end = self.base + self.count * ENTRY_LEN;
        let moved = crc32c(0, &self.block[from..end]);
        self.block.copy_within(from..end, from + ENTRY_LEN);
        self.block[from..from + 4].copy_from_slice(&key.to_le_bytes());
        self.put_block(after + 1, block);
        self.count += 1;
        let Some(before) = short_cut else {
            self.finish();
            return true;
        };
        // A sum ends in 8 zeros behind the entries: they stand for the entry that came.
        let old = append_zeros(moved, ENTRY_LEN as u64);
        let entry = crc32c(0, &self.block[from..from + ENTRY_LEN]);
        let new = combine(entry, moved, (end - from) as u64);
        let counted = self.put_count();
        let sum = append_zeros(before.sum ^ old ^ new ^ counted, TAIL_LEN as u64);
        self.put_sum(before, sum);
        true
    }

    /// Puts entries behind the last, keys ascending, for a block that is built whole.
    ///
    /// Panics when they do not fit: whoever builds an index has counted.
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

    /// Moves the upper half of the entries into `new`, which becomes an inner node, and gives the
    /// key under which the parent lists it (behind this block). Needs at least 2 entries.
    ///
    /// Both are summed anew, the cheapest way there is: a sum ends with the entries, so each reads
    /// half a block, and the halves have no right sum of their own to begin from.
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
    /// Both are summed anew: the node is new, and of the root 40 bytes are left to read.
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

    /// Stores limit and count; by how much that changes a sum up to the end of the entries.
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

    /// Changes 4 bytes before the end of the entries; the checksum follows.
    fn patch(&mut self, at: usize, word: u32) {
        let short_cut = self.stored_sum();
        let trailing = self.base + self.count * ENTRY_LEN + TAIL_LEN - (at + 4);
        let new = word.to_le_bytes();
        let delta = splice_delta(trailing as u64, &self.block[at..at + 4], &new);
        self.block[at..at + 4].copy_from_slice(&new);
        match short_cut {
            Some(before) => self.put_sum(before, before.sum ^ delta),
            None => self.set_checksum(),
        }
    }

    /// The stored checksum, where a short cut may begin from it: the word before it is zero.
    fn stored_sum(&self) -> Option<StoredSum> {
        let at = self.base + self.limit * ENTRY_LEN;
        let (reserved, sum) = self.block.get(at..at + TAIL_LEN)?.split_first_chunk::<4>()?;
        let sum = u32::from_le_bytes([sum[0], sum[1], sum[2], sum[3]]);
        let is_right = cfg!(debug_assertions) && self.view().verify_checksum(self.seed).is_ok();
        (self.checksums && *reserved == [0; 4]).then_some(StoredSum { sum, is_right })
    }

    /// Stores `sum`, which followed from `before` by a short cut.
    fn put_sum(&mut self, before: StoredSum, sum: u32) {
        let at = self.base + self.limit * ENTRY_LEN + 4;
        self.block[at..at + 4].copy_from_slice(&sum.to_le_bytes());
        debug_assert!(
            !before.is_right || self.view().verify_checksum(self.seed).is_ok(),
            "a short-cut checksum equals the full one"
        );
    }

    /// Writes the checksum over whatever the block holds now.
    pub fn set_checksum(&mut self) {
        if self.checksums {
            let at = self.base + self.limit * ENTRY_LEN;
            self.block[at..at + 4].fill(0);
            let sum = self.view().sum(self.seed);
            self.block[at + 4..at + 8].copy_from_slice(&sum.to_le_bytes());
        }
    }
}

/// Splits a full leaf by hash: the upper part goes to `new`, both are packed, and the key under
/// which the index lists `new` comes back (with the collision bit when a hash stands in both).
///
/// `hash` is asked once for each name. The parts come as near to half the bytes as the order
/// allows; both get at least one name, so that a split always makes progress. Nearly every byte of
/// both changes, for the names are packed in the order of their hashes: both are summed whole.
///
/// Errors: `Corrupt` when the leaf is malformed or holds "." or ".."; `NoSpace` when it holds fewer than two names.
/// On an error nothing was changed.
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
    // Few names that never reach half a block: split by count.
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

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use extant_base::Error;

    const FORMAT: DirFormat = DirFormat {
        filetype: true,
        checksums: true,
        hash_words: false,
        opaque_names: false,
        inodes_count: 1000,
    };
    const INFO: RootInfo = RootInfo { hash_version: HashVersion::HalfMd4, levels: 0 };

    fn ino(number: u32) -> Ino {
        Ino::new(number).unwrap()
    }

    fn root(bytes: &mut [u8]) -> IndexMut<'_> {
        let own = (ino(12), Ino::ROOT);
        IndexMut::init_root(bytes, &FORMAT, 9, own, INFO, LogicalBlock(1))
    }

    fn what<T>(result: Result<T>) -> Option<What> {
        match result {
            Err(Error::Corrupt { what, .. }) => Some(what),
            _ => None,
        }
    }

    #[test]
    fn limits_are_exact() {
        for (bytes, checksums, root, node) in [
            (1024, true, 123, 126),
            (1024, false, 124, 127),
            (4096, true, 507, 510),
            (4096, false, 508, 511),
            (65536, true, 8187, 8190),
        ] {
            assert_eq!(limit_root(bytes, checksums), root);
            assert_eq!(limit_node(bytes, checksums, false), node);
        }
        assert_eq!(limit_node(4096, true, true), 509);
    }

    #[test]
    fn a_search_finds_the_last_key_not_above() {
        let mut bytes = [0; 1024];
        let mut index = root(&mut bytes);
        for (i, key) in [10, 20, 21, 40].into_iter().enumerate() {
            assert!(index.insert_after(i, key, LogicalBlock(i as u32 + 2)));
        }
        let view = index.view();
        view.verify_checksum(9).unwrap();
        view.check_order().unwrap();
        for (hash, want) in [(0, 0), (9, 0), (10, 1), (19, 1), (20, 2), (21, 3), (39, 3), (40, 4)] {
            assert_eq!(view.search(hash), want, "{hash}");
        }
        assert_eq!(view.search(u32::MAX), 4);
        assert!(view.entry(3).unwrap().continues(20));
        assert!(!view.entry(2).unwrap().continues(20));
        assert_eq!(view.entry(0), Some(IndexEntry { key: 0, block: LogicalBlock(1) }));
        assert_eq!(view.entry(5), None);
    }

    #[test]
    fn a_full_root_is_pushed_down_and_its_node_splits() {
        let (mut bytes, mut low, mut high) = ([0; 1024], [0xEE; 1024], [0xEE; 1024]);
        let mut index = root(&mut bytes);
        for i in 1..123 {
            assert!(index.insert_after(i - 1, i as u32 * 10, LogicalBlock(i as u32 + 1)));
        }
        assert!(index.view().is_full());
        assert!(!index.insert_after(5, 55, LogicalBlock(9)));
        index.push_down(&mut low, &FORMAT, LogicalBlock(200));
        index.view().verify_checksum(9).unwrap();
        let (info, view) = Index::root(&bytes, &FORMAT, 1, Site::NOWHERE).unwrap();
        assert_eq!((info.levels, view.count()), (1, 1));
        assert_eq!(view.entry(0).unwrap().block, LogicalBlock(200));
        let mut node = IndexMut::node(&mut low, &FORMAT, 9, Site::NOWHERE).unwrap();
        assert_eq!(node.view().count(), 123);
        assert_eq!(node.view().search(777), 77);
        let key = node.split_into(&mut high, &FORMAT);
        assert_eq!((key, node.view().count()), (620, 62));
        let upper = Index::node(&high, &FORMAT, Site::NOWHERE).unwrap();
        upper.verify_checksum(9).unwrap();
        assert_eq!(upper.count(), 61);
        assert_eq!(upper.entry(0).unwrap().block, LogicalBlock(63));
        assert_eq!(upper.entry(1).unwrap().key, 630);
        Index::node(&low, &FORMAT, Site::NOWHERE).unwrap().verify_checksum(9).unwrap();
    }

    #[test]
    fn each_malformed_index_is_named() {
        for (offset, value, want) in [
            (4, 16, What::DirentDot),
            (8, b'x', What::DirentDot),
            (16, 12, What::DirentDot),
            (24, 1, What::HtreeRoot),
            (28, 3, What::HtreeRoot),
            (28, 7, What::HtreeRoot),
            (29, 9, What::HtreeRoot),
            (30, 2, What::HtreeDepth),
            (31, 1, What::HtreeRoot),
            (32, 122, What::HtreeNode),
            (34, 0, What::HtreeNode),
            (34, 124, What::HtreeNode),
        ] {
            let mut bytes = [0; 1024];
            root(&mut bytes);
            bytes[offset] = value;
            let read = Index::root(&bytes, &FORMAT, 1, Site::NOWHERE);
            assert_eq!(what(read), Some(want), "{offset} {value}");
        }
        let mut bytes = [0; 1024];
        root(&mut bytes);
        assert_eq!(what(Index::node(&bytes, &FORMAT, Site::NOWHERE)), Some(What::HtreeNode));
        // Bytes behind the live entries are not summed, the live ones are.
        let check = |bytes: &[u8]| {
            Index::root(bytes, &FORMAT, 1, Site::NOWHERE).unwrap().1.verify_checksum(9)
        };
        bytes[500] = 1;
        assert!(check(&bytes).is_ok());
        bytes[36] = 1 ^ 2;
        assert_eq!(what(check(&bytes)), Some(What::HtreeChecksum));
    }

    fn leaf(names: &[&str]) -> [u8; 1024] {
        let mut bytes = [0; 1024];
        let mut packer = DirPacker::new(DirBlockMut::new(&mut bytes, FORMAT, 9, Site::NOWHERE));
        for name in names {
            assert!(packer.push(name.as_bytes(), ino(20), EntryKind::Regular, None));
        }
        packer.finish();
        bytes
    }

    fn names(bytes: &[u8]) -> Vec<&[u8]> {
        let view = DirBlock::new(bytes, FORMAT, Site::NOWHERE);
        view.verify_checksum(9).unwrap();
        view.entries().map(|entry| entry.unwrap().name).collect()
    }

    fn split(bytes: &mut [u8], new: &mut [u8], by: impl Fn(&[u8]) -> u32) -> Result<u32> {
        split_leaf(
            DirBlockMut::new(bytes, FORMAT, 9, Site::NOWHERE),
            DirBlockMut::new(new, FORMAT, 9, Site::NOWHERE),
            |name| Ok(NameHash { hash: by(name), minor: 0 }),
        )
    }

    #[test]
    fn a_leaf_splits_in_the_middle_of_its_bytes() {
        let all: Vec<_> = (0..50).map(|i| format!("name-{i:04}")).collect();
        let all: Vec<_> = all.iter().map(|name| &**name).collect();
        let number =
            |name: &[u8]| core::str::from_utf8(&name[5..]).unwrap().parse::<u32>().unwrap() * 2;
        let (mut bytes, mut new) = (leaf(&all), [0xEE; 1024]);
        let key = split(&mut bytes, &mut new, number).unwrap();
        assert_eq!(key, 50);
        assert_eq!((names(&bytes).len(), names(&new).len()), (25, 25));
        assert!(names(&bytes).iter().all(|name| number(name) < key));
    }

    #[test]
    fn equal_hashes_on_both_sides_set_the_collision_bit() {
        let all = ["a", "b", "c", "d"];
        let (mut bytes, mut new) = (leaf(&all), [0; 1024]);
        assert_eq!(split(&mut bytes, &mut new, |_| 8).unwrap(), 9);
        assert_eq!((names(&bytes).len(), names(&new).len()), (2, 2));
        let mut lone = leaf(&["a"]);
        assert!(matches!(split(&mut lone, &mut new, |_| 8), Err(Error::NoSpace)));
    }

    #[test]
    fn one_giant_among_dwarfs_still_leaves_names_on_both_sides() {
        let giant = "g".repeat(255);
        for order in [[&*giant, "a", "b"], ["a", "b", &*giant], ["a", &*giant, "b"]] {
            let (mut bytes, mut new) = (leaf(&order), [0; 1024]);
            let place = |name: &[u8]| order.iter().position(|o| o.as_bytes() == name).unwrap();
            let key = split(&mut bytes, &mut new, |name| place(name) as u32 * 2).unwrap();
            assert!(!names(&bytes).is_empty() && !names(&new).is_empty());
            assert!(names(&new).iter().all(|name| place(name) as u32 * 2 >= key));
        }
    }
}
