//! One open volume: everything that all its threads share.
//!
//! ```text
//!   Volume ─┬─ device ──── journal ── cache of metadata blocks
//!           ├─ layout, csum, at_open       facts that do not change while it is open
//!           ├─ superblock  (Rank::Superblock)   fields that do
//!           ├─ groups      table of groups, filled as they are asked for
//!           ├─ inodes      inodes in use
//!           └─ free counters, late features, error note     atomics
//! ```
//!
//! Opening reads one superblock. Descriptors are read and checked when their group is first asked
//! for, so a 64 TiB volume opens as fast as a small one. Recovery is not done here: `open/` runs
//! it before and opens the volume again.

use crate::alloc::bulk::BulkCursor;
use crate::alloc::claims::Reserved;
use crate::alloc::group_index::GroupIndex;
use crate::alloc::loaded::LoadedTrees;
use crate::alloc::pending::PendingGroups;
use crate::alloc::preallocation::Preallocations;
use crate::alloc::stripes::stripe_clusters;
use crate::data::DataMode;
use crate::direct::Chunks;
use crate::environment::Environment;
use crate::errors::{DamagePolicy, ErrorHook, ErrorNotes};
use crate::group::GroupTable;
use crate::inode::InodeTable;
use crate::mmp::Hold;
use crate::mount::Mode;
use crate::orphan::Orphans;
use crate::quota::{Quota, QuotaPolicy};
use crate::sums::SumsFile;
use crate::verified::Role;
use crate::xattr::block::KnownBlocks;
use crate::xattr::value_inode::KnownValues;
use extant_base::lock::{Mutex, Rank, RwLock};
use extant_base::{
    BlockNr, BlockSize, ByteOffset, CachePadded, Error, GroupNr, Ino, Result, Site, What,
};
use extant_blockdev::BlockDevice;
use extant_journal::{CacheOptions, CommitPoint, Journal, JournalOptions, Log, MetaBlock};
use extant_ondisk::byte_log::BATCH_BYTES;
use extant_ondisk::checksum::Checksums;
use extant_ondisk::features::{Compat, Incompat, RoCompat};
use extant_ondisk::geometry::Geometry;
use extant_ondisk::inode::InodeFormat;
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use extant_pagecache::PageCache;
use rangemap::RangeSet;
use std::sync::atomic::{AtomicI64, AtomicU32};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use zerocopy::FromBytes;

/// How to open the parts of a volume.
#[derive(Clone, Debug)]
pub(crate) struct VolumeOptions {
    /// Nothing is changed on the device.
    pub(crate) read_only: bool,
    /// Use the copy of the superblock and descriptors in this group. Only with `read_only`.
    pub(crate) backup: Option<GroupNr>,
    /// Memory for metadata blocks.
    pub(crate) cache: CacheOptions,
    /// Inodes kept in memory while nobody uses them.
    pub(crate) inodes: usize,
    /// Time and chance.
    pub(crate) environment: Environment,
    /// Freed blocks are only noted, see [`Volume::freed_later`].
    pub(crate) free_later: bool,
    /// Free clusters are found by a tree and sums follow by `flip_delta` and `splice_delta`.
    /// Without, bitmaps are searched and blocks are summed whole each time: for comparison.
    pub(crate) short_cuts: bool,
    /// Told of every damage that is met.
    pub(crate) on_error: Option<ErrorHook>,
    /// What damage that is met does.
    pub(crate) damage_policy: DamagePolicy,
    /// Freed clusters are discarded once that is durable.
    pub(crate) discard: bool,
    /// Blocks of a stripe, where the superblock's hints do not count.
    pub(crate) stripe: Option<u32>,
    /// Data may take the blocks that are reserved for root.
    pub(crate) privileged: bool,
    /// What is done with the quota files; `None` leaves them as they are.
    pub(crate) quota: Option<QuotaPolicy>,
    /// Which files' bytes go through the journal.
    pub(crate) data_mode: DataMode,
    /// Fast commits go to the byte log where that can be used.
    pub(crate) byte_log: bool,
    /// Syncs of files may be fast commits where the volume has them.
    pub(crate) fast_commits: bool,
}

impl Default for VolumeOptions {
    fn default() -> VolumeOptions {
        VolumeOptions {
            read_only: true,
            backup: None,
            cache: CacheOptions::default(),
            inodes: 16 << 10,
            environment: Environment::default(),
            free_later: false,
            short_cuts: true,
            on_error: None,
            damage_policy: DamagePolicy::AsStored,
            discard: false,
            stripe: None,
            privileged: true,
            quota: None,
            data_mode: DataMode::Ordered,
            byte_log: false,
            fast_commits: false,
        }
    }
}

/// An open volume. See the module's picture.
pub(crate) struct Volume {
    /// Where the bytes are.
    pub(crate) device: Arc<dyn BlockDevice>,
    /// Through which metadata changes; owns the cache.
    pub(crate) journal: Journal,
    /// Geometry.
    pub(crate) geometry: Geometry,
    /// How metadata is checked.
    pub(crate) csum: Checksums,
    /// How inodes are laid out.
    pub(crate) inode_format: InodeFormat,
    /// The filesystem seed, which `ea_inode` needs even without `metadata_csum`.
    pub(crate) csum_seed: u32,
    /// The superblock as it was at open: features, seeds, reserved inodes. Fields that change
    /// while the volume is open are stale here.
    pub(crate) at_open: Superblock,
    /// The superblock as it shall be written; changed by [`Volume::change_superblock`].
    pub(crate) superblock: RwLock<Superblock>,
    /// All block groups; see [`Volume::group`].
    pub(crate) groups: GroupTable,
    /// The last step that holds the map or size of a file that was written back after it was closed.
    pub(crate) closed_commit_point: Mutex<Option<CommitPoint>>,
    /// The longest free run of each group, by size.
    pub(crate) group_index: GroupIndex,
    /// Groups whose free extents are in memory.
    pub(crate) loaded_trees: LoadedTrees,
    /// Groups with freed clusters that wait for a commit.
    pub(crate) pending_groups: PendingGroups,
    /// Where clusters are held for files that grow.
    pub(crate) preallocations: Preallocations,
    /// Clusters promised to data that is not allocated yet.
    pub(crate) reserved: Arc<Reserved>,
    /// Data may take the blocks that are reserved for root.
    pub(crate) privileged: bool,
    /// Inodes in use; see [`Volume::inode`].
    pub(crate) inodes: InodeTable,
    /// Free clusters of all groups. From the superblock until [`Volume::recount_free`].
    pub(crate) free_clusters: CachePadded<AtomicI64>,
    /// Free inodes of all groups. From the superblock until [`Volume::recount_free`].
    pub(crate) free_inodes: CachePadded<AtomicI64>,
    /// Directories of all groups. 0 until [`Volume::recount_free`].
    pub(crate) used_dirs: CachePadded<AtomicI64>,
    /// Compatible feature bits that came up since open; the superblock's writer adds them.
    pub(crate) late_compat: AtomicU32,
    /// Read-only compatible feature bits that came up since open.
    pub(crate) late_ro_compat: AtomicU32,
    /// Blocks that never hold data, once they were counted.
    pub(crate) overhead: OnceLock<u64>,
    /// Damage met since open.
    pub(crate) errors: ErrorNotes,
    /// What that does.
    pub(crate) damage_policy: DamagePolicy,
    /// Freed clusters are discarded once that is durable.
    pub(crate) discard: bool,
    /// Clusters of a stripe at whose beginnings large files begin.
    pub(crate) stripe: Option<u32>,
    /// Attribute blocks that new inodes may share.
    pub(crate) known_xattrs: Mutex<KnownBlocks>,
    /// Attribute values in inodes of their own that others may share; guards all their counts.
    pub(crate) known_values: Mutex<KnownValues>,
    /// Blocks freed so far that stay marked as used, as (first, how many): while fast commits are
    /// applied, nothing that was in use before may be handed out.
    pub(crate) freed_later: Option<Mutex<Vec<(BlockNr, u64)>>>,
    /// See [`VolumeOptions::short_cuts`].
    pub(crate) short_cuts: bool,
    /// The quota files, where usage is kept up to date.
    pub(crate) quota: Option<Quota>,
    /// Inodes that must be finished off after a crash.
    pub(crate) orphans: Orphans,
    /// Held while a directory changes its parent: who is above whom stays until it is let go.
    pub(crate) renames: Mutex<()>,
    /// Where a bulk load stands.
    pub(crate) bulk: BulkCursor,
    /// Which files' bytes go through the journal.
    pub(crate) data_mode: DataMode,
    /// What changes is noted, for fast commits.
    pub(crate) fast_commits: bool,
    /// Folios of files; `None`: their bytes go straight to the device and come from there.
    pub(crate) page_cache: Option<PageCache>,
    /// Memory that direct transfers are copied through.
    pub(crate) chunks: Chunks,
    /// Files are opened with their bytes leaving the cache once they are on the device.
    pub(crate) drop_behind: bool,
    /// Time and chance.
    pub(crate) environment: Environment,
    /// Nothing is changed on the device, from the start.
    pub(crate) read_only: bool,
    /// Whether changes are taken now.
    pub(crate) mode: Mode,
    /// The disk says that the volume is being written.
    pub(crate) announced: Mutex<bool>,
    /// Where the sums of data are, once they were asked for.
    pub(crate) sums_file: OnceLock<SumsFile>,
    /// The blocks of the log that changes go through, where it is a file of the volume.
    pub(crate) own_log: RangeSet<u64>,
    /// Keeps other hosts away, where the volume asks for that and is open to write.
    pub(crate) hold: Option<Hold>,
    /// The group whose descriptor copies are read, when the primary ones are not.
    pub(crate) descriptors_from: Option<GroupNr>,
}

impl Volume {
    /// Opens the volume on `device` as it stands: no recovery, no change.
    ///
    /// Errors: whatever is wrong with the superblock; `Unsupported` naming an unknown incompatible
    /// feature, or, to write, an unknown read-only compatible one.
    pub(crate) fn open_parts(
        device: Arc<dyn BlockDevice>,
        options: &VolumeOptions,
    ) -> Result<Volume> {
        let at_open = read_superblock(&*device, options.backup)?;
        if !options.read_only {
            if options.backup.is_some() {
                return Err(Error::Invalid("a backup superblock can only be read from"));
            }
            if let Some(feature) = at_open.features.all_unwritable().next() {
                return Err(Error::Unsupported { feature });
            }
        }
        Volume::with_superblock(device, at_open, options)
    }

    /// Opens the volume on `device` to change it through `log`, which was recovered.
    ///
    /// Errors: as [`Volume::open_parts`]; what is wrong with the log.
    pub(crate) fn open_with_log(
        device: Arc<dyn BlockDevice>,
        options: &VolumeOptions,
        log: Log,
        (commit_interval, one_transaction): (Option<Duration>, bool),
    ) -> Result<Volume> {
        let mut volume = Volume::open_parts(device, options)?;
        volume.guard_log(log.map());
        volume.fast_commits =
            (options.fast_commits || options.byte_log) && volume.can_fast_commit();
        let environment = options.environment.clone();
        let clock = move || {
            let now = environment.now();
            (u64::try_from(now.sec).unwrap_or(0), now.nsec)
        };
        let journal_options = JournalOptions {
            commit_interval,
            one_transaction,
            checksums: volume.csum.seed().is_some(),
            wide: volume.has_incompat(Incompat::IS_64BIT),
            fast_commits: volume.fast_commits,
            byte_log: (volume.fast_commits && options.byte_log).then_some(BATCH_BYTES),
            clock: Arc::new(clock),
        };
        let device = Arc::clone(&volume.device);
        let size = volume.block_size();
        volume.journal = Journal::with_log(device, size, options.cache, log, journal_options)?;
        volume.device = Arc::clone(volume.journal.device());
        Ok(volume)
    }

    /// A volume on `device` with a superblock that was just made and checked: for mkfs, before
    /// anything else stands on the device.
    pub(crate) fn with_superblock(
        device: Arc<dyn BlockDevice>,
        at_open: Superblock,
        options: &VolumeOptions,
    ) -> Result<Volume> {
        let geometry = Geometry::new(&at_open)?;
        at_open.check_device(device.len(), Site::NOWHERE)?;
        let journal = Journal::off(Arc::clone(&device), at_open.block_size, options.cache);
        let free_clusters = at_open.free_blocks >> geometry.log_cluster_ratio();
        Ok(Volume {
            device,
            journal,
            geometry,
            csum: at_open.checksums(),
            csum_seed: at_open.csum_seed(),
            inode_format: InodeFormat::new(&at_open),
            superblock: RwLock::new(Rank::Superblock, at_open.clone()),
            groups: GroupTable::new(geometry.groups_count()),
            closed_commit_point: Mutex::new(Rank::Leaf, None),
            group_index: GroupIndex::new(geometry.groups_count()),
            loaded_trees: LoadedTrees::new(),
            pending_groups: PendingGroups::new(),
            preallocations: Preallocations::new(),
            reserved: Arc::default(),
            privileged: options.privileged,
            inodes: InodeTable::new(options.inodes),
            free_clusters: CachePadded::new(AtomicI64::new(
                i64::try_from(free_clusters).unwrap_or(i64::MAX),
            )),
            free_inodes: CachePadded::new(AtomicI64::new(i64::from(at_open.free_inodes))),
            used_dirs: CachePadded::default(),
            late_compat: AtomicU32::new(0),
            late_ro_compat: AtomicU32::new(0),
            overhead: OnceLock::new(),
            errors: ErrorNotes::new(options.on_error.clone()),
            damage_policy: options.damage_policy,
            discard: options.discard,
            stripe: stripe_clusters(options.stripe, &at_open, &geometry),
            known_xattrs: Mutex::new(Rank::Leaf, KnownBlocks::default()),
            known_values: Mutex::new(Rank::Shared, KnownValues::default()),
            freed_later: options.free_later.then(|| Mutex::new(Rank::Leaf, Vec::new())),
            short_cuts: options.short_cuts,
            quota: options.quota.and_then(|policy| Quota::of(&at_open, policy)),
            orphans: Orphans::new(&at_open),
            renames: Mutex::new(Rank::Rename, ()),
            bulk: BulkCursor::default(),
            environment: options.environment.clone(),
            data_mode: options.data_mode,
            fast_commits: false,
            page_cache: None,
            chunks: Chunks::new(64 << 20),
            drop_behind: false,
            read_only: options.read_only,
            mode: Mode::new(options.read_only),
            announced: Mutex::new(Rank::Mount, false),
            sums_file: OnceLock::new(),
            own_log: RangeSet::new(),
            hold: None,
            descriptors_from: options.backup,
            at_open,
        })
    }

    /// Whether a compatible feature is on.
    pub(crate) fn has_compat(&self, feature: Compat) -> bool {
        self.at_open.features.compat.contains(feature)
    }

    /// Whether an incompatible feature is on.
    pub(crate) fn has_incompat(&self, feature: Incompat) -> bool {
        self.at_open.features.incompat.contains(feature)
    }

    /// Whether a read-only compatible feature is on.
    pub(crate) fn has_ro_compat(&self, feature: RoCompat) -> bool {
        self.at_open.features.ro_compat.contains(feature)
    }

    /// Whether the blocks of `ino` must keep off metadata at fixed places and the log. The engine's own inodes
    /// may name them: the resize inode names the reserved descriptor blocks.
    pub(crate) fn guards_system(&self, ino: Ino) -> bool {
        ino == Ino::ROOT || ino.get() >= self.at_open.first_ino
    }

    /// Size of a block.
    pub(crate) fn block_size(&self) -> BlockSize {
        self.geometry.block_size()
    }

    /// The block that holds the primary superblock, and the byte where it starts there.
    pub(crate) fn superblock_block(&self) -> Result<(MetaBlock, usize)> {
        let block = self.block_size().block_at(ByteOffset(SUPERBLOCK_OFFSET));
        let start = self.block_size().start_of(block);
        let block = self.journal.cache().get(block)?;
        let at = (SUPERBLOCK_OFFSET - start.0) as usize;
        let is_right = |bytes: &[u8], _: usize| {
            let raw = RawSuperblock::from_prefix(&bytes[at..]);
            raw.is_some_and(|raw| raw.check(Site::NOWHERE).is_ok()).into()
        };
        self.journal.cache().take_best(&block, Role::Superblock.kind(), 1, &is_right);
        Ok((block, at))
    }
}

/// Reads and checks the superblock: the primary, or the copy in group `backup`.
///
/// Errors: `Device` (a device too short included); `SuperblockMagic` and the other checks.
pub(crate) fn read_superblock(
    device: &dyn BlockDevice,
    backup: Option<GroupNr>,
) -> Result<Superblock> {
    let superblock = match backup {
        None => check_superblock(device, SUPERBLOCK_OFFSET)?,
        Some(group) => backup_superblock(device, group)?,
    };
    superblock.check_device(device.len(), Site::NOWHERE)?;
    Ok(superblock)
}

/// The superblock's bytes at `at` of the device, unchecked.
pub(crate) fn raw_superblock(device: &dyn BlockDevice, at: u64) -> Result<RawSuperblock> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    if at.checked_add(bytes.len() as u64).is_none_or(|end| end > device.len()) {
        // Nothing so short holds a volume.
        return Err(Site::NOWHERE.corrupt(What::SuperblockMagic));
    }
    let is_right = |bytes: &[u8]| {
        RawSuperblock::from_prefix(bytes).is_some_and(|raw| raw.check(Site::NOWHERE).is_ok())
    };
    // Of mirrors one that has it right; what is wrong with all of them is for the caller.
    device.read_verified(ByteOffset(at), &mut bytes, &is_right)?;
    RawSuperblock::read_from_bytes(&bytes).map_err(|_| Site::NOWHERE.corrupt(What::SuperblockMagic))
}

fn check_superblock(device: &dyn BlockDevice, at: u64) -> Result<Superblock> {
    raw_superblock(device, at)?.check(Site::NOWHERE)
}

/// The copy in `group`. Where it lies depends on block size and group size, which a damaged primary
/// cannot be asked for: every block size with its usual group size is tried, the primary's own
/// fields first.
fn backup_superblock(device: &dyn BlockDevice, group: GroupNr) -> Result<Superblock> {
    let mut places = Vec::new();
    if let Ok(primary) = raw_superblock(device, SUPERBLOCK_OFFSET)
        && let Ok(primary) = primary.parse(Site::NOWHERE)
    {
        let first = u64::from(primary.first_data_block);
        places.push((primary.block_size, first, u64::from(primary.blocks_per_group)));
    }
    for size in BlockSize::ALL {
        let first = u64::from(size.bytes() == 1024);
        places.push((size, first, (size.bytes() as u64 * 8).min(65528)));
    }
    let mut found = Err(Site::of_group(group).corrupt(What::SuperblockMagic));
    for (size, first, per_group) in places {
        let block = u64::from(group.0).saturating_mul(per_group).saturating_add(first);
        let at = match group.0 {
            0 => SUPERBLOCK_OFFSET,
            _ => size.start_of(BlockNr(block)).0,
        };
        match raw_superblock(device, at).and_then(|raw| raw.check(Site::of_group(group))) {
            Ok(superblock) if superblock.block_group == group => return Ok(superblock),
            // A copy that is there but bad says more than one that is not.
            Err(error) if !matches!(error, Error::Corrupt { what: What::SuperblockMagic, .. }) => {
                found = Err(error);
            }
            _ => {}
        }
    }
    found
}
