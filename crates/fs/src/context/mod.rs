//! The state that every component of an open volume shares.
//!
//! ```text
//!   Context ─┬─ device ──── journal ── cache of metadata blocks
//!            ├─ geometry                                       grows with the volume
//!            ├─ checksums, inode_format, at_open               fixed while the volume is open
//!            ├─ superblock   (Rank::Superblock)                fields that change, late features
//!            ├─ damage       errors met since the volume was opened, and the reaction to them
//!            ├─ mode, announced, hold                          whether the volume may be changed
//!            └─ environment  clock and randomness
//! ```
//!
//! Opening a volume makes one `Context`. The volume and its components share it through an `Arc`.
//! It knows nothing of groups, inodes or names.

pub(crate) mod damage;
pub(crate) mod environment;
pub(crate) mod geometry;
pub(crate) mod lazy_table;
pub(crate) mod mmp;
pub(crate) mod mode;
pub(crate) mod role;
pub(crate) mod superblock;

use crate::context::damage::{Damage, DamagePolicy, ErrorHook};
use crate::context::environment::Environment;
use crate::context::geometry::{CurrentGeometry, Growing};
use crate::context::mode::WriteState;
use crate::context::superblock::SuperblockState;
use extant_base::{BlockSize, Ino, Result, Site};
use extant_blockdev::BlockDevice;
use extant_journal::{CacheOptions, Change, Handle, Ineligible, Journal, JournalOptions, Log};
use extant_ondisk::checksum::Checksums;
use extant_ondisk::features::{Compat, Incompat, RoCompat};
use extant_ondisk::geometry::Geometry;
use extant_ondisk::inode::InodeFormat;
use extant_ondisk::superblock::Superblock;
use std::sync::Arc;

/// How a [`Context`] is made.
pub(crate) struct ContextOptions {
    /// Nothing is changed on the device.
    pub(crate) read_only: bool,
    /// Memory for metadata blocks.
    pub(crate) cache: CacheOptions,
    /// Clock and randomness.
    pub(crate) environment: Environment,
    /// Called for each damage that the engine meets.
    pub(crate) on_error: Option<ErrorHook>,
    /// How the volume reacts to damage.
    pub(crate) damage_policy: DamagePolicy,
}

/// The state that every component of an open volume shares. See the module's picture.
pub(crate) struct Context {
    device: Arc<dyn BlockDevice>,
    journal: Journal,
    geometry: CurrentGeometry,
    checksums: Checksums,
    checksum_seed: u32,
    inode_format: InodeFormat,
    at_open: Superblock,
    superblock: SuperblockState,
    damage: Damage,
    write_state: WriteState,
    environment: Environment,
    fast_commits: bool,
}

impl Context {
    /// The context of the volume on `device`, without a log. `at_open` is its checked superblock.
    ///
    /// # Errors
    /// `Corrupt` for a superblock whose fields contradict each other or the device's size.
    pub(crate) fn new(
        device: Arc<dyn BlockDevice>,
        at_open: Superblock,
        options: ContextOptions,
    ) -> Result<Context> {
        let geometry = CurrentGeometry::new(&at_open)?;
        at_open.check_device(device.len(), Site::NOWHERE)?;
        let journal = Journal::off(Arc::clone(&device), at_open.block_size, options.cache);
        Ok(Context {
            device,
            journal,
            geometry,
            checksums: at_open.checksums(),
            checksum_seed: at_open.csum_seed(),
            inode_format: InodeFormat::new(&at_open),
            superblock: SuperblockState::new(at_open.clone()),
            damage: Damage::new(options.on_error, options.damage_policy),
            write_state: WriteState::new(options.read_only),
            environment: options.environment,
            fast_commits: false,
            at_open,
        })
    }

    /// From now on, changes of metadata go through `log`, which recovery has replayed.
    ///
    /// # Errors
    /// An error of the log.
    pub(crate) fn set_log(
        &mut self,
        cache: CacheOptions,
        log: Log,
        options: JournalOptions,
    ) -> Result<()> {
        let device = Arc::clone(&self.device);
        self.fast_commits = options.fast_commits;
        self.journal = Journal::with_log(device, self.block_size(), cache, log, options)?;
        self.device = Arc::clone(self.journal.device());
        Ok(())
    }

    /// The device that holds the volume.
    pub(crate) fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// The journal, through which all metadata changes. It owns the cache of metadata blocks.
    pub(crate) fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Which block belongs to which group, and where the fixed metadata lies, as it is now. A
    /// volume can grow between two calls.
    pub(crate) fn geometry(&self) -> &Geometry {
        self.geometry.get()
    }

    /// Blocks whose free ones can be used. A volume has more while it grows.
    pub(crate) fn usable_blocks(&self) -> u64 {
        self.geometry.usable_blocks()
    }

    /// Blocks of these that are reserved for root, as it is now.
    pub(crate) fn reserved_blocks(&self) -> u64 {
        self.geometry.reserved_blocks()
    }

    /// How many groups a change of many runs can reach at most, for its credits. It is more than a
    /// small volume has, because the volume may grow before the change is made.
    pub(crate) fn groups_to_reach(&self) -> u32 {
        self.geometry().groups_count().max(16)
    }

    /// The right to make the volume larger.
    ///
    /// Errors: `Busy` if another thread has it.
    pub(crate) fn begin_growing(&self) -> Result<Growing<'_>> {
        Growing::begin(&self.geometry)
    }

    /// The checksums of metadata.
    pub(crate) fn checksums(&self) -> &Checksums {
        &self.checksums
    }

    /// The filesystem seed, which `ea_inode` needs even without `metadata_csum`.
    pub(crate) fn checksum_seed(&self) -> u32 {
        self.checksum_seed
    }

    /// The layout of inodes.
    pub(crate) fn inode_format(&self) -> &InodeFormat {
        &self.inode_format
    }

    /// The superblock as it was at open: features, seeds, reserved inodes. Fields that change while
    /// the volume is open are out of date here.
    pub(crate) fn at_open(&self) -> &Superblock {
        &self.at_open
    }

    /// Clock and randomness.
    pub(crate) fn environment(&self) -> &Environment {
        &self.environment
    }

    /// Size of a block.
    pub(crate) fn block_size(&self) -> BlockSize {
        self.at_open.block_size
    }

    /// 512-byte sectors in `blocks` filesystem blocks.
    pub(crate) fn sectors(&self, blocks: u64) -> u64 {
        blocks << (self.block_size().log2() - 9)
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

    /// Whether the blocks of `ino` must not overlap metadata at fixed places or the log. The
    /// engine's own inodes may overlap it: the resize inode maps the reserved descriptor blocks.
    pub(crate) fn guards_system(&self, ino: Ino) -> bool {
        ino == Ino::ROOT || ino.get() >= self.at_open.first_ino
    }

    /// Whether changes are recorded for fast commits.
    pub(crate) fn fast_commits(&self) -> bool {
        self.fast_commits
    }

    /// Notes that `handle` makes this change, so that a fast commit can record it. While the volume
    /// grows, the next commit is a full one.
    pub(crate) fn record(&self, handle: &Handle<'_>, change: Change<'_>) {
        if self.fast_commits {
            // A reader of the log knows the volume's size from the superblock at home.
            let may_record = !self.geometry.is_growing();
            handle.note(if may_record { change } else { Change::Full(Ineligible::Superblock) });
        }
    }

    /// No fast commit can record the change that `handle` makes: the next commit must be a full
    /// one.
    pub(crate) fn require_full_commit(&self, handle: &Handle<'_>, reason: Ineligible) {
        self.record(handle, Change::Full(reason));
    }
}
