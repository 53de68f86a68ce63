//! The orphan file: inodes whose removal or truncation recovery must complete after a crash.
//!
//! ```text
//!   0      4      8                           block size - 8   - 4
//!   ┌──────┬──────┬──────┬── ─ ─ ─ ─ ──────┬──────────────┬──────┐
//!   │ ino  │ ino  │ 0    │ …               │ 0B10CA04     │ csum │    0 is a free slot
//!   └──────┴──────┴──────┴── ─ ─ ─ ─ ──────┴──────────────┴──────┘
//!   csum = crc32c(inode seed of the orphan file; physical block, u64; all entries)
//! ```
//!
//! Source: ext4 documentation, "Orphan file".

use extant_base::{BlockNr, Error, Ino, Site, What};
use extant_crc32c::{crc32c, splice_delta};

/// `ob_magic`, 8 bytes before the block's end.
pub const ORPHAN_MAGIC: u32 = 0x0B10_CA04;
/// The longest orphan file, blocks.
pub const MAX_BLOCKS: u32 = 512;

/// Slots in a block.
pub fn slots_per_block(block_bytes: usize) -> usize {
    block_bytes.saturating_sub(8) / 4
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |word| u32::from_le_bytes(*word))
}

fn compute_checksum(bytes: &[u8], block: BlockNr, seed: u32) -> u32 {
    crc32c(crc32c(seed, &block.0.to_le_bytes()), &bytes[..slots_per_block(bytes.len()) * 4])
}

/// Checks a block of the orphan file and returns its used slots in order: the slot's number and the
/// inode.
///
/// `block` is the physical block; `seed` the orphan file's inode seed, `None` without
/// `metadata_csum`; inodes lie in 1..=`inodes_count`.
///
/// # Errors
/// `OrphanFile` (magic, an entry out of range), `OrphanFileChecksum`.
pub fn check(
    bytes: &[u8],
    block: BlockNr,
    seed: Option<u32>,
    inodes_count: u32,
) -> Result<impl Iterator<Item = (usize, Ino)> + Clone + '_, Error> {
    let at = Site::of_block(block);
    let tail = bytes.len().saturating_sub(8);
    if bytes.len() < 1024 || !bytes.len().is_multiple_of(4) || word(bytes, tail) != ORPHAN_MAGIC {
        return Err(at.offset(tail).corrupt(What::OrphanFile));
    }
    if seed.is_some_and(|seed| word(bytes, tail + 4) != compute_checksum(bytes, block, seed)) {
        return Err(at.offset(tail + 4).corrupt(What::OrphanFileChecksum));
    }
    let entries = bytes[..tail].as_chunks::<4>().0;
    if let Some(slot) = entries.iter().position(|ino| u32::from_le_bytes(*ino) > inodes_count) {
        return Err(at.offset(slot * 4).corrupt(What::OrphanFile));
    }
    Ok(entries
        .iter()
        .enumerate()
        .filter_map(|(slot, ino)| Some((slot, Ino::new(u32::from_le_bytes(*ino))?))))
}

/// Fills `bytes` with an empty block of the orphan file.
///
/// # Panics
/// If `bytes` is shorter than a block can be.
pub fn init(bytes: &mut [u8], block: BlockNr, seed: Option<u32>) {
    let tail = bytes.len() - 8;
    bytes.fill(0);
    bytes[tail..tail + 4].copy_from_slice(&ORPHAN_MAGIC.to_le_bytes());
    set_checksum(bytes, block, seed);
}

/// A free slot of a checked block, or `None` if it is full.
pub fn free_slot(bytes: &[u8]) -> Option<usize> {
    free_slot_from(bytes, 0)
}

/// The first free slot of a checked block from `slot` on, or `None` if there is none.
pub fn free_slot_from(bytes: &[u8], slot: usize) -> Option<usize> {
    let slots = bytes[..bytes.len().saturating_sub(8)].as_chunks::<4>().0;
    Some(slot + slots.get(slot..)?.iter().position(|ino| *ino == [0; 4])?)
}

/// Stores `ino` in `slot` of a checked block, or frees the slot with `None`. Updates the checksum
/// in constant time.
///
/// # Panics
/// If there is no such slot.
pub fn set_slot(
    bytes: &mut [u8],
    slot: usize,
    ino: Option<Ino>,
    block: BlockNr,
    seed: Option<u32>,
) {
    let slots = slots_per_block(bytes.len());
    assert!(slot < slots, "slot {slot} of an orphan block");
    let number = ino.map_or(0, Ino::get).to_le_bytes();
    let before: [u8; 4] = bytes[slot * 4..slot * 4 + 4].try_into().expect("a slot has 4 bytes");
    bytes[slot * 4..slot * 4 + 4].copy_from_slice(&number);
    if seed.is_some() {
        let tail = bytes.len() - 4;
        let delta = splice_delta(((slots - slot - 1) * 4) as u64, &before, &number);
        let crc = word(bytes, tail) ^ delta;
        debug_assert!(seed.is_none_or(|seed| crc == compute_checksum(bytes, block, seed)));
        bytes[tail..].copy_from_slice(&crc.to_le_bytes());
    }
}

fn set_checksum(bytes: &mut [u8], block: BlockNr, seed: Option<u32>) {
    if let Some(seed) = seed {
        let crc = compute_checksum(bytes, block, seed);
        let tail = bytes.len() - 4;
        bytes[tail..].copy_from_slice(&crc.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    #[test]
    fn entries_go_in_and_out() {
        let (block, seed) = (BlockNr(1 << 33), Some(9));
        let mut bytes = vec![0xFF; 1024];
        init(&mut bytes, block, seed);
        assert_eq!(free_slot(&bytes), Some(0));
        set_slot(&mut bytes, 0, Ino::new(12), block, seed);
        set_slot(&mut bytes, 253, Ino::new(99), block, seed);
        assert_eq!(free_slot(&bytes), Some(1));
        let all: Vec<_> = check(&bytes, block, seed, 99).unwrap().collect();
        assert_eq!(all, [(0, Ino::new(12).unwrap()), (253, Ino::new(99).unwrap())]);
        assert!(check(&bytes, block, seed, 98).is_err(), "an inode out of range");
        assert!(check(&bytes, BlockNr(1), seed, 99).is_err(), "another place");
        set_slot(&mut bytes, 0, None, block, seed);
        assert_eq!(check(&bytes, block, seed, 99).unwrap().count(), 1);
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let (block, seed) = (BlockNr(77), Some(9));
        let mut bytes = vec![0; 1024];
        init(&mut bytes, block, seed);
        for bit in 0..8192 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(check(&bytes, block, seed, u32::MAX).is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
