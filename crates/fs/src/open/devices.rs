//! The device of a volume: its file, the part of it that the volume uses, other members, the
//! journal's device.

use super::options::{JournalDevice, OpenOptions, Place};
use crate::context::damage::ErrorHook;
use crate::context::mmp::Hold;
use extant_base::{ByteOffset, Error, MemberError, MemberProblem, Result};
use extant_blockdev::{BlockDevice, FileOptions, Overlay, Slice};
use extant_disk::{end_of_volume_at, volume_part};
use extant_journal::Watched;
use extant_ondisk::superblock::Superblock;
use extant_raid::{Assembled, Mirror, Opening, Part};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

impl OpenOptions {
    /// The device that the volume is on, with its members assembled. [`OpenOptions::on_error`] is
    /// called for members that are missing or left out, and for members that fail later.
    ///
    /// # Errors
    /// `Device`, `Busy` from opening files; `Member` naming the member that is wrong, or what is
    /// missing.
    pub fn assemble(&self, path: impl AsRef<Path>) -> Result<Assembled> {
        let path = path.as_ref();
        self.assembled(self.open_file(path)?, &path.to_string_lossy())
    }

    /// The same for a volume, with the other members of its layout. Also returns the mirror, if it
    /// may be written: its log is replayed before members are resynced, because checksums then tell
    /// which copy is right.
    pub(super) fn volume_part(
        &self,
        device: Arc<dyn BlockDevice>,
        name: &[u8],
    ) -> Result<VolumePart> {
        let assembled = self.assembled(device, &String::from_utf8_lossy(name))?;
        let mirror = match &assembled {
            Assembled::Mirrored(mirror) if self.write => Some(Arc::clone(mirror)),
            _ => None,
        };
        Ok((assembled.device(), mirror))
    }

    fn assembled(&self, device: Arc<dyn BlockDevice>, name: &str) -> Result<Assembled> {
        let mut parts = vec![Part::new(self.slice(device)?, name)];
        if self.members.is_empty() && !self.write && !matches!(parts[0].record(), Ok(Some(_))) {
            return Ok(Assembled::Single(parts.remove(0).device));
        }
        let mut absent = Vec::new();
        for path in &self.members {
            let member = path.to_string_lossy();
            match self.open_file(path) {
                Ok(file) => parts.push(Part::new(self.slice(file)?, member)),
                Err(error) => {
                    let problem = MemberProblem::CannotOpen { errno: error.errno() };
                    let absence = MemberError { member: member.into_owned(), problem };
                    // The process that uses it may be changing it.
                    if !self.degraded || matches!(error, Error::Busy) {
                        return Err(Error::Member(Box::new(absence)));
                    }
                    absent.push(absence);
                }
            }
        }
        let opening = Opening { write: self.write, degraded: self.degraded, together: true };
        let assembled = extant_raid::assemble(parts, opening);
        match (assembled, absent.first()) {
            (Ok(Assembled::Mirrored(mirror)), _) => {
                self.report_problems(&mirror, absent, name);
                Ok(Assembled::Mirrored(mirror))
            }
            // Only a mirror can work without a member.
            (Ok(_), Some(absence)) => Err(Error::Member(Box::new(absence.clone()))),
            (Err(Error::Member(error)), Some(absence))
                if matches!(error.problem, MemberProblem::Missing { .. }) =>
            {
                Err(Error::Member(Box::new(absence.clone())))
            }
            (assembled, _) => assembled,
        }
    }

    /// Reports members that are not in use. `absent` could not be opened; others were left out, or
    /// were not named together with `name`.
    fn report_problems(&self, mirror: &Mirror, absent: Vec<MemberError>, name: &str) {
        let hook = self.on_error.clone();
        let report = move |error: MemberError| {
            if let Some(ErrorHook(report)) = &hook {
                report(&Error::Member(Box::new(error)));
            }
        };
        absent.into_iter().for_each(&report);
        mirror.left_out().iter().cloned().for_each(&report);
        if let Some(index) = mirror.missing().filter(|_| !self.degraded) {
            let problem = MemberProblem::Missing { index, count: mirror.count() };
            report(MemberError { member: name.to_owned(), problem });
        }
        mirror.on_problem(report);
    }

    /// The part of the device that the volume uses.
    fn slice(&self, device: Arc<dyn BlockDevice>) -> Result<Arc<dyn BlockDevice>> {
        let part = match &self.place {
            Place::From(0) => 0..device.len(),
            Place::From(start) => *start..end_of_volume_at(&*device, *start).max(*start),
            Place::Bytes(bytes) => bytes.clone(),
            Place::Partition(selector) => volume_part(&*device, Some(selector))?,
            Place::Found => volume_part(&*device, None)?,
        };
        Ok(match part == (0..device.len()) {
            true => device,
            false => {
                let len = part.end.saturating_sub(part.start);
                Arc::new(Slice::new(device, ByteOffset(part.start), len)?)
            }
        })
    }

    /// Takes the volume in the file `name` for this host (multiple mount protection), if it is
    /// opened for writing and has that feature. `device` then accepts writes only as long as the
    /// hold is valid.
    pub(super) fn hold(
        &self,
        device: &mut Arc<dyn BlockDevice>,
        name: &[u8],
    ) -> Result<Option<Hold>> {
        if !self.write || self.backup.is_some() {
            return Ok(None);
        }
        // A heartbeat's failed write may receive an error that belonged to the volume's writes. The
        // volume's next flush reports it, too.
        let watched = Watched::new(Arc::clone(device)) as Arc<dyn BlockDevice>;
        let hold = Hold::take(&watched, file_name(name), &self.environment)?;
        if let Some(hold) = &hold {
            *device = hold.guard(watched);
        }
        Ok(hold)
    }

    pub(super) fn open_file(&self, path: &Path) -> Result<Arc<dyn BlockDevice>> {
        let mut options = FileOptions::new();
        options.write(self.write).direct(self.direct).lock(self.lock).dax(self.dax);
        let file = options.open(path)?;
        if let Some(ErrorHook(report)) = &self.on_error {
            file.passed_locks().iter().for_each(|&pid| report(&Error::Locked { pid }));
        }
        Ok(Arc::new(file))
    }

    /// The device of the external journal, if one was given; an overlay of it unless opened for
    /// writing.
    pub(super) fn external_journal(
        &self,
        hold: Option<&Hold>,
    ) -> Result<Option<Arc<dyn BlockDevice>>> {
        let external = match &self.journal_device {
            Some(JournalDevice::Path(path)) => self.open_file(path)?,
            Some(JournalDevice::Open(device)) => Arc::clone(device),
            None => return Ok(None),
        };
        Ok(Some(match (self.write, hold) {
            (true, Some(hold)) => hold.guard(external),
            (true, None) => external,
            (false, _) => Arc::new(Overlay::new(external)),
        }))
    }

    /// Errors: `Invalid` when a device for an external journal was given and the volume names none.
    pub(super) fn check_journal_device(&self, superblock: &Superblock) -> Result<()> {
        let is_external = superblock.has_journal() && superblock.journal_inum == 0;
        match self.journal_device.is_some() && !is_external {
            true => Err(Error::Invalid(
                "the volume has no external journal: open it without a journal device",
            )),
            false => Ok(()),
        }
    }

    /// Whether the options say that the volume is on several devices.
    pub(crate) fn has_members(&self) -> bool {
        !self.members.is_empty() || self.degraded
    }
}

/// The device of a volume, and the mirror that it is on, if that may be written.
type VolumePart = (Arc<dyn BlockDevice>, Option<Arc<Mirror>>);

/// A path as its bytes.
pub(super) fn name_of(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

/// The last part of a path.
fn file_name(path: &[u8]) -> &[u8] {
    Path::new(OsStr::from_bytes(path)).file_name().unwrap_or_default().as_bytes()
}
