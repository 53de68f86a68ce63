//! Who wrote the superblock of a member: this layout, or software that knows nothing of it.

use crate::part::Part;
use extant_base::{ByteOffset, Error, Result, Site};
use extant_ondisk::member::{Member, print_of};
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
/// Whether software other than the layout wrote the superblock of the member `part`.
pub(crate) fn is_changed_outside(part: &Part, record: &Member) -> Result<bool> {
    Ok(superblock_origin(part, record)? == SuperblockOrigin::Foreign)
}

/// Who wrote a member's superblock.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SuperblockOrigin {
    /// This layout wrote it.
    Own,
    /// It is damaged: its checksum is wrong.
    Damaged,
    /// Other software wrote it.
    Foreign,
}

pub(crate) fn superblock_origin(part: &Part, record: &Member) -> Result<SuperblockOrigin> {
    if record.volume_bytes < 2048 {
        return Ok(SuperblockOrigin::Own);
    }
    let mut bytes = [0; SUPERBLOCK_SIZE];
    part.device.read_fresh_at(ByteOffset(SUPERBLOCK_OFFSET), &mut bytes)?;
    if record.prints.has(print_of(&bytes[..512])) {
        return Ok(SuperblockOrigin::Own);
    }
    let superblock = RawSuperblock::from_prefix(&bytes).map(|raw| raw.check(Site::NOWHERE));
    match superblock {
        Some(Err(Error::Corrupt { .. })) => Ok(SuperblockOrigin::Damaged),
        _ => Ok(SuperblockOrigin::Foreign),
    }
}
