//! Group descriptors: the places of a group's bitmaps and inode table, and its free counts.
//!
//! ```text
//!   00       04       08        0C     0E     10    12     14        18      1A      1C     1E
//!   ┌────────┬────────┬────────┬──────┬──────┬─────┬──────┬─────────┬───────┬───────┬──────┬────┐
//!   │ block  │ inode  │ inode  │ free │ free │used │flags │(exclude)│ block │ inode │unused│csum│
//!   │ bitmap │ bitmap │ table  │blocks│inodes│dirs │      │         │ csum  │ csum  │ itab │    │
//!   └────────┴────────┴────────┴──────┴──────┴─────┴──────┴─────────┴───────┴───────┴──────┴────┘
//!   20 .. 3F: the high halves, in a descriptor of 64 bytes and more (feature 64bit)
//! ```
//!
//! Free blocks are counted in clusters. Source: ext4 documentation, "Block Group Descriptors".

use crate::checksum::{Checksums, crc16};
use crate::geometry::Geometry;
use core::mem::{offset_of, size_of};
use extant_base::narrow::{low_u16, low_u32};
use extant_base::{BlockNr, Error, GroupNr, Site, What};
use extant_crc32c::crc32c;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a descriptor without 64bit.
pub const DESC_SIZE_MIN: usize = 32;
/// The smallest descriptor, in bytes, that has the high halves.
pub const DESC_SIZE_64BIT: usize = 64;

/// The first 32 bytes of a descriptor; any bit pattern.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawGroupDescLow {
    /// Block bitmap, low half.
    pub bg_block_bitmap_lo: U32,
    /// Inode bitmap, low half.
    pub bg_inode_bitmap_lo: U32,
    /// First block of the inode table, low half.
    pub bg_inode_table_lo: U32,
    /// Free clusters, low half.
    pub bg_free_blocks_count_lo: U16,
    /// Free inodes, low half.
    pub bg_free_inodes_count_lo: U16,
    /// Directories, low half.
    pub bg_used_dirs_count_lo: U16,
    /// See `GroupFlags`.
    pub bg_flags: U16,
    /// Unused.
    pub bg_exclude_bitmap_lo: U32,
    /// Block bitmap checksum, low half.
    pub bg_block_bitmap_csum_lo: U16,
    /// Inode bitmap checksum, low half.
    pub bg_inode_bitmap_csum_lo: U16,
    /// Inodes at the table's end that were never used, low half.
    pub bg_itable_unused_lo: U16,
    /// Checksum of the descriptor.
    pub bg_checksum: U16,
}

/// Bytes 32 to 63 of a descriptor; any bit pattern.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawGroupDescHigh {
    /// Block bitmap, high half.
    pub bg_block_bitmap_hi: U32,
    /// Inode bitmap, high half.
    pub bg_inode_bitmap_hi: U32,
    /// First block of the inode table, high half.
    pub bg_inode_table_hi: U32,
    /// Free clusters, high half.
    pub bg_free_blocks_count_hi: U16,
    /// Free inodes, high half.
    pub bg_free_inodes_count_hi: U16,
    /// Directories, high half.
    pub bg_used_dirs_count_hi: U16,
    /// Inodes never used, high half.
    pub bg_itable_unused_hi: U16,
    /// Unused.
    pub bg_exclude_bitmap_hi: U32,
    /// Block bitmap checksum, high half.
    pub bg_block_bitmap_csum_hi: U16,
    /// Inode bitmap checksum, high half.
    pub bg_inode_bitmap_csum_hi: U16,
    /// Zero.
    pub bg_reserved: U32,
}

const _: () = assert!(
    size_of::<RawGroupDescLow>() == 32
        && size_of::<RawGroupDescHigh>() == 32
        && offset_of!(RawGroupDescLow, bg_flags) == 0x12
        && offset_of!(RawGroupDescLow, bg_checksum) == 0x1E
        && offset_of!(RawGroupDescHigh, bg_itable_unused_hi) == 0x12
        && offset_of!(RawGroupDescHigh, bg_inode_bitmap_csum_hi) == 0x1A
);

bitflags::bitflags! {
    /// `bg_flags`. INODE_UNINIT and BLOCK_UNINIT have no meaning on a volume without descriptor
    /// checksums.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct GroupFlags: u16 {
        /// The inode bitmap and table hold garbage: all inodes are free.
        const INODE_UNINIT = 1;
        /// The block bitmap holds garbage: only the group's own metadata is in use.
        const BLOCK_UNINIT = 2;
        /// The whole inode table has been written.
        const INODE_ZEROED = 4;
        const _ = !0;
    }
}

/// A decoded group descriptor: low and high halves are joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupDesc {
    /// Block that holds the block bitmap.
    pub block_bitmap: BlockNr,
    /// Block that holds the inode bitmap.
    pub inode_bitmap: BlockNr,
    /// First block of the inode table.
    pub inode_table: BlockNr,
    /// Free space, in clusters.
    pub free_clusters: u32,
    /// Free inodes.
    pub free_inodes: u32,
    /// Directories.
    pub used_dirs: u32,
    /// UNINIT and ZEROED. Read through [`GroupDesc::block_uninit`] and [`GroupDesc::inode_uninit`].
    pub flags: GroupFlags,
    /// Checksum of the block bitmap; only the low 16 bits where the descriptor has 32 bytes.
    pub block_bitmap_csum: u32,
    /// Checksum of the inode bitmap; only the low 16 bits where the descriptor has 32 bytes.
    pub inode_bitmap_csum: u32,
    /// Inodes at the table's end that were never used: their bytes on disk have no meaning.
    pub itable_unused: u32,
}

fn halves(bytes: &[u8]) -> Option<(&RawGroupDescLow, Option<&RawGroupDescHigh>)> {
    let (low, rest) = RawGroupDescLow::ref_from_prefix(bytes).ok()?;
    Some((low, RawGroupDescHigh::ref_from_prefix(rest).ok().map(|(high, _)| high)))
}

impl GroupDesc {
    /// Decodes a descriptor of `bytes.len()` bytes without a check of its fields. High halves are
    /// read if there are at least 64 bytes.
    ///
    /// # Panics
    /// If `bytes` is shorter than 32: a descriptor's size is checked with the superblock.
    pub fn parse(bytes: &[u8]) -> GroupDesc {
        let (low, high) = halves(bytes).expect("a descriptor has at least 32 bytes");
        let wide = |lo: U32, hi: Option<U32>| {
            BlockNr(u64::from(lo.get()) | u64::from(hi.map_or(0, U32::get)) << 32)
        };
        let count = |lo: U16, hi: Option<U16>| {
            u32::from(lo.get()) | u32::from(hi.map_or(0, U16::get)) << 16
        };
        GroupDesc {
            block_bitmap: wide(low.bg_block_bitmap_lo, high.map(|h| h.bg_block_bitmap_hi)),
            inode_bitmap: wide(low.bg_inode_bitmap_lo, high.map(|h| h.bg_inode_bitmap_hi)),
            inode_table: wide(low.bg_inode_table_lo, high.map(|h| h.bg_inode_table_hi)),
            free_clusters: count(
                low.bg_free_blocks_count_lo,
                high.map(|h| h.bg_free_blocks_count_hi),
            ),
            free_inodes: count(
                low.bg_free_inodes_count_lo,
                high.map(|h| h.bg_free_inodes_count_hi),
            ),
            used_dirs: count(low.bg_used_dirs_count_lo, high.map(|h| h.bg_used_dirs_count_hi)),
            flags: GroupFlags::from_bits_retain(low.bg_flags.get()),
            block_bitmap_csum: count(
                low.bg_block_bitmap_csum_lo,
                high.map(|h| h.bg_block_bitmap_csum_hi),
            ),
            inode_bitmap_csum: count(
                low.bg_inode_bitmap_csum_lo,
                high.map(|h| h.bg_inode_bitmap_csum_hi),
            ),
            itable_unused: count(low.bg_itable_unused_lo, high.map(|h| h.bg_itable_unused_hi)),
        }
    }

    /// Checks and decodes the descriptor of `group` in `bytes`, which have exactly the volume's
    /// descriptor size: the checksum is right, all places lie inside the volume, and no count is
    /// larger than the group.
    ///
    /// # Errors
    /// `DescriptorChecksum`, `DescriptorBlock`, `DescriptorCount`, naming group and offset.
    pub fn check(
        bytes: &[u8],
        group: GroupNr,
        geometry: &Geometry,
        checksums: &Checksums,
    ) -> Result<GroupDesc, Error> {
        let at = Site::of_group(group);
        if bytes.len() != geometry.desc_size() {
            return Err(at.corrupt(What::SuperblockDescSize));
        }
        if !checksum_is_right(bytes, group, checksums) {
            return Err(at.offset(0x1E).corrupt(What::DescriptorChecksum));
        }
        let desc = GroupDesc::parse(bytes);
        desc.check_fields(group, geometry, checksums)?;
        Ok(desc)
    }

    /// Checks that the places lie inside the volume and that no count is larger than `group`.
    ///
    /// # Errors
    /// `DescriptorBlock`, `DescriptorCount`.
    pub fn check_fields(
        &self,
        group: GroupNr,
        geometry: &Geometry,
        checksums: &Checksums,
    ) -> Result<(), Error> {
        let at = Site::of_group(group);
        let Some(clusters) = geometry.clusters_in_group(group) else {
            return Err(at.corrupt(What::DescriptorBlock));
        };
        let own = match geometry.blocks_of_group(group) {
            Some(blocks) if !geometry.metadata_roams() => blocks,
            _ => geometry.block_range(),
        };
        let itable = u64::from(geometry.itable_blocks());
        let runs = [
            (self.block_bitmap, 1, 0x00),
            (self.inode_bitmap, 1, 0x04),
            (self.inode_table, itable, 0x08),
        ];
        for (n, (start, len, offset)) in runs.into_iter().enumerate() {
            // Block 0 and the superblock copy at a group's start are never bitmaps or tables. A
            // checker of the whole volume finds the other overlaps.
            let overlaps = runs[..n].iter().any(|(other, other_len, _)| {
                start.0 < other.0.saturating_add(*other_len)
                    && other.0 < start.0.saturating_add(len)
            });
            let primary = geometry.base_blocks(GroupNr(0)).is_some_and(|base| start.0 < base.end);
            let inside =
                start.0 >= own.start && start.0.checked_add(len).is_some_and(|end| end <= own.end);
            if overlaps || primary || !inside {
                return Err(at.offset(offset).corrupt(What::DescriptorBlock));
            }
        }
        let ipg = geometry.inodes_per_group();
        let counts = [
            (self.free_clusters <= clusters, 0x0C),
            (self.free_inodes <= ipg, 0x0E),
            (self.used_dirs <= ipg, 0x10),
            (!checksums.groups_may_be_uninit() || self.itable_unused <= ipg, 0x1C),
        ];
        match counts.into_iter().find(|(good, _)| !good) {
            Some((_, offset)) => Err(at.offset(offset).corrupt(What::DescriptorCount)),
            None => Ok(()),
        }
    }

    /// Writes every field into the descriptor `bytes` and sets its checksum. Bytes that belong to
    /// no field of this type keep their values. High halves are written if there are at least 64
    /// bytes.
    ///
    /// # Panics
    /// If `bytes` is shorter than 32.
    pub fn write(&self, bytes: &mut [u8], group: GroupNr, checksums: &Checksums) {
        let (low, rest) =
            RawGroupDescLow::mut_from_prefix(bytes).expect("a descriptor has at least 32 bytes");
        let lo = |block: BlockNr| U32::new(low_u32(block.0));
        let hi = |block: BlockNr| U32::new((block.0 >> 32) as u32);
        let lo16 = |n: u32| U16::new(low_u16(n));
        let hi16 = |n: u32| U16::new((n >> 16) as u16);
        low.bg_block_bitmap_lo = lo(self.block_bitmap);
        low.bg_inode_bitmap_lo = lo(self.inode_bitmap);
        low.bg_inode_table_lo = lo(self.inode_table);
        low.bg_free_blocks_count_lo = lo16(self.free_clusters);
        low.bg_free_inodes_count_lo = lo16(self.free_inodes);
        low.bg_used_dirs_count_lo = lo16(self.used_dirs);
        low.bg_flags = self.flags.bits().into();
        low.bg_block_bitmap_csum_lo = lo16(self.block_bitmap_csum);
        low.bg_inode_bitmap_csum_lo = lo16(self.inode_bitmap_csum);
        low.bg_itable_unused_lo = lo16(self.itable_unused);
        if let Ok((high, _)) = RawGroupDescHigh::mut_from_prefix(rest) {
            high.bg_block_bitmap_hi = hi(self.block_bitmap);
            high.bg_inode_bitmap_hi = hi(self.inode_bitmap);
            high.bg_inode_table_hi = hi(self.inode_table);
            high.bg_free_blocks_count_hi = hi16(self.free_clusters);
            high.bg_free_inodes_count_hi = hi16(self.free_inodes);
            high.bg_used_dirs_count_hi = hi16(self.used_dirs);
            high.bg_itable_unused_hi = hi16(self.itable_unused);
            high.bg_block_bitmap_csum_hi = hi16(self.block_bitmap_csum);
            high.bg_inode_bitmap_csum_hi = hi16(self.inode_bitmap_csum);
        }
        set_checksum(bytes, group, checksums);
    }

    /// Whether the block bitmap on disk is invalid and must be computed.
    pub fn block_uninit(&self, checksums: &Checksums) -> bool {
        checksums.groups_may_be_uninit() && self.flags.contains(GroupFlags::BLOCK_UNINIT)
    }

    /// Whether the inode bitmap on disk is invalid and all inodes are free.
    pub fn inode_uninit(&self, checksums: &Checksums) -> bool {
        checksums.groups_may_be_uninit() && self.flags.contains(GroupFlags::INODE_UNINIT)
    }

    /// How many slots at the start of the inode table may hold inodes, at most `inodes_per_group`.
    /// The bytes of later slots have no meaning.
    pub fn used_slots(&self, geometry: &Geometry, checksums: &Checksums) -> u32 {
        let ipg = geometry.inodes_per_group();
        if !checksums.groups_may_be_uninit() {
            ipg
        } else if self.flags.contains(GroupFlags::INODE_UNINIT) {
            0
        } else {
            ipg.saturating_sub(self.itable_unused)
        }
    }
}

/// Whether two bitmap checksums agree as far as a descriptor of `desc_size` bytes can hold them:
/// 32 bits, or the low 16 where it has no high halves.
pub fn bitmap_csum_agrees(stored: u32, computed: u32, desc_size: usize) -> bool {
    (stored ^ computed) & if desc_size >= DESC_SIZE_64BIT { !0 } else { 0xFFFF } == 0
}

/// The checksum that a descriptor must carry, or `None` on a volume without descriptor checksums.
///
/// `bytes` is the whole descriptor. CRC16 leaves the stored checksum out; CRC32C takes it as zero.
pub fn compute_checksum(bytes: &[u8], group: GroupNr, checksums: &Checksums) -> Option<u16> {
    const FIELD: usize = offset_of!(RawGroupDescLow, bg_checksum);
    let number = group.0.to_le_bytes();
    let (before, rest) = bytes.split_at_checked(FIELD)?;
    let after = rest.get(2..)?;
    match checksums {
        Checksums::None => None,
        Checksums::GdtCsum { uuid } => {
            let crc = crc16(crc16(crc16(!0, uuid), &number), before);
            Some(crc16(crc, after))
        }
        Checksums::MetadataCsum { seed } => {
            let crc = crc32c(crc32c(crc32c(*seed, &number), before), &[0, 0]);
            Some(low_u16(crc32c(crc, after)))
        }
    }
}

/// Whether the stored checksum is right; always true on a volume without descriptor checksums.
pub fn checksum_is_right(bytes: &[u8], group: GroupNr, checksums: &Checksums) -> bool {
    match (compute_checksum(bytes, group, checksums), halves(bytes)) {
        (Some(computed), Some((low, _))) => low.bg_checksum.get() == computed,
        _ => true,
    }
}

/// Stores the right checksum; zero on a volume without descriptor checksums.
pub fn set_checksum(bytes: &mut [u8], group: GroupNr, checksums: &Checksums) {
    let computed = compute_checksum(bytes, group, checksums).unwrap_or(0);
    if let Ok((low, _)) = RawGroupDescLow::mut_from_prefix(bytes) {
        low.bg_checksum = computed.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: Checksums = Checksums::MetadataCsum { seed: 0x1234_5678 };

    fn desc() -> GroupDesc {
        GroupDesc {
            block_bitmap: BlockNr(0x1_0000_0002),
            inode_bitmap: BlockNr(0x2_0000_0003),
            inode_table: BlockNr(0x3_0000_0004),
            free_clusters: 0x1_0005,
            free_inodes: 0x2_0006,
            used_dirs: 0x3_0007,
            flags: GroupFlags::from_bits_retain(0x8005),
            block_bitmap_csum: 0xAABB_CCDD,
            inode_bitmap_csum: 0x1122_3344,
            itable_unused: 0x4_0008,
        }
    }

    #[test]
    fn a_written_descriptor_reads_back_the_same() {
        for kind in [Checksums::None, Checksums::GdtCsum { uuid: [9; 16] }, SEED] {
            for size in [64, 128, 1024] {
                let mut bytes = alloc::vec![0x55; size];
                desc().write(&mut bytes, GroupNr(3), &kind);
                assert_eq!(GroupDesc::parse(&bytes), desc());
                assert!(checksum_is_right(&bytes, GroupNr(3), &kind));
                assert_eq!(kind == Checksums::None, checksum_is_right(&bytes, GroupNr(4), &kind));
                assert_eq!(bytes[0x14], 0x55, "the exclude bitmap keeps its bytes");
            }
        }
    }

    #[test]
    fn a_short_descriptor_holds_the_low_halves_only() {
        let mut bytes = [0; 32];
        desc().write(&mut bytes, GroupNr(0), &SEED);
        let short = GroupDesc::parse(&bytes);
        assert_eq!(short.block_bitmap, BlockNr(2));
        assert_eq!(short.free_clusters, 5);
        assert_eq!(short.block_bitmap_csum, 0xCCDD);
        assert!(bitmap_csum_agrees(short.block_bitmap_csum, 0xAABB_CCDD, 32));
        assert!(!bitmap_csum_agrees(short.block_bitmap_csum, 0xAABB_CCDD, 64));
    }

    #[test]
    fn every_flipped_bit_breaks_the_checksum() {
        for kind in [Checksums::GdtCsum { uuid: [9; 16] }, SEED] {
            let mut bytes = [0; 64];
            desc().write(&mut bytes, GroupNr(7), &kind);
            for bit in 0..512 {
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert!(!checksum_is_right(&bytes, GroupNr(7), &kind), "bit {bit}");
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }
}
