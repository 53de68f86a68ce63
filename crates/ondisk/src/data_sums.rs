//! A block of the data checksum file (feature `data_csum`): one checksum per block of the volume.
//!
//! ```text
//!   block i of the file, E = block size / 4 - 1
//!   0      4      8                      block size - 4
//!   ┌──────┬──────┬── ─ ─ ─ ─ ──┬───────┬──────┐
//!   │ iE   │ iE+1 │ …           │iE+E-1 │ csum │     entry n is the checksum of volume block n
//!   └──────┴──────┴── ─ ─ ─ ─ ──┴───────┴──────┘
//!   entry = crc32c(all ones; the whole block of data)
//!   csum  = crc32c(volume seed; i, u64; all entries)     all zeros: no checksum was stored yet
//! ```
//!
//! The entry of a block that holds no covered data has no meaning. All numbers are u32,
//! little-endian. Source: docs/FORMAT.md, "Data checksums".

use extant_base::narrow::fits_usize;
use extant_base::{BlockNr, BlockSize, Error, Site, What};
use extant_crc32c::{crc32c, splice_delta};

/// Checksum entries in a block of the file.
pub const fn words_per_block(size: BlockSize) -> u64 {
    size.bytes() as u64 / 4 - 1
}

/// Blocks of the checksum file of a volume with `volume_blocks` blocks.
pub const fn file_blocks(size: BlockSize, volume_blocks: u64) -> u64 {
    volume_blocks.div_ceil(words_per_block(size))
}

/// The place of the checksum of block `nr`: the block of the file, and the entry in that block.
pub const fn place_of(size: BlockSize, nr: BlockNr) -> (u64, usize) {
    let words = words_per_block(size);
    (nr.0 / words, fits_usize(nr.0 % words))
}

/// The checksum of a block of data.
#[inline]
pub fn sum_of(data: &[u8]) -> u32 {
    crc32c(!0, data)
}

fn tail_of(bytes: &[u8], index: u64, seed: u32) -> u32 {
    crc32c(crc32c(seed, &index.to_le_bytes()), &bytes[..bytes.len() - 4])
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |word| u32::from_le_bytes(*word))
}

/// Checks block `index` of the file; `at` is its place for errors, `seed` the volume's checksum
/// seed.
///
/// # Errors
/// `DataSumsChecksum`.
pub fn check(bytes: &[u8], index: u64, seed: u32, at: Site) -> Result<(), Error> {
    let tail = bytes.len().saturating_sub(4);
    let good = tail > 0
        && (word(bytes, tail) == tail_of(bytes, index, seed)
            || bytes.iter().all(|byte| *byte == 0));
    if good { Ok(()) } else { Err(at.offset(tail).corrupt(What::DataSumsChecksum)) }
}

/// The entries from `slot` on, at most `limit`.
pub fn words(bytes: &[u8], slot: usize, limit: usize) -> impl Iterator<Item = u32> + '_ {
    let words = bytes[..bytes.len().saturating_sub(4)].as_chunks::<4>().0;
    words.iter().skip(slot).take(limit).map(|word| u32::from_le_bytes(*word))
}

/// Stores `sums` in the entries from `slot` on and updates the block's own checksum by the
/// difference. So a block whose checksum was wrong before is wrong afterwards, too.
///
/// # Panics
/// If the entries do not fit in the block.
pub fn store(bytes: &mut [u8], index: u64, seed: u32, slot: usize, sums: &[u32]) {
    const AT_ONCE: usize = 64;
    let tail = bytes.len() - 4;
    assert!((slot + sums.len()) * 4 <= tail, "entries {slot}.. pass the end of a checksum block");
    if word(bytes, tail) == 0 && bytes[..tail].iter().all(|byte| *byte == 0) {
        let sum = tail_of(bytes, index, seed);
        bytes[tail..].copy_from_slice(&sum.to_le_bytes());
    }
    let mut sum = word(bytes, tail);
    let mut at = slot * 4;
    for part in sums.chunks(AT_ONCE) {
        let mut new = [0; AT_ONCE * 4];
        let new = &mut new[..part.len() * 4];
        for (to, sum) in new.chunks_exact_mut(4).zip(part) {
            to.copy_from_slice(&sum.to_le_bytes());
        }
        let end = at + new.len();
        sum ^= splice_delta((tail - end) as u64, &bytes[at..end], new);
        bytes[at..end].copy_from_slice(new);
        at = end;
    }
    bytes[tail..].copy_from_slice(&sum.to_le_bytes());
    debug_assert_eq!(
        sum == tail_of(bytes, index, seed),
        check(bytes, index, seed, Site::NOWHERE).is_ok()
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    #[test]
    fn every_block_of_a_volume_has_one_entry() {
        let size = BlockSize::from_superblock_log(0).unwrap();
        assert_eq!((words_per_block(size), file_blocks(size, 256)), (255, 2));
        assert_eq!(file_blocks(size, 255), 1);
        assert_eq!(place_of(size, BlockNr(0)), (0, 0));
        assert_eq!(place_of(size, BlockNr(254)), (0, 254));
        assert_eq!(place_of(size, BlockNr(255)), (1, 0));
    }

    #[test]
    fn stored_checksums_read_back_and_the_block_checksum_matches() {
        let mut bytes = vec![0; 1024];
        check(&bytes, 7, 99, Site::NOWHERE).unwrap();
        for (slot, count) in [(0, 1), (3, 100), (254, 1), (0, 255), (17, 65)] {
            let sums: Vec<u32> =
                (0..count).map(|n| 0x9E37_79B9u32.wrapping_mul(n + slot)).collect();
            store(&mut bytes, 7, 99, slot as usize, &sums);
            check(&bytes, 7, 99, Site::NOWHERE).unwrap();
            assert_eq!(words(&bytes, slot as usize, sums.len()).collect::<Vec<_>>(), sums);
            assert_eq!(word(&bytes, 1020), tail_of(&bytes, 7, 99));
        }
        assert!(check(&bytes, 8, 99, Site::NOWHERE).is_err(), "of another place");
        assert!(check(&bytes, 7, 98, Site::NOWHERE).is_err(), "of another volume");
    }

    #[test]
    fn a_flipped_bit_is_found_even_after_a_later_store() {
        let mut bytes = vec![0; 1024];
        store(&mut bytes, 1, 5, 0, &[1, 2, 3]);
        for bit in (0..1024 * 8).step_by(37) {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(check(&bad, 1, 5, Site::NOWHERE).is_err(), "bit {bit}");
            if !(800..864).contains(&bit) {
                store_unchecked(&mut bad, 25);
                assert!(check(&bad, 1, 5, Site::NOWHERE).is_err(), "bit {bit}, stored over");
            }
        }
    }

    fn store_unchecked(bytes: &mut [u8], slot: usize) {
        store(bytes, 1, 5, slot, &[0xDEAD_BEEF, 0xFFFF_FFFF]);
    }
}
