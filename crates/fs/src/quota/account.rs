//! Charging an inode's usage to its owner, group and project.
//!
//! ```text
//!   slot before     slot after        change
//!   nothing         ids, sectors      + 1 inode, + sectors       a new inode
//!   ids, sectors    same ids          + difference of sectors
//!   ids, sectors    other ids         all moves to the new ids   chown, another project
//!   ids, sectors    nothing           - 1 inode, - sectors       the inode is released
//! ```

use crate::inode::{Body, Counted};
use crate::quota::ledger::{Delta, Ledger};
use crate::quota::limits::Wanted;
use crate::quota::quota_inodes;
use crate::volume::Volume;
use extant_base::{Ino, Result};
use extant_journal::Handle;
use extant_ondisk::inode::{Inode as DiskInode, InodeFlags, InodeFormat};
use extant_ondisk::quota::QuotaKind;
use extant_ondisk::superblock::Superblock;

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
    fn of(disk: &DiskInode) -> Holding {
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
    fn transfer(
        &self,
        volume: &Volume,
        handle: &Handle<'_>,
        from: Option<Holding>,
        to: Option<Holding>,
        values: u64,
    ) -> Result<()> {
        for (kind, ledger) in &self.ledgers {
            match (from, to) {
                (Some(from), Some(to)) if from.id(*kind) == to.id(*kind) => {
                    let bytes = to.delta(0).bytes - from.delta(0).bytes;
                    ledger.change(volume, handle, to.id(*kind), Delta { inodes: 0, bytes })?;
                }
                _ => {
                    let inodes = 1 + values;
                    if let Some(from) = from {
                        ledger.change(volume, handle, from.id(*kind), -from.delta(inodes))?;
                    }
                    if let Some(to) = to {
                        ledger.change(volume, handle, to.id(*kind), to.delta(inodes))?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl Volume {
    /// Metadata blocks that a step dirties in quota files when it changes the usage of `inodes`
    /// inodes whose owners stay the same. The caller adds them to the step's credits. 0 if usage is
    /// not counted.
    pub(crate) fn quota_credits(&self, inodes: u32) -> u32 {
        self.quota().map_or(0, |quota| quota.ledgers.len() as u32 * inodes)
    }

    /// Makes sure that owner, group and project have entries, before a handle starts that charges
    /// them.
    ///
    /// Errors: `NoSpace`, `Device`, `Aborted`. Locks: the caller holds no handle.
    pub(crate) fn quota_prepare(&self, uid: u32, gid: u32, projid: u32) -> Result<()> {
        let Some(quota) = self.quota() else { return Ok(()) };
        let ids = Holding { uid, gid, projid, sectors: 0 };
        quota.ledgers.iter().try_for_each(|(kind, ledger)| ledger.prepare(self, ids.id(*kind)))
    }

    /// Charges the difference between a stored inode and `held`, the content of its slot before.
    ///
    /// Errors: `Device`, `Aborted`. Locks: takes `Quota`.
    pub(crate) fn quota_stored(
        &self,
        handle: &Handle<'_>,
        ino: Ino,
        body: &mut Body,
        held: Option<Holding>,
    ) -> Result<()> {
        let Some(quota) = self.quota().filter(|_| self.counts(ino, body)) else {
            return Ok(());
        };
        let from = held.filter(|_| matches!(body.counted, Counted::Kept | Counted::Gone));
        let is_kept = matches!(body.counted, Counted::New | Counted::Kept);
        let to = is_kept.then(|| Holding::of(&body.disk));
        // A second store does not count the inode again.
        body.counted = match body.counted {
            Counted::New => Counted::Kept,
            Counted::Gone => Counted::Never,
            counted => counted,
        };
        if from == to {
            return Ok(());
        }
        // An inode is created and released without values: they are charged where an attribute
        // names them.
        let moves = from.zip(to).is_some_and(|(from, to)| {
            (from.uid, from.gid, from.projid) != (to.uid, to.gid, to.projid)
        });
        let values = if moves { self.count_value_inodes(ino, body)? } else { 0 };
        quota.transfer(self, handle, from, to, values)
    }

    /// Charges `inodes` value inodes that the attributes of an inode name in addition; negative:
    /// fewer.
    pub(crate) fn quota_values(
        &self,
        handle: &Handle<'_>,
        ino: Ino,
        body: &Body,
        inodes: i64,
    ) -> Result<()> {
        let Some(quota) = self.quota().filter(|_| self.counts(ino, body)) else {
            return Ok(());
        };
        let (holding, delta) = (Holding::of(&body.disk), Delta { inodes, bytes: 0 });
        for (kind, ledger) in &quota.ledgers {
            ledger.change(self, handle, holding.id(*kind), delta)?;
        }
        Ok(())
    }

    /// Checks that the owner, group and project of an inode may use `sectors` more. Always passes
    /// unless the volume was opened to enforce limits.
    ///
    /// Errors: `QuotaExceeded`, `Device`. Locks: takes `Quota`.
    pub(crate) fn quota_check(&self, ino: Ino, body: &Body, sectors: u64) -> Result<()> {
        if self.enforced().is_none() || !self.counts(ino, body) {
            return Ok(());
        }
        // Sectors that the body got since it was last stored are not in the quota files yet.
        let stored = match body.counted {
            Counted::New | Counted::Never => 0,
            _ => {
                let (block, place) = self.inode_slot(ino)?;
                let held = Holding::of_slot(&block.read()[place], ino, self.inode_format());
                held.map_or(0, |held| held.sectors)
            }
        };
        let pending = body.disk.sectors.saturating_sub(stored);
        let bytes = pending.saturating_add(sectors).saturating_mul(512);
        self.check_limits(&body.disk, Wanted { bytes, inodes: 0 })
    }

    /// Checks that the owner, group and project of a new inode may have one more inode.
    ///
    /// Errors and locks as [`Volume::quota_check`].
    pub(crate) fn quota_check_new(&self, disk: &DiskInode) -> Result<()> {
        match disk.flags.contains(InodeFlags::EA_INODE) {
            true => Ok(()),
            false => self.check_limits(disk, Wanted { bytes: 0, inodes: 1 }),
        }
    }

    fn check_limits(&self, disk: &DiskInode, wanted: Wanted) -> Result<()> {
        let Some(quota) = self.enforced() else { return Ok(()) };
        let holding = Holding::of(disk);
        let mut ledgers = quota.ledgers.iter();
        ledgers.try_for_each(|(kind, ledger)| ledger.check(self, holding.id(*kind), wanted))
    }

    fn enforced(&self) -> Option<&Quota> {
        self.quota().filter(|quota| quota.policy == QuotaPolicy::Enforce)
    }

    /// Removes idle entries, at close.
    ///
    /// Errors: `Device`, `Aborted`. Locks: the caller holds no handle.
    pub(crate) fn quota_sweep(&self) -> Result<()> {
        let Some(quota) = self.quota() else { return Ok(()) };
        quota.ledgers.iter().try_for_each(|(_, ledger)| ledger.sweep(self))
    }

    fn counts(&self, ino: Ino, body: &Body) -> bool {
        !self.is_hidden(ino) && !body.disk.flags.contains(InodeFlags::EA_INODE)
    }
}
