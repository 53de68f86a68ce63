//! Entries of extent nodes: an extent (a run of blocks) in a leaf, a pointer to a child elsewhere.
//!
//! ```text
//!   leaf    0 ee_block u32 │ 4 ee_len u16   │ 6 ee_start_hi u16 │ 8 ee_start_lo u32 │ 12
//!   index   0 ei_block u32 │ 4 ei_leaf_lo u32                   │ 8 ei_leaf_hi u16  │ unused u16
//!
//!   ee_len  0 invalid │ 1 ..= 32768 written │ 32769 ..= 65535 unwritten, less 32768
//! ```

use super::{ENTRY_SIZE, MAX_LEN};
use core::mem::{offset_of, size_of};
use extant_base::narrow::{high_u32, low_u16, low_u32};
use extant_base::{BlockNr, Error, LogicalBlock, Site, What};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// An entry of a leaf; any bit pattern. The high half of the block comes before the low one.
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

/// An entry of an index node; any bit pattern. The low half of the block comes before the high one.
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
    size_of::<RawExtent>() == ENTRY_SIZE
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

/// An extent: a run of logical blocks and the run of physical blocks that holds them.
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

/// An entry of an index node: the child node that maps the blocks from `logical` on.
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
    /// # Errors
    /// `ExtentEmpty`; `ExtentOrder` if the run passes the last logical block.
    pub fn check(&self, at: Site) -> Result<Extent, Error> {
        let (len, state) = match self.ee_len.get() {
            0 => return Err(at.corrupt(What::ExtentEmpty)),
            n @ 1..=0x8000 => (n, ExtentState::Written),
            n => (n - 0x8000, ExtentState::Unwritten),
        };
        let logical = self.ee_block.get();
        let len = u32::from(len);
        // END is no block number, so the end of a run may equal it but not exceed it.
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

    /// The physical block of the logical block `block`, if it is in the run.
    pub fn physical_of(&self, block: LogicalBlock) -> Option<BlockNr> {
        if !self.contains(block) {
            return None;
        }
        self.physical.checked_add(u64::from(block.0 - self.logical.0))
    }

    /// Whether `next` follows this extent, logically and physically, and both fit in one entry.
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
            // A written run of 32768 blocks is stored as 0x8000, without a bias.
            ee_len: (low_u16(self.len) | mark).into(),
            ee_start_hi: low_u16(high_u32(self.physical.0)).into(),
            ee_start_lo: low_u32(self.physical.0).into(),
        }
    }
}

impl ExtentIndex {
    pub(super) fn of(raw: &RawExtentIndex) -> ExtentIndex {
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
            ei_leaf_lo: low_u32(self.child.0).into(),
            ei_leaf_hi: low_u16(high_u32(self.child.0)).into(),
            ei_unused: 0.into(),
        }
    }
}
