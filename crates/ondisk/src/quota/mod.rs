//! Quota files: usage and limits of each user, group or project. Format vfsv1.
//!
//! ```text
//!   block 0  magic │ version 1 │ block grace │ inode grace │ flags │ blocks │ free block │
//!            free entry
//!   block 1  the tree's root: 256 pointers, one per value of the id's highest byte
//!              │
//!              └─► 256 pointers ─► 256 ─► 256 (lowest byte) ─► leaf
//!   leaf     next_free u32 │ prev_free u32 │ entries u16 │ pad │ 14 × 72-byte entries
//! ```
//!
//! Blocks are 1 KiB, for any block size of the volume. A leaf holds entries of any ids, in any
//! order. The list "free entry" links the leaves with a free slot, "free block" the unused blocks.
//! Source: Linux, "Quota subsystem", and the quota tools' format description.

mod tree;

#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::mem::{offset_of, size_of};
use extant_base::{Error, Site, What};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of an entry.
pub const ENTRY_LEN: usize = 72;
/// Bytes of a block of a quota file.
pub const QUOTA_BLOCK: usize = 1024;
/// Entries in a leaf.
pub const LEAF_ENTRIES: usize = 14;
/// Levels of pointers.
pub const TREE_DEPTH: usize = 4;
/// The tree's root.
pub const ROOT_BLOCK: u32 = 1;
/// Grace time of a new file, seconds: a week.
pub const DEFAULT_GRACE: u32 = 604_800;

/// One block of a quota file.
pub type QuotaBlock = [u8; QUOTA_BLOCK];

/// Block 0; any bit pattern.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawQuotaHeader {
    /// D9C01F11 user, D9C01927 group, D9C03F14 project.
    pub dqh_magic: U32,
    /// 1.
    pub dqh_version: U32,
    /// Grace over the space limit, seconds.
    pub dqi_bgrace: U32,
    /// Grace over the inode limit, seconds.
    pub dqi_igrace: U32,
    /// Flags.
    pub dqi_flags: U32,
    /// Blocks of the file.
    pub dqi_blocks: U32,
    /// First free block, or 0.
    pub dqi_free_blk: U32,
    /// First leaf with a free slot, or 0.
    pub dqi_free_entry: U32,
}

/// The head of a leaf; any bit pattern.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawLeafHeader {
    /// Next leaf with a free slot, or next unused block.
    pub dqdh_next_free: U32,
    /// Previous leaf with a free slot.
    pub dqdh_prev_free: U32,
    /// Entries in use.
    pub dqdh_entries: U16,
    /// Zero.
    pub dqdh_pad1: U16,
    /// Zero.
    pub dqdh_pad2: U32,
}

/// An entry; any bit pattern. A free slot has only zeros.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawQuotaEntry {
    /// User, group or project.
    pub dqb_id: U32,
    /// Zero.
    pub dqb_pad: U32,
    /// Inodes allowed at most.
    pub dqb_ihardlimit: U64,
    /// Inodes allowed for long.
    pub dqb_isoftlimit: U64,
    /// Inodes in use.
    pub dqb_curinodes: U64,
    /// Space allowed at most, KiB.
    pub dqb_bhardlimit: U64,
    /// Space allowed for long, KiB.
    pub dqb_bsoftlimit: U64,
    /// Space in use, bytes.
    pub dqb_curspace: U64,
    /// When the space grace ends, seconds.
    pub dqb_btime: U64,
    /// When the inode grace ends, seconds; 1 marks an entry of zeros as in use.
    pub dqb_itime: U64,
}

const _: () = assert!(
    size_of::<RawQuotaHeader>() == 32
        && size_of::<RawLeafHeader>() == 16
        && size_of::<RawQuotaEntry>() == 72
        && offset_of!(RawQuotaEntry, dqb_curspace) == 48
        && 16 + LEAF_ENTRIES * 72 == QUOTA_BLOCK
);

/// The kind of ids of a quota file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QuotaKind {
    /// By owner.
    User,
    /// By group.
    Group,
    /// By project.
    Project,
}

impl QuotaKind {
    /// `dqh_magic`.
    pub const fn magic(self) -> u32 {
        match self {
            QuotaKind::User => 0xD9C0_1F11,
            QuotaKind::Group => 0xD9C0_1927,
            QuotaKind::Project => 0xD9C0_3F14,
        }
    }
}

/// Block 0, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaInfo {
    /// The kind of ids.
    pub kind: QuotaKind,
    /// Grace over the space limit, seconds.
    pub block_grace: u32,
    /// Grace over the inode limit, seconds.
    pub inode_grace: u32,
    /// Flags, kept.
    pub flags: u32,
    /// Blocks of the file, at least 2.
    pub blocks: u32,
    free_block: u32,
    free_entry: u32,
}

/// Usage and limits of one id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaEntry {
    /// User, group or project.
    pub id: u32,
    /// Inodes in use.
    pub inodes: u64,
    /// Space in use, bytes.
    pub space: u64,
    /// Inodes allowed at most; 0 is no limit.
    pub inodes_hard: u64,
    /// Inodes allowed for long; 0 is no limit.
    pub inodes_soft: u64,
    /// Space allowed at most, KiB; 0 is no limit.
    pub space_hard_kib: u64,
    /// Space allowed for long, KiB; 0 is no limit.
    pub space_soft_kib: u64,
    /// When the grace over the space limit ends, seconds since 1970; 0 is not running.
    pub space_grace_end: u64,
    /// When the grace over the inode limit ends; 0 is not running.
    pub inodes_grace_end: u64,
}

/// Storage of a quota file's blocks.
pub trait QuotaStore {
    /// Reads block `block`, which is below the count given to [`QuotaInfo::check`].
    fn read(&mut self, block: u32) -> Result<QuotaBlock, Error>;
    /// Writes block `block`. If it is the first one past the end, the file grows by one block.
    fn write(&mut self, block: u32, bytes: &QuotaBlock) -> Result<(), Error>;
}

/// A quota file held in memory.
impl QuotaStore for Vec<u8> {
    fn read(&mut self, block: u32) -> Result<QuotaBlock, Error> {
        let bytes = self.as_chunks::<QUOTA_BLOCK>().0.get(block as usize);
        bytes.copied().ok_or_else(|| Site::NOWHERE.corrupt(What::QuotaFile))
    }

    fn write(&mut self, block: u32, bytes: &QuotaBlock) -> Result<(), Error> {
        match self.as_chunks_mut::<QUOTA_BLOCK>().0.get_mut(block as usize) {
            Some(old) => *old = *bytes,
            None => self.extend_from_slice(bytes),
        }
        Ok(())
    }
}

fn corrupt(block: u32, offset: usize) -> Error {
    // A block of the file is not a block number of the volume, so the site has the offset in the
    // file.
    Site::NOWHERE
        .offset((block as usize).saturating_mul(QUOTA_BLOCK) + offset)
        .corrupt(What::QuotaFile)
}

fn pointer(bytes: &QuotaBlock, slot: usize) -> u32 {
    u32::from_le_bytes(bytes.as_chunks::<4>().0[slot])
}

fn set_pointer(bytes: &mut QuotaBlock, slot: usize, block: u32) {
    bytes.as_chunks_mut::<4>().0[slot] = block.to_le_bytes();
}

fn slot_of(id: u32, level: usize) -> usize {
    usize::from(id.to_be_bytes()[level])
}

fn leaf_header(bytes: &QuotaBlock) -> &RawLeafHeader {
    RawLeafHeader::ref_from_prefix(bytes).expect("a block holds the header").0
}

fn leaf_header_mut(bytes: &mut QuotaBlock) -> &mut RawLeafHeader {
    RawLeafHeader::mut_from_prefix(bytes).expect("a block holds the header").0
}

fn leaf_entries(bytes: &QuotaBlock) -> &[RawQuotaEntry; LEAF_ENTRIES] {
    <[RawQuotaEntry; LEAF_ENTRIES]>::ref_from_bytes(&bytes[16..]).expect("16 + 14 × 72 = 1024")
}

fn leaf_entries_mut(bytes: &mut QuotaBlock) -> &mut [RawQuotaEntry; LEAF_ENTRIES] {
    <[RawQuotaEntry; LEAF_ENTRIES]>::mut_from_bytes(&mut bytes[16..]).expect("16 + 14 × 72 = 1024")
}

impl RawQuotaEntry {
    fn is_free(&self) -> bool {
        self.as_bytes().iter().all(|byte| *byte == 0)
    }

    fn meaning(&self) -> QuotaEntry {
        let mut entry = QuotaEntry {
            id: self.dqb_id.get(),
            inodes: self.dqb_curinodes.get(),
            space: self.dqb_curspace.get(),
            inodes_hard: self.dqb_ihardlimit.get(),
            inodes_soft: self.dqb_isoftlimit.get(),
            space_hard_kib: self.dqb_bhardlimit.get(),
            space_soft_kib: self.dqb_bsoftlimit.get(),
            space_grace_end: self.dqb_btime.get(),
            inodes_grace_end: self.dqb_itime.get(),
        };
        let only_mark = QuotaEntry { inodes_grace_end: 1, ..QuotaEntry::default() };
        if entry == only_mark {
            entry.inodes_grace_end = 0;
        }
        entry
    }
}

impl QuotaEntry {
    /// Decodes a slot of a leaf; `None` if it is free.
    pub fn from_bytes(bytes: &[u8; ENTRY_LEN]) -> Option<QuotaEntry> {
        let raw = RawQuotaEntry::read_from_bytes(bytes).ok()?;
        (!raw.is_free()).then(|| raw.meaning())
    }

    /// The entry as it is stored in a leaf.
    pub fn to_bytes(self) -> [u8; ENTRY_LEN] {
        let mut bytes = [0; ENTRY_LEN];
        bytes.copy_from_slice(self.to_raw().as_bytes());
        bytes
    }

    /// Whether the entry has no usage and no limits, so that the file does not need it.
    pub fn is_idle(&self) -> bool {
        *self == QuotaEntry { id: self.id, ..QuotaEntry::default() }
    }

    fn to_raw(self) -> RawQuotaEntry {
        let mut raw = RawQuotaEntry {
            dqb_id: self.id.into(),
            dqb_pad: 0.into(),
            dqb_ihardlimit: self.inodes_hard.into(),
            dqb_isoftlimit: self.inodes_soft.into(),
            dqb_curinodes: self.inodes.into(),
            dqb_bhardlimit: self.space_hard_kib.into(),
            dqb_bsoftlimit: self.space_soft_kib.into(),
            dqb_curspace: self.space.into(),
            dqb_btime: self.space_grace_end.into(),
            dqb_itime: self.inodes_grace_end.into(),
        };
        // An entry of zeros would be a free slot; only an entry of id 0 can have only zeros.
        if raw.is_free() {
            raw.dqb_itime = 1.into();
        }
        raw
    }
}

impl Default for RawQuotaEntry {
    fn default() -> Self {
        RawQuotaEntry::new_zeroed()
    }
}
