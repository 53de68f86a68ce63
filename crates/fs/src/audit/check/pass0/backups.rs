//! The backup superblocks: each must be valid, in its own group, and of the same volume.
//!
//! Backups become stale in normal operation, so fields that may differ (times, counters, features
//! that a mounted volume can gain) are not compared.

use crate::audit::check::view::View;
use extant_base::{ByteOffset, GroupNr, Site, What};
use extant_ondisk::features::{Incompat, RoCompat};
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_SIZE, Superblock};
use zerocopy::FromBytes;

pub(super) fn check(view: &View<'_>) {
    for group in view.geometry.super_groups().filter(|group| group.0 != 0) {
        let Some(place) = view.geometry.super_offset(group) else { continue };
        check_copy(view, group, place);
    }
}

fn check_copy(view: &View<'_>, group: GroupNr, place: ByteOffset) {
    let at = Site::of_group(group).block(view.geometry.block_size().block_at(place));
    let mut bytes = [0; SUPERBLOCK_SIZE];
    if !view.read_bytes(place, &mut bytes, at) {
        return;
    }
    let Ok(raw) = RawSuperblock::read_from_bytes(&bytes) else { return };
    match raw.check(at) {
        Ok(copy) => {
            if let Some(field) = difference(&view.sb, &copy) {
                view.note(What::Backup, at, field);
            }
            // The field has 16 bits; for larger group numbers, writers differ.
            if copy.block_group != group && group.0 <= u32::from(u16::MAX) {
                view.note(What::Backup, at.offset(0x5A), "names another group");
            }
        }
        Err(error) => view.note(What::Backup, at, error.to_string()),
    }
}

/// The first field that differs although it must not.
fn difference(primary: &Superblock, copy: &Superblock) -> Option<&'static str> {
    let (incompat, ro_compat) = (Incompat::MAY_DIFFER_IN_BACKUPS, RoCompat::MAY_DIFFER_IN_BACKUPS);
    let rows = [
        (primary.uuid == copy.uuid, "uuid differs"),
        (primary.blocks_count == copy.blocks_count, "block count differs"),
        (primary.inodes_count == copy.inodes_count, "inode count differs"),
        (primary.block_size == copy.block_size, "block size differs"),
        (primary.inode_size == copy.inode_size, "inode size differs"),
        (
            primary.features.incompat.difference(incompat)
                == copy.features.incompat.difference(incompat),
            "incompatible features differ",
        ),
        (
            primary.features.ro_compat.difference(ro_compat)
                == copy.features.ro_compat.difference(ro_compat),
            "read-only compatible features differ",
        ),
    ];
    rows.into_iter().find(|(same, _)| !same).map(|(_, field)| field)
}
