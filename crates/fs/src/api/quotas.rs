//! Usage and limits of users, groups and projects.
//!
//! ```text
//!   quota file ──► every id with usage or limits: bytes, inodes ──► QuotaUsage
//!   limits     ──► the id's entry, one transaction
//! ```

use crate::api::filesystem::Filesystem;
use crate::state::quota::limits::QuotaLimits;
use crate::state::quota::{NO_QUOTA_FILE, Quota, QuotaPolicy};
use extant_base::Result;
use extant_ondisk::quota::{QuotaEntry, QuotaKind};

/// What one user, group or project uses, and may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuotaUsage {
    /// The user, group or project.
    pub id: u32,
    /// Bytes in use: all blocks of its files.
    pub bytes: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// How much it may use.
    pub limits: QuotaLimits,
}

impl Filesystem {
    /// Usage and limits of all users, groups or projects, by number. `None` if the volume does not
    /// count them.
    ///
    /// # Errors
    /// `Corrupt(QuotaFile)`; `Device`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// let fs = extant::Filesystem::open("disk.img")?;
    /// for usage in fs.quota(extant::QuotaKind::Project)?.unwrap_or_default() {
    ///     println!("project {}: {} bytes", usage.id, usage.bytes);
    /// }
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn quota(&self, kind: QuotaKind) -> Result<Option<Vec<QuotaUsage>>> {
        let volume = self.volume();
        volume.context().recording_errors(|| {
            // A volume that is open for reading keeps no account.
            let own = match volume.quota() {
                Some(_) => None,
                None => Quota::of(volume.at_open(), QuotaPolicy::Count),
            };
            let Some(quota) = volume.quota().or(own.as_ref()) else { return Ok(None) };
            let entries = quota.entries(volume, kind)?;
            let usage = |entry: QuotaEntry| QuotaUsage {
                id: entry.id,
                bytes: entry.space,
                inodes: entry.inodes,
                limits: QuotaLimits::of(&entry),
            };
            Ok(entries.map(|entries| entries.into_iter().map(usage).collect()))
        })
    }

    /// Replaces the limits of a user, group or project. They bind where they are enforced: by Linux
    /// with the mount options for quota, by [`OpenOptions::enforce_quota`].
    ///
    /// # Errors
    /// `ReadOnly`; `NotSupported` if the volume has no quota file for this kind; `NoSpace`;
    /// `Corrupt(QuotaFile)`; `Device`.
    ///
    /// [`OpenOptions::enforce_quota`]: crate::OpenOptions::enforce_quota
    pub fn set_quota_limits(&self, kind: QuotaKind, id: u32, limits: &QuotaLimits) -> Result<()> {
        let volume = self.volume();
        volume.context().recording_errors(|| {
            volume.context().check_writable()?;
            let quota = volume.quota().ok_or(NO_QUOTA_FILE)?;
            volume.space().with_space_retry(|| quota.set_limits(volume, kind, id, limits))
        })
    }
}
