//! Which features can be turned on or off on an existing volume.
//!
//! ```text
//!   bit │ on or off │ what it requires     ─► allowed, or the reason why not
//! ```

use crate::offline::mkfs::plan;
use extant_base::{Error, Result};
use extant_ondisk::features::{Compat, FeatureBit, Features, Incompat, RoCompat};
use extant_ondisk::superblock::Superblock;

/// The features after all switches, in order. Features that depend on a removed one are removed,
/// too.
///
/// Errors: `NotSupported` with the reason.
pub(super) fn with_implied(old: &Superblock, switches: &[(FeatureBit, bool)]) -> Result<Features> {
    let mut new = old.features;
    for &(bit, on) in switches {
        new.set(bit, on);
    }
    let no_journal = !new.compat.contains(Compat::HAS_JOURNAL);
    if no_journal && old.has_journal() {
        // These features depend on the journal.
        new.compat.remove(Compat::ORPHAN_FILE | Compat::FAST_COMMIT);
    }
    for &(bit, on) in switches {
        if old.features.has(bit) != on && new.has(bit) == on {
            check(old, &new, bit, on).map_err(Error::NotSupported)?;
        }
    }
    Ok(new)
}

fn check(old: &Superblock, new: &Features, bit: FeatureBit, on: bool) -> Result<(), &'static str> {
    let need = |good: bool, why: &'static str| if good { Ok(()) } else { Err(why) };
    let has_journal = new.compat.contains(Compat::HAS_JOURNAL);
    match (bit, on) {
        (FeatureBit::Compat(Compat::HAS_JOURNAL), false) => {
            let has_checksums = new.ro_compat.contains(RoCompat::DATA_CSUM);
            need(!has_checksums, "data_csum needs has_journal: turn it off first")?;
            need(old.journal_inum != 0, "tune does not remove an external journal")
        }
        (FeatureBit::Compat(Compat::ORPHAN_FILE | Compat::FAST_COMMIT), true) => {
            need(has_journal, "orphan_file and fast_commit need has_journal")
        }
        (
            FeatureBit::Compat(
                Compat::HAS_JOURNAL | Compat::DIR_INDEX | Compat::EXT_ATTR | Compat::STABLE_INODES,
            ),
            true,
        )
        | (FeatureBit::Compat(Compat::ORPHAN_FILE | Compat::FAST_COMMIT), false)
        | (
            FeatureBit::RoCompat(
                RoCompat::LARGE_FILE | RoCompat::HUGE_FILE | RoCompat::DIR_NLINK | RoCompat::QUOTA,
            ),
            true,
        )
        | (FeatureBit::RoCompat(RoCompat::QUOTA), false)
        | (FeatureBit::Incompat(Incompat::LARGEDIR), true) => Ok(()),
        (FeatureBit::RoCompat(RoCompat::PROJECT), true) => {
            need(old.inode_size > 128, "project needs inodes of 256 bytes")?;
            let quota = old.features.ro_compat.contains(RoCompat::QUOTA);
            need(!quota, "project cannot be added to existing quota files: turn quota off first")
        }
        (FeatureBit::RoCompat(RoCompat::PROJECT), false) => {
            need(!new.ro_compat.contains(RoCompat::QUOTA), "quota counts projects: turn it off too")
        }
        (FeatureBit::RoCompat(RoCompat::DATA_CSUM), true) => {
            let ro = |bit| new.ro_compat.contains(bit);
            let with = (
                ro(RoCompat::METADATA_CSUM),
                new.incompat.contains(Incompat::EXTENTS),
                has_journal,
            );
            plan::check_data_csum(with, ro(RoCompat::BIGALLOC))
        }
        (FeatureBit::RoCompat(RoCompat::DATA_CSUM), false) => Ok(()),
        (FeatureBit::RoCompat(RoCompat::VERITY), true) => {
            need(new.incompat.contains(Incompat::EXTENTS), "verity needs extents")
        }
        (FeatureBit::RoCompat(RoCompat::GDT_CSUM), true) => {
            let has_checksums = new.ro_compat.contains(RoCompat::METADATA_CSUM);
            need(!has_checksums, "uninit_bg and metadata_csum exclude each other")
        }
        (FeatureBit::Incompat(Incompat::CSUM_SEED), _) => {
            let has_checksums = new.ro_compat.contains(RoCompat::METADATA_CSUM);
            need(has_checksums, "metadata_csum_seed needs metadata_csum")
        }
        (FeatureBit::Incompat(Incompat::EA_INODE), true) => {
            need(old.inode_size > 128, "ea_inode needs inodes of 256 bytes")
        }
        (FeatureBit::Incompat(Incompat::CASEFOLD), true) => {
            need(old.rev_level > 0, "casefold needs a volume of revision 1")
        }
        (FeatureBit::RoCompat(RoCompat::METADATA_CSUM), _) => {
            Err("metadata_csum changes every structure of the volume, more than \
             one transaction can hold: make a new volume with or without it")
        }
        (FeatureBit::Incompat(Incompat::ENCRYPT), true) => {
            Err("encrypt can only be chosen when a volume is made")
        }
        (FeatureBit::Incompat(Incompat::INLINE_DATA), true) => {
            Err("inline_data can only be chosen when a volume is made")
        }
        (FeatureBit::Incompat(Incompat::MMP), true) => {
            Err("mmp can only be chosen when a volume is made")
        }
        (_, true) => Err("this feature can only be chosen when a volume is made"),
        (_, false) => {
            Err("the content of the volume may depend on this feature: it cannot be turned off")
        }
    }
}
