//! Usage of each owner, group and project, and the hidden files that record it.
//!
//! ```text
//!   Body::store ──► account ─┬─► Ledger of users      id → entry ──► inode 3
//!    the slot before,        ├─► Ledger of groups                ──► inode 4
//!    the slot now            └─► Ledger of projects              ──► s_prj_quota_inum
//!                                  all under the handle that stores the inode
//! ```
//!
//! Rule D9: at every commit, the usage in the files is the sum over the inodes in their tables. It
//! changes only where an inode is stored, by the difference between the slot before and after. The
//! root and every ordinary inode count; the volume's own inodes do not. A value inode counts for
//! each inode that names it: one inode, and its blocks, which are in the owner's sectors. A damaged
//! quota file is no longer used, and the volume is marked as having errors. Source: Linux, "Quota
//! subsystem"; e2fsprogs' quota library, observed through e2fsck. The layout is in
//! `extant_ondisk::quota`.

mod account;
mod file;
mod ledger;
pub(crate) mod limits;

pub(crate) use account::{Holding, NO_QUOTA_FILE, Quota, QuotaPolicy};
pub(crate) use file::QuotaFile;

use crate::context::Context;
use crate::state::inode::Body;
use extant_base::{BlockNr, Ino, LogicalBlock, Result};
use extant_journal::{Handle, MetaBlock};
use extant_ondisk::features::RoCompat;
use extant_ondisk::quota::QuotaKind;
use extant_ondisk::superblock::Superblock;

/// The quota files that a superblock names; none without the feature.
pub(crate) fn quota_inodes(sb: &Superblock) -> Vec<(QuotaKind, Ino)> {
    if !sb.features.ro_compat.contains(RoCompat::QUOTA) {
        return Vec::new();
    }
    [
        (QuotaKind::User, sb.usr_quota_inum),
        (QuotaKind::Group, sb.grp_quota_inum),
        (QuotaKind::Project, sb.prj_quota_inum),
    ]
    .into_iter()
    .filter_map(|(kind, number)| Some((kind, Ino::new(number)?)))
    .collect()
}

/// What the quota files need of the volume that holds them: their inodes and their blocks.
pub(crate) trait QuotaHost {
    /// Journal, clock and damage.
    fn context(&self) -> &Context;

    /// Reads an inode from its table. Errors: those of the inode's check; `Device`.
    fn read_inode(&self, ino: Ino) -> Result<Body>;

    /// Whether the inode's content is mapped in blocks.
    fn has_map(&self, body: &Body) -> bool;

    /// The block with content at `at`; `None` in a hole. Errors: those of the map; `Device`.
    fn content_block(&self, body: &Body, at: LogicalBlock) -> Result<Option<MetaBlock>>;

    /// Whether `block` is metadata at a fixed place.
    fn is_system(&self, block: BlockNr) -> bool;

    /// Allocates the block at `at`, which is a hole. Errors: `NoSpace`; those of the map; `Device`,
    /// `Aborted`.
    fn add_block(
        &self,
        body: &mut Body,
        handle: &Handle<'_>,
        at: LogicalBlock,
    ) -> Result<Option<BlockNr>>;

    /// Writes an inode into its table block. Errors: `Device`, `Aborted`.
    fn store(&self, body: &mut Body, handle: &Handle<'_>) -> Result<()>;
}
