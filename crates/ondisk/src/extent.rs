//! Extent trees: how ext4 finds the blocks of a file.
//!
//! ```text
//!   0          12         24                        12 + 12 × max
//!   ┌──────────┬──────────┬──────────┬─── ─ ─ ──────┬──────┐   root: i_block, 60 bytes, no checksum
//!   │ header   │ entry 0  │ entry 1  │ … entry max-1│ csum │   node: a block
//!   └──────────┴──────────┴──────────┴─── ─ ─ ──────┴──────┘
//!   header  F30A u16 │ entries u16 │ max u16 │ depth u16 │ generation u32
//!   leaf    ee_block u32 │ ee_len u16 │ start_hi u16 │ start_lo u32       depth 0
//!   index   ei_block u32 │ leaf_lo u32 │ leaf_hi u16 │ unused u16         depth 1 … 5
//! ```
//!
//! Rules: keys ascend and extents do not overlap; the first key of a node is its key in the parent;
//! the checksum covers the whole entry area, used or not. Source: ext4 documentation, "Extent Tree".

use core::mem::{offset_of, size_of};
use core::ops::Range;
use extant_base::{BlockNr, Error, LogicalBlock, Site, What};
use extant_crc32c::crc32c;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `eh_magic`.
pub const EXTENT_MAGIC: u16 = 0xF30A;
/// The deepest tree; a root of this depth has leaves five levels down.
pub const MAX_DEPTH: u16 = 5;
/// The longest written extent, blocks. An unwritten one is at most one shorter.
pub const MAX_LEN: u32 = 0x8000;
/// Bytes of a header, and of any entry.
pub const ENTRY_SIZE: usize = 12;
/// Entries in a root.
pub const ROOT_MAX: u16 = 4;
/// No block has this number: it marks the end.
pub const END: u32 = u32::MAX;

/// The header of a node; any bit pattern.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawExtentHeader {
    /// F30A.
    pub eh_magic: U16,
    /// Entries in use.
    pub eh_entries: U16,
    /// Entries there is room for.
    pub eh_max: U16,
    /// Levels below this node.
    pub eh_depth: U16,
    /// Zero; kept.
    pub eh_generation: U32,
}

/// An entry of a leaf; any bit pattern. The high half of the block stands before the low one.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawExtent {
    /// First logical block.
    pub ee_block: U32,
    /// Length in blocks; above 32768: unwritten.
    pub ee_len: U16,
    /// First physical block, high half.
    pub ee_start_hi: U16,
    /// First physical block, low half.
    pub ee_start_lo: U32,
}

/// An entry of an index node; any bit pattern. The low half of the block stands before the high one.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawExtentIndex {
    /// First logical block below.
    pub ei_block: U32,
    /// Child node, low half.
    pub ei_leaf_lo: U32,
    /// Child node, high half.
    pub ei_leaf_hi: U16,
    /// Unused.
    pub ei_unused: U16,
}

const _: () = assert!(
    size_of::<RawExtentHeader>() == ENTRY_SIZE
        && size_of::<RawExtent>() == ENTRY_SIZE
        && size_of::<RawExtentIndex>() == ENTRY_SIZE
        && offset_of!(RawExtent, ee_start_lo) == 8
        && offset_of!(RawExtentIndex, ei_leaf_hi) == 8
);

/// Whether an extent's blocks hold data or read as zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExtentState {
    /// The blocks hold data.
    Written,
    /// The blocks are allocated and read as zeros.
    Unwritten,
}

impl ExtentState {
    /// The longest extent in this state, blocks.
    pub const fn max_len(self) -> u32 {
        match self {
            ExtentState::Written => MAX_LEN,
            ExtentState::Unwritten => MAX_LEN - 1,
        }
    }
}

/// A run of logical blocks on a run of physical ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// First logical block.
    pub logical: LogicalBlock,
    /// Length in blocks: 1..=32768 written, 1..=32767 unwritten.
    pub len: u32,
    /// First physical block, below 2^48.
    pub physical: BlockNr,
    /// Written or not.
    pub state: ExtentState,
}

/// An entry of an index node: where the blocks from `logical` on are described.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExtentIndex {
    /// First logical block below; also the first key of the child.
    pub logical: LogicalBlock,
    /// The child node.
    pub child: BlockNr,
}

impl RawExtent {
    /// `ee_len` 1..=32768 is a written run; above that, an unwritten run of `ee_len - 32768`.
    ///
    /// Errors: `ExtentEmpty`; `ExtentOrder` if the run passes the last logical block.
    pub fn check(&self, at: Site) -> Result<Extent, Error> {
        let (len, state) = match self.ee_len.get() {
            0 => return Err(at.corrupt(What::ExtentEmpty)),
            n @ 1..=0x8000 => (n, ExtentState::Written),
            n => (n - 0x8000, ExtentState::Unwritten),
        };
        let logical = self.ee_block.get();
        let len = u32::from(len);
        // END is no block, so the run's end may reach it and not pass it.
        if logical.checked_add(len).is_none() {
            return Err(at.corrupt(What::ExtentOrder));
        }
        let physical = u64::from(self.ee_start_lo.get()) | u64::from(self.ee_start_hi.get()) << 32;
        Ok(Extent { logical: LogicalBlock(logical), len, physical: BlockNr(physical), state })
    }
}

impl Extent {
    /// The logical block after the last.
    pub fn end(&self) -> u32 {
        self.logical.0.saturating_add(self.len)
    }

    /// The physical block after the last.
    pub fn physical_end(&self) -> u64 {
        self.physical.0.saturating_add(u64::from(self.len))
    }

    /// Whether `block` lies in the run.
    pub fn contains(&self, block: LogicalBlock) -> bool {
        self.logical <= block && block.0 < self.end()
    }

    /// Where `block` lies on the device, if it is in the run.
    pub fn physical_of(&self, block: LogicalBlock) -> Option<BlockNr> {
        if !self.contains(block) {
            return None;
        }
        self.physical.checked_add(u64::from(block.0 - self.logical.0))
    }

    /// Whether `next` carries on where this one ends, and both fit in one entry.
    pub fn can_merge(&self, next: &Extent) -> bool {
        self.state == next.state
            && self.logical.0.checked_add(self.len) == Some(next.logical.0)
            && self.physical_end() == next.physical.0
            && self.len.saturating_add(next.len) <= self.state.max_len()
    }

    /// The entry as it is stored.
    ///
    /// # Panics
    /// If the length is 0 or more than the state allows, or the physical block is 2^48 or more:
    /// such an entry would mean something else on the disk.
    pub fn to_raw(&self) -> RawExtent {
        assert!((1..=self.state.max_len()).contains(&self.len), "extent of {} blocks", self.len);
        assert!(self.physical.0 >> 48 == 0, "block {} does not fit an extent", self.physical);
        let mark = match self.state {
            ExtentState::Written => 0,
            ExtentState::Unwritten => 0x8000,
        };
        RawExtent {
            ee_block: self.logical.0.into(),
            // A written run of 32768 is 0x8000 as it stands, the one value both readings share.
            ee_len: (self.len as u16 | mark).into(),
            ee_start_hi: ((self.physical.0 >> 32) as u16).into(),
            ee_start_lo: (self.physical.0 as u32).into(),
        }
    }
}

impl ExtentIndex {
    fn of(raw: &RawExtentIndex) -> ExtentIndex {
        ExtentIndex {
            logical: LogicalBlock(raw.ei_block.get()),
            child: BlockNr(u64::from(raw.ei_leaf_lo.get()) | u64::from(raw.ei_leaf_hi.get()) << 32),
        }
    }

    /// The entry as it is stored.
    ///
    /// # Panics
    /// If the child's number is 2^48 or more.
    pub fn to_raw(&self) -> RawExtentIndex {
        assert!(self.child.0 >> 48 == 0, "block {} does not fit an extent index", self.child);
        RawExtentIndex {
            ei_block: self.logical.0.into(),
            ei_leaf_lo: (self.child.0 as u32).into(),
            ei_leaf_hi: ((self.child.0 >> 32) as u16).into(),
            ei_unused: 0.into(),
        }
    }
}

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
    pub fn root(layout: &crate::layout::Layout) -> NodeRules {
        let blocks = layout.block_range();
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
#[derive(Clone, Copy)]
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
    /// changed by [`ExtentNodeMut`] only: looks at the header alone.
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
        let (mut low, mut high) = (0, self.entries);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.key(middle) <= block { low = middle + 1 } else { high = middle }
        }
        low.checked_sub(1)
    }
}

/// A node whose entries are being changed. The checksum is the caller's to set at the end.
///
/// The bytes must have passed [`ExtentNode::check`], or come from [`ExtentNodeMut::init`]. Entries
/// that fall out of use become zero, so that equal trees are equal to the byte.
pub struct ExtentNodeMut<'a> {
    bytes: &'a mut [u8],
}

impl<'a> ExtentNodeMut<'a> {
    /// Makes an empty node of `depth` in `bytes`: the 60 bytes of `i_block`, or a block. All bytes
    /// behind the header become zero.
    ///
    /// # Panics
    /// If there is no room for an entry, or `depth` is over [`MAX_DEPTH`].
    pub fn init(bytes: &'a mut [u8], depth: u16) -> ExtentNodeMut<'a> {
        let max = capacity(bytes.len());
        assert!(max > 0 && depth <= MAX_DEPTH, "no node of {} bytes, depth {depth}", bytes.len());
        bytes.fill(0);
        let mut node = ExtentNodeMut { bytes };
        let header = node.header_mut();
        header.eh_magic = EXTENT_MAGIC.into();
        header.eh_max = max.into();
        header.eh_depth = depth.into();
        node
    }

    /// A node to change.
    ///
    /// # Panics
    /// If the header's counts do not fit the bytes, which a checked node's do.
    pub fn new(bytes: &'a mut [u8]) -> ExtentNodeMut<'a> {
        let (header, _) =
            RawExtentHeader::ref_from_prefix(bytes).expect("a node has at least a header");
        let (entries, max) = (header.eh_entries.get(), header.eh_max.get());
        assert!(entries <= max && max <= capacity(bytes.len()), "unchecked extent node");
        ExtentNodeMut { bytes }
    }

    fn header(&self) -> &RawExtentHeader {
        RawExtentHeader::ref_from_prefix(self.bytes).expect("a node has a header").0
    }

    fn header_mut(&mut self) -> &mut RawExtentHeader {
        RawExtentHeader::mut_from_prefix(self.bytes).expect("a node has a header").0
    }

    /// Entries in use.
    pub fn len(&self) -> usize {
        usize::from(self.header().eh_entries.get())
    }

    /// Whether no entry is in use.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Entries there is room for.
    pub fn max(&self) -> usize {
        usize::from(self.header().eh_max.get())
    }

    /// Whether another entry would not fit.
    pub fn is_full(&self) -> bool {
        self.len() >= self.max()
    }

    /// Levels below this node; 0 for a leaf.
    pub fn depth(&self) -> u16 {
        self.header().eh_depth.get()
    }

    /// Sets the depth: for a root that grows or shrinks.
    pub fn set_depth(&mut self, depth: u16) {
        assert!(depth <= MAX_DEPTH, "extent tree of depth {depth}");
        self.header_mut().eh_depth = depth.into();
    }

    /// The stored bytes of entries `range`.
    ///
    /// # Panics
    /// If the range is not in use.
    pub fn entries(&self, range: Range<usize>) -> &[u8] {
        assert!(range.end <= self.len(), "entries {range:?} of {}", self.len());
        &self.bytes[entry_offset(range.start)..entry_offset(range.end)]
    }

    /// Puts an extent before entry `n`; the entries from there on move up.
    ///
    /// # Panics
    /// If the node is full or no leaf, or `n` lies past its end.
    pub fn insert_extent(&mut self, n: usize, extent: &Extent) {
        assert_eq!(self.depth(), 0, "an extent belongs in a leaf");
        self.insert_entries(n, extent.to_raw().as_bytes());
    }

    /// Puts an index before entry `n`; the entries from there on move up.
    ///
    /// # Panics
    /// If the node is full or a leaf, or `n` lies past its end.
    pub fn insert_index(&mut self, n: usize, index: &ExtentIndex) {
        assert_ne!(self.depth(), 0, "an index does not belong in a leaf");
        self.insert_entries(n, index.to_raw().as_bytes());
    }

    /// Puts stored entries, taken from a node of the same depth, before entry `n`.
    ///
    /// # Panics
    /// If they do not fit or are no whole entries, or `n` lies past the end.
    pub fn insert_entries(&mut self, n: usize, entries: &[u8]) {
        let (len, count) = (self.len(), entries.len() / ENTRY_SIZE);
        assert!(entries.len().is_multiple_of(ENTRY_SIZE) && n <= len && count <= self.max() - len);
        self.bytes.copy_within(entry_offset(n)..entry_offset(len), entry_offset(n + count));
        self.bytes[entry_offset(n)..entry_offset(n + count)].copy_from_slice(entries);
        self.set_len(len + count);
    }

    /// Takes entries `range` out; those behind move down and the room they leave becomes zero.
    ///
    /// # Panics
    /// If the range is not in use.
    pub fn remove(&mut self, range: Range<usize>) {
        let len = self.len();
        assert!(range.start <= range.end && range.end <= len, "entries {range:?} of {len}");
        self.bytes
            .copy_within(entry_offset(range.end)..entry_offset(len), entry_offset(range.start));
        let left = len - (range.end - range.start);
        self.bytes[entry_offset(left)..entry_offset(len)].fill(0);
        self.set_len(left);
    }

    /// Overwrites entry `n` of a leaf.
    ///
    /// # Panics
    /// If this is no leaf or has no entry `n`.
    pub fn set_extent(&mut self, n: usize, extent: &Extent) {
        assert!(self.depth() == 0 && n < self.len(), "extent {n} of {}", self.len());
        self.set_entry(n, extent.to_raw().as_bytes());
    }

    /// Overwrites entry `n` of an index node.
    ///
    /// # Panics
    /// If this is a leaf or has no entry `n`.
    pub fn set_index(&mut self, n: usize, index: &ExtentIndex) {
        assert!(self.depth() != 0 && n < self.len(), "index {n} of {}", self.len());
        self.set_entry(n, index.to_raw().as_bytes());
    }

    /// Changes the first logical block of entry `n`, and nothing else of it.
    ///
    /// # Panics
    /// If there is no entry `n`.
    pub fn set_key(&mut self, n: usize, key: LogicalBlock) {
        assert!(n < self.len(), "entry {n} of {}", self.len());
        self.bytes[entry_offset(n)..][..4].copy_from_slice(&key.0.to_le_bytes());
    }

    fn set_entry(&mut self, n: usize, raw: &[u8]) {
        self.bytes[entry_offset(n)..entry_offset(n + 1)].copy_from_slice(raw);
    }

    fn set_len(&mut self, entries: usize) {
        let entries = u16::try_from(entries).expect("entries <= eh_max, a u16");
        self.header_mut().eh_entries = entries.into();
    }
}

/// Entries there is room for in a node of `bytes` bytes. A block of any legal size leaves at least
/// 4 bytes over, for the checksum; a root has none.
pub fn capacity(bytes: usize) -> u16 {
    u16::try_from(bytes.saturating_sub(ENTRY_SIZE) / ENTRY_SIZE).unwrap_or(u16::MAX)
}

const fn entry_offset(n: usize) -> usize {
    ENTRY_SIZE + n * ENTRY_SIZE
}

fn tail_offset(max: u16) -> usize {
    entry_offset(usize::from(max))
}

fn stored_checksum(bytes: &[u8], max: u16) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(tail_offset(max)..)?.first_chunk()?))
}

/// Where the checksum of a non-root node stands, and so how many bytes it covers; `None` if the
/// node has no header or no room for it. It follows the stored `eh_max`.
pub fn checksum_offset(bytes: &[u8]) -> Option<usize> {
    let (header, _) = RawExtentHeader::ref_from_prefix(bytes).ok()?;
    let offset = tail_offset(header.eh_max.get());
    (offset + 4 <= bytes.len()).then_some(offset)
}

/// Stores the right checksum in a non-root node; `seed` is the inode's.
///
/// # Panics
/// If the node is malformed: it must be checked, or made by [`ExtentNodeMut::init`].
pub fn set_checksum(bytes: &mut [u8], seed: u32) {
    let tail = checksum_offset(bytes).expect("a node block has room for its checksum");
    let crc = crc32c(seed, &bytes[..tail]);
    bytes[tail..tail + 4].copy_from_slice(&crc.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    fn extent(logical: u32, len: u32, physical: u64, state: ExtentState) -> Extent {
        Extent { logical: LogicalBlock(logical), len, physical: BlockNr(physical), state }
    }

    fn rules() -> NodeRules {
        NodeRules { blocks: 1..1 << 40, depth: None, first_key: None, end: END, seed: None }
    }

    fn what(result: Result<ExtentNode<'_>, Error>) -> What {
        match result {
            Err(Error::Corrupt { what, .. }) => what,
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("nothing found"),
        }
    }

    const W: ExtentState = ExtentState::Written;
    const U: ExtentState = ExtentState::Unwritten;

    #[test]
    fn a_length_tells_written_from_unwritten() {
        let table = [(1, W, 1), (0x8000, W, 0x8000), (1, U, 0x8001), (0x7FFF, U, 0xFFFF)];
        for (len, state, stored) in table {
            let extent = extent(7, len, 0x1234_5678_9ABC, state);
            let raw = extent.to_raw();
            assert_eq!(raw.ee_len.get(), stored);
            assert_eq!(raw.as_bytes()[6..], [0x34, 0x12, 0xBC, 0x9A, 0x78, 0x56]);
            assert_eq!(raw.check(Site::NOWHERE).unwrap(), extent);
        }
        let empty = RawExtent { ee_len: 0.into(), ..extent(0, 1, 1, W).to_raw() };
        assert!(empty.check(Site::NOWHERE).is_err());
    }

    #[test]
    fn the_last_block_number_is_no_block() {
        assert!(extent(u32::MAX - 1, 1, 5, W).to_raw().check(Site::NOWHERE).is_ok());
        assert!(extent(u32::MAX, 1, 5, W).to_raw().check(Site::NOWHERE).is_err());
    }

    #[test]
    fn entries_go_in_and_out_in_order() {
        let mut bytes = [0xAA; 60];
        let mut node = ExtentNodeMut::init(&mut bytes, 0);
        node.insert_extent(0, &extent(10, 5, 100, W));
        node.insert_extent(0, &extent(0, 5, 200, U));
        node.insert_extent(2, &extent(20, 5, 300, W));
        node.set_extent(1, &extent(11, 4, 101, W));
        node.remove(0..1);
        assert_eq!((node.len(), node.max(), node.is_full()), (2, 4, false));
        let node = ExtentNode::check(&bytes, &rules(), Site::NOWHERE).unwrap();
        let all: Vec<_> = node.extents().collect();
        assert_eq!(all, [extent(11, 4, 101, W), extent(20, 5, 300, W)]);
        assert_eq!(bytes[36..], [0; 24], "what is not in use is zero");
    }

    #[test]
    fn a_search_finds_the_last_key_at_or_before() {
        let mut bytes = vec![0; 1024];
        let mut node = ExtentNodeMut::init(&mut bytes, 0);
        assert_eq!(node.max(), 84);
        for n in 0..84 {
            node.insert_extent(n, &extent(n as u32 * 10 + 5, 5, 1000, W));
        }
        assert!(node.is_full());
        let node = ExtentNode::check(&bytes, &rules(), Site::NOWHERE).unwrap();
        assert_eq!(node.search(LogicalBlock(4)), None);
        for block in 5..900 {
            let expected = ((block as usize - 5) / 10).min(83);
            assert_eq!(node.search(LogicalBlock(block)), Some(expected));
        }
    }

    #[test]
    fn a_block_has_room_as_the_format_says() {
        for (bytes, max) in [(60, 4), (1024, 84), (2048, 169), (4096, 340), (65536, 5460)] {
            assert_eq!(capacity(bytes), max);
        }
    }

    #[test]
    fn every_flipped_bit_of_a_node_breaks_its_checksum() {
        let mut bytes = vec![0; 1024];
        let mut node = ExtentNodeMut::init(&mut bytes, 1);
        let index = ExtentIndex { logical: LogicalBlock(3), child: BlockNr(0x1_0000_0005) };
        node.insert_index(0, &index);
        set_checksum(&mut bytes, 99);
        let mut rules = rules();
        rules.seed = Some(99);
        rules.depth = Some(1);
        rules.first_key = Some(LogicalBlock(3));
        let node = ExtentNode::check(&bytes, &rules, Site::NOWHERE).unwrap();
        assert_eq!(node.indexes().collect::<Vec<_>>(), [index]);
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            let found = ExtentNode::check(&bytes, &rules, Site::NOWHERE);
            assert!(found.is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(checksum_offset(&bytes), Some(12 + 84 * 12));
        rules.seed = Some(98);
        assert_eq!(what(ExtentNode::check(&bytes, &rules, Site::NOWHERE)), What::ExtentChecksum);
    }

    #[test]
    fn each_rule_has_its_finding() {
        type Spoil = fn(&mut [u8], &mut NodeRules);
        let table: [(Spoil, What); 14] = [
            (|b, _| b[0] = 0, What::ExtentMagic),
            (|b, _| b[2] = 5, What::ExtentHeader),
            (|b, _| b[4] = 0, What::ExtentHeader),
            (|b, _| b[4] = 5, What::ExtentHeader),
            (|b, _| b[6] = 6, What::ExtentDepth),
            (|_, r| r.depth = Some(1), What::ExtentDepth),
            (|b, _| (b[2], b[6]) = (0, 1), What::ExtentHeader),
            (|b, _| (b[16], b[17]) = (0, 0), What::ExtentEmpty),
            (|b, _| b[24] = 9, What::ExtentOrder),
            (|_, r| r.end = 22, What::ExtentOrder),
            (|_, r| r.first_key = Some(LogicalBlock(4)), What::ExtentKey),
            (|_, r| r.blocks = 101..1000, What::ExtentRange),
            (|_, r| r.blocks = 1..304, What::ExtentRange),
            (|b, _| b[6] = 1, What::ExtentRange),
        ];
        for (n, (spoil, expected)) in table.into_iter().enumerate() {
            let mut bytes = [0; 60];
            let mut node = ExtentNodeMut::init(&mut bytes, 0);
            node.insert_extent(0, &extent(5, 5, 100, W));
            node.insert_extent(1, &extent(20, 5, 300, W));
            let mut rules = rules();
            assert!(ExtentNode::check(&bytes, &rules, Site::NOWHERE).is_ok());
            if n == 13 {
                rules.blocks = 1..5;
            }
            spoil(&mut bytes, &mut rules);
            assert_eq!(what(ExtentNode::check(&bytes, &rules, Site::NOWHERE)), expected, "row {n}");
        }
    }

    #[test]
    fn neighbours_merge_only_within_the_length_of_their_state() {
        let a = extent(0, 100, 1000, W);
        assert!(a.can_merge(&extent(100, 32668, 1100, W)));
        assert!(!a.can_merge(&extent(100, 32669, 1100, W)));
        assert!(!a.can_merge(&extent(100, 1, 1101, W)));
        assert!(!a.can_merge(&extent(101, 1, 1100, W)));
        assert!(!a.can_merge(&extent(100, 1, 1100, U)));
        let u = extent(0, 100, 1000, U);
        assert!(u.can_merge(&extent(100, 32667, 1100, U)));
        assert!(!u.can_merge(&extent(100, 32668, 1100, U)));
    }
}
