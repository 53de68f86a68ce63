//! One change that has the volume to itself, from its first step to its last.
//!
//! ```text
//!   begin   RECOVER on (no journal: VALID off)     from here on the log may hold a step
//!   …       steps, each atomic
//!   finish  log empty ─► RECOVER off (VALID on)
//! ```
//!
//! For changes that an open volume cannot follow: another size, other checksums, no journal.

use crate::context::environment::Environment;
use crate::context::superblock::{patch_superblock, read_superblock};
use crate::recovery::staged::Staged;
use crate::volume::{Volume, VolumeOptions};
use extant_base::{Error, Result};
use extant_blockdev::BlockDevice;
use extant_journal::{HomeLimits, Log};
use extant_ondisk::features::{Incompat, RoCompat};
use extant_ondisk::superblock::{Superblock, VolumeState};
use std::sync::Arc;

/// The devices of a volume.
#[derive(Clone)]
pub(crate) struct Devices {
    /// The volume itself.
    pub(crate) volume: Arc<dyn BlockDevice>,
    /// The device of its external journal, if one was given.
    pub(crate) journal: Option<Arc<dyn BlockDevice>>,
}

/// The volume during the change.
pub(crate) struct Exclusive {
    /// The changes that wait.
    pub(crate) staged: Staged,
    /// The superblock when the change began.
    pub(crate) at_begin: Superblock,
    /// Clock and randomness.
    pub(crate) environment: Environment,
}

impl Exclusive {
    /// The superblock of a recovered volume that may be changed as a whole.
    ///
    /// Errors: `Unsupported` for features that the engine cannot keep valid; `NotSupported` for a
    /// volume that needs a check first; `Corrupt`, `Device`.
    pub(crate) fn check(devices: &Devices) -> Result<Superblock> {
        let sb = read_superblock(&*devices.volume, None)?;
        if let Some(feature) = sb.features.all_unwritable().next() {
            return Err(Error::Unsupported { feature });
        }
        if !sb.is_clean() {
            return Err(Error::NotSupported(
                match sb.features.ro_compat.contains(RoCompat::DATA_CSUM) {
                    true => {
                        "the volume was not unmounted cleanly or has errors: turn off data_csum \
                         alone, then repair the volume with e2fsck"
                    }
                    false => {
                        "the volume was not unmounted cleanly or has errors: check and repair it \
                         first"
                    }
                },
            ));
        }
        Ok(sb)
    }

    /// Marks the recovered volume as being changed.
    ///
    /// Errors: those of [`Exclusive::check`]; `JournalElsewhere` when its journal was not given.
    pub(crate) fn begin(devices: &Devices, environment: &Environment) -> Result<Exclusive> {
        let exclusive = Exclusive::begin_unmarked(devices, environment)?;
        let logged = exclusive.staged.log().is_some();
        let home = exclusive.staged.home();
        patch_superblock(&**home, |sb| match logged {
            true => sb.features.incompat.insert(Incompat::RECOVER),
            false => sb.state.remove(VolumeState::VALID),
        })?;
        home.flush()?;
        Ok(exclusive)
    }

    /// As [`Exclusive::begin`], but does not mark the volume. For a change that takes effect with
    /// its first write to the volume's content.
    pub(crate) fn begin_unmarked(
        devices: &Devices,
        environment: &Environment,
    ) -> Result<Exclusive> {
        let at_begin = Exclusive::check(devices)?;
        let device = &devices.volume;
        let log = open_log(devices, &at_begin)?;
        let recovery = match &log {
            Some(log) => Some(log.recover(device, limits(&at_begin))?),
            None => None,
        };
        let staged = Staged::new(Arc::clone(device), log.zip(recovery), at_begin.block_size);
        Ok(Exclusive { staged, at_begin, environment: environment.clone() })
    }

    /// Time in seconds and nanoseconds.
    pub(crate) fn now(&self) -> (u64, u32) {
        let now = self.environment.now();
        (u64::try_from(now.sec).unwrap_or(0), now.nsec)
    }

    /// The changed volume, with the journal off. The caller syncs it before each step and opens
    /// it again when its geometry changed.
    pub(crate) fn volume(&self) -> Result<Volume> {
        let options = VolumeOptions {
            read_only: false,
            environment: self.environment.clone(),
            ..VolumeOptions::default()
        };
        let volume = Volume::open_parts(self.staged.device(), &options)?;
        volume.space().recount_free()?;
        Ok(volume)
    }

    /// Ends the change: empties the log and marks the volume as consistent.
    ///
    /// Changes that were not committed are dropped. Errors: `Device`.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.staged.empty_log()?;
        let valid = self.at_begin.state;
        patch_superblock(&**self.staged.home(), |sb| {
            sb.features.incompat.remove(Incompat::LIVE);
            sb.state.insert(valid);
        })?;
        self.staged.home().flush()
    }
}

fn open_log(devices: &Devices, sb: &Superblock) -> Result<Option<Log>> {
    if !sb.has_journal() {
        return Ok(None);
    }
    let volume = Volume::open_parts(Arc::clone(&devices.volume), &VolumeOptions::default())?;
    match volume.journal_file().place(devices.journal.as_ref())? {
        Some(place) => Log::open(place.device, place.map).map(Some),
        None => Ok(None),
    }
}

/// The limits for replaying the log of a volume to its home locations.
pub(crate) fn limits(sb: &Superblock) -> HomeLimits {
    HomeLimits {
        volume_blocks: sb.blocks_count,
        log_on_volume: sb.journal_inum != 0,
        inode_bytes: usize::from(sb.inode_size),
    }
}
