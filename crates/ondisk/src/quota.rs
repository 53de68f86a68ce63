//! Quota files: what each user, group or project uses and may use. Format vfsv1.
//!
//! ```text
//!   block 0  magic │ version 1 │ block grace │ inode grace │ flags │ blocks │ free block │ free entry
//!   block 1  the tree's root: 256 pointers, one per value of the id's highest byte
//!              │
//!              └─► 256 pointers ─► 256 ─► 256 (lowest byte) ─► leaf
//!   leaf     next_free u32 │ prev_free u32 │ entries u16 │ pad │ 14 × 72-byte entries
//! ```
//!
//! Blocks are 1 KiB whatever the volume's. A leaf holds entries of any ids, in any order; leaves
//! with room are linked from "free entry", blocks out of use from "free block".
//! Source: Linux, "Quota subsystem", and the quota tools' format description.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::mem::{offset_of, size_of};
use extant_base::{Error, Site, What};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

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
    /// First leaf with room, or 0.
    pub dqi_free_entry: U32,
}

/// The head of a leaf; any bit pattern.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawLeafHeader {
    /// Next leaf with room, or next free block.
    pub dqdh_next_free: U32,
    /// Previous leaf with room.
    pub dqdh_prev_free: U32,
    /// Entries in use.
    pub dqdh_entries: U16,
    /// Zero.
    pub dqdh_pad1: U16,
    /// Zero.
    pub dqdh_pad2: U32,
}

/// An entry; any bit pattern. Zero all over is a free one.
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

/// Whose usage a file counts.
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

/// Block 0 in meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaInfo {
    /// Whose usage the file counts.
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

/// Where a quota file's blocks come from and go to.
pub trait QuotaStore {
    /// Reads block `block`, which is below the count given to [`QuotaInfo::check`].
    fn read(&mut self, block: u32) -> Result<QuotaBlock, Error>;
    /// Writes block `block`; it may be the first past the end, and the file grows by it.
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
    // The file's own blocks are not the volume's, so the site gives bytes from the file's start.
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
        // An entry of zeros would read as free; only id 0 can be one.
        if raw.is_free() {
            raw.dqb_itime = 1.into();
        }
        raw
    }
}

impl QuotaInfo {
    /// Makes an empty quota file in `store`: header and root, two blocks.
    pub fn create(kind: QuotaKind, store: &mut impl QuotaStore) -> Result<QuotaInfo, Error> {
        let info = QuotaInfo {
            kind,
            block_grace: DEFAULT_GRACE,
            inode_grace: DEFAULT_GRACE,
            flags: 0,
            blocks: 2,
            free_block: 0,
            free_entry: 0,
        };
        info.write(store)?;
        store.write(ROOT_BLOCK, &[0; QUOTA_BLOCK])?;
        Ok(info)
    }

    /// A whole quota file in memory. Entries come out in the order given, so ids in ascending order
    /// make the same file each time. An id given twice keeps its last entry.
    pub fn build(kind: QuotaKind, entries: impl IntoIterator<Item = QuotaEntry>) -> Vec<u8> {
        let mut file = Vec::new();
        let fill = || -> Result<(), Error> {
            let mut info = QuotaInfo::create(kind, &mut file)?;
            entries.into_iter().try_for_each(|entry| info.put(&mut file, &entry))
        };
        fill().expect("a file that was just made is in order, and memory does not fail");
        file
    }

    /// Reads block 0 of a file that has `file_blocks` blocks of 1 KiB.
    ///
    /// Errors: `QuotaFile`: magic, version, more blocks than the file has, or heads out of range.
    pub fn check(
        bytes: &QuotaBlock,
        kind: QuotaKind,
        file_blocks: u32,
    ) -> Result<QuotaInfo, Error> {
        let (raw, _) = RawQuotaHeader::ref_from_prefix(bytes).expect("a block holds the header");
        if raw.dqh_magic.get() != kind.magic() || raw.dqh_version.get() != 1 {
            return Err(corrupt(0, 0));
        }
        let info = QuotaInfo {
            kind,
            block_grace: raw.dqi_bgrace.get(),
            inode_grace: raw.dqi_igrace.get(),
            flags: raw.dqi_flags.get(),
            blocks: raw.dqi_blocks.get(),
            free_block: raw.dqi_free_blk.get(),
            free_entry: raw.dqi_free_entry.get(),
        };
        if info.blocks <= ROOT_BLOCK || info.blocks > file_blocks {
            return Err(corrupt(0, 0x14));
        }
        if !info.holds(info.free_block) || !info.holds(info.free_entry) {
            return Err(corrupt(0, 0x18));
        }
        Ok(info)
    }

    // Whether `block` is 0, which is none, or behind the root and inside the file.
    fn holds(&self, block: u32) -> bool {
        block == 0 || (block > ROOT_BLOCK && block < self.blocks)
    }

    fn write(&self, store: &mut impl QuotaStore) -> Result<(), Error> {
        let raw = RawQuotaHeader {
            dqh_magic: self.kind.magic().into(),
            dqh_version: 1.into(),
            dqi_bgrace: self.block_grace.into(),
            dqi_igrace: self.inode_grace.into(),
            dqi_flags: self.flags.into(),
            dqi_blocks: self.blocks.into(),
            dqi_free_blk: self.free_block.into(),
            dqi_free_entry: self.free_entry.into(),
        };
        let mut bytes = [0; QUOTA_BLOCK];
        bytes[..32].copy_from_slice(raw.as_bytes());
        store.write(0, &bytes)
    }

    // The leaf below `id` and the slot of its entry there; without an entry, how far the way down
    // exists.
    fn locate(&self, store: &mut impl QuotaStore, id: u32) -> Result<Found, Error> {
        let mut block = ROOT_BLOCK;
        for level in 0..TREE_DEPTH {
            let bytes = store.read(block)?;
            let next = pointer(&bytes, slot_of(id, level));
            if !self.holds(next) {
                return Err(corrupt(block, slot_of(id, level) * 4));
            }
            if next == 0 {
                return Ok(Found::EndsAt { level, block });
            }
            block = next;
        }
        let bytes = store.read(block)?;
        let slot = leaf_entries(&bytes)
            .iter()
            .position(|entry| entry.dqb_id.get() == id && !entry.is_free())
            .ok_or_else(|| corrupt(block, 16))?;
        Ok(Found::Entry { block, slot })
    }

    /// Usage and limits of `id`, or `None` if the file has no entry for it.
    ///
    /// Errors: `QuotaFile`, and whatever the store answers.
    pub fn get(&self, store: &mut impl QuotaStore, id: u32) -> Result<Option<QuotaEntry>, Error> {
        Ok(match self.locate(store, id)? {
            Found::EndsAt { .. } => None,
            Found::Entry { block, slot } => Some(leaf_entries(&store.read(block)?)[slot].meaning()),
        })
    }

    /// Stores usage and limits of `entry.id`, making room for it if the file has no entry yet.
    /// Writes one block for an id that is there, at most 8 for a new one.
    ///
    /// Errors: `QuotaFile`, and whatever the store answers; `FileTooLarge`.
    pub fn put(&mut self, store: &mut impl QuotaStore, entry: &QuotaEntry) -> Result<(), Error> {
        match self.locate(store, entry.id)? {
            Found::Entry { block, slot } => {
                let mut bytes = store.read(block)?;
                leaf_entries_mut(&mut bytes)[slot] = entry.to_raw();
                store.write(block, &bytes)
            }
            Found::EndsAt { level, block } => {
                // Numbers go from the top down, as other tools give them; the blocks are written from
                // the bottom up, so that the way down is whole when its top is hooked in.
                let mut new = [0; TREE_DEPTH];
                for block in &mut new[level + 1..] {
                    *block = self.take_block(store)?;
                }
                let mut child = self.add_to_leaf(store, entry)?;
                for level in (level + 1..TREE_DEPTH).rev() {
                    let mut bytes = [0; QUOTA_BLOCK];
                    set_pointer(&mut bytes, slot_of(entry.id, level), child);
                    store.write(new[level], &bytes)?;
                    child = new[level];
                }
                let mut bytes = store.read(block)?;
                set_pointer(&mut bytes, slot_of(entry.id, level), child);
                store.write(block, &bytes)?;
                self.write(store)
            }
        }
    }

    fn add_to_leaf(
        &mut self,
        store: &mut impl QuotaStore,
        entry: &QuotaEntry,
    ) -> Result<u32, Error> {
        let (leaf, mut bytes) = match self.free_entry {
            0 => {
                let leaf = self.take_block(store)?;
                self.free_entry = leaf;
                (leaf, [0; QUOTA_BLOCK])
            }
            leaf => (leaf, store.read(leaf)?),
        };
        let slot = leaf_entries(&bytes)
            .iter()
            .position(RawQuotaEntry::is_free)
            .ok_or_else(|| corrupt(leaf, 16))?;
        leaf_entries_mut(&mut bytes)[slot] = entry.to_raw();
        let used = leaf_entries(&bytes).iter().filter(|entry| !entry.is_free()).count();
        let header = leaf_header_mut(&mut bytes);
        header.dqdh_entries = (used as u16).into();
        if used == LEAF_ENTRIES {
            // Full: out of the list of leaves with room. It is the list's head.
            let next = header.dqdh_next_free.get();
            (header.dqdh_next_free, header.dqdh_prev_free) = (0.into(), 0.into());
            if !self.holds(next) || next == leaf {
                return Err(corrupt(leaf, 0));
            }
            if next != 0 {
                let mut other = store.read(next)?;
                leaf_header_mut(&mut other).dqdh_prev_free = 0.into();
                store.write(next, &other)?;
            }
            self.free_entry = next;
        }
        store.write(leaf, &bytes)?;
        Ok(leaf)
    }

    // A block out of use, or the next past the end; its old bytes are of no interest.
    fn take_block(&mut self, store: &mut impl QuotaStore) -> Result<u32, Error> {
        if self.free_block == 0 {
            let block = self.blocks;
            self.blocks = self.blocks.checked_add(1).ok_or(Error::FileTooLarge)?;
            store.write(block, &[0; QUOTA_BLOCK])?;
            return Ok(block);
        }
        let block = self.free_block;
        let next = leaf_header(&store.read(block)?).dqdh_next_free.get();
        if !self.holds(next) || next == block {
            return Err(corrupt(block, 0));
        }
        self.free_block = next;
        Ok(block)
    }

    /// Calls `each` for every entry, by ascending id. A block is looked at once: a tree with loops
    /// or shared branches is an error.
    ///
    /// Errors: `QuotaFile`, and whatever the store or `each` answers.
    pub fn for_each(
        &self,
        store: &mut impl QuotaStore,
        mut each: impl FnMut(QuotaEntry) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut seen = BTreeSet::from([ROOT_BLOCK]);
        // The way from the root to here: pointer block and next slot, per level.
        let mut path = Vec::from([(store.read(ROOT_BLOCK)?, 0usize)]);
        let mut prefix = [0u8; TREE_DEPTH];
        while let Some(level) = path.len().checked_sub(1) {
            let (bytes, slot) = &mut path[level];
            if *slot == 256 {
                path.pop();
                continue;
            }
            let next = pointer(bytes, *slot);
            prefix[level] = *slot as u8;
            *slot += 1;
            if next == 0 {
                continue;
            }
            if !self.holds(next) {
                return Err(corrupt(0, 0x14));
            }
            if level + 1 < TREE_DEPTH {
                if !seen.insert(next) {
                    return Err(corrupt(next, 0));
                }
                path.push((store.read(next)?, 0));
            } else {
                let id = u32::from_be_bytes(prefix);
                let leaf = store.read(next)?;
                let entry = leaf_entries(&leaf)
                    .iter()
                    .find(|entry| entry.dqb_id.get() == id && !entry.is_free())
                    .ok_or_else(|| corrupt(next, 16))?;
                each(entry.meaning())?;
            }
        }
        Ok(())
    }
}

enum Found {
    Entry { block: u32, slot: usize },
    EndsAt { level: usize, block: u32 },
}

impl Default for RawQuotaEntry {
    fn default() -> Self {
        RawQuotaEntry::new_zeroed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: u32) -> QuotaEntry {
        QuotaEntry {
            id,
            inodes: u64::from(id) + 1,
            space: 4096 * u64::from(id),
            ..Default::default()
        }
    }

    fn open(file: &[u8], kind: QuotaKind) -> Result<QuotaInfo, Error> {
        let blocks = file.len() / QUOTA_BLOCK;
        QuotaInfo::check(file[..QUOTA_BLOCK].try_into().unwrap(), kind, blocks as u32)
    }

    #[test]
    fn every_entry_is_found_again_and_in_order() {
        let ids = [0, 1, 2, 255, 256, 1000, 65534, 65535, 65536, 1 << 24, u32::MAX];
        let all: Vec<u32> = ids.into_iter().chain(5000..5100).collect();
        let mut file = QuotaInfo::build(QuotaKind::User, all.iter().map(|id| entry(*id)));
        let info = open(&file, QuotaKind::User).unwrap();
        for id in &all {
            assert_eq!(info.get(&mut file, *id).unwrap(), Some(entry(*id)), "{id}");
        }
        assert_eq!(info.get(&mut file, 77).unwrap(), None);
        let mut walked = Vec::new();
        info.for_each(&mut file, |entry| {
            walked.push(entry.id);
            Ok(())
        })
        .unwrap();
        let mut sorted = all.clone();
        sorted.sort_unstable();
        assert_eq!(walked, sorted);
        assert_eq!(info.blocks as usize * QUOTA_BLOCK, file.len());
    }

    #[test]
    fn an_entry_is_replaced_in_its_place() {
        let mut file = QuotaInfo::build(QuotaKind::Group, [entry(7)]);
        let len = file.len();
        let mut info = open(&file, QuotaKind::Group).unwrap();
        let changed = QuotaEntry { space_hard_kib: 10, inodes: 0, ..entry(7) };
        info.put(&mut file, &changed).unwrap();
        assert_eq!(info.get(&mut file, 7).unwrap(), Some(changed));
        assert_eq!(file.len(), len);
    }

    #[test]
    fn an_entry_of_zeros_is_no_free_one() {
        let nothing = QuotaEntry::default();
        let mut file = QuotaInfo::build(QuotaKind::Project, [nothing]);
        let info = open(&file, QuotaKind::Project).unwrap();
        assert_eq!(info.get(&mut file, 0).unwrap(), Some(nothing));
        assert!(open(&file, QuotaKind::User).is_err(), "the magic names the kind");
    }

    #[test]
    fn a_tree_that_loops_is_an_error() {
        let mut file = QuotaInfo::build(QuotaKind::User, [entry(7)]);
        let info = open(&file, QuotaKind::User).unwrap();
        // The root's pointer for ids from 2^24 on leads to where id 7's does.
        let first: [u8; 4] = file[1024..1028].try_into().unwrap();
        file[1028..1032].copy_from_slice(&first);
        assert!(info.for_each(&mut file, |_| Ok(())).is_err());
        file[1028..1032].copy_from_slice(&1u32.to_le_bytes());
        assert!(info.for_each(&mut file, |_| Ok(())).is_err());
    }
}
