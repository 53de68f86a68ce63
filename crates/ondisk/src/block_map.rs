//! Block maps: how ext2 and ext3 find the blocks of a file.
//!
//! ```text
//!   i_block   0 … 11      12           13                  14
//!            ┌───────┬──────────┬─────────────┬─────────────────────┐
//!            │direct │ indirect │   double    │       triple        │     0 is a hole
//!            └───────┴────┬─────┴──────┬──────┴──────────┬──────────┘
//!                         ▼            ▼                 ▼
//!                     p pointers   p × p pointers    p × p × p pointers    p = block size / 4
//! ```
//!
//! Pointers are 32 bits, little-endian. Source: ext4 documentation, "Direct/Indirect Block
//! Addressing".

use extant_base::narrow::{fits_u32, len_u32};
use extant_base::{BlockNr, BlockSize, Error, LogicalBlock, Site, What};

/// Bytes of `i_block`.
pub const I_BLOCK_SIZE: usize = 60;
/// Direct pointers in `i_block`.
pub const DIRECT: u32 = 12;
/// Pointers in `i_block`.
pub const ROOT_SLOTS: usize = I_BLOCK_SIZE / 4;

/// Pointers in a pointer block.
pub fn pointers_per_block(block_size: BlockSize) -> u32 {
    1 << (block_size.log2() - 2)
}

/// The most blocks a map reaches, at most 2^32 - 1: 12 + p + p² + p³.
pub fn max_blocks(block_size: BlockSize) -> u64 {
    let p = u64::from(pointers_per_block(block_size));
    (u64::from(DIRECT) + p + p * p + p * p * p).min(u64::from(u32::MAX))
}

/// The path to one logical block: a slot of `i_block`, then a slot of each pointer block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    slots: [u32; 4],
    len: u8,
    /// Logical blocks after this one that the same last pointer block also maps.
    following: u32,
}

impl Path {
    /// The path to `block`, or `None` if no map reaches it.
    pub fn to(block: LogicalBlock, block_size: BlockSize) -> Option<Path> {
        let log = block_size.log2() - 2;
        let p = 1u64 << log;
        let slot = |n: u64| fits_u32(n & (p - 1));
        let n = u64::from(block.0);
        let direct = u64::from(DIRECT);
        if n < direct {
            let slots = [block.0, 0, 0, 0];
            return Some(Path { slots, len: 1, following: DIRECT - 1 - block.0 });
        }
        let n = n - direct;
        let (slots, len) = if n < p {
            ([12, slot(n), 0, 0], 2)
        } else if n - p < p * p {
            let n = n - p;
            ([13, slot(n >> log), slot(n), 0], 3)
        } else if n - p - p * p < p * p * p {
            let n = n - p - p * p;
            ([14, slot(n >> (2 * log)), slot(n >> log), slot(n)], 4)
        } else {
            return None;
        };
        let last = slots[usize::from(len) - 1];
        Some(Path { slots, len, following: fits_u32(p) - 1 - last })
    }

    /// The slots, the one in `i_block` first.
    pub fn slots(&self) -> &[u32] {
        &self.slots[..usize::from(self.len)]
    }

    /// Pointer blocks on the path: 0 for a direct block, at most 3.
    pub fn depth(&self) -> usize {
        usize::from(self.len) - 1
    }

    /// How many logical blocks after this one the same last pointer block (or the direct pointers)
    /// also maps.
    pub fn following(&self) -> u32 {
        self.following
    }

    /// How many logical blocks one slot at `level` of this path maps. Level 0 is `i_block`.
    pub fn blocks_below(&self, level: usize, block_size: BlockSize) -> u64 {
        let below = len_u32(usize::from(self.len).saturating_sub(1 + level));
        1u64 << ((block_size.log2() - 2) * below)
    }
}

/// The pointer in `slot` of `i_block` or of a pointer block; `None` past its end.
pub fn pointer(bytes: &[u8], slot: u32) -> Option<u32> {
    let start = usize::try_from(slot).ok()?.checked_mul(4)?;
    Some(u32::from_le_bytes(*bytes.get(start..)?.first_chunk()?))
}

/// The block that `slot` points at: `None` for a hole.
///
/// # Errors
/// `MapBlockRange` with the slot's offset, if the block lies outside `valid`, which is
/// `first_data_block..blocks_count`.
pub fn check_pointer(
    bytes: &[u8],
    slot: u32,
    valid: &core::ops::Range<u64>,
    at: Site,
) -> Result<Option<BlockNr>, Error> {
    let wrong = || at.offset(slot as usize * 4).corrupt(What::MapBlockRange);
    match pointer(bytes, slot).ok_or_else(wrong)? {
        0 => Ok(None),
        block if valid.contains(&u64::from(block)) => Ok(Some(BlockNr(u64::from(block)))),
        _ => Err(wrong()),
    }
}

/// Sets the pointer in `slot`; `None` makes a hole.
///
/// # Errors
/// `FileTooLarge` if the block number does not fit 32 bits.
///
/// # Panics
/// If `slot` lies past the end of `bytes`.
pub fn set_pointer(bytes: &mut [u8], slot: u32, block: Option<BlockNr>) -> Result<(), Error> {
    let number =
        u32::try_from(block.map_or(0, |block| block.0)).map_err(|_| Error::FileTooLarge)?;
    let start = slot as usize * 4;
    bytes[start..start + 4].copy_from_slice(&number.to_le_bytes());
    Ok(())
}

/// All pointers of `i_block` or of a pointer block, in order, holes as 0.
pub fn pointers(bytes: &[u8]) -> impl ExactSizeIterator<Item = u32> + '_ {
    bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word))
}

/// Whether a pointer block points at nothing and may be freed.
pub fn is_empty(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(n: u64, bytes: u32) -> alloc::vec::Vec<u32> {
        let size = BlockSize::from_bytes(bytes).unwrap();
        Path::to(LogicalBlock(n as u32), size).map(|path| path.slots().to_vec()).unwrap_or_default()
    }

    #[test]
    fn each_range_has_its_depth() {
        let p = 256u64;
        assert_eq!(slots(0, 1024), [0]);
        assert_eq!(slots(11, 1024), [11]);
        assert_eq!(slots(12, 1024), [12, 0]);
        assert_eq!(slots(12 + p - 1, 1024), [12, 255]);
        assert_eq!(slots(12 + p, 1024), [13, 0, 0]);
        assert_eq!(slots(12 + p + p * p - 1, 1024), [13, 255, 255]);
        assert_eq!(slots(12 + p + p * p, 1024), [14, 0, 0, 0]);
        assert_eq!(slots(12 + p + p * p + p * p * p - 1, 1024), [14, 255, 255, 255]);
        assert!(slots(12 + p + p * p + p * p * p, 1024).is_empty());
        assert_eq!(slots(u32::MAX.into(), 65536), [14, 14, 16382, 16371]);
    }

    #[test]
    fn the_reach_is_that_of_the_documentation() {
        let size = |bytes| max_blocks(BlockSize::from_bytes(bytes).unwrap());
        assert_eq!(size(1024), 16_843_020);
        assert_eq!(size(4096), 1_074_791_436);
        assert_eq!(size(65536), u64::from(u32::MAX));
    }

    #[test]
    fn a_pointer_outside_the_volume_is_refused() {
        let mut block = [0u8; 64];
        set_pointer(&mut block, 3, Some(BlockNr(77))).unwrap();
        assert_eq!(check_pointer(&block, 3, &(1..78), Site::NOWHERE).unwrap(), Some(BlockNr(77)));
        assert_eq!(check_pointer(&block, 2, &(1..78), Site::NOWHERE).unwrap(), None);
        assert!(check_pointer(&block, 3, &(1..77), Site::NOWHERE).is_err());
        assert!(check_pointer(&block, 16, &(1..78), Site::NOWHERE).is_err());
        assert!(set_pointer(&mut block, 3, Some(BlockNr(1 << 32))).is_err());
        assert_eq!(pointers(&block).filter(|p| *p != 0).count(), 1);
    }

    #[test]
    fn a_run_ends_with_its_pointer_block() {
        let size = BlockSize::from_bytes(1024).unwrap();
        assert_eq!(Path::to(LogicalBlock(3), size).unwrap().following(), 8);
        assert_eq!(Path::to(LogicalBlock(12 + 250), size).unwrap().following(), 5);
        let path = Path::to(LogicalBlock(12 + 256), size).unwrap();
        assert_eq!((path.depth(), path.blocks_below(0, size)), (2, 65536));
        assert_eq!((path.blocks_below(1, size), path.blocks_below(2, size)), (256, 1));
    }
}
