//! The geometry of a new volume, from options and size.
//!
//! ```text
//!   size ─► block size ─► groups ─► inodes per group ─► descriptor table ─► last group kept?
//!             1 KiB below             fills whole          and space to       dropped when its
//!             512 MiB                 table blocks         grow               metadata leaves < 50
//! ```
//!
//! The rules and numbers are those of mke2fs (e2fsprogs 1.47), so that both make the same layout.
//! Source: e2fsprogs' mke2fs(8) and observed volumes.

use crate::offline::mkfs::options::{InodeCount, JournalSize, MkfsOptions};
use extant_base::narrow::{fits_u16, fits_u32, len_u32, low_u8};
use extant_base::{BlockSize, Error, Result, Site};
use extant_ondisk::features::{Compat, Features, Incompat, RoCompat};
use extant_ondisk::geometry::Geometry;
use extant_ondisk::superblock::{SuperFlags, Superblock, VolumeState};

/// A last group is dropped if it has fewer blocks than its metadata and this many more.
const TAIL_MIN: u64 = 50;
/// Most clusters or blocks that 16-bit group counters hold.
const COUNTER_MAX: u32 = 65_528;

/// A superblock to be written, and the sizes that go with it.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) superblock: Superblock,
    /// Blocks of the journal, its fast-commit area included; 0 for none.
    pub(crate) journal_blocks: u32,
    /// How many of them are the fast-commit area.
    pub(crate) fast_commit_blocks: u32,
    /// Blocks of the orphan file; 0 for none.
    pub(crate) orphan_blocks: u32,
}

/// A volume that is not made yet.
#[derive(Clone, Debug)]
pub struct Planned {
    /// Its superblock, without what is decided or counted when it is made: times, free space, and
    /// the UUID and hash seed that the options do not give.
    pub superblock: Superblock,
    /// Blocks of the journal, 0 without one.
    pub journal_blocks: u32,
    /// How many of them are for fast commits.
    pub fast_commit_blocks: u32,
}

/// What a volume made with `options` on a device of `bytes` would be. Nothing is read or written.
///
/// # Errors
/// `Invalid`, as [`format()`](crate::offline::mkfs::format()).
pub fn planned(options: &MkfsOptions, bytes: u64) -> Result<Planned> {
    let plan = Plan::new(options, bytes)?;
    Ok(Planned {
        superblock: plan.superblock,
        journal_blocks: plan.journal_blocks,
        fast_commit_blocks: plan.fast_commit_blocks,
    })
}

impl Plan {
    /// Plans a volume for a device of `device_bytes`.
    ///
    /// Errors: `Invalid` for options that contradict each other or the size.
    pub(crate) fn new(options: &MkfsOptions, device_bytes: u64) -> Result<Plan> {
        let mut features = options.base;
        adjust(&mut features)?;
        let block_size = options.block_size.unwrap_or_else(|| {
            let bytes = match options.blocks {
                Some(blocks) => blocks.saturating_mul(1024),
                None => device_bytes,
            };
            let log = if bytes < 512 << 20 { 0 } else { 2 };
            BlockSize::from_superblock_log(log).expect("1 KiB and 4 KiB are block sizes")
        });
        let bs = block_size.bytes() as u64;
        let blocks = options.blocks.unwrap_or(device_bytes / bs);
        if blocks > device_bytes / bs {
            return Err(Error::Invalid("the volume would be larger than its device"));
        }
        if blocks > 1 << 48 {
            return Err(Error::Invalid("a volume has at most 2^48 blocks"));
        }
        if blocks > u64::from(u32::MAX) {
            if !features.incompat.contains(Incompat::IS_64BIT) {
                return Err(Error::Invalid("more than 2^32 blocks need the 64bit feature"));
            }
            features.compat.remove(Compat::RESIZE_INODE);
        }
        let bigalloc = features.ro_compat.contains(RoCompat::BIGALLOC);
        let log_cluster_ratio = cluster_ratio(options, block_size, bigalloc)?;
        let clusters_per_group =
            clusters_per_group(options, block_size, &features, log_cluster_ratio)?;
        let blocks_per_group = clusters_per_group
            .checked_shl(log_cluster_ratio)
            .filter(|blocks| blocks >> log_cluster_ratio == clusters_per_group)
            .ok_or(Error::Invalid("a group would have 2^32 blocks or more"))?;
        let first_data_block = u32::from(bs == 1024 && !bigalloc);
        let inode_size = inode_size(options, block_size, &features)?;
        if features.ro_compat.contains(RoCompat::PROJECT) && inode_size < 256 {
            return Err(Error::Invalid("project quotas need inodes of at least 256 bytes"));
        }
        if options.packed_metadata && !features.incompat.contains(Incompat::FLEX_BG) {
            return Err(Error::Invalid("metadata of all groups together needs flex_bg"));
        }
        if features.incompat.contains(Incompat::INLINE_DATA) && inode_size < 256 {
            return Err(Error::Invalid("inline_data needs inodes of at least 256 bytes"));
        }

        let mut plan = Plan {
            superblock: Superblock {
                inodes_count: 0,
                // Whole clusters: a partial one at the end cannot be used.
                blocks_count: blocks >> log_cluster_ratio << log_cluster_ratio,
                reserved_blocks: 0,
                free_blocks: 0,
                free_inodes: 0,
                first_data_block,
                block_size,
                log_cluster_ratio,
                blocks_per_group,
                clusters_per_group,
                inodes_per_group: 8,
                state: VolumeState::VALID,
                rev_level: 1,
                first_ino: 11,
                inode_size,
                uuid: options.uuid.unwrap_or_default(),
                volume_name: options.label,
                last_mounted: options.last_mounted,
                hash_seed: seed_words(options.hash_seed.unwrap_or_default()),
                desc_size: if features.incompat.contains(Incompat::IS_64BIT) { 64 } else { 32 },
                flags: SuperFlags::SIGNED_HASH,
                raid_stride: options.stride,
                raid_stripe_width: options.stripe_width,
                log_groups_per_flex: if features.incompat.contains(Incompat::FLEX_BG) {
                    low_u8(options.flex_groups.max(1).ilog2())
                } else {
                    0
                },
                checksum_type: u8::from(features.ro_compat.contains(RoCompat::METADATA_CSUM)),
                min_extra_isize: if inode_size > 128 { 32 } else { 0 },
                want_extra_isize: if inode_size > 128 { 32 } else { 0 },
                encoding: u16::from(features.incompat.contains(Incompat::CASEFOLD)),
                features,
                ..Superblock::new(block_size)
            },
            journal_blocks: 0,
            fast_commit_blocks: 0,
            orphan_blocks: 0,
        };
        options.settings.apply(&mut plan.superblock);
        plan.fit_groups(options)?;
        plan.superblock.reserved_blocks =
            percent_of(plan.superblock.blocks_count, options.reserved_percent.clamp(0.0, 50.0));
        plan.size_journal(options)?;
        plan.size_orphan_file();
        plan.superblock.check_fields(Site::NOWHERE)?;
        Ok(plan)
    }

    /// Chooses inodes, descriptor table and backups for the number of blocks. Drops a last group
    /// that is too small.
    fn fit_groups(&mut self, options: &MkfsOptions) -> Result<()> {
        loop {
            let sb = &mut self.superblock;
            let first = u64::from(sb.first_data_block);
            let bpg = u64::from(sb.blocks_per_group);
            if sb.blocks_count <= first + 8 {
                return Err(Error::Invalid("the device is too small for a volume"));
            }
            let groups = (sb.blocks_count - first).div_ceil(bpg);
            if groups > u64::from(u32::MAX) {
                return Err(Error::Invalid("more groups than 2^32"));
            }
            sb.inodes_per_group = inodes_per_group(sb, options, groups)?;
            sb.inodes_count = u32::try_from(groups * u64::from(sb.inodes_per_group))
                .map_err(|_| Error::Invalid("more than 2^32 inodes: choose fewer"))?;
            size_descriptors(sb, options, groups);
            if sb.features.compat.contains(Compat::SPARSE_SUPER2) {
                let last = fits_u32(groups - 1);
                sb.backup_bgs = match options.backups {
                    0 => [0, 0],
                    1 => [u32::from(last > 0), 0],
                    _ if last > 1 => [1, last],
                    _ => [u32::from(last > 0), 0],
                };
            }
            let geometry = Geometry::new(sb)?;
            let last = extant_base::GroupNr(fits_u32(groups - 1));
            let have = u64::from(geometry.blocks_in_group(last).unwrap_or(0));
            let base = geometry.base_blocks(last).map_or(0, |blocks| blocks.end - blocks.start);
            let overhead = base + 2 + u64::from(geometry.itable_blocks());
            let remainder = (sb.blocks_count - first) % bpg;
            if groups == 1 && have < overhead + TAIL_MIN.min(have / 4) {
                return Err(Error::Invalid("the device is too small for a volume"));
            }
            if remainder != 0 && groups > 1 && remainder < overhead + TAIL_MIN {
                sb.blocks_count -= remainder;
                continue;
            }
            return Ok(());
        }
    }

    fn size_journal(&mut self, options: &MkfsOptions) -> Result<()> {
        let sb = &self.superblock;
        if !sb.features.compat.contains(Compat::HAS_JOURNAL) {
            return Ok(());
        }
        let bs = sb.block_size.bytes() as u64;
        let blocks = match options.journal {
            JournalSize::Blocks(blocks) => u64::from(blocks),
            JournalSize::Bytes(bytes) => bytes / bs,
            JournalSize::Auto => journal_blocks(sb.blocks_count),
        };
        if blocks == 0 && options.journal == JournalSize::Auto {
            let rest = Compat::HAS_JOURNAL | Compat::FAST_COMMIT | Compat::ORPHAN_FILE;
            self.superblock.features.compat.remove(rest);
            return Ok(());
        }
        let limit = (sb.blocks_count / 2).min(10_240_000);
        if !(1024..=limit).contains(&blocks) {
            return Err(Error::Invalid(
                "the journal must have at least 1024 blocks and at most half of the volume's",
            ));
        }
        self.fast_commit_blocks = match sb.features.compat.contains(Compat::FAST_COMMIT) {
            true => match options.fast_commit_blocks {
                Some(fast) if (1..=fits_u32(blocks)).contains(&fast) => fast,
                Some(_) => {
                    return Err(Error::Invalid(
                        "blocks for fast commits: at least one, and at most as many as the \
                         journal's others",
                    ));
                }
                None => fits_u32(fast_commit_blocks(blocks)),
            },
            false => 0,
        };
        self.journal_blocks = fits_u32(blocks) + self.fast_commit_blocks;
        Ok(())
    }

    /// 32, 128 or 512 blocks by the size of the volume; whole clusters.
    fn size_orphan_file(&mut self) {
        let sb = &self.superblock;
        if sb.features.compat.contains(Compat::ORPHAN_FILE) {
            self.orphan_blocks = orphan_blocks(sb);
        }
    }
}

/// Blocks for fast commits after a log of `log_blocks` blocks: a 64th of it, as in mke2fs, but at
/// least as many as Linux uses when a journal does not say. A fast commit takes one block, and when
/// all are used, the next fsync is a full commit. With 64 blocks every 65th fsync would be one,
/// which would determine the cost of the slowest hundredth of all fsyncs.
pub(crate) fn fast_commit_blocks(log_blocks: u64) -> u64 {
    (log_blocks / 64).max((log_blocks / 4).min(256))
}

/// Blocks of the journal that a volume of this many blocks usually has; 0 for none.
pub(crate) fn journal_blocks(blocks: u64) -> u64 {
    match blocks {
        0..2048 => 0,
        2048..32_768 => 1024,
        32_768..262_144 => 4096,
        262_144..524_288 => 8192,
        524_288..4_194_304 => 16_384,
        4_194_304..8_388_608 => 32_768,
        8_388_608..16_777_216 => 65_536,
        16_777_216..33_554_432 => 131_072,
        _ => 262_144,
    }
}

/// Blocks of the orphan file that such a volume usually has.
pub(crate) fn orphan_blocks(sb: &Superblock) -> u32 {
    let blocks: u32 = match sb.blocks_count {
        0..131_072 => 32,
        131_072..2_097_152 => 128,
        _ => 512,
    };
    blocks.next_multiple_of(1 << sb.log_cluster_ratio)
}

/// Refuses contradictory features, and drops those that another feature replaces.
fn adjust(features: &mut Features) -> Result<()> {
    let has = |bit: Incompat| features.incompat.contains(bit);
    let has_ro = |bit: RoCompat| features.ro_compat.contains(bit);
    if has_ro(RoCompat::BIGALLOC) && !has(Incompat::EXTENTS) {
        return Err(Error::Invalid("bigalloc needs extents"));
    }
    if has(Incompat::META_BG) && features.compat.contains(Compat::RESIZE_INODE) {
        return Err(Error::Invalid(
            "meta_bg and resize_inode exclude each other: add ^resize_inode",
        ));
    }
    if features.compat.contains(Compat::RESIZE_INODE)
        && !has_ro(RoCompat::SPARSE_SUPER)
        && !features.compat.contains(Compat::SPARSE_SUPER2)
    {
        return Err(Error::Invalid("resize_inode needs sparse_super: add ^resize_inode"));
    }
    if features.compat.contains(Compat::SPARSE_SUPER2)
        && features.compat.contains(Compat::RESIZE_INODE)
    {
        return Err(Error::Invalid(
            "sparse_super2 and resize_inode exclude each other: add ^resize_inode",
        ));
    }
    if has(Incompat::CSUM_SEED) && !has_ro(RoCompat::METADATA_CSUM) {
        return Err(Error::Invalid("metadata_csum_seed needs metadata_csum"));
    }
    if has_ro(RoCompat::DATA_CSUM) {
        let journal = features.compat.contains(Compat::HAS_JOURNAL);
        let with = (has_ro(RoCompat::METADATA_CSUM), has(Incompat::EXTENTS), journal);
        check_data_csum(with, has_ro(RoCompat::BIGALLOC)).map_err(Error::Invalid)?;
    }
    if has(Incompat::IS_64BIT) && !has(Incompat::EXTENTS) {
        return Err(Error::Invalid("64bit needs extents: add ^64bit, or extent"));
    }
    if has(Incompat::CASEFOLD) && has(Incompat::COMPRESSION) {
        return Err(Error::Invalid("compression is not supported"));
    }
    for (bit, why) in [
        (Incompat::COMPRESSION, "compression is not supported"),
        (Incompat::DIRDATA, "dirdata is not supported"),
        (Incompat::JOURNAL_DEV, "mkfs does not make journal devices"),
        (Incompat::RECOVER, "needs_recovery is a state that recovery sets and clears"),
        (Incompat::DAX_FC_BYTELOG, "dax_fc_bytelog is a state: the byte log is a mount option"),
    ] {
        if has(bit) {
            return Err(Error::Invalid(why));
        }
    }
    if features.compat.contains(Compat::FAST_COMMIT | Compat::ORPHAN_FILE)
        && !features.compat.contains(Compat::HAS_JOURNAL)
    {
        features.compat.remove(Compat::FAST_COMMIT);
    }
    if !features.compat.contains(Compat::HAS_JOURNAL) {
        features.compat.remove(Compat::FAST_COMMIT | Compat::ORPHAN_FILE);
    }
    features.ro_compat.remove(RoCompat::ORPHAN_PRESENT);
    Ok(())
}

/// Whether `data_csum` is possible with this choice of metadata_csum, extents, a journal, and
/// bigalloc; the error says why not.
pub(crate) fn check_data_csum(
    (metadata_csum, extents, journal): (bool, bool, bool),
    bigalloc: bool,
) -> std::result::Result<(), &'static str> {
    match (metadata_csum, extents, journal, bigalloc) {
        (false, ..) => Err("data_csum needs metadata_csum"),
        (_, false, ..) => Err("data_csum needs extents"),
        (_, _, false, _) => Err("data_csum needs has_journal: data and checksums change together"),
        (_, _, _, true) => Err("data_csum and bigalloc exclude each other"),
        _ => Ok(()),
    }
}

fn cluster_ratio(options: &MkfsOptions, block_size: BlockSize, bigalloc: bool) -> Result<u32> {
    if !bigalloc {
        return match options.cluster_bytes {
            Some(bytes) if bytes as usize != block_size.bytes() => {
                Err(Error::Invalid("clusters need the bigalloc feature"))
            }
            _ => Ok(0),
        };
    }
    let bytes = match options.cluster_bytes {
        Some(bytes) => bytes,
        None => len_u32(block_size.bytes()) * 16,
    };
    if !bytes.is_power_of_two() || !(block_size.bytes()..=256 << 20).contains(&(bytes as usize)) {
        return Err(Error::Invalid("a cluster is a power of two, from one block to 256 MiB"));
    }
    // Linux and e2fsck do not accept first data block 0 with clusters of 1 KiB.
    if bytes < 2048 {
        return Err(Error::Invalid("a cluster has at least 2 KiB"));
    }
    Ok(bytes.ilog2() - block_size.log2())
}

fn clusters_per_group(
    options: &MkfsOptions,
    block_size: BlockSize,
    features: &Features,
    log_ratio: u32,
) -> Result<u32> {
    let bitmap = len_u32(block_size.bytes()) * 8;
    let Some(blocks) = options.blocks_per_group else {
        return Ok(bitmap.min(COUNTER_MAX));
    };
    let clusters = blocks >> log_ratio;
    // With 64-bit descriptors the counters have 32 bits, and only the bitmap is a limit.
    let limit = match features.incompat.contains(Incompat::IS_64BIT) {
        true => bitmap,
        false => bitmap.min(COUNTER_MAX),
    };
    if clusters << log_ratio != blocks
        || !clusters.is_multiple_of(8)
        || !(256..=limit).contains(&clusters)
    {
        return Err(Error::Invalid(
            "blocks per group must be a multiple of 8, at least 256, and fit the bitmap block",
        ));
    }
    Ok(clusters)
}

fn inode_size(options: &MkfsOptions, block_size: BlockSize, _: &Features) -> Result<u16> {
    let size = options.inode_size.unwrap_or(256);
    if !size.is_power_of_two() || !(128..=block_size.bytes()).contains(&usize::from(size)) {
        return Err(Error::Invalid("an inode is a power of two, from 128 bytes to one block"));
    }
    Ok(size)
}

/// Bytes of the volume for each inode, by the volume's size: mke2fs's usage types.
fn default_ratio(bytes: u64) -> u64 {
    match bytes {
        0..0x30_0000 => 8192,
        0x30_0000..0x2000_0000 => 4096,
        0x2000_0000..0x400_0000_0000 => 16_384,
        0x400_0000_0000..0x1000_0000_0000 => 32_768,
        _ => 65_536,
    }
}

fn inodes_per_group(sb: &Superblock, options: &MkfsOptions, groups: u64) -> Result<u32> {
    let bytes = sb.blocks_count << sb.block_size.log2();
    let wanted = match options.inodes {
        InodeCount::AtLeast(count) | InodeCount::Near(count) => {
            u64::from(count).max(u64::from(sb.first_ino) + 1)
        }
        InodeCount::BytesPerInode(ratio) if ratio >= 1024 => bytes / ratio,
        InodeCount::BytesPerInode(_) => {
            return Err(Error::Invalid("an inode ratio is at least 1024 bytes"));
        }
        // At most what 32 bits can count.
        InodeCount::Auto => {
            let cluster = (sb.block_size.bytes() as u64) << sb.log_cluster_ratio;
            (bytes / default_ratio(bytes).max(cluster)).min(u64::from(u32::MAX) - groups * 8)
        }
    };
    let per_block = (sb.block_size.bytes() / usize::from(sb.inode_size)) as u64;
    let step = per_block.max(8);
    let each = wanted.div_ceil(groups);
    let mut each = match options.inodes {
        InodeCount::AtLeast(_) => {
            each.max(u64::from(sb.first_ino) + 1).next_multiple_of(8).next_multiple_of(step)
        }
        // As mke2fs: whole blocks of the table, then a multiple of 8. A later step takes the
        // blocks that the second rounding leaves.
        _ => (each.next_multiple_of(per_block) / 8 * 8).max(16),
    };
    // The bitmap block and 16-bit counters limit a group.
    let most = (sb.block_size.bytes() as u64 * 8).min(65_536 - per_block) / step * step;
    if each > most {
        if !matches!(options.inodes, InodeCount::Auto) {
            return Err(Error::Invalid("more inodes than the groups can hold"));
        }
        each = most;
    }
    Ok(fits_u32(each))
}

/// Reserves space for a descriptor table that may grow, or switches to `meta_bg`.
fn size_descriptors(sb: &mut Superblock, options: &MkfsOptions, groups: u64) {
    let bs = sb.block_size.bytes() as u64;
    let per_block = bs / u64::from(sb.desc_size);
    let table = groups.div_ceil(per_block);
    sb.reserved_gdt_blocks = 0;
    sb.first_meta_bg = 0;
    if sb.features.incompat.contains(Incompat::META_BG) {
        return;
    }
    let mut reserved = 0;
    if sb.features.compat.contains(Compat::RESIZE_INODE) {
        let most = options.max_growth.unwrap_or(sb.blocks_count.saturating_mul(1024));
        let most = most.min(u64::from(u32::MAX)).max(sb.blocks_count);
        let first = u64::from(sb.first_data_block);
        let grown = (most - first).div_ceil(u64::from(sb.blocks_per_group)).div_ceil(per_block);
        reserved = grown.saturating_sub(table).min(bs / 4);
    }
    if table + reserved > u64::from(sb.blocks_per_group) * 3 / 4 {
        sb.features.incompat.insert(Incompat::META_BG);
        sb.features.compat.remove(Compat::RESIZE_INODE);
        return;
    }
    sb.reserved_gdt_blocks = fits_u16(fits_u32(reserved)); // at most a quarter of 64 KiB
}

/// `percent` of a number of blocks, rounded down.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the percentage is from 0 to 50, and a fraction of a block is dropped"
)]
fn percent_of(blocks: u64, percent: f64) -> u64 {
    (blocks as f64 * percent / 100.0) as u64
}

fn seed_words(seed: [u8; 16]) -> [u32; 4] {
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(seed.chunks_exact(4)) {
        *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(options: MkfsOptions, bytes: u64) -> Plan {
        Plan::new(&options, bytes).unwrap()
    }

    #[test]
    fn the_usual_sizes_have_the_layout_of_mke2fs() {
        // bytes, blocks, block size, groups, reserved descriptor blocks, journal blocks
        for (bytes, blocks, bs, groups, reserved, journal) in [
            (1u64 << 30, 262_144, 4096, 8, 127, 8192),
            (100 << 20, 102_400, 1024, 13, 256, 4096),
            (20 << 30, 5_242_880, 4096, 160, 1024, 32_768),
            (1025 << 20, 262_144, 4096, 8, 127, 8192),
        ] {
            let plan = plan(MkfsOptions::new(), bytes);
            let sb = &plan.superblock;
            assert_eq!(sb.blocks_count, blocks, "{bytes}");
            assert_eq!(sb.block_size.bytes(), bs, "{bytes}");
            assert_eq!(sb.groups_count(), Some(groups), "{bytes}");
            assert_eq!(sb.reserved_gdt_blocks, reserved, "{bytes}");
            assert_eq!(plan.journal_blocks, journal, "{bytes}");
        }
    }

    #[test]
    fn contradictions_are_refused() {
        for features in
            ["bigalloc,^extent", "meta_bg,resize_inode", "metadata_csum_seed,^metadata_csum"]
        {
            let options = MkfsOptions::new().features(features).unwrap();
            assert!(matches!(Plan::new(&options, 1 << 30), Err(Error::Invalid(_))), "{features}");
        }
        for features in ["^extent", "^extent,64bit"] {
            let options = MkfsOptions::new().features(features).unwrap();
            let why = Plan::new(&options, 1 << 30).unwrap_err().to_string();
            assert!(why.contains("64bit needs extents: add ^64bit"), "{why}");
        }
        let old = MkfsOptions::of_type("ext2").unwrap().features("64bit").unwrap();
        assert!(Plan::new(&old, 1 << 30).is_err());
        let small = MkfsOptions::new().inode_size(128).features("inline_data").unwrap();
        assert!(Plan::new(&small, 1 << 30).is_err());
        let kib = BlockSize::from_bytes(1024).unwrap();
        let clusters = |bytes| {
            let options = MkfsOptions::new().block_size(kib).features("bigalloc").unwrap();
            Plan::new(&options.cluster_bytes(bytes), 1 << 30)
        };
        assert!(clusters(1024).is_err() && clusters(2048).is_ok());
        assert!(MkfsOptions::new().features("no_such_feature").is_err());
        assert!(Plan::new(&MkfsOptions::new(), 4096).is_err());
    }
}
