//! What each owner, group and project uses, and the hidden files that say so.
//!
//! ```text
//!   Body::store ──► account ─┬─► Ledger of users      id → entry ──► inode 3
//!    what the slot held,     ├─► Ledger of groups                ──► inode 4
//!    what it holds now       └─► Ledger of projects              ──► s_prj_quota_inum
//!                                  all under the handle that stores the inode
//! ```
//!
//! Rule D9: usage in the files is the sum over the inodes in their tables, at every commit: it changes
//! where an inode is stored, and nowhere else, by the difference of the slot before and after. The
//! root and every ordinary inode count, the volume's own do not. A value in an inode of its own
//! counts for each inode that names it: one inode, and its blocks, which are in the owner's sectors.
//! A file that is damaged is left alone from then on, and the volume marked as having errors.
//! Source: Linux, "Quota subsystem"; e2fsprogs' quota library, observed by e2fsck; the layout is
//! `extant_ondisk::quota`'s.

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
