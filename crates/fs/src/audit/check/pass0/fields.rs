//! Rules between fields of the superblock that are not needed to read a volume.

use crate::audit::check::view::View;
use extant_base::{Ino, Site, What};
use extant_ondisk::features::{Compat, Incompat, RoCompat};
use extant_ondisk::superblock::VolumeState;

/// Reports every rule that is broken.
pub(super) fn check(view: &View<'_>) {
    let sb = &view.sb;
    let at = |offset: usize| Site::NOWHERE.offset(offset);
    let bad = |offset: usize, detail: &str| {
        view.error_with(What::SuperblockField, at(offset), detail);
    };
    let contradiction = |detail: &str| {
        view.error_with(What::SuperblockFeatures, at(0x5C), detail);
    };
    if sb.reserved_blocks > sb.blocks_count / 2 {
        bad(0x08, "more than half of all blocks are reserved");
    }
    if sb.inode_size < 128 || sb.rev_level > 1 {
        bad(0x4C, "unknown revision");
    }
    let journal = sb.has_journal();
    let named = sb.journal_inum != 0 || sb.journal_uuid != [0; 16];
    if !journal && (named || sb.needs_recovery()) {
        contradiction("a journal or a recovery is recorded without has_journal");
    }
    if journal && sb.journal_inum == 0 && sb.journal_uuid == [0; 16] {
        view.error(What::JournalMissing, at(0xE0));
    }
    if journal && sb.journal_inum != 0 && sb.journal_inum != Ino::JOURNAL.get() {
        view.error(What::JournalInode, at(0xE0));
    }
    if sb.journal_inum != 0 && sb.journal_uuid != [0; 16] {
        view.error_with(
            What::JournalUuid,
            at(0xD0),
            "an internal and an external journal are both recorded",
        );
    }
    if view.has_ro_compat(RoCompat::METADATA_CSUM) && view.has_ro_compat(RoCompat::GDT_CSUM) {
        contradiction("metadata_csum and uninit_bg are both set");
    }
    if view.has_incompat(Incompat::CSUM_SEED) && !view.has_ro_compat(RoCompat::METADATA_CSUM) {
        contradiction("metadata_csum_seed without metadata_csum");
    }
    if sb.blocks_count > 1 << 32 && !view.has_incompat(Incompat::EXTENTS) {
        contradiction("more blocks than a volume without extents can use");
    }
    if view.has_incompat(Incompat::META_BG) && view.has_compat(Compat::RESIZE_INODE) {
        contradiction("meta_bg and resize_inode are both set");
    }
    if !view.has_compat(Compat::RESIZE_INODE) && sb.reserved_gdt_blocks != 0 {
        bad(0xCE, "descriptor blocks are reserved without resize_inode");
    }
    if sb.log_groups_per_flex > 31 {
        bad(0x174, "a flex group has more groups than can be counted");
    }
    if view.has_ro_compat(RoCompat::QUOTA) {
        let numbers = [
            (sb.usr_quota_inum, Ino::USER_QUOTA.get(), 0x240),
            (sb.grp_quota_inum, Ino::GROUP_QUOTA.get(), 0x244),
        ];
        for (number, right, offset) in numbers {
            if number != 0 && number != right {
                view.error_with(What::QuotaFile, at(offset), format!("inode {number}"));
            }
        }
        let project = sb.prj_quota_inum;
        if project != 0 && (project < sb.first_ino || project > sb.inodes_count) {
            view.error_with(What::QuotaFile, at(0x26C), format!("inode {project}"));
        }
    }
    let quotas = [sb.usr_quota_inum, sb.grp_quota_inum, sb.prj_quota_inum];
    if !view.has_ro_compat(RoCompat::QUOTA) && quotas != [0; 3] {
        contradiction("quota files are named without quota");
    }
    if view.has_compat(Compat::ORPHAN_FILE) && !journal {
        contradiction("orphan_file without has_journal");
    }
    if view.has_compat(Compat::ORPHAN_FILE) {
        let number = sb.orphan_file_inum;
        if number < sb.first_ino || number > sb.inodes_count {
            view.error_with(What::OrphanFile, at(0x280), format!("inode {number}"));
        }
    } else if sb.orphan_file_inum != 0 {
        contradiction("an orphan file is named without orphan_file");
    } else if view.has_ro_compat(RoCompat::ORPHAN_PRESENT) {
        contradiction("orphan_present without orphan_file");
    }
    if view.has_incompat(Incompat::MMP) && !view.geometry.holds(sb.mmp_block, 1) {
        view.error(What::MmpBlock, at(0x168));
    }
    // Features that got a name but were never completed. No current e2fsck opens such a volume.
    let historic = Compat::EXCLUDE_BITMAP | Compat::LAZY_BG;
    let compat = sb.features.compat.unknown() | sb.features.compat & historic;
    let dead = RoCompat::BTREE_DIR | RoCompat::SNAPSHOT | RoCompat::REPLICA;
    let ro_compat = sb.features.ro_compat.unknown() | sb.features.ro_compat & dead;
    if compat.bits() | ro_compat.bits() != 0 {
        contradiction("unknown features: their rules are not checked");
    }
    if sb.state.contains(VolumeState::ERROR) {
        view.note(What::VolumeState, at(0x3A), "errors were recorded");
    } else if !sb.state.contains(VolumeState::VALID) && !journal {
        view.note(What::VolumeState, at(0x3A), "not cleanly unmounted");
    }
}
