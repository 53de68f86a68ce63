//! A whole node, checked once: after that every entry in it is legal.
//!
//! ```text
//!   header ─► counts fit ─► depth is the parent's - 1 ─► checksum ─► first key is the parent's
//!          ─► keys ascend, nothing overlaps or passes the parent's next key ─► blocks in the volume
//! ```

use super::entry::{Extent, ExtentIndex, RawExtent, RawExtentIndex};
use super::{
    END, EXTENT_MAGIC, MAX_DEPTH, RawExtentHeader, capacity, entry_offset, stored_checksum,
    tail_offset,
};
use core::ops::Range;
use extant_base::{BlockNr, Error, LogicalBlock, Site, What};
use extant_crc32c::crc32c;
use zerocopy::FromBytes;

/// What a node must agree with: its place in the tree and in the volume.
#[derive(Clone, Debug)]
pub struct NodeRules {
    /// Blocks that an extent or a child may use: from after the first data block to the volume's
    /// end. See [`NodeRules::root`].
    pub blocks: Range<u64>,
    /// The depth that the parent promises; `None` for a root.
    pub depth: Option<u16>,
    /// The key that the parent has for the node; `None` for a root.
    pub first_key: Option<LogicalBlock>,
    /// The key of the parent's next entry: nothing in the node may reach past it. [`END`] where
    /// there is none.
    pub end: u32,
    /// The inode's seed, for a node with a checksum; `None` for a root or without `metadata_csum`.
    pub seed: Option<u32>,
}

impl NodeRules {
    /// The rules for the root of any tree of a volume.
    pub fn root(geometry: &crate::geometry::Geometry) -> NodeRules {
        let blocks = geometry.block_range();
        NodeRules {
            // The first data block holds the superblock.
            blocks: blocks.start.saturating_add(1)..blocks.end,
            depth: None,
            first_key: None,
            end: END,
            seed: None,
        }
    }

    /// The rules for the child at `index` of `parent`, itself checked under `self`; `seed` is the
    /// inode's.
    pub fn child(&self, parent: &ExtentNode<'_>, index: usize, seed: Option<u32>) -> NodeRules {
        NodeRules {
            blocks: self.blocks.clone(),
            depth: Some(parent.depth().saturating_sub(1)),
            first_key: Some(parent.key(index)),
            end: if index + 1 < parent.len() { parent.key(index + 1).0 } else { self.end },
            seed,
        }
    }
}

/// A checked node: every entry in it is legal. Borrowed from its bytes; nothing is copied.
#[derive(Clone, Copy, Debug)]
pub struct ExtentNode<'a> {
    bytes: &'a [u8],
    entries: usize,
    max: u16,
    depth: u16,
}

impl<'a> ExtentNode<'a> {
    /// Checks a whole node: the 60 bytes of `i_block`, or a block.
    ///
    /// Errors, with the offset of the entry: `ExtentMagic`, `ExtentHeader`, `ExtentDepth`,
    /// `ExtentChecksum`, `ExtentEmpty`, `ExtentOrder`, `ExtentKey`, `ExtentRange`.
    pub fn check(bytes: &'a [u8], rules: &NodeRules, at: Site) -> Result<ExtentNode<'a>, Error> {
        let Ok((header, _)) = RawExtentHeader::ref_from_prefix(bytes) else {
            return Err(at.corrupt(What::ExtentHeader));
        };
        if header.eh_magic.get() != EXTENT_MAGIC {
            return Err(at.offset(0).corrupt(What::ExtentMagic));
        }
        let (entries, max, depth) =
            (header.eh_entries.get(), header.eh_max.get(), header.eh_depth.get());
        if max == 0 || max > capacity(bytes.len()) || entries > max {
            return Err(at.offset(2).corrupt(What::ExtentHeader));
        }
        if depth > MAX_DEPTH || rules.depth.is_some_and(|promised| promised != depth) {
            return Err(at.offset(6).corrupt(What::ExtentDepth));
        }
        if depth > 0 && entries == 0 {
            return Err(at.offset(2).corrupt(What::ExtentHeader));
        }
        if let Some(seed) = rules.seed {
            let tail = tail_offset(max);
            if stored_checksum(bytes, max) != Some(crc32c(seed, &bytes[..tail])) {
                return Err(at.offset(tail).corrupt(What::ExtentChecksum));
            }
        }
        let node = ExtentNode { bytes, entries: usize::from(entries), max, depth };
        node.check_entries(rules, at)?;
        Ok(node)
    }

    /// A view of a node that passed [`ExtentNode::check`] before and is unchanged since, or was
    /// changed by `ExtentNodeMut` only: looks at the header alone.
    ///
    /// Errors: `ExtentHeader`, for bytes that never passed.
    pub fn trusted(bytes: &'a [u8], at: Site) -> Result<ExtentNode<'a>, Error> {
        let bad = || at.offset(2).corrupt(What::ExtentHeader);
        let (header, _) = RawExtentHeader::ref_from_prefix(bytes).map_err(|_| bad())?;
        let (entries, max) = (header.eh_entries.get(), header.eh_max.get());
        if max > capacity(bytes.len()) || entries > max {
            return Err(bad());
        }
        let depth = header.eh_depth.get();
        Ok(ExtentNode { bytes, entries: usize::from(entries), max, depth })
    }

    fn check_entries(&self, rules: &NodeRules, at: Site) -> Result<(), Error> {
        let holds = |block: BlockNr, len: u64| {
            rules.blocks.contains(&block.0)
                && block.0.checked_add(len).is_some_and(|end| end <= rules.blocks.end)
        };
        if let Some(key) = rules.first_key
            && self.entries > 0
            && self.key(0) != key
        {
            return Err(at.offset(entry_offset(0)).corrupt(What::ExtentKey));
        }
        let mut free_from = 0;
        for n in 0..self.entries {
            let at = at.offset(entry_offset(n));
            if self.depth == 0 {
                let extent = self.raw_extent(n).check(at)?;
                if extent.logical.0 < free_from || extent.end() > rules.end {
                    return Err(at.corrupt(What::ExtentOrder));
                }
                if !holds(extent.physical, u64::from(extent.len)) {
                    return Err(at.corrupt(What::ExtentRange));
                }
                free_from = extent.end();
            } else {
                let index = self.index(n);
                if index.logical.0 < free_from || index.logical.0 >= rules.end {
                    return Err(at.corrupt(What::ExtentOrder));
                }
                if !holds(index.child, 1) {
                    return Err(at.corrupt(What::ExtentRange));
                }
                free_from = index.logical.0.saturating_add(1);
            }
        }
        Ok(())
    }

    /// Levels below this node; 0 for a leaf.
    pub fn depth(&self) -> u16 {
        self.depth
    }

    /// Whether the entries are extents.
    pub fn is_leaf(&self) -> bool {
        self.depth == 0
    }

    /// Entries in use.
    pub fn len(&self) -> usize {
        self.entries
    }

    /// Whether there are no entries: an empty file's root.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Entries there is room for.
    pub fn max(&self) -> usize {
        usize::from(self.max)
    }

    /// The first logical block of entry `n`.
    ///
    /// # Panics
    /// If there is no entry `n`.
    pub fn key(&self, n: usize) -> LogicalBlock {
        let start = entry_offset(n);
        assert!(n < self.entries, "entry {n} of {}", self.entries);
        let bytes = self.bytes[start..].first_chunk().expect("entries were checked to fit");
        LogicalBlock(u32::from_le_bytes(*bytes))
    }

    fn raw_extent(&self, n: usize) -> RawExtent {
        assert!(n < self.entries && self.depth == 0, "extent {n} of {}", self.entries);
        let (raw, _) = RawExtent::read_from_prefix(&self.bytes[entry_offset(n)..])
            .expect("entries were checked to fit");
        raw
    }

    /// Entry `n` of a leaf.
    ///
    /// # Panics
    /// If this is no leaf or has no entry `n`.
    pub fn extent(&self, n: usize) -> Extent {
        self.raw_extent(n).check(Site::NOWHERE).expect("every entry was checked with the node")
    }

    /// Entry `n` of an index node.
    ///
    /// # Panics
    /// If this is a leaf or has no entry `n`.
    pub fn index(&self, n: usize) -> ExtentIndex {
        assert!(n < self.entries && self.depth > 0, "index {n} of {}", self.entries);
        let (raw, _) = RawExtentIndex::ref_from_prefix(&self.bytes[entry_offset(n)..])
            .expect("entries were checked to fit");
        ExtentIndex::of(raw)
    }

    /// The extents of a leaf, in order; nothing for an index node.
    pub fn extents(self) -> impl DoubleEndedIterator<Item = Extent> + use<'a> {
        (0..if self.depth == 0 { self.entries } else { 0 }).map(move |n| self.extent(n))
    }

    /// The entries of an index node, in order; nothing for a leaf.
    pub fn indexes(self) -> impl DoubleEndedIterator<Item = ExtentIndex> + use<'a> {
        (0..if self.depth == 0 { 0 } else { self.entries }).map(move |n| self.index(n))
    }

    /// The last entry whose key is at or before `block`; `None` if all keys are beyond it.
    pub fn search(&self, block: LogicalBlock) -> Option<usize> {
        let last = self.entries.checked_sub(1)?;
        // Most searches are at the end of a file that grows.
        if self.key(last) <= block {
            return Some(last);
        }
        let (mut low, mut high) = (0, last);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.key(middle) <= block { low = middle + 1 } else { high = middle }
        }
        low.checked_sub(1)
    }
}
