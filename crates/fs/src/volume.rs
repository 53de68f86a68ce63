//! One open volume: the state that all its threads share.
//!
//! ```text
//!   Volume ─┬─ context   device, journal, geometry, superblock, damage, mode    (context/)
//!           ├─ space     groups, free blocks and inodes, reservations           (space/)
//!           ├─ inodes    inodes in use
//!           └─ orphans, quota, shared attributes, page cache, data checksums
//! ```
//!
//! Opening reads one superblock. Descriptors are read and checked when their group is first needed,
//! so a 64 TiB volume opens as fast as a small one. Recovery is not done here: `open/` runs it
//! first and then opens the volume again.

use crate::context::damage::{DamagePolicy, ErrorHook};
use crate::context::environment::Environment;
use crate::context::superblock::read_superblock;
use crate::context::{Context, ContextOptions};
use crate::space::{Space, SpaceOptions};
use crate::state::bounce::Chunks;
use crate::state::checksum_file::ChecksumFileCell;
use crate::state::closed_files::ClosedFiles;
use crate::state::inode::InodeTable;
use crate::state::inode::orphans::Orphans;
use crate::state::quota::{Quota, QuotaPolicy};
use crate::state::shared_xattrs::SharedXattrs;
use extant_base::lock::{Mutex, Rank};
use extant_base::{BlockSize, Error, GroupNr, Result};
use extant_blockdev::BlockDevice;
use extant_journal::{CacheOptions, Journal, JournalOptions, Log, LogMap, LogRun};
use extant_ondisk::byte_log::BATCH_BYTES;
use extant_ondisk::checksum::Checksums;
use extant_ondisk::features::{Compat, Incompat, RoCompat};
use extant_ondisk::geometry::Geometry;
use extant_ondisk::inode::InodeFormat;
use extant_ondisk::superblock::Superblock;
use extant_pagecache::PageCache;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Which files' data goes through the journal, and what is guaranteed for the rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DataMode {
    /// Data is on the device before the commit that makes it reachable.
    #[default]
    Ordered,
    /// All data is committed like metadata. After a crash a write of up to 64 blocks is there as a
    /// whole or not at all; of a longer write a first part may be there.
    Journal,
    /// Today as `Ordered`. Nothing is guaranteed for data that was not synced.
    Writeback,
}

/// How to open the parts of a volume.
#[derive(Clone, Debug)]
pub(crate) struct VolumeOptions {
    /// Nothing is changed on the device.
    pub(crate) read_only: bool,
    /// Use the copy of the superblock and descriptors in this group. Only with `read_only`.
    pub(crate) backup: Option<GroupNr>,
    /// Memory for metadata blocks.
    pub(crate) cache: CacheOptions,
    /// Inodes kept in memory while they have no user.
    pub(crate) inodes: usize,
    /// Clock and randomness.
    pub(crate) environment: Environment,
    /// Freed blocks are only noted, see
    /// [`Space::take_freed_later`](crate::space::Space::take_freed_later).
    pub(crate) free_later: bool,
    /// Free clusters are found by a tree, and checksums follow by `flip_delta` and `splice_delta`.
    /// Without this, every search reads the bitmap and every change checksums the whole block: for
    /// comparison.
    pub(crate) short_cuts: bool,
    /// Called for each damage that the engine meets.
    pub(crate) on_error: Option<ErrorHook>,
    /// How the volume reacts to damage.
    pub(crate) damage_policy: DamagePolicy,
    /// Freed clusters are discarded when their transaction is durable.
    pub(crate) discard: bool,
    /// Blocks of a stripe; overrides the superblock's hints.
    pub(crate) stripe: Option<u32>,
    /// Data may take the blocks that are reserved for root.
    pub(crate) privileged: bool,
    /// The policy for the quota files; `None` leaves them as they are.
    pub(crate) quota: Option<QuotaPolicy>,
    /// The files whose bytes go through the journal.
    pub(crate) data_mode: DataMode,
    /// Fast commits go to the byte log if it can be used.
    pub(crate) byte_log: bool,
    /// Syncs of files may be fast commits if the volume has them.
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
    /// Device, journal, and the other state that every component shares.
    context: Arc<Context>,
    /// Which blocks and inodes are free.
    space: Space,
    /// Until which commit point closed files have changed.
    closed_files: ClosedFiles,
    /// Inodes in use.
    inodes: InodeTable,
    /// The number of blocks that never hold data, once they were counted, and how many blocks the
    /// volume had then.
    overhead: Mutex<Option<(u64, u64)>>,
    /// Attributes that inodes may share.
    shared_xattrs: SharedXattrs,
    /// The quota files, if usage is kept up to date.
    quota: Option<Quota>,
    /// Inodes that recovery must release or truncate after a crash.
    orphans: Orphans,
    /// Held while a directory changes its parent, so that the tree's shape is stable.
    renames: Mutex<()>,
    /// The files whose bytes go through the journal.
    data_mode: DataMode,
    /// The folios of files. `None`: reads and writes go directly to the device.
    page_cache: Option<PageCache>,
    /// Bounce buffers for direct transfers.
    chunks: Chunks,
    /// By default, an opened file's bytes leave the cache when they are on the device.
    drop_behind: bool,
    /// Reads of files without folios go to the device, because the system's page cache has its
    /// bytes.
    reads_past_cache: bool,
    /// The place of the checksums of data, once they were needed.
    checksum_file: ChecksumFileCell,
}

impl Volume {
    /// Opens the volume on `device` as it is: no recovery, no change.
    ///
    /// Errors: those of the superblock; `Unsupported` naming an unknown incompatible feature, or,
    /// for writing, an unknown read-only compatible one.
    pub(crate) fn open_parts(
        device: Arc<dyn BlockDevice>,
        options: &VolumeOptions,
    ) -> Result<Volume> {
        let at_open = superblock_to_open(&*device, options)?;
        Volume::with_superblock(device, at_open, options)
    }

    /// Opens the volume on `device` to change it through `log`, which recovery has replayed.
    ///
    /// Errors: as [`Volume::open_parts`]; those of the log.
    pub(crate) fn open_with_log(
        device: Arc<dyn BlockDevice>,
        options: &VolumeOptions,
        log: Log,
        (commit_interval, one_transaction): (Option<Duration>, bool),
    ) -> Result<Volume> {
        let at_open = superblock_to_open(&*device, options)?;
        let mut context = Volume::context_of(device, at_open, options)?;
        let fast_commits = (options.fast_commits || options.byte_log)
            && can_fast_commit(&context, options.data_mode);
        let environment = options.environment.clone();
        let clock = move || {
            let now = environment.now();
            (u64::try_from(now.sec).unwrap_or(0), now.nsec)
        };
        let journal_options = JournalOptions {
            commit_interval,
            one_transaction,
            checksums: context.checksums().seed().is_some(),
            wide: context.has_incompat(Incompat::IS_64BIT),
            fast_commits,
            byte_log: (fast_commits && options.byte_log).then_some(BATCH_BYTES),
            clock: Arc::new(clock),
        };
        let log_blocks = own_log_blocks(&context, log.map());
        context.set_log(options.cache, log, journal_options)?;
        let mut volume = Volume::of_context(context, options);
        volume.space.set_own_log(log_blocks);
        Ok(volume)
    }

    /// A volume on `device` with a superblock that was just created and checked: for mkfs, before
    /// the device holds anything else.
    pub(crate) fn with_superblock(
        device: Arc<dyn BlockDevice>,
        at_open: Superblock,
        options: &VolumeOptions,
    ) -> Result<Volume> {
        Ok(Volume::of_context(Volume::context_of(device, at_open, options)?, options))
    }

    fn context_of(
        device: Arc<dyn BlockDevice>,
        at_open: Superblock,
        options: &VolumeOptions,
    ) -> Result<Context> {
        let options = ContextOptions {
            read_only: options.read_only,
            cache: options.cache,
            environment: options.environment.clone(),
            on_error: options.on_error.clone(),
            damage_policy: options.damage_policy,
        };
        Context::new(device, at_open, options)
    }

    fn of_context(context: Context, options: &VolumeOptions) -> Volume {
        let context = Arc::new(context);
        let space_options = SpaceOptions {
            privileged: options.privileged,
            discard: options.discard,
            stripe: options.stripe,
            free_later: options.free_later,
            short_cuts: options.short_cuts,
            descriptors_from: options.backup,
        };
        Volume {
            space: Space::new(Arc::clone(&context), space_options),
            closed_files: ClosedFiles::default(),
            inodes: InodeTable::new(options.inodes),
            overhead: Mutex::new(Rank::Leaf, None),
            shared_xattrs: SharedXattrs::new(),
            quota: options.quota.and_then(|policy| Quota::of(context.at_open(), policy)),
            orphans: Orphans::new(context.at_open()),
            renames: Mutex::new(Rank::Rename, ()),
            data_mode: options.data_mode,
            page_cache: None,
            chunks: Chunks::new(64 << 20),
            drop_behind: false,
            reads_past_cache: false,
            checksum_file: ChecksumFileCell::default(),
            context,
        }
    }

    /// From now on the blocks of this log must be in use, if the log is a file of the volume.
    pub(crate) fn guard_log(&mut self, map: &LogMap) {
        let blocks = own_log_blocks(&self.context, map);
        self.space.set_own_log(blocks);
    }

    /// The state that every component shares.
    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// Which blocks and inodes are free.
    pub(crate) fn space(&self) -> &Space {
        &self.space
    }

    /// The same, for a test that changes its options.
    #[cfg(test)]
    pub(crate) fn space_mut(&mut self) -> &mut Space {
        &mut self.space
    }

    /// Inodes in use.
    pub(crate) fn inode_table(&self) -> &InodeTable {
        &self.inodes
    }

    /// Inodes that recovery must release or truncate after a crash.
    pub(crate) fn orphans(&self) -> &Orphans {
        &self.orphans
    }

    /// The quota files, if usage is kept up to date.
    pub(crate) fn quota(&self) -> Option<&Quota> {
        self.quota.as_ref()
    }

    /// Replaces the quota files, for a test with another policy.
    #[cfg(test)]
    pub(crate) fn set_quota(&mut self, quota: Option<Quota>) {
        self.quota = quota;
    }

    /// Attributes that inodes may share.
    pub(crate) fn shared_xattrs(&self) -> &SharedXattrs {
        &self.shared_xattrs
    }

    /// Held while a directory changes its parent, so that the tree's shape is stable.
    pub(crate) fn rename_lock(&self) -> &Mutex<()> {
        &self.renames
    }

    /// The files whose bytes go through the journal.
    pub(crate) fn data_mode(&self) -> DataMode {
        self.data_mode
    }

    /// The folios of files. `None`: reads and writes go directly to the device.
    pub(crate) fn page_cache(&self) -> Option<&PageCache> {
        self.page_cache.as_ref()
    }

    /// Sends files' bytes through `cache`. With `drop_behind` they leave it when they are on the
    /// device.
    pub(crate) fn set_page_cache(&mut self, cache: Option<PageCache>, drop_behind: bool) {
        self.page_cache = cache;
        self.drop_behind = drop_behind;
    }

    /// Whether an opened file's bytes leave the cache when they are on the device.
    pub(crate) fn drops_behind(&self) -> bool {
        self.drop_behind
    }

    /// From now on, reads of files without folios go to the device: see
    /// [`Volume::reads_past_cache`].
    pub(crate) fn set_reads_past_cache(&mut self) {
        self.reads_past_cache = true;
    }

    /// Whether reads of files without folios go to the device. So the bytes of an image that is
    /// only read are not held twice, in the system's page cache and in ours.
    pub(crate) fn reads_past_cache(&self) -> bool {
        self.reads_past_cache
    }

    /// Bounce buffers for direct transfers.
    pub(crate) fn bounce_chunks(&self) -> &Chunks {
        &self.chunks
    }

    /// Until which commit point closed files have changed.
    pub(crate) fn closed_files(&self) -> &ClosedFiles {
        &self.closed_files
    }

    /// The number of blocks that never hold data, once they were counted, and how many blocks the
    /// volume had then: (blocks of the volume, overhead).
    pub(crate) fn overhead(&self) -> &Mutex<Option<(u64, u64)>> {
        &self.overhead
    }

    /// The place of the checksums of data, once they were needed.
    pub(crate) fn checksum_file_cell(&self) -> &ChecksumFileCell {
        &self.checksum_file
    }

    /// The device that holds the volume.
    pub(crate) fn device(&self) -> &Arc<dyn BlockDevice> {
        self.context.device()
    }

    /// The journal, through which all metadata changes. It owns the cache of metadata blocks.
    pub(crate) fn journal(&self) -> &Journal {
        self.context.journal()
    }

    /// Which block belongs to which group, and where the fixed metadata lies.
    pub(crate) fn geometry(&self) -> &Geometry {
        self.context.geometry()
    }

    /// The checksums of metadata.
    pub(crate) fn checksums(&self) -> &Checksums {
        self.context.checksums()
    }

    /// The filesystem seed, which `ea_inode` needs even without `metadata_csum`.
    pub(crate) fn checksum_seed(&self) -> u32 {
        self.context.checksum_seed()
    }

    /// The layout of inodes.
    pub(crate) fn inode_format(&self) -> &InodeFormat {
        self.context.inode_format()
    }

    /// The superblock as it was at open; see [`Context::at_open`].
    pub(crate) fn at_open(&self) -> &Superblock {
        self.context.at_open()
    }

    /// Clock and randomness.
    pub(crate) fn environment(&self) -> &Environment {
        self.context.environment()
    }

    /// Size of a block.
    pub(crate) fn block_size(&self) -> BlockSize {
        self.context.block_size()
    }

    /// Whether a compatible feature is on.
    pub(crate) fn has_compat(&self, feature: Compat) -> bool {
        self.context.has_compat(feature)
    }

    /// Whether an incompatible feature is on.
    pub(crate) fn has_incompat(&self, feature: Incompat) -> bool {
        self.context.has_incompat(feature)
    }

    /// Whether a read-only compatible feature is on.
    pub(crate) fn has_ro_compat(&self, feature: RoCompat) -> bool {
        self.context.has_ro_compat(feature)
    }
}

/// The superblock of a volume that will be opened with `options`.
fn superblock_to_open(device: &dyn BlockDevice, options: &VolumeOptions) -> Result<Superblock> {
    let superblock = read_superblock(device, options.backup)?;
    if !options.read_only {
        if options.backup.is_some() {
            return Err(Error::Invalid("a backup superblock can only be read from"));
        }
        if let Some(feature) = superblock.features.all_unwritable().next() {
            return Err(Error::Unsupported { feature });
        }
    }
    Ok(superblock)
}

/// Whether fast commits can record all changes of this volume. They cannot record usage in quota
/// files, clusters whose blocks files share, and content in the log.
fn can_fast_commit(context: &Context, data_mode: DataMode) -> bool {
    context.has_compat(Compat::FAST_COMMIT)
        && !context.has_ro_compat(RoCompat::QUOTA)
        && context.geometry().cluster_ratio() == 1
        && data_mode != DataMode::Journal
}

/// The blocks of the log, if it is a file of the volume; none for a log elsewhere.
fn own_log_blocks(context: &Context, map: &LogMap) -> Vec<Range<u64>> {
    if context.at_open().journal_inum == 0 {
        return Vec::new();
    }
    let size = context.block_size();
    let run = |run: &LogRun| (size.block_at(run.at).0, u64::from(run.count));
    map.runs().iter().map(run).map(|(first, count)| first..first + count).collect()
}
