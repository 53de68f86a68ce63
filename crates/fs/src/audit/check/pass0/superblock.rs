//! Choosing the superblock for the check: the primary one, or a backup if the primary is damaged.
//!
//! ```text
//!   primary ── good ──────────────────────────────► use it
//!      │ bad       ┌─ a backup is good ───────────► use the backup
//!      └───────────┤  only its checksum was bad ──► use the primary
//!                  └─ else ───────────────────────► the check cannot run
//! ```

use crate::audit::check::report::Findings;
use crate::context::superblock::read_superblock;
use extant_base::{ByteOffset, Error, Feature, FeatureSet, GroupNr, Result, Site, What};
use extant_blockdev::BlockDevice;
use extant_ondisk::features::Incompat;
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use zerocopy::FromBytes;

/// Groups that hold backups on all but very unusual volumes.
const BACKUPS: [u32; 10] = [1, 3, 5, 7, 9, 25, 27, 49, 81, 125];

/// The superblock for the check; damage found on the way is reported. `None` if there is none.
///
/// Errors: `Unsupported` for a volume with an unknown incompatible feature; `Device`.
pub(in crate::audit) fn find(
    device: &dyn BlockDevice,
    findings: &Findings,
) -> Result<Option<Superblock>> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    if device.len() < SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE as u64 {
        findings.error_with(What::SuperblockMagic, Site::NOWHERE, "too short for a volume");
        return Ok(None);
    }
    device.read_at(ByteOffset(SUPERBLOCK_OFFSET), &mut bytes)?;
    let raw = RawSuperblock::read_from_bytes(&bytes)
        .map_err(|_| Site::NOWHERE.corrupt(What::SuperblockMagic))?;
    if let Ok(superblock) = raw.parse(Site::NOWHERE)
        && superblock.features.incompat.contains(Incompat::JOURNAL_DEV)
    {
        return Err(Error::Unsupported {
            feature: Feature {
                set: FeatureSet::Incompat,
                bits: Incompat::JOURNAL_DEV.bits(),
                name: "journal_dev",
            },
        });
    }
    let wrong = match raw.check(Site::NOWHERE) {
        Ok(superblock) => {
            if let Err(error) = superblock.check_device(device.len(), Site::NOWHERE) {
                let blocks = superblock.blocks_count;
                let there = device.len() >> superblock.block_size.log2();
                findings.corrupt(
                    &error,
                    &format!("the superblock counts {blocks} blocks, the device has {there}"),
                );
            }
            check_unused_desc_size(&raw, &superblock, findings);
            return Ok(Some(superblock));
        }
        Err(error) => error,
    };
    let only_checksum = matches!(wrong, Error::Corrupt { what: What::SuperblockChecksum, .. });
    let copy = backup(device);
    if let Error::Unsupported { .. } = wrong
        && copy.is_none()
    {
        return Err(wrong);
    }
    findings.corrupt(&wrong, if copy.is_some() { "a backup superblock is used" } else { "" });
    if only_checksum
        && let Ok(superblock) = raw.parse(Site::NOWHERE)
        && superblock.features.unreadable().is_none()
        && superblock.check_fields(Site::NOWHERE).is_ok()
        && superblock.check_device(device.len(), Site::NOWHERE).is_ok()
        && copy.is_none()
    {
        return Ok(Some(superblock));
    }
    Ok(copy)
}

/// Without 64bit, the size of descriptors has no meaning, but e2fsprogs checks the field.
fn check_unused_desc_size(raw: &RawSuperblock, superblock: &Superblock, findings: &Findings) {
    let size = raw.s_desc_size.get();
    let is_accepted = size == 0 || size.is_power_of_two() && size <= 1024;
    if !superblock.features.incompat.contains(Incompat::IS_64BIT) && !is_accepted {
        let at = Site::NOWHERE.offset(0xFE);
        findings.error_with(What::SuperblockDescSize, at, format!("{size} bytes without 64bit"));
    }
}

/// A valid backup.
fn backup(device: &dyn BlockDevice) -> Option<Superblock> {
    BACKUPS.into_iter().find_map(|group| read_superblock(device, Some(GroupNr(group))).ok())
}
