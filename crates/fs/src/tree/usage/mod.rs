//! Charging the usage of inodes to their owners, groups and projects.
//!
//! ```text
//!   slot before, slot after ──► quota_stored ──► Quota (quota/) ──QuotaHost──► map, journal
//!   whole volume            ──► Usage        ──► new quota files
//! ```

mod total;

pub(crate) use total::Usage;

use crate::context::Context;
use crate::state::inode::{Body, Counted};
use crate::state::quota::limits::Wanted;
use crate::state::quota::{Holding, Quota, QuotaHost};
use crate::volume::Volume;
use extant_base::{BlockNr, Ino, LogicalBlock, Result};
use extant_journal::{Handle, MetaBlock};
use extant_ondisk::extent::ExtentState;
use extant_ondisk::inode::{Inode as DiskInode, InodeFlags};

/// The charging of usage to users, groups and projects.
#[derive(Clone, Copy)]
pub(crate) struct QuotaAccounting<'a> {
    volume: &'a Volume,
}

impl Volume {
    /// The accounting of usage on this volume.
    pub(crate) fn quota_accounting(&self) -> QuotaAccounting<'_> {
        QuotaAccounting { volume: self }
    }
}

impl QuotaHost for Volume {
    fn context(&self) -> &Context {
        self.context()
    }

    fn read_inode(&self, ino: Ino) -> Result<Body> {
        self.inodes().read(ino)
    }

    fn has_map(&self, body: &Body) -> bool {
        self.file(body).has_map()
    }

    fn content_block(&self, body: &Body, at: LogicalBlock) -> Result<Option<MetaBlock>> {
        self.file(body).content_block(at)
    }

    fn is_system(&self, block: BlockNr) -> bool {
        self.space().is_system(block, 1)
    }

    fn add_block(
        &self,
        body: &mut Body,
        handle: &Handle<'_>,
        at: LogicalBlock,
    ) -> Result<Option<BlockNr>> {
        let mut new = None;
        let range = at.0..at.0.saturating_add(1);
        self.file_mut(body).fill(handle, range, ExtentState::Written, &mut |run| {
            new = run.target.block();
            Ok(())
        })?;
        Ok(new)
    }

    fn store(&self, body: &mut Body, handle: &Handle<'_>) -> Result<()> {
        body.store(self, handle)
    }
}

impl<'a> QuotaAccounting<'a> {
    /// Metadata blocks that a step dirties in quota files when it changes the usage of `inodes`
    /// inodes whose owners stay the same. The caller adds them to the step's credits. 0 if usage is
    /// not counted.
    pub(crate) fn credits(self, inodes: u32) -> u32 {
        self.volume.quota().map_or(0, |quota| quota.len() * inodes)
    }

    /// Makes sure that owner, group and project have entries, before a handle starts that charges
    /// them.
    ///
    /// Errors: `NoSpace`, `Device`, `Aborted`. Locks: the caller holds no handle.
    pub(crate) fn prepare(self, uid: u32, gid: u32, projid: u32) -> Result<()> {
        let Some(quota) = self.volume.quota() else { return Ok(()) };
        quota.prepare(self.volume, &Holding::of_ids(uid, gid, projid))
    }

    /// Charges the difference between a stored inode and `held`, the content of its slot before.
    ///
    /// Errors: `Device`, `Aborted`. Locks: takes `Quota`.
    pub(crate) fn stored(
        self,
        handle: &Handle<'_>,
        body: &mut Body,
        held: Option<Holding>,
    ) -> Result<()> {
        let Some(quota) = self.volume.quota().filter(|_| self.counts(body)) else {
            return Ok(());
        };
        let from = held.filter(|_| matches!(body.counted, Counted::Kept | Counted::Released));
        let is_kept = matches!(body.counted, Counted::New | Counted::Kept);
        let to = is_kept.then(|| Holding::of(&body.disk));
        // A second store does not count the inode again.
        body.counted = match body.counted {
            Counted::New => Counted::Kept,
            Counted::Released => Counted::Never,
            counted => counted,
        };
        if from == to {
            return Ok(());
        }
        // An inode is created and released without values: they are charged where an attribute
        // names them.
        let moves = from.zip(to).is_some_and(|(from, to)| !from.has_ids_of(&to));
        let values = if moves { self.count_value_inodes(body)? } else { 0 };
        quota.transfer(self.volume, handle, from, to, values)
    }

    /// Charges `inodes` value inodes that the attributes of an inode name in addition; negative:
    /// fewer.
    pub(crate) fn values(self, handle: &Handle<'_>, body: &Body, inodes: i64) -> Result<()> {
        let Some(quota) = self.volume.quota().filter(|_| self.counts(body)) else {
            return Ok(());
        };
        quota.add_inodes(self.volume, handle, &Holding::of(&body.disk), inodes)
    }

    /// Checks that the owner, group and project of an inode may use `sectors` more. Always passes
    /// unless the volume was opened to enforce limits.
    ///
    /// Errors: `QuotaExceeded`, `Device`. Locks: takes `Quota`.
    pub(crate) fn check(self, body: &Body, sectors: u64) -> Result<()> {
        if self.enforced().is_none() || !self.counts(body) {
            return Ok(());
        }
        // Sectors that the body got since it was last stored are not in the quota files yet.
        let stored = match body.counted {
            Counted::New | Counted::Never => 0,
            _ => {
                let ino = body.ino();
                let (block, place) = self.volume.inodes().slot(ino)?;
                let held = Holding::of_slot(&block.read()[place], ino, self.volume.inode_format());
                held.map_or(0, |held| held.sectors())
            }
        };
        let pending = body.disk.sectors.saturating_sub(stored);
        let bytes = pending.saturating_add(sectors).saturating_mul(512);
        self.check_limits(&body.disk, Wanted { bytes, inodes: 0 })
    }

    /// Checks that the owner, group and project of a new inode may have one more inode.
    ///
    /// Errors and locks as [`QuotaAccounting::check`].
    pub(crate) fn check_new(self, disk: &DiskInode) -> Result<()> {
        match disk.flags.contains(InodeFlags::EA_INODE) {
            true => Ok(()),
            false => self.check_limits(disk, Wanted { bytes: 0, inodes: 1 }),
        }
    }

    fn check_limits(self, disk: &DiskInode, wanted: Wanted) -> Result<()> {
        let Some(quota) = self.enforced() else { return Ok(()) };
        quota.check(self.volume, &Holding::of(disk), wanted)
    }

    fn enforced(self) -> Option<&'a Quota> {
        self.volume.quota().filter(|quota| quota.is_enforced())
    }

    /// Removes idle entries, at close.
    ///
    /// Errors: `Device`, `Aborted`. Locks: the caller holds no handle.
    pub(crate) fn sweep(self) -> Result<()> {
        let Some(quota) = self.volume.quota() else { return Ok(()) };
        quota.sweep(self.volume)
    }

    fn counts(self, body: &Body) -> bool {
        !self.volume.inodes().is_hidden(body.ino())
            && !body.disk.flags.contains(InodeFlags::EA_INODE)
    }
}
