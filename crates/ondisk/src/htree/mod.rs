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
//! Rules:
//! - `limit` is exactly the number of entries that the block can hold.
//! - Entry 0 has no key: limit and count take the key's place. It covers all hashes below entry
//!   1's.
//! - Keys ascend. Bit 0 of a key is the collision bit: names with the same hash are also in the
//!   leaf before.
//! - A block number has 28 bits.
//!
//! To code that does not know the index, root and nodes look like linear blocks without names.
//! Source: ext4 documentation, "Hash Tree Directories".

mod change;
#[cfg(test)]
mod tests;

use crate::dirent::{DirBlock, DirFormat};
use crate::hash::HashVersion;
use core::mem::offset_of;
use extant_base::{LogicalBlock, Result, Site, What};
use extant_crc32c::crc32c;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub use change::{IndexMut, split_leaf};

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

/// An entry of the index as stored; in entry 0 `limit` and `count` take the place of the hash.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawIndexEntry {
    /// The smallest hash of the names below; bit 0 is the collision bit.
    pub hash: U32,
    /// Logical block of the node or leaf, low 28 bits.
    pub block: U32,
}
const _: () = assert!(size_of::<RawIndexEntry>() == ENTRY_LEN);

/// The limit and the count of entries as stored, in place of the hash of entry 0.
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
/// both encrypted and casefolded; Linux reckons with a longer header then.
pub const fn limit_node(block_len: usize, checksums: bool, hash_words: bool) -> usize {
    let head = if hash_words { 16 } else { NODE_ENTRIES };
    (block_len - head - if checksums { TAIL_LEN } else { 0 }) / ENTRY_LEN
}

/// The levels of inner nodes a volume allows: 1, or 2 with `largedir`.
pub const fn levels_max(largedir: bool) -> u8 {
    if largedir { 2 } else { 1 }
}

/// The description of the whole tree in the root.
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
    /// Whether names with exactly `hash` may be both in this entry's block and in the one before.
    pub fn continues(&self, hash: u32) -> bool {
        self.key & 1 == 1 && self.key & !1 == hash
    }
}

/// Whether a block has the shape of an inner node: one unused entry without a name fills it.
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
    /// `levels_max` is the volume's limit from [`levels_max`].
    ///
    /// # Errors
    /// `Corrupt` with `DirentDot` (no proper "." and ".."), `HtreeRoot`, `HtreeDepth` or
    /// `HtreeNode` (limit, count).
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
    /// # Errors
    /// `Corrupt` with `HtreeNode`.
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

    /// The number of the entry that leads to `hash`: the last one whose key is not above it.
    pub fn search(&self, hash: u32) -> usize {
        let (mut low, mut high) = (1, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            let key = self.entry(middle).map_or(0, |entry| entry.key);
            if key > hash { high = middle } else { low = middle + 1 }
        }
        low - 1
    }

    /// Checks that keys ascend. Lookups do not need this check: a search ends in any order of keys.
    ///
    /// # Errors
    /// `Corrupt` with `HtreeNode` naming the entry.
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

    fn compute_checksum(&self, inode_seed: u32) -> u32 {
        let live = &self.block[..self.base + self.count * ENTRY_LEN];
        let reserved = &self.block[self.tail_at()..self.tail_at() + 4];
        let sum = crc32c(inode_seed, live);
        crc32c(crc32c(sum, reserved), &[0; 4])
    }

    /// Checks the checksum in the tail. Without checksums there is nothing to check.
    ///
    /// # Errors
    /// `Corrupt` with `HtreeChecksum`.
    pub fn verify_checksum(&self, inode_seed: u32) -> Result<()> {
        if !self.checksums {
            return Ok(());
        }
        let at = self.tail_at() + 4;
        if self.block[at..at + 4] != self.compute_checksum(inode_seed).to_le_bytes() {
            return Err(self.at.offset(at).corrupt(What::HtreeChecksum));
        }
        Ok(())
    }
}
