//! Whether a volume needs a check, and the note that one was made.

use crate::compat::volume::RawVolume;
use crate::image::Image;
use extant::superblock::{Superblock, VolumeState};
use extant::tune;
use extant::{Environment, Error, Result};
use extant_base::{BlockNr, GroupNr, Site};
use extant_ondisk::features::{Incompat, RoCompat};
use extant_ondisk::superblock::RawSuperblock;

const DAY: u64 = 86_400;
/// Below this many mounts, the original says when the next check is.
const SOON: i64 = 5;

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    u64::try_from(Environment::default().now().sec).unwrap_or(0)
}

/// Why a volume that was not damaged by a crash is checked.
pub(super) fn reason(volume: &RawVolume) -> Option<String> {
    let sb = &volume.sb;
    let state = volume.raw.s_state.get();
    let (since, interval) = (now().checked_sub(sb.lastcheck), u64::from(sb.checkinterval));
    if sb.has_errors() {
        Some("contains a file system with errors".into())
    } else if state & VolumeState::VALID.bits() == 0 {
        Some("was not cleanly unmounted".into())
    } else if differs_from_backup(volume) {
        Some("primary superblock features different from backup".into())
    } else if sb.max_mnt_count > 0 && i32::from(sb.mnt_count) >= i32::from(sb.max_mnt_count) {
        Some(format!("has been mounted {} times without being checked", sb.mnt_count))
    } else if interval == 0 {
        None
    } else {
        match since {
            None => Some("has filesystem last checked time in the future".into()),
            Some(since) if since >= interval => {
                Some(format!("has gone {} days without being checked", since / DAY))
            }
            Some(_) => None,
        }
    }
}

/// Whether inodes of a crash wait to be freed.
pub(super) fn has_orphans(sb: &Superblock) -> bool {
    sb.last_orphan != 0 || sb.features.ro_compat.contains(RoCompat::ORPHAN_PRESENT)
}

/// Whether the first backup has other features, apart from those that Linux sets in the primary
/// superblock alone.
fn differs_from_backup(volume: &RawVolume) -> bool {
    let backup = volume.geometry.super_groups().find(|group| *group != GroupNr(0));
    let Some(first) = backup.and_then(|group| volume.geometry.first_block(group)) else {
        return false;
    };
    let Ok(bytes) = volume.block(BlockNr(first.0)) else { return false };
    let Some(backup) = RawSuperblock::from_prefix(&bytes) else { return false };
    let Ok(backup) = backup.parse(Site::NOWHERE) else { return false };
    let (incompat, ro_compat) = (Incompat::MAY_DIFFER_IN_BACKUPS, RoCompat::MAY_DIFFER_IN_BACKUPS);
    let (own, other) = (&volume.sb.features, &backup.features);
    own.compat != other.compat
        || own.incompat - incompat != other.incompat - incompat
        || own.ro_compat - ro_compat != other.ro_compat - ro_compat
}

/// The counts of a volume that needs no check: `11/128 files, 58/512 blocks`.
///
/// The counts are those of the groups, because Linux does not keep those of the superblock.
pub(super) fn clean(volume: &RawVolume) -> Result<String> {
    let sb = &volume.sb;
    let (mut clusters, mut inodes) = (0u64, 0u64);
    for group in volume.geometry.groups() {
        let desc = volume.descriptor(group)?;
        clusters += u64::from(desc.free_clusters);
        inodes += u64::from(desc.free_inodes);
    }
    let free_blocks = clusters << sb.log_cluster_ratio;
    let used_inodes = u64::from(sb.inodes_count).saturating_sub(inodes);
    let used_blocks = sb.blocks_count.saturating_sub(free_blocks);
    Ok(format!(
        "{used_inodes}/{} files, {used_blocks}/{} blocks{}",
        sb.inodes_count,
        sb.blocks_count,
        next_check(sb)
    ))
}

/// When the next check is due, if that is soon.
fn next_check(sb: &Superblock) -> String {
    let mut mounts = i64::MAX;
    if sb.max_mnt_count > 0 {
        mounts = (i64::from(sb.max_mnt_count) - i64::from(sb.mnt_count)).max(1);
    }
    let due = sb.lastcheck.saturating_add(sb.checkinterval.into());
    if sb.checkinterval != 0 && now() >= due {
        mounts = 1;
    }
    match mounts {
        1 => " (check after next mount)".into(),
        2..=SOON => format!(" (check in {mounts} mounts)"),
        _ => String::new(),
    }
}

/// Records a check that found nothing. Returns whether the volume was marked as valid before.
pub(super) fn note_check(image: &Image) -> Result<bool> {
    match tune::mark_checked(&image.options(), &image.path) {
        Ok(before) => Ok(before.state.contains(VolumeState::VALID)),
        // A volume that this engine may only read stays as it is.
        Err(Error::Unsupported { .. }) => Ok(true),
        Err(error) => Err(error),
    }
}
