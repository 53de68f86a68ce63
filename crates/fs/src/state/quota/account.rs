//! The quota files of a volume together, and how a change of an inode changes the usage.
//!
//! ```text
//!   slot before     slot after        change
//!   nothing         ids, sectors      + 1 inode, + sectors       a new inode
//!   ids, sectors    same ids          + difference of sectors
//!   ids, sectors    other ids         all moves to the new ids   chown, another project
//!   ids, sectors    nothing           - 1 inode, - sectors       the inode is released
//! ```

use crate::state::quota::ledger::{Delta, Ledger};
use crate::state::quota::limits::{QuotaLimits, Wanted};
use crate::state::quota::{QuotaHost, quota_inodes};
use extant_base::narrow::len_u32;
use extant_base::{Error, Ino, Result};
use extant_journal::Handle;
use extant_ondisk::inode::{Inode as DiskInode, InodeFormat};
use extant_ondisk::quota::{QuotaEntry, QuotaKind};
use extant_ondisk::superblock::Superblock;

/// The error of limits that no file can store.
pub(crate) const NO_QUOTA_FILE: Error =
    Error::NotSupported("limits on a volume without such a quota file: tune -O quota adds it");

/// The quota policy of an open volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuotaPolicy {
    /// Usage is counted.
    Count,
    /// Usage is counted and limits are enforced.
    Enforce,
}

/// The quota files of a volume that is being changed.
pub(crate) struct Quota {
    ledgers: Vec<(QuotaKind, Ledger)>,
    policy: QuotaPolicy,
}

/// The ids that an inode counts for, and its sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holding {
    uid: u32,
    gid: u32,
    projid: u32,
    sectors: u64,
}

impl Holding {
    /// The holding of a new inode that has no blocks yet.
    pub(crate) fn of_ids(uid: u32, gid: u32, projid: u32) -> Holding {
        Holding { uid, gid, projid, sectors: 0 }
    }

    /// The sectors, in units of 512 bytes.
    pub(crate) fn sectors(&self) -> u64 {
        self.sectors
    }

    /// Whether both count for the same owner, group and project.
    pub(crate) fn has_ids_of(&self, other: &Holding) -> bool {
        (self.uid, self.gid, self.projid) == (other.uid, other.gid, other.projid)
    }

    /// The holding of an inode with these fields.
    pub(crate) fn of(disk: &DiskInode) -> Holding {
        Holding { uid: disk.uid, gid: disk.gid, projid: disk.projid, sectors: disk.sectors }
    }

    /// The holding of a slot in an inode table.
    pub(crate) fn of_slot(bytes: &[u8], ino: Ino, format: &InodeFormat) -> Option<Holding> {
        DiskInode::parse_unverified(bytes, ino, format).ok().map(|disk| Holding::of(&disk))
    }

    fn id(&self, kind: QuotaKind) -> u32 {
        match kind {
            QuotaKind::User => self.uid,
            QuotaKind::Group => self.gid,
            QuotaKind::Project => self.projid,
        }
    }

    /// The change of usage when this holding is added, with `inodes` inodes.
    fn delta(&self, inodes: u64) -> Delta {
        let bytes = self.sectors.saturating_mul(512);
        Delta {
            inodes: i64::try_from(inodes).unwrap_or(i64::MAX),
            bytes: i64::try_from(bytes).unwrap_or(i64::MAX),
        }
    }
}

impl std::ops::Neg for Delta {
    type Output = Delta;

    fn neg(self) -> Delta {
        Delta { inodes: -self.inodes, bytes: -self.bytes }
    }
}

impl Quota {
    /// The quota files that a superblock names; `None` without any.
    pub(crate) fn of(superblock: &Superblock, policy: QuotaPolicy) -> Option<Quota> {
        let ledgers: Vec<_> = quota_inodes(superblock)
            .into_iter()
            .map(|(kind, ino)| (kind, Ledger::new(kind, ino, policy)))
            .collect();
        (!ledgers.is_empty()).then_some(Quota { ledgers, policy })
    }

    /// Moves the usage of an inode with `values` value inodes from one holding to another.
    pub(crate) fn transfer(
        &self,
        host: &dyn QuotaHost,
        handle: &Handle<'_>,
        from: Option<Holding>,
        to: Option<Holding>,
        values: u64,
    ) -> Result<()> {
        for (kind, ledger) in &self.ledgers {
            match (from, to) {
                (Some(from), Some(to)) if from.id(*kind) == to.id(*kind) => {
                    let bytes = to.delta(0).bytes - from.delta(0).bytes;
                    ledger.change(host, handle, to.id(*kind), Delta { inodes: 0, bytes })?;
                }
                _ => {
                    let inodes = 1 + values;
                    if let Some(from) = from {
                        ledger.change(host, handle, from.id(*kind), -from.delta(inodes))?;
                    }
                    if let Some(to) = to {
                        ledger.change(host, handle, to.id(*kind), to.delta(inodes))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// How many quota files there are.
    pub(crate) fn len(&self) -> u32 {
        len_u32(self.ledgers.len())
    }

    /// Whether limits are enforced.
    pub(crate) fn is_enforced(&self) -> bool {
        self.policy == QuotaPolicy::Enforce
    }

    /// Makes sure that the ids of `holding` have entries. The caller holds no handle.
    pub(crate) fn prepare(&self, host: &dyn QuotaHost, holding: &Holding) -> Result<()> {
        let mut ledgers = self.ledgers.iter();
        ledgers.try_for_each(|(kind, ledger)| ledger.prepare(host, holding.id(*kind)))
    }

    /// Adds `inodes` to the usage of the ids of `holding`; a negative number subtracts.
    pub(crate) fn add_inodes(
        &self,
        host: &dyn QuotaHost,
        handle: &Handle<'_>,
        holding: &Holding,
        inodes: i64,
    ) -> Result<()> {
        let delta = Delta { inodes, bytes: 0 };
        let mut ledgers = self.ledgers.iter();
        ledgers.try_for_each(|(kind, ledger)| ledger.change(host, handle, holding.id(*kind), delta))
    }

    /// Checks that the ids of `holding` may use `wanted` in addition.
    pub(crate) fn check(
        &self,
        host: &dyn QuotaHost,
        holding: &Holding,
        wanted: Wanted,
    ) -> Result<()> {
        let mut ledgers = self.ledgers.iter();
        ledgers.try_for_each(|(kind, ledger)| ledger.check(host, holding.id(*kind), wanted))
    }

    /// All entries of a kind, by id; `None` if the volume has no such quota file.
    pub(crate) fn entries(
        &self,
        host: &dyn QuotaHost,
        kind: QuotaKind,
    ) -> Result<Option<Vec<QuotaEntry>>> {
        let ledger = self.ledgers.iter().find(|(of, _)| *of == kind);
        ledger.map(|(_, ledger)| ledger.entries(host)).transpose()
    }

    /// Replaces the limits of one id. The caller holds no handle.
    ///
    /// Errors: `NotSupported` if the volume has no such quota file; those of the file.
    pub(crate) fn set_limits(
        &self,
        host: &dyn QuotaHost,
        kind: QuotaKind,
        id: u32,
        limits: &QuotaLimits,
    ) -> Result<()> {
        let ledger = self.ledgers.iter().find(|(of, _)| *of == kind);
        let (_, ledger) = ledger.ok_or(NO_QUOTA_FILE)?;
        ledger.set_limits(host, id, limits)
    }

    /// Removes idle entries. The caller holds no handle.
    pub(crate) fn sweep(&self, host: &dyn QuotaHost) -> Result<()> {
        self.ledgers.iter().try_for_each(|(_, ledger)| ledger.sweep(host))
    }
}
