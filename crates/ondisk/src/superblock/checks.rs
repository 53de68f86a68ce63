//! The checks of a superblock that must pass before the volume is used.
//!
//! ```text
//!   magic ─► checksum ─► known features ─► sizes ─► groups fit together ─► device is large enough
//!   └──────────────────── check ─────────────────────────────────────┘    └── check_device ────┘
//! ```

use super::{RawSuperblock, Superblock};
use crate::features::{Incompat, RoCompat};
use extant_base::narrow::len_u32;
use extant_base::{Error, Feature, FeatureSet, Site, What};

impl RawSuperblock {
    /// Decodes and checks a superblock: the checksum is right, every incompatible feature is known,
    /// all fields are in range and agree with each other.
    ///
    /// # Errors
    /// `Corrupt` with one of the superblock's `What`s and the field's offset; `Unsupported` naming
    /// the first unknown incompatible feature.
    pub fn check(&self, at: Site) -> Result<Superblock, Error> {
        let superblock = self.parse(at)?;
        if superblock.features.ro_compat.contains(RoCompat::METADATA_CSUM) {
            if self.s_checksum_type != 1 {
                return Err(Error::Unsupported {
                    feature: Feature {
                        set: FeatureSet::Option,
                        bits: u32::from(self.s_checksum_type),
                        name: "checksum type",
                    },
                });
            }
            if !self.checksum_is_right() {
                return Err(at.offset(0x3FC).corrupt(What::SuperblockChecksum));
            }
        }
        if let Some(feature) = superblock.features.unreadable() {
            return Err(Error::Unsupported { feature });
        }
        superblock.check_fields(at)?;
        Ok(superblock)
    }
}

impl Superblock {
    /// Groups of the volume: `ceil((blocks_count - first_data_block) / blocks_per_group)`, or
    /// `None` if the fields are out of range.
    pub fn groups_count(&self) -> Option<u32> {
        let blocks = self.blocks_count.checked_sub(u64::from(self.first_data_block))?;
        if blocks == 0 || self.blocks_per_group == 0 {
            return None;
        }
        u32::try_from(blocks.div_ceil(u64::from(self.blocks_per_group))).ok()
    }

    /// Checks that all fields are in range and agree with each other, also for a new volume.
    ///
    /// # Errors
    /// `Corrupt` naming the field's offset in the superblock.
    pub fn check_fields(&self, at: Site) -> Result<(), Error> {
        let need = |good: bool, offset: usize, what: What| {
            if good { Ok(()) } else { Err(at.offset(offset).corrupt(what)) }
        };
        let block_bytes = len_u32(self.block_size.bytes());
        let bits_per_block = block_bytes * 8;
        let bigalloc = self.features.ro_compat.contains(RoCompat::BIGALLOC);
        let is_64bit = self.features.incompat.contains(Incompat::IS_64BIT);

        need(
            self.block_size.log2() + self.log_cluster_ratio <= 28
                && (bigalloc || self.log_cluster_ratio == 0),
            0x1C,
            What::SuperblockClusterSize,
        )?;
        let inode_size = u32::from(self.inode_size);
        need(
            inode_size.is_power_of_two() && (128..=block_bytes).contains(&inode_size),
            0x58,
            What::SuperblockInodeSize,
        )?;
        let desc_size_is_right = if is_64bit {
            self.desc_size.is_power_of_two() && (64..=1024).contains(&self.desc_size)
        } else {
            self.desc_size == 32
        };
        need(desc_size_is_right, 0xFE, What::SuperblockDescSize)?;

        let inodes_per_block = block_bytes / inode_size;
        need(
            (inodes_per_block..=bits_per_block).contains(&self.inodes_per_group),
            0x28,
            What::SuperblockGroups,
        )?;
        need(
            (8..=bits_per_block).contains(&self.clusters_per_group)
                && self.clusters_per_group.is_multiple_of(8),
            0x24,
            What::SuperblockGroups,
        )?;
        need(
            self.clusters_per_group.checked_mul(self.cluster_ratio())
                == Some(self.blocks_per_group),
            0x20,
            What::SuperblockGroups,
        )?;
        // With clusters the first block is 0 even at 1 KiB: a cluster must start at its multiple.
        let first = u32::from(block_bytes == 1024 && !bigalloc);
        need(self.first_data_block == first, 0x14, What::SuperblockGroups)?;
        let groups =
            self.groups_count().ok_or_else(|| at.offset(0x04).corrupt(What::SuperblockGroups))?;
        need(
            groups.checked_mul(self.inodes_per_group) == Some(self.inodes_count),
            0x00,
            What::SuperblockGroups,
        )?;
        // Extents hold 48 bits of a block number.
        need(self.blocks_count <= 1 << 48, 0x150, What::SuperblockGroups)?;

        let desc_blocks = groups.div_ceil(block_bytes / u32::from(self.desc_size));
        if self.features.incompat.contains(Incompat::META_BG) {
            need(self.first_meta_bg <= desc_blocks, 0x104, What::SuperblockField)?;
        }
        need(u32::from(self.reserved_gdt_blocks) <= block_bytes / 4, 0xCE, What::SuperblockField)?;
        let room = inode_size - 128;
        need(u32::from(self.min_extra_isize) <= room, 0x15C, What::SuperblockField)?;
        need(u32::from(self.want_extra_isize) <= room, 0x15E, What::SuperblockField)?;
        need(
            self.first_ino >= 11 && self.first_ino <= self.inodes_count,
            0x54,
            What::SuperblockField,
        )?;
        need(self.def_hash_version <= 5, 0xFC, What::SuperblockField)?;
        need(
            !bigalloc || self.features.incompat.contains(Incompat::EXTENTS),
            0x64,
            What::SuperblockField,
        )?;
        let sums_stand = self.features.ro_compat.contains(RoCompat::METADATA_CSUM)
            && self.features.incompat.contains(Incompat::EXTENTS)
            && !bigalloc;
        let has_sums = self.features.ro_compat.contains(RoCompat::DATA_CSUM);
        need(!has_sums || sums_stand, 0x64, What::SuperblockFeatures)
    }

    /// Checks that a device of `device_bytes` bytes holds the whole volume.
    ///
    /// # Errors
    /// `SuperblockBeyondDevice`.
    pub fn check_device(&self, device_bytes: u64, at: Site) -> Result<(), Error> {
        let device_blocks = device_bytes >> self.block_size.log2();
        if self.blocks_count <= device_blocks {
            Ok(())
        } else {
            Err(at.offset(0x04).corrupt(What::SuperblockBeyondDevice))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::SUPERBLOCK_SIZE;
    use super::*;
    use extant_base::BlockSize;

    /// 64 MiB, 4 KiB blocks, one group.
    fn small() -> Superblock {
        let mut sb = Superblock::new(BlockSize::from_bytes(4096).unwrap());
        sb.blocks_count = 16384;
        sb.blocks_per_group = 32768;
        sb.clusters_per_group = 32768;
        sb.inodes_per_group = 8192;
        sb.inodes_count = 8192;
        sb.inode_size = 256;
        sb.min_extra_isize = 32;
        sb.want_extra_isize = 32;
        sb.features.incompat = Incompat::EXTENTS | Incompat::FILETYPE;
        sb.features.ro_compat = RoCompat::METADATA_CSUM;
        sb
    }

    #[test]
    fn a_written_superblock_reads_back_the_same() {
        let sb = small();
        assert_eq!(sb.to_raw().check(Site::NOWHERE).unwrap(), sb);
    }

    #[test]
    fn an_update_keeps_bytes_that_have_no_meaning_here() {
        let mut raw = small().to_raw();
        raw.s_reserved[92] = 0xDEAD_BEEF.into();
        raw.s_algorithm_usage_bitmap = 77.into();
        raw.s_feature_compat = 0x8000_0000.into();
        raw.set_checksum();
        let before = raw.clone();
        let mut sb = raw.check(Site::NOWHERE).unwrap();
        sb.free_inodes += 1;
        sb.update_raw(&mut raw);
        sb.free_inodes -= 1;
        sb.update_raw(&mut raw);
        use zerocopy::IntoBytes;
        assert_eq!(raw.as_bytes(), before.as_bytes());
        assert_eq!(raw.as_bytes().len(), SUPERBLOCK_SIZE);
    }

    #[test]
    fn each_rule_has_its_finding() {
        type Spoil = fn(&mut Superblock);
        let table: [(Spoil, What); 16] = [
            (|sb| sb.inode_size = 8192, What::SuperblockInodeSize),
            (|sb| sb.inode_size = 192, What::SuperblockInodeSize),
            (|sb| sb.desc_size = 64, What::SuperblockDescSize),
            (|sb| sb.inodes_per_group = 15, What::SuperblockGroups),
            (|sb| sb.inodes_per_group = 32769, What::SuperblockGroups),
            (|sb| sb.clusters_per_group = 0, What::SuperblockGroups),
            (|sb| sb.clusters_per_group = 32776, What::SuperblockGroups),
            (|sb| sb.blocks_per_group = 32760, What::SuperblockGroups),
            (|sb| sb.first_data_block = 1, What::SuperblockGroups),
            (|sb| sb.blocks_count = 0, What::SuperblockGroups),
            (|sb| sb.inodes_count = 8191, What::SuperblockGroups),
            (|sb| sb.log_cluster_ratio = 1, What::SuperblockClusterSize),
            (|sb| sb.reserved_gdt_blocks = 1025, What::SuperblockField),
            (|sb| sb.want_extra_isize = 129, What::SuperblockField),
            (|sb| sb.first_ino = 10, What::SuperblockField),
            (|sb| sb.def_hash_version = 6, What::SuperblockField),
        ];
        for (n, (spoil, expected)) in table.into_iter().enumerate() {
            let mut sb = small();
            spoil(&mut sb);
            match sb.check_fields(Site::NOWHERE) {
                Err(Error::Corrupt { what, .. }) => assert_eq!(what, expected, "row {n}"),
                other => panic!("row {n}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_flipped_bit_breaks_the_checksum() {
        let mut raw = small().to_raw();
        raw.s_mount_opts[3] ^= 1;
        let error = raw.check(Site::NOWHERE).unwrap_err();
        assert!(matches!(error, Error::Corrupt { what: What::SuperblockChecksum, .. }));
        assert!(raw.parse(Site::NOWHERE).is_ok(), "parse ignores the checksum");
    }

    #[test]
    fn a_volume_longer_than_its_device_is_refused() {
        let sb = small();
        assert!(sb.check_device(16384 * 4096, Site::NOWHERE).is_ok());
        assert!(sb.check_device(16384 * 4096 - 1, Site::NOWHERE).is_err());
        assert_eq!(sb.block_size, BlockSize::from_bytes(4096).unwrap());
    }

    #[test]
    fn an_unknown_incompatible_feature_is_named_before_anything_else_is_doubted() {
        let mut sb = small();
        sb.features.incompat.insert(Incompat::COMPRESSION);
        sb.inodes_count = 1;
        let error = sb.to_raw().check(Site::NOWHERE).unwrap_err();
        assert!(
            matches!(error, Error::Unsupported { feature } if feature.name == "compression"),
            "{error:?}"
        );
    }
}
