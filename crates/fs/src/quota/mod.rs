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
mod limits;
mod usage;

pub(crate) use account::{Holding, Quota, QuotaPolicy};
pub(crate) use file::QuotaFile;
pub(crate) use usage::Usage;

use extant_base::Ino;
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
