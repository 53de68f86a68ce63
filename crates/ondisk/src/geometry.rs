//! Geometry: the group of each block, and the places of the fixed metadata.
//!
//! ```text
//!   group g, from block first(g) = first_data_block + g × blocks_per_group
//!   ┌─────────┬──────────────┬──────────┬ ─ ─ ─ ─ ┬ ─ ─ ─ ─ ┬ ─ ─ ─ ─ ─ ┬────────────────┐
//!   │ super   │ descriptor   │ reserved │ block   │ inode   │ inode     │ data …         │
//!   │ copy    │ blocks       │ for more │ bitmap  │ bitmap  │ table     │                │
//!   └─────────┴──────────────┴──────────┴ ─ ─ ─ ─ ┴ ─ ─ ─ ─ ┴ ─ ─ ─ ─ ─ ┴────────────────┘
//!   └─ only in groups that hold copies ─┘ └─ wherever the descriptor says ─┘
//! ```
//!
//! With meta_bg, descriptor block k ≥ first_meta_bg is stored in the groups that it describes: the
//! primary in the first one, copies in the second and the last. Those groups hold no copies of the
//! descriptor blocks before it. Source: ext4 documentation, "Layout" and "Meta Block Groups".

use crate::features::{Compat, Incompat, RoCompat};
use crate::superblock::Superblock;
use core::ops::Range;
use extant_base::narrow::{fits_u32, len_u32};
use extant_base::{BlockNr, BlockSize, ByteOffset, Error, GroupNr, Ino, Site, What};

/// The geometry of one volume: small, immutable, and cheap to copy.
///
/// It is made from a checked superblock, so no method divides by zero or overflows. A method that
/// gets a number out of range returns `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    block_size: BlockSize,
    blocks_count: u64,
    first_data_block: u64,
    blocks_per_group: u32,
    clusters_per_group: u32,
    log_cluster_ratio: u32,
    inodes_per_group: u32,
    inodes_count: u32,
    first_ino: u32,
    inode_size: u16,
    desc_size: u16,
    groups: u32,
    desc_blocks: u32,
    first_meta_bg: u32,
    reserved_gdt: u32,
    backups: Backups,
    groups_per_flex: u32,
    flex_bg: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backups {
    Everywhere,
    Sparse,
    AtMostTwo([u32; 2]),
}

/// The place of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodePlace {
    /// Its group.
    pub group: GroupNr,
    /// Its slot in the group's table, and its bit in the group's inode bitmap.
    pub slot: u32,
    /// Blocks from the start of the group's inode table.
    pub table_block: u32,
    /// Bytes from the start of that block.
    pub offset: usize,
}

impl Geometry {
    /// The geometry that a superblock describes.
    ///
    /// # Errors
    /// Those of [`Superblock::check_fields`].
    pub fn new(sb: &Superblock) -> Result<Geometry, Error> {
        sb.check_fields(Site::NOWHERE)?;
        let groups =
            sb.groups_count().ok_or_else(|| Site::NOWHERE.corrupt(What::SuperblockGroups))?;
        let descs_per_block = len_u32(sb.block_size.bytes()) / u32::from(sb.desc_size);
        let desc_blocks = groups.div_ceil(descs_per_block);
        let meta_bg = sb.features.incompat.contains(Incompat::META_BG);
        let backups = if sb.features.compat.contains(Compat::SPARSE_SUPER2) {
            Backups::AtMostTwo(sb.backup_bgs)
        } else if sb.features.ro_compat.contains(RoCompat::SPARSE_SUPER) {
            Backups::Sparse
        } else {
            Backups::Everywhere
        };
        Ok(Geometry {
            block_size: sb.block_size,
            blocks_count: sb.blocks_count,
            first_data_block: u64::from(sb.first_data_block),
            blocks_per_group: sb.blocks_per_group,
            clusters_per_group: sb.clusters_per_group,
            log_cluster_ratio: sb.log_cluster_ratio,
            inodes_per_group: sb.inodes_per_group,
            inodes_count: sb.inodes_count,
            first_ino: sb.first_ino,
            inode_size: sb.inode_size,
            desc_size: sb.desc_size,
            groups,
            desc_blocks,
            first_meta_bg: if meta_bg { sb.first_meta_bg } else { desc_blocks },
            reserved_gdt: if meta_bg { 0 } else { u32::from(sb.reserved_gdt_blocks) },
            backups,
            groups_per_flex: sb.groups_per_flex(),
            flex_bg: sb.features.incompat.contains(Incompat::FLEX_BG),
        })
    }

    /// Size of a block.
    pub fn block_size(&self) -> BlockSize {
        self.block_size
    }

    /// Blocks of the volume, from block 0.
    pub fn blocks_count(&self) -> u64 {
        self.blocks_count
    }

    /// First block of group 0; 1 with 1 KiB blocks and no clusters, else 0.
    pub fn first_data_block(&self) -> BlockNr {
        BlockNr(self.first_data_block)
    }

    /// Blocks in each group but the last.
    pub fn blocks_per_group(&self) -> u32 {
        self.blocks_per_group
    }

    /// Clusters in each group but the last: the bits a block bitmap's checksum covers.
    pub fn clusters_per_group(&self) -> u32 {
        self.clusters_per_group
    }

    /// Base-2 logarithm of the blocks in a cluster; 0 without bigalloc.
    pub fn log_cluster_ratio(&self) -> u32 {
        self.log_cluster_ratio
    }

    /// Blocks in a cluster; 1 without bigalloc.
    pub fn cluster_ratio(&self) -> u32 {
        1 << self.log_cluster_ratio
    }

    /// Inodes in each group.
    pub fn inodes_per_group(&self) -> u32 {
        self.inodes_per_group
    }

    /// Inodes of the volume.
    pub fn inodes_count(&self) -> u32 {
        self.inodes_count
    }

    /// The first inode that is not reserved.
    pub fn first_ino(&self) -> u32 {
        self.first_ino
    }

    /// Bytes of an inode.
    pub fn inode_size(&self) -> usize {
        usize::from(self.inode_size)
    }

    /// Bytes of a descriptor.
    pub fn desc_size(&self) -> usize {
        usize::from(self.desc_size)
    }

    /// Groups of the volume, at least 1.
    pub fn groups_count(&self) -> u32 {
        self.groups
    }

    /// All groups, in order.
    pub fn groups(&self) -> impl DoubleEndedIterator<Item = GroupNr> + Clone + use<> {
        (0..self.groups).map(GroupNr)
    }

    /// Groups in a flex group; 1 without flex_bg.
    pub fn groups_per_flex(&self) -> u32 {
        self.groups_per_flex
    }

    /// Whether bitmaps and inode tables may lie outside their group (flex_bg).
    pub fn metadata_roams(&self) -> bool {
        self.flex_bg
    }

    /// Descriptor blocks that the groups fill.
    pub fn desc_blocks(&self) -> u32 {
        self.desc_blocks
    }

    /// Descriptors in a block.
    pub fn descs_per_block(&self) -> u32 {
        len_u32(self.block_size.bytes()) / u32::from(self.desc_size)
    }

    /// Blocks of one group's inode table.
    pub fn itable_blocks(&self) -> u32 {
        let bytes = u64::from(self.inodes_per_group) * u64::from(self.inode_size);
        fits_u32(self.block_size.blocks_for(bytes))
    }

    /// Inodes in a block.
    pub fn inodes_per_block(&self) -> u32 {
        len_u32(self.block_size.bytes()) / u32::from(self.inode_size)
    }

    /// Blocks that data and movable metadata may use: from the first data block to the end.
    pub fn block_range(&self) -> Range<u64> {
        self.first_data_block..self.blocks_count
    }

    /// Whether `len` blocks from `block` on all lie inside the volume, past the boot block.
    pub fn holds(&self, block: BlockNr, len: u64) -> bool {
        block.0 >= self.first_data_block
            && block.0.checked_add(len).is_some_and(|end| end <= self.blocks_count)
    }

    /// The group of `block`, or `None` outside of all groups.
    pub fn group_of_block(&self, block: BlockNr) -> Option<GroupNr> {
        if block.0 >= self.blocks_count {
            return None;
        }
        let in_groups = block.0.checked_sub(self.first_data_block)?;
        Some(GroupNr(fits_u32(in_groups / u64::from(self.blocks_per_group))))
    }

    /// The group of `block` and its cluster's bit in the group's bitmap.
    pub fn bit_of_block(&self, block: BlockNr) -> Option<(GroupNr, u32)> {
        let group = self.group_of_block(block)?;
        let in_group = (block.0 - self.first_data_block) % u64::from(self.blocks_per_group);
        Some((group, fits_u32(in_group) >> self.log_cluster_ratio))
    }

    /// The first block of the cluster of `bit` in the bitmap of `group`, or `None` if the group has
    /// no such cluster.
    pub fn block_of_bit(&self, group: GroupNr, bit: u32) -> Option<BlockNr> {
        if bit >= self.clusters_in_group(group)? {
            return None;
        }
        let first = self.first_block(group)?;
        first.checked_add(u64::from(bit) << self.log_cluster_ratio)
    }

    /// The first block of `group`, or `None` if there is no such group.
    pub fn first_block(&self, group: GroupNr) -> Option<BlockNr> {
        (group.0 < self.groups).then(|| self.start(group.0))
    }

    // Groups below `self.groups` start below blocks_count <= 2^48.
    fn start(&self, group: u32) -> BlockNr {
        BlockNr(self.first_data_block + u64::from(group) * u64::from(self.blocks_per_group))
    }

    /// The blocks of `group`; fewer than usual in the last one.
    pub fn blocks_of_group(&self, group: GroupNr) -> Option<Range<u64>> {
        let first = self.first_block(group)?.0;
        Some(first..self.blocks_count.min(first + u64::from(self.blocks_per_group)))
    }

    /// How many blocks `group` has.
    pub fn blocks_in_group(&self, group: GroupNr) -> Option<u32> {
        self.blocks_of_group(group).map(|blocks| fits_u32(blocks.end - blocks.start))
    }

    /// How many clusters `group` has, the last one perhaps partial.
    pub fn clusters_in_group(&self, group: GroupNr) -> Option<u32> {
        self.blocks_in_group(group).map(|blocks| blocks.div_ceil(self.cluster_ratio()))
    }

    /// Clusters of the whole volume.
    pub fn clusters_count(&self) -> u64 {
        (self.blocks_count - self.first_data_block).div_ceil(u64::from(self.cluster_ratio()))
    }

    /// Whether `group` holds a copy of the superblock (group 0: the primary).
    pub fn has_super(&self, group: GroupNr) -> bool {
        let g = group.0;
        g < self.groups
            && match self.backups {
                Backups::Everywhere => true,
                // An entry of 0 means none; group 0 itself always has the primary.
                Backups::AtMostTwo(backups) => g == 0 || backups.contains(&g),
                Backups::Sparse => {
                    g <= 1 || is_power_of(3, g) || is_power_of(5, g) || is_power_of(7, g)
                }
            }
    }

    /// Every group that holds a superblock copy, in ascending order from 0.
    pub fn super_groups(&self) -> impl Iterator<Item = GroupNr> + use<> {
        let geometry = *self;
        core::iter::successors(geometry.next_super(0), move |g| {
            geometry.next_super(g.checked_add(1)?)
        })
        .map(GroupNr)
    }

    fn next_super(&self, from: u32) -> Option<u32> {
        let power = |base: u32| {
            core::iter::successors(Some(base), move |n| n.checked_mul(base)).find(|n| *n >= from)
        };
        let next = match self.backups {
            Backups::Everywhere => Some(from),
            _ if from == 0 => Some(0),
            Backups::Sparse if from == 1 => Some(1),
            Backups::Sparse => [power(3), power(5), power(7)].into_iter().flatten().min(),
            Backups::AtMostTwo(two) => two.into_iter().filter(|g| *g >= from).min(),
        };
        next.filter(|g| *g < self.groups)
    }

    /// Where the superblock copy of `group` starts, in bytes of the device; `None` without one.
    pub fn super_offset(&self, group: GroupNr) -> Option<ByteOffset> {
        if !self.has_super(group) {
            return None;
        }
        Some(match group.0 {
            0 => ByteOffset(crate::superblock::SUPERBLOCK_OFFSET),
            g => self.block_size.start_of(self.start(g)),
        })
    }

    // Blocks of `group` from its start through the superblock copy. With 1 KiB blocks and no
    // first data block (bigalloc), the primary superblock is in block 1 and block 0 is the boot
    // sector: everything after it is one block further on than the formula says.
    fn blocks_to_super_end(&self, group: u32) -> u32 {
        if !self.has_super(GroupNr(group)) {
            return 0;
        }
        1 + u32::from(group == 0 && self.block_size.bytes() == 1024 && self.first_data_block == 0)
    }

    /// The descriptor block that describes `group`, and the byte of its descriptor in it.
    pub fn desc_place(&self, group: GroupNr) -> Option<(u32, usize)> {
        if group.0 >= self.groups {
            return None;
        }
        let per_block = self.descs_per_block();
        let offset = (group.0 % per_block) as usize * usize::from(self.desc_size);
        Some((group.0 / per_block, offset))
    }

    /// Where the primary copy of descriptor block `k` lies.
    pub fn desc_block(&self, k: u32) -> Option<BlockNr> {
        self.desc_block_in(k, if k < self.first_meta_bg { 0 } else { self.meta_group(k)? })
    }

    /// Where the copy of descriptor block `k` in `group` lies, or `None` if that group has none.
    pub fn desc_block_copy(&self, k: u32, group: GroupNr) -> Option<BlockNr> {
        let holds = if k < self.first_meta_bg {
            // A group whose own descriptor is in a spread block keeps no copies of the blocks that
            // are not spread.
            self.has_super(group) && group.0 / self.descs_per_block() < self.first_meta_bg
        } else {
            let (first, second, last) = self.meta_group_holders(k)?;
            [Some(first), second, last].contains(&Some(group.0))
        };
        if holds { self.desc_block_in(k, group.0) } else { None }
    }

    fn meta_group(&self, k: u32) -> Option<u32> {
        k.checked_mul(self.descs_per_block())
    }

    // The groups with copies of a spread descriptor block: the first, second and last of those it
    // describes. They are not all different where a block holds one or two descriptors.
    fn meta_group_holders(&self, k: u32) -> Option<(u32, Option<u32>, Option<u32>)> {
        let first = self.meta_group(k)?;
        let per_block = self.descs_per_block();
        let second = if per_block > 1 { first.checked_add(1) } else { None };
        let last = if per_block > 2 { first.checked_add(per_block - 1) } else { None };
        Some((first, second, last))
    }

    fn desc_block_in(&self, k: u32, group: u32) -> Option<BlockNr> {
        if k >= self.desc_blocks || group >= self.groups {
            return None;
        }
        let behind = self.blocks_to_super_end(group);
        let index = if k < self.first_meta_bg { k } else { 0 };
        let block = self.start(group).checked_add(u64::from(behind) + u64::from(index))?;
        (block.0 < self.blocks_count).then_some(block)
    }

    /// The backup copies of descriptor block `k`, by group.
    pub fn desc_block_backups(&self, k: u32) -> impl Iterator<Item = (GroupNr, BlockNr)> + use<> {
        let geometry = *self;
        let spread = k >= self.first_meta_bg;
        let (second, last) =
            self.meta_group_holders(k).map_or((None, None), |(_, second, last)| (second, last));
        let near = [second, last].into_iter().flatten().map(GroupNr).filter(move |_| spread);
        let far = self.super_groups().skip(1).filter(move |_| !spread);
        near.chain(far).filter_map(move |group| Some((group, geometry.desc_block_copy(k, group)?)))
    }

    /// Number of descriptor blocks in `group`, reserved ones not counted.
    pub fn desc_blocks_in(&self, group: GroupNr) -> u32 {
        let per_block = self.descs_per_block();
        let k = group.0 / per_block;
        if k < self.first_meta_bg {
            let holds = self.has_super(group);
            return if holds { self.first_meta_bg.min(self.desc_blocks) } else { 0 };
        }
        let in_meta = group.0 % per_block;
        u32::from(group.0 < self.groups && (in_meta <= 1 || in_meta == per_block - 1))
    }

    /// Reserved descriptor blocks in `group`.
    pub fn reserved_gdt_in(&self, group: GroupNr) -> u32 {
        if self.has_super(group) { self.reserved_gdt } else { 0 }
    }

    /// The block numbers that the resize inode stores for the copies of `block`, a reserved
    /// descriptor block of the first group: one in every other group that keeps copies, in order,
    /// at the same distance from the group's start. With bigalloc and 1 KiB blocks this is one
    /// block after the copy's real place; mke2fs, e2fsck and Linux do the same.
    pub fn reserved_copies(&self, block: BlockNr) -> impl Iterator<Item = BlockNr> + use<> {
        let per_group = u64::from(self.blocks_per_group);
        self.super_groups()
            .skip(1)
            .map(move |group| BlockNr(block.0 + u64::from(group.0) * per_group))
    }

    /// Blocks at the start of `group` that hold the superblock copy, the descriptors and the
    /// reserved descriptor blocks. The range lies inside the group.
    pub fn base_blocks(&self, group: GroupNr) -> Option<Range<u64>> {
        let blocks = self.blocks_of_group(group)?;
        let count = u64::from(self.blocks_to_super_end(group.0))
            + u64::from(self.desc_blocks_in(group))
            + u64::from(self.reserved_gdt_in(group));
        Some(blocks.start..blocks.end.min(blocks.start + count))
    }

    /// Where `ino` lies, or `None` if the volume has no such inode.
    pub fn inode_place(&self, ino: Ino) -> Option<InodePlace> {
        if ino.get() > self.inodes_count {
            return None;
        }
        let index = ino.get() - 1;
        let slot = index % self.inodes_per_group;
        let per_block = self.inodes_per_block();
        Some(InodePlace {
            group: GroupNr(index / self.inodes_per_group),
            slot,
            table_block: slot / per_block,
            offset: (slot % per_block) as usize * self.inode_size(),
        })
    }

    /// The inode of `slot` in `group`, or `None` if there is no such slot.
    pub fn ino_of_slot(&self, group: GroupNr, slot: u32) -> Option<Ino> {
        if group.0 >= self.groups || slot >= self.inodes_per_group {
            return None;
        }
        Ino::new(group.0 * self.inodes_per_group + slot + 1)
    }
}

fn is_power_of(base: u32, mut n: u32) -> bool {
    while n > 1 && n.is_multiple_of(base) {
        n /= base;
    }
    n == 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn sb(block_bytes: u32, groups: u32) -> Superblock {
        let mut sb = Superblock::new(BlockSize::from_bytes(block_bytes).unwrap());
        sb.blocks_per_group = 256;
        sb.clusters_per_group = 256;
        sb.blocks_count = u64::from(groups) * 256 + u64::from(sb.first_data_block) - 56;
        sb.inodes_per_group = 32;
        sb.inodes_count = groups * 32;
        sb.inode_size = 256;
        sb
    }

    fn supers(geometry: &Geometry) -> Vec<u32> {
        geometry.super_groups().map(|g| g.0).collect()
    }

    #[test]
    fn superblock_copies_are_in_the_groups_that_the_features_select() {
        let mut sb = sb(1024, 130);
        assert_eq!(supers(&Geometry::new(&sb).unwrap()).len(), 130);
        sb.features.ro_compat = RoCompat::SPARSE_SUPER;
        let geometry = Geometry::new(&sb).unwrap();
        assert_eq!(supers(&geometry), [0, 1, 3, 5, 7, 9, 25, 27, 49, 81, 125]);
        for group in geometry.groups() {
            assert_eq!(geometry.has_super(group), supers(&geometry).contains(&group.0), "{group}");
        }
        sb.features.compat = Compat::SPARSE_SUPER2;
        sb.backup_bgs = [129, 1];
        assert_eq!(supers(&Geometry::new(&sb).unwrap()), [0, 1, 129]);
        sb.backup_bgs = [0, 500];
        assert_eq!(supers(&Geometry::new(&sb).unwrap()), [0]);
    }

    #[test]
    fn descriptors_follow_the_superblock() {
        let mut sb = sb(1024, 130);
        sb.features.ro_compat = RoCompat::SPARSE_SUPER;
        sb.reserved_gdt_blocks = 7;
        let geometry = Geometry::new(&sb).unwrap();
        assert_eq!(geometry.desc_blocks(), 5); // 130 descriptors, 32 a block
        assert_eq!(geometry.desc_block(4), Some(BlockNr(1 + 1 + 4)));
        assert_eq!(geometry.desc_block(5), None);
        assert_eq!(geometry.base_blocks(GroupNr(0)), Some(1..1 + 13));
        assert_eq!(geometry.base_blocks(GroupNr(2)), Some(513..513));
        assert_eq!(geometry.desc_place(GroupNr(129)), Some((4, 32)));
        let backups: Vec<_> = geometry.desc_block_backups(1).take(2).collect();
        assert_eq!(backups, [(GroupNr(1), BlockNr(259)), (GroupNr(3), BlockNr(771))]);
    }

    #[test]
    fn meta_groups_keep_their_descriptors() {
        let mut sb = sb(1024, 130);
        sb.features.ro_compat = RoCompat::SPARSE_SUPER;
        sb.features.incompat = Incompat::META_BG;
        sb.first_meta_bg = 1;
        let geometry = Geometry::new(&sb).unwrap();
        assert_eq!(geometry.desc_block(0), Some(BlockNr(2)));
        // Group 32 has no superblock copy, so its descriptor block comes first.
        assert_eq!(geometry.desc_block(1), Some(BlockNr(1 + 32 * 256)));
        let backups: Vec<_> = geometry.desc_block_backups(1).collect();
        let (second, last) = (1 + 33 * 256, 1 + 63 * 256);
        assert_eq!(backups, [(GroupNr(33), BlockNr(second)), (GroupNr(63), BlockNr(last))]);
        // The last meta group has two groups only: one backup.
        assert_eq!(geometry.desc_block_backups(4).count(), 1);
        // Groups with superblock copies: one that block 0 describes, one that a spread block does.
        assert_eq!(geometry.desc_blocks_in(GroupNr(27)), 1);
        assert_eq!(geometry.desc_blocks_in(GroupNr(81)), 0);
        assert_eq!(geometry.desc_block_copy(0, GroupNr(81)), None);
        assert_eq!(geometry.desc_blocks_in(GroupNr(33)), 1);
        assert_eq!(geometry.desc_blocks_in(GroupNr(34)), 0);
    }

    #[test]
    fn with_1_kib_clusters_descriptors_start_at_block_2() {
        let mut sb = sb(1024, 2);
        sb.features.ro_compat = RoCompat::BIGALLOC;
        sb.features.incompat = Incompat::EXTENTS;
        sb.first_data_block = 0;
        sb.log_cluster_ratio = 4;
        sb.blocks_per_group = 256 * 16;
        sb.blocks_count = 256 * 16 + 17;
        let geometry = Geometry::new(&sb).unwrap();
        assert_eq!(geometry.desc_block(0), Some(BlockNr(2)));
        assert_eq!(geometry.base_blocks(GroupNr(0)), Some(0..3));
        assert_eq!(geometry.desc_block_copy(0, GroupNr(1)), Some(BlockNr(256 * 16 + 1)));
        assert_eq!(geometry.clusters_in_group(GroupNr(1)), Some(2));
        assert_eq!(geometry.bit_of_block(BlockNr(256 * 16 + 16)), Some((GroupNr(1), 1)));
        assert_eq!(geometry.block_of_bit(GroupNr(1), 1), Some(BlockNr(256 * 16 + 16)));
        assert_eq!(geometry.block_of_bit(GroupNr(1), 2), None);
        assert_eq!(geometry.bit_of_block(BlockNr(256 * 16 + 17)), None);
    }

    #[test]
    fn inodes_fill_their_tables_in_order() {
        let geometry = Geometry::new(&sb(1024, 3)).unwrap();
        let place = |n| geometry.inode_place(Ino::new(n).unwrap());
        assert_eq!(
            place(1).unwrap(),
            InodePlace { group: GroupNr(0), slot: 0, table_block: 0, offset: 0 }
        );
        assert_eq!(
            place(38).unwrap(),
            InodePlace { group: GroupNr(1), slot: 5, table_block: 1, offset: 256 }
        );
        assert_eq!(place(97), None);
        assert_eq!(geometry.ino_of_slot(GroupNr(1), 5), Ino::new(38));
        assert_eq!(geometry.ino_of_slot(GroupNr(1), 32), None);
        assert_eq!(geometry.itable_blocks(), 8);
    }

    #[test]
    fn the_last_group_ends_with_the_volume() {
        let geometry = Geometry::new(&sb(4096, 3)).unwrap();
        assert_eq!(geometry.groups_count(), 3);
        assert_eq!(geometry.blocks_in_group(GroupNr(2)), Some(200));
        assert_eq!(geometry.blocks_in_group(GroupNr(3)), None);
        assert_eq!(geometry.group_of_block(BlockNr(711)), Some(GroupNr(2)));
        assert_eq!(geometry.group_of_block(BlockNr(712)), None);
    }
}
