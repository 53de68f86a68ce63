//! Changing the entries of a node in place.
//!
//! ```text
//!   insert at 1   │ a │ c │ d │ 0 │   ─►   │ a │ b │ c │ d │
//!   remove 1..3   │ a │ b │ c │ d │   ─►   │ a │ d │ 0 │ 0 │     what falls out of use becomes zero
//! ```
//!
//! A node that is being followed tells at the end what its checksum changed by, at the cost of the
//! bytes that changed; where most of them did, that a new sum is cheaper.

use super::entry::{Extent, ExtentIndex};
use super::{
    ENTRY_SIZE, EXTENT_MAGIC, MAX_DEPTH, RawExtentHeader, capacity, entry_offset, tail_offset,
};
use core::mem::offset_of;
use core::ops::Range;
use extant_base::LogicalBlock;
use extant_crc32c::{crc32c, splice_crcs, splice_delta};
use zerocopy::{FromBytes, IntoBytes};

/// What the checksum of a node does while its entries change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SumChange {
    /// Nobody asked.
    Unfollowed,
    /// The stored sum changes by this much (xor).
    Delta(u32),
    /// So much changed that the sum is better made anew.
    Anew,
}

/// A node whose entries are being changed. The checksum is the caller's to set at the end.
///
/// The bytes must have passed `ExtentNode::check`, or come from [`ExtentNodeMut::init`]. Entries
/// that fall out of use become zero, so that equal trees are equal to the byte.
pub struct ExtentNodeMut<'a> {
    bytes: &'a mut [u8],
    sum: SumChange,
}

impl core::fmt::Debug for ExtentNodeMut<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ExtentNodeMut").finish_non_exhaustive()
    }
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
        let mut node = ExtentNodeMut { bytes, sum: SumChange::Anew };
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
        ExtentNodeMut { bytes, sum: SumChange::Unfollowed }
    }

    /// As [`ExtentNodeMut::new`], for a block: what happened to the checksum `so_far` is carried on.
    pub fn follow(bytes: &'a mut [u8], so_far: SumChange) -> ExtentNodeMut<'a> {
        ExtentNodeMut { sum: so_far, ..ExtentNodeMut::new(bytes) }
    }

    /// What the changes did to the checksum.
    pub fn sum_change(&self) -> SumChange {
        self.sum
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
        self.patch(offset_of!(RawExtentHeader, eh_depth), &depth.to_le_bytes());
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
        self.rewrite(entry_offset(n)..entry_offset(len + count), |bytes| {
            bytes.copy_within(entry_offset(n)..entry_offset(len), entry_offset(n + count));
            bytes[entry_offset(n)..entry_offset(n + count)].copy_from_slice(entries);
        });
        self.set_len(len + count);
    }

    /// Takes entries `range` out; those behind move down and the room they leave becomes zero.
    ///
    /// # Panics
    /// If the range is not in use.
    pub fn remove(&mut self, range: Range<usize>) {
        let len = self.len();
        assert!(range.start <= range.end && range.end <= len, "entries {range:?} of {len}");
        let left = len - (range.end - range.start);
        self.rewrite(entry_offset(range.start)..entry_offset(len), |bytes| {
            bytes
                .copy_within(entry_offset(range.end)..entry_offset(len), entry_offset(range.start));
            bytes[entry_offset(left)..entry_offset(len)].fill(0);
        });
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
        self.patch(entry_offset(n), &key.0.to_le_bytes());
    }

    fn set_entry(&mut self, n: usize, raw: &[u8]) {
        self.patch(entry_offset(n), raw);
    }

    fn set_len(&mut self, entries: usize) {
        let entries = u16::try_from(entries).expect("entries <= eh_max, a u16");
        self.patch(offset_of!(RawExtentHeader, eh_entries), &entries.to_le_bytes());
    }

    /// Bytes that the checksum covers.
    fn covered(&self) -> usize {
        tail_offset(self.header().eh_max.get())
    }

    /// Writes a few bytes.
    fn patch(&mut self, at: usize, new: &[u8]) {
        let covered = self.covered();
        let old = &mut self.bytes[at..at + new.len()];
        if let SumChange::Delta(delta) = &mut self.sum {
            *delta ^= splice_delta((covered - at - new.len()) as u64, old, new);
        }
        old.copy_from_slice(new);
    }

    /// Changes many bytes, all of them in `region`.
    fn rewrite(&mut self, region: Range<usize>, change: impl FnOnce(&mut [u8])) {
        let covered = self.covered();
        // The region is read twice.
        if let SumChange::Delta(delta) = self.sum {
            if region.len() * 2 >= covered {
                self.sum = SumChange::Anew;
            } else {
                let old = crc32c(0, &self.bytes[region.clone()]);
                change(self.bytes);
                let new = crc32c(0, &self.bytes[region.clone()]);
                let delta = splice_crcs(delta, (covered - region.end) as u64, old, new);
                self.sum = SumChange::Delta(delta);
                return;
            }
        }
        change(self.bytes);
    }
}
