//! Making a volume consistent on its own device, and changing it while no other program uses it.

use super::RESYNC_AT_ONCE;
use super::devices::name_of;
use super::options::OpenOptions;
use crate::audit::scrub::make_members_equal;
use crate::context::mmp::Hold;
use crate::context::superblock::read_superblock;
use crate::open::exclusive::Devices;
use crate::recovery::{self, RecoveryReport, Request};
use extant_base::{Error, Result, What};
use extant_blockdev::{BlockDevice, FileDevice, FileOptions};
use extant_ondisk::superblock::Superblock;
use std::path::Path;
use std::sync::Arc;

impl OpenOptions {
    /// Makes the volume in a file or block device consistent: replays its log, applies the fast
    /// commits after it, and frees inodes without a name. A consistent volume is not changed, and a
    /// volume that could not be opened for writing stays readable.
    ///
    /// # Errors
    /// As [`OpenOptions::open`] for writing.
    ///
    /// # Examples
    ///
    /// ```
    /// # let _here = extant_guide_tests::with_image();
    /// let report = extant::OpenOptions::new().recover_in_place("disk.img")?;
    /// println!("{} transactions, {} fast commits", report.transactions, report.fast_commits);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn recover_in_place(&self, path: impl AsRef<Path>) -> Result<RecoveryReport> {
        let to_write = OpenOptions { write: true, ..self.clone() };
        let path = path.as_ref();
        to_write.recover_named(to_write.open_file(path)?, name_of(path))
    }

    /// As [`OpenOptions::recover_in_place`], for a volume on any device.
    ///
    /// # Errors
    /// As [`OpenOptions::recover_in_place`].
    pub fn recover_device_in_place(&self, device: Arc<dyn BlockDevice>) -> Result<RecoveryReport> {
        OpenOptions { write: true, ..self.clone() }.recover_named(device, b"")
    }

    fn recover_named(&self, device: Arc<dyn BlockDevice>, name: &[u8]) -> Result<RecoveryReport> {
        let (_, hold, report) = self.recover_and_hold(device, name)?;
        hold.as_ref().map_or(Ok(()), Hold::release)?;
        Ok(report)
    }

    /// Recovers the volume on `device`; the volume stays held.
    fn recover_and_hold(
        &self,
        device: Arc<dyn BlockDevice>,
        name: &[u8],
    ) -> Result<(Arc<dyn BlockDevice>, Option<Hold>, RecoveryReport)> {
        let (mut device, mirror) = self.volume_part(device, name)?;
        let hold = self.hold(&mut device, name)?;
        let superblock = match read_superblock(&*device, None) {
            Err(error) if is_torn(&error) => self.repair(&device, hold.as_ref())?,
            superblock => superblock?,
        };
        self.check_journal_device(&superblock)?;
        let report = self.recover_device(&device, &superblock, hold.as_ref())?;
        // A larger resync is left to the next program that opens the volume. Until then only the
        // source is read there.
        if let Some(mirror) = mirror.filter(|mirror| mirror.out_of_sync_bytes() <= RESYNC_AT_ONCE) {
            make_members_equal(&mirror, &())?;
        }
        Ok((device, hold, report))
    }

    /// Recovers the volume on `device`, named `name`, and passes it to `change`. The volume is held
    /// against other hosts meanwhile.
    ///
    /// Errors: as [`OpenOptions::open`] for writing; those of `change`.
    pub(crate) fn change_whole<T>(
        &self,
        device: Arc<dyn BlockDevice>,
        name: &[u8],
        change: impl FnOnce(&Devices) -> Result<T>,
    ) -> Result<T> {
        let to_write = OpenOptions { write: true, backup: None, ..self.clone() };
        let (volume, hold, _) = to_write.recover_and_hold(device, name)?;
        let journal = to_write.external_journal(hold.as_ref())?;
        let done = change(&Devices { volume, journal })?;
        hold.as_ref().map_or(Ok(()), Hold::release)?;
        Ok(done)
    }

    /// As [`OpenOptions::change_whole`], for the file `path`, which `change` receives as well.
    pub(crate) fn change_file<T>(
        &self,
        path: &Path,
        change: impl FnOnce(&FileDevice, &Devices) -> Result<T>,
    ) -> Result<T> {
        let mut options = FileOptions::new();
        let file = Arc::new(options.write(true).direct(self.direct).lock(self.lock).open(path)?);
        let device = Arc::clone(&file) as Arc<dyn BlockDevice>;
        self.change_whole(device, name_of(path), |devices| change(&file, devices))
    }

    /// Marks the volume in the file `path` as not in use by any host.
    pub(crate) fn clear_hold(&self, path: &Path) -> Result<()> {
        let to_write = OpenOptions { write: true, ..self.clone() };
        let (device, _) = to_write.volume_part(to_write.open_file(path)?, name_of(path))?;
        crate::context::mmp::clear(&device, &self.environment)
    }

    /// Recovers `device`, which is an overlay unless the volume is opened for writing.
    pub(super) fn recover_device(
        &self,
        device: &Arc<dyn BlockDevice>,
        superblock: &Superblock,
        hold: Option<&Hold>,
    ) -> Result<RecoveryReport> {
        if self.write
            && let Some(feature) = superblock.features.all_unwritable().next()
        {
            return Err(Error::Unsupported { feature });
        }
        let external = self.external_journal(hold)?;
        let options = self.volume_options(!self.write);
        recovery::recover(&Request { home: Arc::clone(device), external, options: &options })
    }

    /// Repairs the superblock of `device`, whose checksum is wrong, if a power cut tore it.
    pub(super) fn repair(
        &self,
        device: &Arc<dyn BlockDevice>,
        hold: Option<&Hold>,
    ) -> Result<Superblock> {
        let external = self.external_journal(hold)?;
        let options = self.volume_options(!self.write);
        recovery::repair_superblock(&Request {
            home: Arc::clone(device),
            external,
            options: &options,
        })
    }
}

/// Whether a superblock may have been torn by a power cut.
pub(super) fn is_torn(error: &Error) -> bool {
    matches!(error, Error::Corrupt { what: What::SuperblockChecksum, .. })
}

/// Makes the volume in a file or block device consistent, on the device itself:
/// [`OpenOptions::recover_in_place`] with default options.
///
/// # Examples
///
/// ```
/// # let _here = extant_guide_tests::with_image();
/// let report = extant::recover("disk.img")?;
/// println!("{} transactions, {} fast commits", report.transactions, report.fast_commits);
/// # Ok::<(), extant::Error>(())
/// ```
///
/// # Errors
/// As [`OpenOptions::recover_in_place`].
pub fn recover(path: impl AsRef<Path>) -> Result<RecoveryReport> {
    OpenOptions::new().recover_in_place(path)
}
