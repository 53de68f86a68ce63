//! The superblock: the parameters and the state of the whole volume.
//!
//! ```text
//!   RawSuperblock ──parse──► Superblock     magic and block size only: for damaged volumes
//!   RawSuperblock ──check──► Superblock     checksum, known features, all fields fit together
//!   RawSuperblock ◄─update_raw─ Superblock  known fields and checksum; other bytes stay
//! ```

mod checks;
mod raw;
mod state;

pub use raw::{RawSuperblock, SUPERBLOCK_MAGIC, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
pub use state::{DefaultMountOpts, ErrorPolicy, ErrorRecord, SuperFlags, VolumeState};

use crate::checksum::{Checksums, filesystem_seed};
use crate::features::{Compat, Features, Incompat, RoCompat};
use extant_base::narrow::{high_u32, low_u8, low_u16, low_u32};
use extant_base::{BlockNr, BlockSize, Error, GroupNr, Site, What};

/// The decoded superblock. Low and high halves of counts are joined; times are seconds since 1970
/// (40 bits are stored).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Inodes in all groups.
    pub inodes_count: u32,
    /// Blocks of the volume, from block 0.
    pub blocks_count: u64,
    /// Blocks kept for root.
    pub reserved_blocks: u64,
    /// Free blocks, also with bigalloc. A hint: the group descriptors decide.
    pub free_blocks: u64,
    /// Free inodes. A hint: the group descriptors decide.
    pub free_inodes: u32,
    /// First block of group 0: 1 with 1 KiB blocks and no bigalloc, else 0.
    pub first_data_block: u32,
    /// Size of a block.
    pub block_size: BlockSize,
    /// A cluster is `1 << log_cluster_ratio` blocks; 0 without bigalloc.
    pub log_cluster_ratio: u32,
    /// Blocks in each group but the last.
    pub blocks_per_group: u32,
    /// Clusters in each group but the last.
    pub clusters_per_group: u32,
    /// Inodes in each group.
    pub inodes_per_group: u32,
    /// Last mount.
    pub mtime: u64,
    /// Last write of the superblock.
    pub wtime: u64,
    /// Creation.
    pub mkfs_time: u64,
    /// Last check.
    pub lastcheck: u64,
    /// Seconds between checks; 0 is never.
    pub checkinterval: u32,
    /// Mounts since the last check.
    pub mnt_count: u16,
    /// Mounts between checks; not above 0 is never.
    pub max_mnt_count: i16,
    /// Clean, with errors, with orphans.
    pub state: VolumeState,
    /// What to do on an error, as stored.
    pub errors: ErrorPolicy,
    /// 0 Linux, 1 Hurd, 2 Masix, 3 FreeBSD, 4 Lites.
    pub creator_os: u32,
    /// 0: 128-byte inodes, first inode 11. 1: as the fields say.
    pub rev_level: u32,
    /// User who may use reserved blocks.
    pub def_resuid: u32,
    /// Group that may use reserved blocks.
    pub def_resgid: u32,
    /// First inode that is not reserved.
    pub first_ino: u32,
    /// Bytes of an inode: a power of two, 128 up to the block size.
    pub inode_size: u16,
    /// Group that holds this copy.
    pub block_group: GroupNr,
    /// Feature bits, unknown ones included.
    pub features: Features,
    /// UUID.
    pub uuid: [u8; 16],
    /// Label, NUL-padded.
    pub volume_name: [u8; 16],
    /// Where it was last mounted, NUL-padded.
    pub last_mounted: [u8; 64],
    /// Descriptor blocks reserved after the descriptor table for growth.
    pub reserved_gdt_blocks: u16,
    /// UUID of an external journal.
    pub journal_uuid: [u8; 16],
    /// Inode of the journal; 0 without one.
    pub journal_inum: u32,
    /// Device number of an external journal.
    pub journal_dev: u32,
    /// Head of the orphan list; 0 when empty.
    pub last_orphan: u32,
    /// Seed of directory hashes.
    pub hash_seed: [u32; 4],
    /// Directory hash of new directories: 0 legacy, 1 half MD4, 2 TEA.
    pub def_hash_version: u8,
    /// 1: `jnl_blocks` is valid.
    pub jnl_backup_type: u8,
    /// Bytes of a descriptor: 32, or 64 and more with 64bit.
    pub desc_size: u16,
    /// Default mount options.
    pub default_mount_opts: DefaultMountOpts,
    /// With meta_bg: descriptor blocks from this one on are spread.
    pub first_meta_bg: u32,
    /// Copy of the journal inode's `i_block`, then its size, high half first.
    pub jnl_blocks: [u32; 17],
    /// Every inode has at least this many bytes beyond 128.
    pub min_extra_isize: u16,
    /// New inodes get this many bytes beyond 128.
    pub want_extra_isize: u16,
    /// Signedness of directory hashes.
    pub flags: SuperFlags,
    /// RAID stride, blocks.
    pub raid_stride: u16,
    /// RAID stripe width, blocks.
    pub raid_stripe_width: u32,
    /// Seconds between updates of the multi-mount block.
    pub mmp_update_interval: u16,
    /// Multi-mount block.
    pub mmp_block: BlockNr,
    /// A flex group is `1 << log_groups_per_flex` groups. See [`Superblock::groups_per_flex`].
    pub log_groups_per_flex: u8,
    /// 1: CRC32C.
    pub checksum_type: u8,
    /// KiB written since the volume was created.
    pub kbytes_written: u64,
    /// Errors seen since the last check.
    pub error_count: u32,
    /// The first of those errors.
    pub first_error: ErrorRecord,
    /// The last of those errors.
    pub last_error: ErrorRecord,
    /// Mount options as text, NUL-padded.
    pub mount_opts: [u8; 64],
    /// User quota inode; 0 without.
    pub usr_quota_inum: u32,
    /// Group quota inode; 0 without.
    pub grp_quota_inum: u32,
    /// Project quota inode; 0 without.
    pub prj_quota_inum: u32,
    /// Clusters of metadata.
    pub overhead_clusters: u32,
    /// Groups with backups (sparse_super2); 0 is none.
    pub backup_bgs: [u32; 2],
    /// Encryption algorithms.
    pub encrypt_algos: [u8; 4],
    /// Encryption salt.
    pub encrypt_pw_salt: [u8; 16],
    /// lost+found, or 0.
    pub lpf_ino: u32,
    /// Seed of all checksums, with metadata_csum_seed.
    pub checksum_seed: u32,
    /// Encoding of names in casefolded directories: 1 is UTF-8 12.1.
    pub encoding: u16,
    /// Bit 0: names must be valid in the encoding.
    pub encoding_flags: u16,
    /// Inode of the orphan file, with orphan_file.
    pub orphan_file_inum: u32,
}

fn wide(lo: u32, hi: u32) -> u64 {
    u64::from(lo) | u64::from(hi) << 32
}

fn time(lo: u32, hi: u8) -> u64 {
    u64::from(lo) | u64::from(hi) << 32
}

impl RawSuperblock {
    /// Decodes the fields and checks only the magic, the block size and the cluster size. For tools
    /// that read damaged volumes; before a volume is used, call [`RawSuperblock::check`].
    ///
    /// # Errors
    /// `SuperblockMagic`, `SuperblockBlockSize`, `SuperblockClusterSize`.
    pub fn parse(&self, at: Site) -> Result<Superblock, Error> {
        if self.s_magic.get() != SUPERBLOCK_MAGIC {
            return Err(at.offset(0x38).corrupt(What::SuperblockMagic));
        }
        let block_size = BlockSize::from_superblock_log(self.s_log_block_size.get())
            .ok_or_else(|| at.offset(0x18).corrupt(What::SuperblockBlockSize))?;
        let features = Features {
            compat: Compat::from_bits_retain(self.s_feature_compat.get()),
            incompat: Incompat::from_bits_retain(self.s_feature_incompat.get()),
            ro_compat: RoCompat::from_bits_retain(self.s_feature_ro_compat.get()),
        };
        let bigalloc = features.ro_compat.contains(RoCompat::BIGALLOC);
        let log_cluster_ratio =
            match self.s_log_cluster_size.get().checked_sub(self.s_log_block_size.get()) {
                Some(0) => 0,
                Some(ratio) if bigalloc && self.s_log_cluster_size.get() <= 18 => ratio,
                // An external journal has no clusters and need not set the field.
                _ if features.incompat.contains(Incompat::JOURNAL_DEV) => 0,
                _ => return Err(at.offset(0x1C).corrupt(What::SuperblockClusterSize)),
            };
        let is_64bit = features.incompat.contains(Incompat::IS_64BIT);
        let hi = |field: u32| if is_64bit { field } else { 0 };
        let dynamic = self.s_rev_level.get() != 0;
        let inode_size = if dynamic { self.s_inode_size.get() } else { 128 };
        let extra = |field: u16| if inode_size > 128 { field } else { 0 };
        Ok(Superblock {
            inodes_count: self.s_inodes_count.get(),
            blocks_count: wide(self.s_blocks_count_lo.get(), hi(self.s_blocks_count_hi.get())),
            reserved_blocks: wide(
                self.s_r_blocks_count_lo.get(),
                hi(self.s_r_blocks_count_hi.get()),
            ),
            free_blocks: wide(
                self.s_free_blocks_count_lo.get(),
                hi(self.s_free_blocks_count_hi.get()),
            ),
            free_inodes: self.s_free_inodes_count.get(),
            first_data_block: self.s_first_data_block.get(),
            block_size,
            log_cluster_ratio,
            blocks_per_group: self.s_blocks_per_group.get(),
            clusters_per_group: self.s_clusters_per_group.get(),
            inodes_per_group: self.s_inodes_per_group.get(),
            mtime: time(self.s_mtime.get(), self.s_mtime_hi),
            wtime: time(self.s_wtime.get(), self.s_wtime_hi),
            mkfs_time: time(self.s_mkfs_time.get(), self.s_mkfs_time_hi),
            lastcheck: time(self.s_lastcheck.get(), self.s_lastcheck_hi),
            checkinterval: self.s_checkinterval.get(),
            mnt_count: self.s_mnt_count.get(),
            max_mnt_count: self.s_max_mnt_count.get().cast_signed(),
            state: VolumeState::from_bits_retain(self.s_state.get()),
            errors: ErrorPolicy(self.s_errors.get()),
            creator_os: self.s_creator_os.get(),
            rev_level: self.s_rev_level.get(),
            def_resuid: u32::from(self.s_def_resuid.get())
                | u32::from(self.s_def_resuid_hi.get()) << 16,
            def_resgid: u32::from(self.s_def_resgid.get())
                | u32::from(self.s_def_resgid_hi.get()) << 16,
            first_ino: if dynamic { self.s_first_ino.get() } else { 11 },
            inode_size,
            block_group: GroupNr(u32::from(self.s_block_group_nr.get())),
            features,
            uuid: self.s_uuid,
            volume_name: self.s_volume_name,
            last_mounted: self.s_last_mounted,
            reserved_gdt_blocks: self.s_reserved_gdt_blocks.get(),
            journal_uuid: self.s_journal_uuid,
            journal_inum: self.s_journal_inum.get(),
            journal_dev: self.s_journal_dev.get(),
            last_orphan: self.s_last_orphan.get(),
            hash_seed: self.s_hash_seed.map(|word| word.get()),
            def_hash_version: self.s_def_hash_version,
            jnl_backup_type: self.s_jnl_backup_type,
            desc_size: if is_64bit { self.s_desc_size.get() } else { 32 },
            default_mount_opts: DefaultMountOpts::from_bits_retain(self.s_default_mount_opts.get()),
            first_meta_bg: self.s_first_meta_bg.get(),
            jnl_blocks: self.s_jnl_blocks.map(|word| word.get()),
            min_extra_isize: extra(self.s_min_extra_isize.get()),
            want_extra_isize: extra(self.s_want_extra_isize.get()),
            flags: SuperFlags::from_bits_retain(self.s_flags.get()),
            raid_stride: self.s_raid_stride.get(),
            raid_stripe_width: self.s_raid_stripe_width.get(),
            mmp_update_interval: self.s_mmp_update_interval.get(),
            mmp_block: BlockNr(self.s_mmp_block.get()),
            log_groups_per_flex: self.s_log_groups_per_flex,
            checksum_type: self.s_checksum_type,
            kbytes_written: self.s_kbytes_written.get(),
            error_count: self.s_error_count.get(),
            first_error: ErrorRecord {
                time: time(self.s_first_error_time.get(), self.s_first_error_time_hi),
                ino: self.s_first_error_ino.get(),
                block: self.s_first_error_block.get(),
                func: self.s_first_error_func,
                line: self.s_first_error_line.get(),
                code: self.s_first_error_errcode,
            },
            last_error: ErrorRecord {
                time: time(self.s_last_error_time.get(), self.s_last_error_time_hi),
                ino: self.s_last_error_ino.get(),
                block: self.s_last_error_block.get(),
                func: self.s_last_error_func,
                line: self.s_last_error_line.get(),
                code: self.s_last_error_errcode,
            },
            mount_opts: self.s_mount_opts,
            usr_quota_inum: self.s_usr_quota_inum.get(),
            grp_quota_inum: self.s_grp_quota_inum.get(),
            prj_quota_inum: self.s_prj_quota_inum.get(),
            overhead_clusters: self.s_overhead_clusters.get(),
            backup_bgs: self.s_backup_bgs.map(|group| group.get()),
            encrypt_algos: self.s_encrypt_algos,
            encrypt_pw_salt: self.s_encrypt_pw_salt,
            lpf_ino: self.s_lpf_ino.get(),
            checksum_seed: self.s_checksum_seed.get(),
            encoding: self.s_encoding.get(),
            encoding_flags: self.s_encoding_flags.get(),
            orphan_file_inum: self.s_orphan_file_inum.get(),
        })
    }
}

impl Superblock {
    /// A superblock for the creation of a volume: revision 1, 256-byte inodes, clean, no features,
    /// no scheduled checks, all counts zero. The caller fills in the rest.
    pub fn new(block_size: BlockSize) -> Superblock {
        let raw = RawSuperblock {
            s_magic: SUPERBLOCK_MAGIC.into(),
            s_log_block_size: (block_size.log2() - 10).into(),
            s_log_cluster_size: (block_size.log2() - 10).into(),
            s_first_data_block: u32::from(block_size.log2() == 10).into(),
            s_rev_level: 1.into(),
            s_inode_size: 256.into(),
            s_first_ino: 11.into(),
            s_state: VolumeState::VALID.bits().into(),
            s_errors: ErrorPolicy::CONTINUE.0.into(),
            s_max_mnt_count: u16::MAX.into(),
            s_checksum_type: 1,
            ..RawSuperblock::default()
        };
        raw.parse(Site::NOWHERE).expect("magic and sizes are right")
    }

    /// How this volume checks its metadata.
    pub fn checksums(&self) -> Checksums {
        Checksums::of(&self.features, &self.uuid, self.checksum_seed)
    }

    /// The filesystem seed. Meaningful with `metadata_csum` or `ea_inode`.
    pub fn csum_seed(&self) -> u32 {
        filesystem_seed(&self.features, &self.uuid, self.checksum_seed)
    }

    /// Blocks in a cluster; 1 without bigalloc.
    pub fn cluster_ratio(&self) -> u32 {
        1u32.checked_shl(self.log_cluster_ratio).unwrap_or(1)
    }

    /// Groups in a flex group; 1 without flex_bg, or if the field is out of range.
    pub fn groups_per_flex(&self) -> u32 {
        let on = self.features.incompat.contains(Incompat::FLEX_BG);
        match self.log_groups_per_flex {
            n @ 1..=31 if on => 1 << n,
            _ => 1,
        }
    }

    /// The label without its padding.
    pub fn label(&self) -> &[u8] {
        up_to_nul(&self.volume_name)
    }

    /// The path of the last mount without its padding.
    pub fn last_mounted_path(&self) -> &[u8] {
        up_to_nul(&self.last_mounted)
    }

    /// A raw superblock with these fields and its checksum; all other bytes are zero.
    pub fn to_raw(&self) -> RawSuperblock {
        let mut raw = RawSuperblock::default();
        self.update_raw(&mut raw);
        raw
    }

    /// Writes every field into `raw`, and sets the checksum if the volume has one. Bytes that
    /// belong to no field of this type keep their values, and so do fields without a meaning under
    /// the volume's features.
    pub fn update_raw(&self, raw: &mut RawSuperblock) {
        let is_64bit = self.features.incompat.contains(Incompat::IS_64BIT);
        let lo = |n: u64| low_u32(n).into();
        let hi = |n: u64| ((n >> 32) as u32).into();
        raw.s_inodes_count = self.inodes_count.into();
        raw.s_blocks_count_lo = lo(self.blocks_count);
        raw.s_r_blocks_count_lo = lo(self.reserved_blocks);
        raw.s_free_blocks_count_lo = lo(self.free_blocks);
        if is_64bit {
            raw.s_blocks_count_hi = hi(self.blocks_count);
            raw.s_r_blocks_count_hi = hi(self.reserved_blocks);
            raw.s_free_blocks_count_hi = hi(self.free_blocks);
            raw.s_desc_size = self.desc_size.into();
        }
        raw.s_free_inodes_count = self.free_inodes.into();
        raw.s_first_data_block = self.first_data_block.into();
        let log_block_size = self.block_size.log2() - 10;
        raw.s_log_block_size = log_block_size.into();
        raw.s_log_cluster_size = (log_block_size + self.log_cluster_ratio).into();
        raw.s_blocks_per_group = self.blocks_per_group.into();
        raw.s_clusters_per_group = self.clusters_per_group.into();
        raw.s_inodes_per_group = self.inodes_per_group.into();
        (raw.s_mtime, raw.s_mtime_hi) = (lo(self.mtime), low_u8(high_u32(self.mtime)));
        (raw.s_wtime, raw.s_wtime_hi) = (lo(self.wtime), low_u8(high_u32(self.wtime)));
        (raw.s_mkfs_time, raw.s_mkfs_time_hi) =
            (lo(self.mkfs_time), low_u8(high_u32(self.mkfs_time)));
        (raw.s_lastcheck, raw.s_lastcheck_hi) =
            (lo(self.lastcheck), low_u8(high_u32(self.lastcheck)));
        raw.s_checkinterval = self.checkinterval.into();
        raw.s_mnt_count = self.mnt_count.into();
        raw.s_max_mnt_count = self.max_mnt_count.cast_unsigned().into();
        raw.s_magic = SUPERBLOCK_MAGIC.into();
        raw.s_state = self.state.bits().into();
        raw.s_errors = self.errors.0.into();
        raw.s_creator_os = self.creator_os.into();
        raw.s_rev_level = self.rev_level.into();
        raw.s_def_resuid = low_u16(self.def_resuid).into();
        raw.s_def_resgid = low_u16(self.def_resgid).into();
        raw.s_def_resuid_hi = ((self.def_resuid >> 16) as u16).into();
        raw.s_def_resgid_hi = ((self.def_resgid >> 16) as u16).into();
        if self.rev_level != 0 {
            raw.s_first_ino = self.first_ino.into();
            raw.s_inode_size = self.inode_size.into();
        }
        raw.s_block_group_nr = low_u16(self.block_group.0).into();
        raw.s_feature_compat = self.features.compat.bits().into();
        raw.s_feature_incompat = self.features.incompat.bits().into();
        raw.s_feature_ro_compat = self.features.ro_compat.bits().into();
        raw.s_uuid = self.uuid;
        raw.s_volume_name = self.volume_name;
        raw.s_last_mounted = self.last_mounted;
        raw.s_reserved_gdt_blocks = self.reserved_gdt_blocks.into();
        raw.s_journal_uuid = self.journal_uuid;
        raw.s_journal_inum = self.journal_inum.into();
        raw.s_journal_dev = self.journal_dev.into();
        raw.s_last_orphan = self.last_orphan.into();
        raw.s_hash_seed = self.hash_seed.map(Into::into);
        raw.s_def_hash_version = self.def_hash_version;
        raw.s_jnl_backup_type = self.jnl_backup_type;
        raw.s_default_mount_opts = self.default_mount_opts.bits().into();
        raw.s_first_meta_bg = self.first_meta_bg.into();
        raw.s_jnl_blocks = self.jnl_blocks.map(Into::into);
        if self.inode_size > 128 {
            raw.s_min_extra_isize = self.min_extra_isize.into();
            raw.s_want_extra_isize = self.want_extra_isize.into();
        }
        raw.s_flags = self.flags.bits().into();
        raw.s_raid_stride = self.raid_stride.into();
        raw.s_raid_stripe_width = self.raid_stripe_width.into();
        raw.s_mmp_update_interval = self.mmp_update_interval.into();
        raw.s_mmp_block = self.mmp_block.0.into();
        raw.s_log_groups_per_flex = self.log_groups_per_flex;
        raw.s_checksum_type = self.checksum_type;
        raw.s_kbytes_written = self.kbytes_written.into();
        raw.s_error_count = self.error_count.into();
        let error = &self.first_error;
        raw.s_first_error_time = lo(error.time);
        raw.s_first_error_time_hi = low_u8(high_u32(error.time));
        raw.s_first_error_ino = error.ino.into();
        raw.s_first_error_block = error.block.into();
        raw.s_first_error_func = error.func;
        raw.s_first_error_line = error.line.into();
        raw.s_first_error_errcode = error.code;
        let error = &self.last_error;
        raw.s_last_error_time = lo(error.time);
        raw.s_last_error_time_hi = low_u8(high_u32(error.time));
        raw.s_last_error_ino = error.ino.into();
        raw.s_last_error_block = error.block.into();
        raw.s_last_error_func = error.func;
        raw.s_last_error_line = error.line.into();
        raw.s_last_error_errcode = error.code;
        raw.s_mount_opts = self.mount_opts;
        raw.s_usr_quota_inum = self.usr_quota_inum.into();
        raw.s_grp_quota_inum = self.grp_quota_inum.into();
        raw.s_prj_quota_inum = self.prj_quota_inum.into();
        raw.s_overhead_clusters = self.overhead_clusters.into();
        raw.s_backup_bgs = self.backup_bgs.map(Into::into);
        raw.s_encrypt_algos = self.encrypt_algos;
        raw.s_encrypt_pw_salt = self.encrypt_pw_salt;
        raw.s_lpf_ino = self.lpf_ino.into();
        raw.s_checksum_seed = self.checksum_seed.into();
        raw.s_encoding = self.encoding.into();
        raw.s_encoding_flags = self.encoding_flags.into();
        raw.s_orphan_file_inum = self.orphan_file_inum.into();
        if self.features.ro_compat.contains(RoCompat::METADATA_CSUM) {
            raw.set_checksum();
        }
    }
}

fn up_to_nul(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len())]
}
