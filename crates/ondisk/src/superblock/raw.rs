//! The superblock's 1024 bytes as they lie on disk.
//!
//! ```text
//!   byte 1024 of the device, for any block size; in a backup: byte 0 of its block
//!   000      038    058          068   078   0E0      150    194      200    270        3FC  400
//!   ┌────────┬──────┬────────────┬─────┬─────┬────────┬──────┬────────┬──────┬──────────┬────┐
//!   │ counts │ EF53 │ sizes,     │uuid │label│journal │ high │ errors │ mount│ seed,    │csum│
//!   │        │ state│ features   │     │     │        │halves│        │ opts │ high 8   │    │
//!   └────────┴──────┴────────────┴─────┴─────┴────────┴──────┴────────┴──────┴──────────┴────┘
//! ```
//!
//! All little-endian. Source: ext4 documentation, "The Super Block".

use core::mem::{offset_of, size_of};
use extant_crc32c::{crc32c, flip_delta};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a superblock, and its place on the device.
pub const SUPERBLOCK_SIZE: usize = 1024;
/// Where the primary superblock starts, in bytes from the device's start.
pub const SUPERBLOCK_OFFSET: u64 = 1024;
/// `s_magic`.
pub const SUPERBLOCK_MAGIC: u16 = 0xEF53;

/// The superblock as it lies on disk; any bit pattern.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawSuperblock {
    /// 000: Inodes in all groups.
    pub s_inodes_count: U32,
    /// 004: Blocks of the volume, low half.
    pub s_blocks_count_lo: U32,
    /// 008: Blocks reserved for root, low half.
    pub s_r_blocks_count_lo: U32,
    /// 00C: Free blocks (not clusters), low half.
    pub s_free_blocks_count_lo: U32,
    /// 010: Free inodes.
    pub s_free_inodes_count: U32,
    /// 014: 1 with 1 KiB blocks and no bigalloc, else 0.
    pub s_first_data_block: U32,
    /// 018: Block size is 1024 << this.
    pub s_log_block_size: U32,
    /// 01C: Cluster size is 1024 << this.
    pub s_log_cluster_size: U32,
    /// 020: Blocks in each group but the last.
    pub s_blocks_per_group: U32,
    /// 024: Clusters in each group but the last.
    pub s_clusters_per_group: U32,
    /// 028: Inodes in each group.
    pub s_inodes_per_group: U32,
    /// 02C: Last mount, seconds, low 32 bits.
    pub s_mtime: U32,
    /// 030: Last write, seconds, low 32 bits.
    pub s_wtime: U32,
    /// 034: Mounts since the last check.
    pub s_mnt_count: U16,
    /// 036: Mounts between checks; signed, not above zero: never.
    pub s_max_mnt_count: U16,
    /// 038: EF53.
    pub s_magic: U16,
    /// 03A: See `VolumeState`.
    pub s_state: U16,
    /// 03C: What to do on an error: 1 continue, 2 read-only, 3 panic.
    pub s_errors: U16,
    /// 03E: Unused.
    pub s_minor_rev_level: U16,
    /// 040: Last check, seconds, low 32 bits.
    pub s_lastcheck: U32,
    /// 044: Seconds between checks; 0: never.
    pub s_checkinterval: U32,
    /// 048: 0 Linux, 1 Hurd, 2 Masix, 3 FreeBSD, 4 Lites.
    pub s_creator_os: U32,
    /// 04C: 0 fixed sizes, 1 dynamic.
    pub s_rev_level: U32,
    /// 050: User who may use reserved blocks, low half.
    pub s_def_resuid: U16,
    /// 052: Group that may use reserved blocks, low half.
    pub s_def_resgid: U16,
    /// 054: First inode that is not reserved.
    pub s_first_ino: U32,
    /// 058: Bytes of an inode.
    pub s_inode_size: U16,
    /// 05A: Group that holds this copy.
    pub s_block_group_nr: U16,
    /// 05C: Compatible features.
    pub s_feature_compat: U32,
    /// 060: Incompatible features.
    pub s_feature_incompat: U32,
    /// 064: Read-only compatible features.
    pub s_feature_ro_compat: U32,
    /// 068: UUID.
    pub s_uuid: [u8; 16],
    /// 078: Label, NUL-padded.
    pub s_volume_name: [u8; 16],
    /// 088: Where it was last mounted, NUL-padded.
    pub s_last_mounted: [u8; 64],
    /// 0C8: Historic.
    pub s_algorithm_usage_bitmap: U32,
    /// 0CC: Historic.
    pub s_prealloc_blocks: u8,
    /// 0CD: Historic.
    pub s_prealloc_dir_blocks: u8,
    /// 0CE: Descriptor blocks reserved for growth.
    pub s_reserved_gdt_blocks: U16,
    /// 0D0: UUID of an external journal.
    pub s_journal_uuid: [u8; 16],
    /// 0E0: Inode of the journal.
    pub s_journal_inum: U32,
    /// 0E4: Device number of an external journal.
    pub s_journal_dev: U32,
    /// 0E8: Head of the orphan list.
    pub s_last_orphan: U32,
    /// 0EC: Seed of directory hashes.
    pub s_hash_seed: [U32; 4],
    /// 0FC: Directory hash of new directories.
    pub s_def_hash_version: u8,
    /// 0FD: 1: `s_jnl_blocks` is valid.
    pub s_jnl_backup_type: u8,
    /// 0FE: Bytes of a descriptor, with 64bit only.
    pub s_desc_size: U16,
    /// 100: Default mount options.
    pub s_default_mount_opts: U32,
    /// 104: First descriptor block that is spread.
    pub s_first_meta_bg: U32,
    /// 108: Creation, seconds, low 32 bits.
    pub s_mkfs_time: U32,
    /// 10C: Copy of the journal inode's `i_block`, then size, high half first.
    pub s_jnl_blocks: [U32; 17],
    /// 150: Blocks of the volume, high half.
    pub s_blocks_count_hi: U32,
    /// 154: Reserved blocks, high half.
    pub s_r_blocks_count_hi: U32,
    /// 158: Free blocks, high half.
    pub s_free_blocks_count_hi: U32,
    /// 15C: Every inode has at least this beyond 128 bytes.
    pub s_min_extra_isize: U16,
    /// 15E: New inodes get this beyond 128 bytes.
    pub s_want_extra_isize: U16,
    /// 160: See `SuperFlags`.
    pub s_flags: U32,
    /// 164: RAID stride, blocks.
    pub s_raid_stride: U16,
    /// 166: Seconds between updates of the multi-mount block.
    pub s_mmp_update_interval: U16,
    /// 168: Multi-mount block.
    pub s_mmp_block: U64,
    /// 170: RAID stripe width, blocks.
    pub s_raid_stripe_width: U32,
    /// 174: A flex group is 1 << this groups.
    pub s_log_groups_per_flex: u8,
    /// 175: 1: CRC32C.
    pub s_checksum_type: u8,
    /// 176: 0.
    pub s_encryption_level: u8,
    /// 177: Padding.
    pub s_reserved_pad: u8,
    /// 178: KiB written since the volume was created.
    pub s_kbytes_written: U64,
    /// 180: Unused.
    pub s_snapshot_inum: U32,
    /// 184: Unused.
    pub s_snapshot_id: U32,
    /// 188: Unused.
    pub s_snapshot_r_blocks_count: U64,
    /// 190: Unused.
    pub s_snapshot_list: U32,
    /// 194: Errors seen.
    pub s_error_count: U32,
    /// 198: First error, seconds, low 32 bits.
    pub s_first_error_time: U32,
    /// 19C: First error: inode.
    pub s_first_error_ino: U32,
    /// 1A0: First error: block.
    pub s_first_error_block: U64,
    /// 1A8: First error: function.
    pub s_first_error_func: [u8; 32],
    /// 1C8: First error: line.
    pub s_first_error_line: U32,
    /// 1CC: Last error, seconds, low 32 bits.
    pub s_last_error_time: U32,
    /// 1D0: Last error: inode.
    pub s_last_error_ino: U32,
    /// 1D4: Last error: line.
    pub s_last_error_line: U32,
    /// 1D8: Last error: block.
    pub s_last_error_block: U64,
    /// 1E0: Last error: function.
    pub s_last_error_func: [u8; 32],
    /// 200: Mount options as text, NUL-padded.
    pub s_mount_opts: [u8; 64],
    /// 240: User quota inode.
    pub s_usr_quota_inum: U32,
    /// 244: Group quota inode.
    pub s_grp_quota_inum: U32,
    /// 248: Clusters of metadata.
    pub s_overhead_clusters: U32,
    /// 24C: Groups with backups (sparse_super2).
    pub s_backup_bgs: [U32; 2],
    /// 254: Encryption algorithms.
    pub s_encrypt_algos: [u8; 4],
    /// 258: Encryption salt.
    pub s_encrypt_pw_salt: [u8; 16],
    /// 268: lost+found.
    pub s_lpf_ino: U32,
    /// 26C: Project quota inode.
    pub s_prj_quota_inum: U32,
    /// 270: Seed of all checksums, with metadata_csum_seed.
    pub s_checksum_seed: U32,
    /// 274: Bits 32..39.
    pub s_wtime_hi: u8,
    /// 275: Bits 32..39.
    pub s_mtime_hi: u8,
    /// 276: Bits 32..39.
    pub s_mkfs_time_hi: u8,
    /// 277: Bits 32..39.
    pub s_lastcheck_hi: u8,
    /// 278: Bits 32..39.
    pub s_first_error_time_hi: u8,
    /// 279: Bits 32..39.
    pub s_last_error_time_hi: u8,
    /// 27A: First error: code.
    pub s_first_error_errcode: u8,
    /// 27B: Last error: code.
    pub s_last_error_errcode: u8,
    /// 27C: Encoding of names: 1 UTF-8 12.1.
    pub s_encoding: U16,
    /// 27E: 1: strict.
    pub s_encoding_flags: U16,
    /// 280: Inode of the orphan file.
    pub s_orphan_file_inum: U32,
    /// 284: User who may use reserved blocks, high half.
    pub s_def_resuid_hi: U16,
    /// 286: Group that may use reserved blocks, high half.
    pub s_def_resgid_hi: U16,
    /// 288: Zero.
    pub s_reserved: [U32; 93],
    /// 3FC: CRC32C of all bytes before.
    pub s_checksum: U32,
}

const _: () = assert!(
    size_of::<RawSuperblock>() == SUPERBLOCK_SIZE
        && offset_of!(RawSuperblock, s_magic) == 0x38
        && offset_of!(RawSuperblock, s_uuid) == 0x68
        && offset_of!(RawSuperblock, s_hash_seed) == 0xEC
        && offset_of!(RawSuperblock, s_blocks_count_hi) == 0x150
        && offset_of!(RawSuperblock, s_error_count) == 0x194
        && offset_of!(RawSuperblock, s_mount_opts) == 0x200
        && offset_of!(RawSuperblock, s_checksum_seed) == 0x270
        && offset_of!(RawSuperblock, s_checksum) == 0x3FC
);

impl Default for RawSuperblock {
    fn default() -> Self {
        RawSuperblock::new_zeroed()
    }
}

impl RawSuperblock {
    /// The superblock in the first 1024 of `bytes`, or `None` if there are fewer.
    pub fn from_prefix(bytes: &[u8]) -> Option<&RawSuperblock> {
        RawSuperblock::ref_from_prefix(bytes).ok().map(|(raw, _)| raw)
    }

    /// The superblock in the first 1024 of `bytes`, to change, or `None` if there are fewer.
    pub fn from_prefix_mut(bytes: &mut [u8]) -> Option<&mut RawSuperblock> {
        RawSuperblock::mut_from_prefix(bytes).ok().map(|(raw, _)| raw)
    }

    /// The bytes as they are on the device.
    pub fn to_bytes(&self) -> [u8; SUPERBLOCK_SIZE] {
        zerocopy::transmute!(self.clone())
    }

    /// CRC32C of all bytes before the checksum. Its seed is ~0, not the filesystem seed: a reader
    /// checks the superblock before it knows that seed.
    pub fn compute_checksum(&self) -> u32 {
        crc32c(!0, &self.as_bytes()[..offset_of!(RawSuperblock, s_checksum)])
    }

    /// Whether the stored checksum is right. Has no meaning without `metadata_csum`.
    pub fn checksum_is_right(&self) -> bool {
        self.s_checksum.get() == self.compute_checksum()
    }

    /// Makes the stored checksum match the bytes, without a change of the checksum itself: sets
    /// four of the unused bytes after the name of the last error's function. Those bytes are in the
    /// first sector and the checksum is in the second, so a writer can change the first sector
    /// alone.
    ///
    /// Returns `false` and changes nothing if the name leaves fewer than five bytes. Has no meaning
    /// without `metadata_csum`.
    pub fn fit_checksum(&mut self) -> bool {
        let func = &mut self.s_last_error_func;
        let end = func.iter().position(|byte| *byte == 0).unwrap_or(func.len());
        let Some(free) = func.get_mut(end..).filter(|free| free.len() > size_of::<u32>()) else {
            return false;
        };
        free.fill(0);
        // How each bit of the word changes the checksum. The 32 differences are linearly
        // independent, so some combination of them gives any difference of 32 bits.
        let covered = 8 * offset_of!(RawSuperblock, s_checksum) as u64;
        let at = 8 * (offset_of!(RawSuperblock, s_last_error_func) + end + 1) as u64;
        let mut by_top = [(0, 0); 32];
        for bit in 0..32 {
            let (mut delta, mut word) = (flip_delta(covered, at + bit, 1), 1u32 << bit);
            while delta != 0 {
                let slot = &mut by_top[delta.ilog2() as usize];
                if slot.0 == 0 {
                    *slot = (delta, word);
                    break;
                }
                (delta, word) = (delta ^ slot.0, word ^ slot.1);
            }
        }
        let (mut wrong, mut fitting) = (self.s_checksum.get() ^ self.compute_checksum(), 0);
        while wrong != 0 {
            let (delta, word) = by_top[wrong.ilog2() as usize];
            (wrong, fitting) = (wrong ^ delta, fitting ^ word);
        }
        self.s_last_error_func[end + 1..][..4].copy_from_slice(&fitting.to_le_bytes());
        true
    }

    /// Stores the right checksum. The caller calls this after all other changes, and only with
    /// `metadata_csum`.
    pub fn set_checksum(&mut self) {
        self.s_checksum = self.compute_checksum().into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sector_can_change_under_the_old_checksum() {
        let mut old = RawSuperblock::default();
        for (n, byte) in old.as_mut_bytes().iter_mut().enumerate() {
            *byte = (n * 7) as u8;
        }
        old.s_last_error_func.fill(b'x');
        old.set_checksum();
        assert!(!old.clone().fit_checksum(), "no NUL");
        for len in 0..32 {
            let mut new = old.clone();
            new.s_error_count = 77.into();
            new.s_last_error_func[len] = 0;
            assert_eq!(new.fit_checksum(), len < 28, "{len}");
            if len < 28 {
                assert!(new.checksum_is_right() && new.s_checksum == old.s_checksum, "{len}");
                assert!(new.s_last_error_func[..len].iter().all(|byte| *byte == b'x'));
                assert_eq!(new.s_last_error_func[len], 0);
                assert_eq!(new.as_bytes()[512..], old.as_bytes()[512..]);
            }
        }
    }
}
