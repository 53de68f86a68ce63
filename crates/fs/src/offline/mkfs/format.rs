//! Writing a new volume.

use crate::context::environment::Environment;
use crate::offline::mkfs::options::MkfsOptions;
use crate::offline::mkfs::place::{Places, place, static_runs};
use crate::offline::mkfs::plan::Plan;
use crate::offline::mkfs::reserved;
use crate::volume::{Volume, VolumeOptions};
use extant_base::narrow::fits_u32;
use extant_base::{BlockNr, ByteOffset, GroupNr, Result};
use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_crc32c::crc32c;
use extant_journal::CacheOptions;
use extant_ondisk::bitmap;
use extant_ondisk::checksum::Checksums;
use extant_ondisk::features::{Features, Incompat};
use extant_ondisk::geometry::Geometry;
use extant_ondisk::group_desc::{GroupDesc, GroupFlags};
use extant_ondisk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock, VolumeState};
use extant_ondisk::time::Timestamp;
use std::ops::Range;
use std::sync::Arc;

/// Memory for metadata blocks while a volume is made and loaded.
const CACHE_BYTES: usize = 16 << 20;

/// The new volume.
#[derive(Clone, Debug)]
pub struct Made {
    /// Size in blocks.
    pub blocks: u64,
    /// Block size in bytes.
    pub block_bytes: usize,
    /// Inodes, those in use included.
    pub inodes: u32,
    /// Blocks in no use yet.
    pub free_blocks: u64,
    /// Inodes in no use yet.
    pub free_inodes: u32,
    /// Block groups.
    pub groups: u32,
    /// Blocks of the journal, 0 without one.
    pub journal_blocks: u32,
    /// The volume's UUID.
    pub uuid: [u8; 16],
    /// The volume's features.
    pub features: Features,
}

/// Makes a volume on `device`, over whatever was there.
///
/// Takes the time from `environment`, and the UUID and hash seed if `options` do not give them. The
/// volume is durable when the call returns.
///
/// # Errors
/// `Invalid` when options contradict each other or the device's size (then nothing was written);
/// `Device`.
///
/// # Examples
///
/// ```
/// use extant::{Environment, mkfs};
/// use extant_blockdev::MemoryDevice;
/// use std::sync::Arc;
///
/// let device = Arc::new(MemoryDevice::new(64 << 20));
/// let made = mkfs::format(device, &mkfs::MkfsOptions::new(), &Environment::default())?;
/// assert_eq!(made.block_bytes, 1024);
/// # Ok::<(), extant::Error>(())
/// ```
pub fn format(
    device: Arc<dyn BlockDevice>,
    options: &MkfsOptions,
    environment: &Environment,
) -> Result<Made> {
    let formatted = format_open(device, options, environment)?;
    let made = formatted.made();
    formatted.finish()?;
    Ok(made)
}

/// Checks whether a device of `bytes` has space for a volume made with `options`. Nothing is read
/// or written.
///
/// # Errors
/// `Invalid`, as [`format()`].
pub fn fits(options: &MkfsOptions, bytes: u64) -> Result<()> {
    let plan = Plan::new(options, bytes)?;
    place(&Geometry::new(&plan.superblock)?, options.packed_metadata).map(drop)
}

/// Blocks that a volume made with `options` on a device of `bytes` would leave free.
///
/// Makes the volume in memory.
///
/// # Errors
/// `Invalid`, as [`format()`].
pub fn free_blocks(options: &MkfsOptions, bytes: u64) -> Result<u64> {
    let device = Arc::new(MemoryDevice::new(bytes));
    let environment = Environment::fixed(Timestamp::default(), 0);
    let options = options.clone().zeroed(true);
    Ok(format_open(device, &options, &environment)?.made().free_blocks)
}

/// A volume that was just made and is still open, with the journal off: for a bulk load.
pub(crate) struct Formatted {
    pub(crate) volume: Volume,
    /// Inode 11 is `/lost+found`.
    pub(crate) lost_and_found: bool,
    journal_blocks: u32,
}

/// Makes a volume and leaves it open. [`Formatted::finish`] completes it.
pub(crate) fn format_open(
    device: Arc<dyn BlockDevice>,
    options: &MkfsOptions,
    environment: &Environment,
) -> Result<Formatted> {
    let mut plan = Plan::new(options, device.len())?;
    let now = u64::try_from(environment.now().sec).unwrap_or(0);
    let sb = &mut plan.superblock;
    if options.uuid.is_none() {
        environment.fill(&mut sb.uuid);
        // RFC 9562, version 4.
        sb.uuid[6] = sb.uuid[6] & 0x0F | 0x40;
        sb.uuid[8] = sb.uuid[8] & 0x3F | 0x80;
    }
    if options.hash_seed.is_none() {
        sb.hash_seed = std::array::from_fn(|_| environment.next_u32());
    }
    if sb.features.incompat.contains(Incompat::CSUM_SEED) {
        sb.checksum_seed = crc32c(!0, &sb.uuid);
    }
    (sb.mkfs_time, sb.wtime, sb.lastcheck) = (now, now, now);

    let geometry = Geometry::new(sb)?;
    let places = place(&geometry, options.packed_metadata)?;
    let fixed = static_runs(&geometry, &places);
    write_initial_metadata(&*device, sb, &geometry, &places, &fixed, options.zeroed)?;

    let volume_options = VolumeOptions {
        read_only: false,
        environment: environment.clone(),
        // A new volume is written from front to back: few blocks are used twice.
        cache: CacheOptions { limit_bytes: CACHE_BYTES, dirty_limit_bytes: CACHE_BYTES / 2 },
        ..VolumeOptions::default()
    };
    let volume = Volume::with_superblock(device, plan.superblock.clone(), &volume_options)?;
    volume.space().recount_free()?;
    reserved::make(&volume, &plan, options)?;
    Ok(Formatted {
        volume,
        lost_and_found: options.lost_and_found,
        journal_blocks: plan.journal_blocks,
    })
}

impl Formatted {
    /// What was made.
    pub(crate) fn made(&self) -> Made {
        let geometry = self.volume.geometry();
        let mut features = self.volume.at_open().features;
        features.ro_compat |= self.volume.context().pending_ro_compat();
        Made {
            blocks: geometry.blocks_count(),
            block_bytes: geometry.block_size().bytes(),
            inodes: geometry.inodes_count(),
            free_blocks: self.volume.space().free_clusters() << geometry.log_cluster_ratio(),
            free_inodes: self.volume.space().free_inodes(),
            groups: geometry.groups_count(),
            journal_blocks: self.journal_blocks,
            uuid: self.volume.at_open().uuid,
            features,
        }
    }

    /// Settles the superblock, writes everything home and copies superblock and descriptors to
    /// their backups.
    pub(crate) fn finish(self) -> Result<()> {
        let volume = self.volume;
        volume.mount_state().update_superblock()?;
        volume.journal().sync()?;
        let sb = volume.context().superblock().read().clone();
        write_backups(&volume, &sb)?;
        volume.device().flush()
    }
}

/// Writes what must be on the device before the volume can be opened.
fn write_initial_metadata(
    device: &dyn BlockDevice,
    sb: &mut Superblock,
    geometry: &Geometry,
    places: &[Places],
    fixed: &[Range<u64>],
    zeroed: bool,
) -> Result<()> {
    let bs = geometry.block_size();
    let csum = sb.checksums();
    if !zeroed {
        // Zeroes old signatures at the start, and everything that must read as zeros.
        device.zero(ByteOffset(0), bs.bytes() as u64)?;
        for run in fixed {
            device.zero(bs.start_of(BlockNr(run.start)), (run.end - run.start) << bs.log2())?;
        }
    }
    let mut table = vec![0u8; geometry.desc_blocks() as usize * bs.bytes()];
    let mut free_blocks = 0u64;
    let groups = geometry.groups_count();
    for nr in geometry.groups() {
        let desc = write_group_bitmaps(
            device,
            geometry,
            &csum,
            (nr, groups),
            &places[nr.0 as usize],
            fixed,
        )?;
        free_blocks += u64::from(desc.free_clusters) << geometry.log_cluster_ratio();
        if let Some((k, offset)) = geometry.desc_place(nr) {
            let start = k as usize * bs.bytes() + offset;
            desc.write(&mut table[start..start + geometry.desc_size()], nr, &csum);
        }
    }
    let mut k = 0;
    while let Some(first) = geometry.desc_block(k).filter(|_| k < geometry.desc_blocks()) {
        let start = k as usize * bs.bytes();
        let mut next = BlockNr(first.0 + 1);
        k += 1;
        while k < geometry.desc_blocks() && geometry.desc_block(k) == Some(next) {
            (k, next) = (k + 1, BlockNr(next.0 + 1));
        }
        device.write_at(bs.start_of(first), &table[start..k as usize * bs.bytes()])?;
    }
    sb.free_blocks = free_blocks;
    sb.free_inodes = sb.inodes_count;
    device.write_at(ByteOffset(SUPERBLOCK_OFFSET), superblock_bytes(sb).as_slice())
}

/// Writes the bitmaps of group `nr` of `groups`. The group contains only those parts of the runs
/// `fixed` (ascending, not adjacent) that lie in it. Returns its descriptor.
///
/// Errors: `Device`.
pub(crate) fn write_group_bitmaps(
    device: &dyn BlockDevice,
    geometry: &Geometry,
    csum: &Checksums,
    (nr, groups): (GroupNr, u32),
    place: &Places,
    fixed: &[Range<u64>],
) -> Result<GroupDesc> {
    let bs = geometry.block_size();
    let blocks = geometry.blocks_of_group(nr).unwrap_or(0..0);
    // Runs may continue in the next group.
    let here: Vec<Range<u64>> = fixed[fixed.partition_point(|run| run.end <= blocks.start)..]
        .iter()
        .take_while(|run| run.start < blocks.end)
        .map(|run| run.start.max(blocks.start)..run.end.min(blocks.end))
        .collect();
    let (bitmap, free) = block_bitmap(geometry, nr, &blocks, &here);
    let flags = group_flags(csum, geometry, nr, groups, place, &here);
    let ipg = geometry.inodes_per_group();
    let mut desc = GroupDesc {
        block_bitmap: place.block_bitmap,
        inode_bitmap: place.inode_bitmap,
        inode_table: place.inode_table,
        free_clusters: free,
        free_inodes: ipg,
        flags,
        itable_unused: if csum.groups_may_be_uninit() { ipg } else { 0 },
        ..GroupDesc::default()
    };
    if !flags.contains(GroupFlags::BLOCK_UNINIT) {
        let covered = geometry.clusters_per_group() as usize / 8;
        desc.block_bitmap_csum = csum.seed().map_or(0, |seed| crc32c(seed, &bitmap[..covered]));
        device.write_at(bs.start_of(place.block_bitmap), &bitmap)?;
    }
    if !flags.contains(GroupFlags::INODE_UNINIT) {
        let mut bitmap = vec![0u8; bs.bytes()];
        bitmap::fill_padding(&mut bitmap, ipg);
        let covered = ipg as usize / 8;
        desc.inode_bitmap_csum = csum.seed().map_or(0, |seed| crc32c(seed, &bitmap[..covered]));
        device.write_at(bs.start_of(place.inode_bitmap), &bitmap)?;
    }
    Ok(desc)
}

/// The block bitmap of a group that contains the runs `here`, and its free clusters.
fn block_bitmap(
    geometry: &Geometry,
    nr: GroupNr,
    blocks: &Range<u64>,
    here: &[Range<u64>],
) -> (Vec<u8>, u32) {
    let mut bytes = vec![0u8; geometry.block_size().bytes()];
    let ratio = geometry.log_cluster_ratio();
    let mut used = 0;
    for run in here {
        let first = fits_u32((run.start - blocks.start) >> ratio);
        let last = fits_u32((run.end - 1 - blocks.start) >> ratio);
        used += bitmap::set_range(&mut bytes, first..last + 1);
    }
    let clusters = geometry.clusters_in_group(nr).unwrap_or(0);
    bitmap::fill_padding(&mut bytes, clusters);
    (bytes, clusters - used)
}

/// As mke2fs: the first group is initialised. The last group, and groups with metadata of others,
/// have a real block bitmap. All other groups are initialised at first use.
fn group_flags(
    csum: &Checksums,
    geometry: &Geometry,
    nr: GroupNr,
    groups: u32,
    place: &Places,
    here: &[Range<u64>],
) -> GroupFlags {
    if !csum.groups_may_be_uninit() {
        return GroupFlags::empty();
    }
    let mut flags = GroupFlags::INODE_ZEROED;
    if nr.0 == 0 {
        return flags;
    }
    flags |= GroupFlags::INODE_UNINIT;
    let own = |start: u64| {
        [place.block_bitmap.0, place.inode_bitmap.0, place.inode_table.0].contains(&start)
            || geometry.base_blocks(nr).is_some_and(|base| base.contains(&start))
    };
    if nr.0 + 1 < groups && here.iter().all(|run| own(run.start)) {
        flags |= GroupFlags::BLOCK_UNINIT;
    }
    flags
}

/// A superblock in its form on the device, checksum included.
fn superblock_bytes(sb: &Superblock) -> [u8; SUPERBLOCK_SIZE] {
    sb.to_raw().to_bytes()
}

/// Descriptor blocks copied at once.
const BACKUP_RUN: u64 = 256;

/// Copies the superblock and the descriptor blocks to every group that keeps a copy.
fn write_backups(volume: &Volume, sb: &Superblock) -> Result<()> {
    let (geometry, device) = (volume.geometry(), volume.device());
    let bs = geometry.block_size();
    for group in geometry.super_groups().filter(|group| group.0 != 0) {
        let mut copy = sb.clone();
        copy.block_group = group;
        copy.state.remove(VolumeState::VALID);
        copy.features.incompat.remove(Incompat::LIVE);
        if let Some(at) = geometry.super_offset(group) {
            device.write_at(at, &superblock_bytes(&copy))?;
        }
    }
    let places = |k: u32| geometry.desc_block_backups(k).map(|(_, nr)| nr.0);
    let mut k = 0;
    while k < geometry.desc_blocks() {
        // Blocks that are contiguous in every copy are written together.
        let first: Vec<u64> = places(k).collect();
        let mut bytes = Vec::new();
        let mut run = 0;
        while k < geometry.desc_blocks()
            && run < BACKUP_RUN
            && places(k).eq(first.iter().map(|nr| nr + run))
        {
            if let Some(primary) = geometry.desc_block(k) {
                bytes.extend_from_slice(&volume.journal().cache().get(primary)?.read());
            }
            (k, run) = (k + 1, run + 1);
        }
        for nr in first {
            device.write_at(bs.start_of(BlockNr(nr)), &bytes)?;
        }
    }
    Ok(())
}
