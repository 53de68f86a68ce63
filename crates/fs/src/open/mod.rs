//! Opening a volume.
//!
//! ```text
//!   path ──FileOptions──► device ──[Slice]──► [Hold] ──► superblock ── needs recovery? ──► Volume
//!                                                             │ yes
//!                        for writing:  recover the device
//!                        for reading:  recover an Overlay over it, in memory (decision 0001)
//! ```

mod devices;
pub(crate) mod exclusive;
mod held;
mod options;
mod recover;

use crate::api::filesystem::Filesystem;
use crate::api::sync_way::ByteLogMode;
use crate::audit::scrub::make_members_equal;
use crate::context::environment::Environment;
use crate::context::mmp::Hold;
use crate::context::superblock::read_superblock;
use crate::inodes::journal_map::JournalPlace;
use crate::recovery;
use crate::state::quota::QuotaPolicy;
use crate::volume::{DataMode, Volume, VolumeOptions};
use devices::name_of;
use extant_base::{BlockSize, Error, Feature, GroupNr, Result};
use extant_blockdev::{BlockDevice, Overlay, ReadOnly};
use extant_journal::{CacheOptions, Log};
use extant_ondisk::features::RoCompat;
use extant_pagecache::{CacheConfig, Owner, PageCache};
use extant_raid::Mirror;
use recover::is_torn;
use std::path::Path;
use std::sync::Arc;

pub use held::HeldDevice;
pub use options::OpenOptions;
pub use recover::recover;

impl OpenOptions {
    /// Opens the volume in a file or block device.
    ///
    /// A volume with multiple mount protection is held against other hosts while it is open for
    /// writing. If its last holder did not release it, opening waits as long as the volume says (42
    /// seconds or more), to see whether that holder is still running.
    ///
    /// # Errors
    /// `Device`, `Busy` from opening the file; `Corrupt`, `Unsupported`, `Held` from the volume.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Filesystem> {
        let path = path.as_ref();
        self.open_named(self.open_file(path)?, name_of(path))
    }

    /// Opens the volume on a device.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn open_device(&self, device: Arc<dyn BlockDevice>) -> Result<Filesystem> {
        self.open_named(device, b"")
    }

    fn open_named(&self, device: Arc<dyn BlockDevice>, name: &[u8]) -> Result<Filesystem> {
        match self.try_open(Arc::clone(&device), name, None) {
            // Nothing was written: features are checked first.
            Err(Error::Unsupported { feature }) if self.write && self.read_only_if_needed => {
                let to_read = OpenOptions { write: false, ..self.clone() };
                to_read.try_open(device, name, Some(feature))
            }
            opened => opened,
        }
    }

    fn try_open(
        &self,
        device: Arc<dyn BlockDevice>,
        name: &[u8],
        read_only_reason: Option<Feature>,
    ) -> Result<Filesystem> {
        let (mut device, mirror) = self.volume_part(device, name)?;
        let hold = self.hold(&mut device, name)?;
        let may_recover = self.recover && self.backup.is_none();
        let mut is_overlay = false;
        let mut overlaid = |device: Arc<dyn BlockDevice>| -> Arc<dyn BlockDevice> {
            match std::mem::replace(&mut is_overlay, true) || self.write {
                true => device,
                false => Arc::new(Overlay::new(device)),
            }
        };
        let superblock = match read_superblock(&*device, self.backup.map(GroupNr)) {
            Err(error) if may_recover && is_torn(&error) => {
                device = overlaid(device);
                self.repair(&device, hold.as_ref())?
            }
            superblock => superblock?,
        };
        self.check_journal_device(&superblock)?;
        if self.write && !may_recover && superblock.needs_recovery() {
            return Err(Error::Invalid(
                "a volume that needs recovery is recovered before a change",
            ));
        }
        let mut is_in_system_cache = false;
        if may_recover && recovery::is_due(&superblock, self.write) {
            device = overlaid(device);
            self.recover_device(&device, &superblock, hold.as_ref())?;
        } else if !self.write {
            // A device opened for reading cannot be written, even by a mistake in the layers above.
            is_in_system_cache = device.descriptor().is_some_and(|file| file.align == 1);
            device = Arc::new(ReadOnly::new(device));
        }
        if let Some(mirror) = &mirror {
            match mirror.out_of_sync_bytes() {
                bytes if bytes > RESYNC_AT_ONCE => Mirror::resync_in_background(mirror)?,
                _ => make_members_equal(mirror, &())?,
            }
        }
        if self.write
            && self.data_mode == DataMode::Journal
            && superblock.features.ro_compat.contains(RoCompat::DATA_CSUM)
        {
            return Err(Error::NotSupported(
                "data_csum: data that goes through the journal cannot have checksums",
            ));
        }
        let quota = self.write.then_some(match self.enforce_quota {
            true => QuotaPolicy::Enforce,
            false => QuotaPolicy::Count,
        });
        let options = VolumeOptions {
            quota,
            data_mode: self.data_mode,
            byte_log: self.byte_log != ByteLogMode::Off,
            fast_commits: self.fast_commits && !self.one_transaction,
            ..self.volume_options(!self.write)
        };
        let mut volume = match self.log(&device, hold.as_ref())? {
            Some(log) => {
                let how = (self.commit_interval, self.one_transaction);
                Volume::open_with_log(device, &options, log, how)?
            }
            None => Volume::open_parts(device, &options)?,
        };
        if self.write
            && self.byte_log == ByteLogMode::Force
            && volume.journal().byte_log().is_none()
        {
            return Err(Error::NotSupported(
                "the byte log needs a journal on the volume, the feature fast_commit, and a device that \
                 can be mapped (dax=)",
            ));
        }
        if let Some(hold) = hold {
            volume.context().set_hold(hold);
        }
        let page_cache = self.new_page_cache(volume.block_size());
        volume.set_page_cache(page_cache, self.page_cache.drop_behind);
        if is_in_system_cache && self.page_cache.limit.is_none() {
            volume.set_reads_past_cache();
        }
        if self.write {
            volume.mount_state().begin_writing(self.one_transaction)?;
        }
        let volume = Arc::new(volume);
        if let Some(cache) = volume.page_cache() {
            cache.start(Arc::clone(&volume) as Arc<dyn Owner>)?;
        }
        Ok(Filesystem::new(volume, self.one_transaction, read_only_reason))
    }

    fn new_page_cache(&self, block_size: BlockSize) -> Option<PageCache> {
        let options = &self.page_cache;
        if options.limit == Some(0) || self.one_transaction {
            return None;
        }
        let mut config = CacheConfig::new(block_size);
        config.limit = options.limit.unwrap_or(config.limit);
        config.dirty_limit = options.dirty_limit;
        config.dont_cache_cap = options.cap.unwrap_or(config.dont_cache_cap);
        config.policy = options.policy;
        Some(PageCache::new(config))
    }

    /// The log for writing changes; `None` when opened for reading, and for a volume without a log.
    fn log(&self, device: &Arc<dyn BlockDevice>, hold: Option<&Hold>) -> Result<Option<Log>> {
        if !self.write {
            return Ok(None);
        }
        let volume = Volume::open_parts(Arc::clone(device), &self.volume_options(true))?;
        match volume.journal_file().place(self.external_journal(hold)?.as_ref())? {
            Some(JournalPlace { device, map }) => Log::open(device, map).map(Some),
            None => Ok(None),
        }
    }

    fn volume_options(&self, read_only: bool) -> VolumeOptions {
        VolumeOptions {
            read_only,
            backup: self.backup.map(GroupNr),
            cache: CacheOptions {
                limit_bytes: self.cache_bytes,
                dirty_limit_bytes: self.cache_bytes / 2,
            },
            environment: self.environment.clone(),
            on_error: self.on_error.clone(),
            damage_policy: self.damage_policy,
            discard: self.discard,
            stripe: self.stripe,
            privileged: self.use_reserve,
            short_cuts: self.short_cuts,
            ..VolumeOptions::default()
        }
    }

    /// Time and randomness.
    pub(crate) fn environment_used(&self) -> &Environment {
        &self.environment
    }
}

/// Most bytes that are resynced before a mirror is used. More is resynced by a background thread,
/// which does not use checksums (rule L7).
const RESYNC_AT_ONCE: u64 = 256 << 20;

impl Filesystem {
    /// Opens the volume in a file or block device for reading. See [`OpenOptions`] for more.
    ///
    /// # Errors
    /// `Device` and `Busy` from opening the file; `Corrupt` and `Unsupported` from the volume.
    pub fn open(path: impl AsRef<Path>) -> Result<Filesystem> {
        OpenOptions::new().open(path)
    }

    /// Opens the volume on any device for reading.
    ///
    /// # Errors
    /// `Device`; `Corrupt` and `Unsupported` from the volume.
    ///
    /// # Examples
    ///
    /// ```
    /// use extant::{Error, Filesystem, MemoryDevice};
    /// use std::sync::Arc;
    /// let empty = Arc::new(MemoryDevice::new(1 << 20));
    /// assert!(matches!(Filesystem::open_device(empty), Err(Error::Corrupt { .. })));
    /// ```
    pub fn open_device(device: Arc<dyn BlockDevice>) -> Result<Filesystem> {
        OpenOptions::new().open_device(device)
    }
}
