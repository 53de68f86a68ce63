//! The volume's superblock goes home after all other blocks.
//!
//! ```text
//!   1  every other block, flush
//!   2  the superblock's second sector, flush        checksum wrong: the log counts and is replayed
//!   3  its first sector: features, the journal      from here on the new superblock counts
//! ```
//!
//! Rule D11: a transaction may record that the volume no longer needs this log, for example one
//! that removes the journal. After a power cut before 3, the volume still names the log, and the
//! log holds that transaction.

use extant_base::{BlockNr, BlockSize, ByteOffset, Result};
use extant_blockdev::BlockDevice;
use extant_ondisk::features::RoCompat;
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET};

/// A change of the volume's superblock as the log has it, before it goes home.
pub type Amend<'a> = &'a dyn Fn(&mut RawSuperblock);

/// Bytes that a power cut leaves whole.
const SECTOR: usize = 512;

/// The block that holds the superblock.
pub(crate) fn block_of(size: BlockSize) -> BlockNr {
    size.block_at(ByteOffset(SUPERBLOCK_OFFSET))
}

/// The superblock in `copy`, the block that holds it.
pub(crate) fn within(size: BlockSize, copy: &mut [u8]) -> Option<&mut RawSuperblock> {
    let start = size.start_of(block_of(size)).0;
    RawSuperblock::from_prefix_mut(&mut copy[(SUPERBLOCK_OFFSET - start) as usize..])
}

/// Applies `amend` to the superblock in `copy`. A checksum that is wrong stays wrong.
pub(crate) fn amend(size: BlockSize, copy: &mut [u8], amend: Amend<'_>) {
    let Some(raw) = within(size, copy) else { return };
    let summed = RoCompat::from_bits_retain(raw.s_feature_ro_compat.get());
    let summed = summed.contains(RoCompat::METADATA_CSUM) && raw.checksum_is_right();
    amend(raw);
    if summed {
        raw.set_checksum();
    }
}

/// Writes `copy`, the block that holds the superblock, in the order above. The last write is not
/// flushed.
pub(crate) fn write(home: &dyn BlockDevice, size: BlockSize, copy: &[u8]) -> Result<()> {
    let start = size.start_of(block_of(size)).0;
    let first = (SUPERBLOCK_OFFSET - start) as usize;
    home.flush()?;
    if first > 0 {
        home.write_at(ByteOffset(start), &copy[..first])?;
    }
    home.write_at(ByteOffset(start + (first + SECTOR) as u64), &copy[first + SECTOR..])?;
    home.flush()?;
    home.write_at(ByteOffset(SUPERBLOCK_OFFSET), &copy[first..first + SECTOR])
}
