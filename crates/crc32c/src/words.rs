//! The CRC of a region, word by word, without a loop for single bytes.
//!
//! ```text
//!   bytes      b0 b1 b2 │ b3 … b10 │ b11 … b18
//!              ┌────────┴─┬────────┴─┬──────────┐
//!   words      │00000b0b1b2│         │          │    the short word is the first, its bytes at the
//!              └──────────┴──────────┴──────────┘    top: leading zeros keep register 0 at 0
//! ```

use crate::field::Field;

/// See the module's picture.
#[derive(Clone, Copy)]
struct Words<'a> {
    first: u64,
    /// Bits of zero below the bytes of `first`, 0..=56.
    shift: u32,
    rest: &'a [[u8; 8]],
}

impl<'a> Words<'a> {
    /// Cuts `bytes` into words; `None` if there are none.
    #[inline(always)]
    fn cut(bytes: &'a [u8]) -> Option<Self> {
        let first_len = bytes.len().checked_sub(1)? % 8 + 1;
        let shift = 64 - 8 * first_len as u32;
        let first = match bytes.first_chunk::<8>() {
            Some(chunk) => u64::from_le_bytes(*chunk) << shift,
            None => short_word(bytes) << shift,
        };
        Some(Words { first, shift, rest: bytes[first_len..].as_chunks().0 })
    }
}

/// One to seven bytes, little-endian.
#[inline(always)]
fn short_word(bytes: &[u8]) -> u64 {
    let len = bytes.len();
    match (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        (Some(head), Some(tail)) => {
            let tail = u64::from(u32::from_le_bytes(*tail)) << (8 * (len - 4));
            u64::from(u32::from_le_bytes(*head)) | tail
        }
        _ => {
            // 1: a a a, 2: a b b, 3: a b c.
            let middle = u64::from(bytes[len / 2]) << (8 * (len / 2));
            u64::from(bytes[0]) | middle | u64::from(bytes[len - 1]) << (8 * (len - 1))
        }
    }
}

/// The register `seed` after the first, short word of `bytes`, and the whole words that follow.
#[inline(always)]
pub(crate) fn start<F: Field>(f: F, seed: u32, bytes: &[u8]) -> (u32, &[[u8; 8]]) {
    let Some(Words { first, shift, rest }) = Words::cut(bytes) else { return (seed, &[]) };
    // The seed is xored into the first four bytes. The part that lies beyond a shorter first word
    // stays in the register. There are two half shifts because Rust has no shift by 64.
    let half_bits = (64 - shift) / 2;
    let over = (u64::from(seed) >> half_bits) >> half_bits;
    (f.crc_word(0, first ^ (u64::from(seed) << shift)) ^ over as u32, rest)
}

/// The register `seed` after `bytes`.
#[inline(always)]
pub(crate) fn crc<F: Field>(f: F, seed: u32, bytes: &[u8]) -> u32 {
    let (crc, rest) = start(f, seed, bytes);
    rest.iter().fold(crc, |crc, word| f.crc_word(crc, u64::from_le_bytes(*word)))
}

/// The register, from 0, after the first, short word of `old ^ new`, and the whole words that
/// follow.
#[inline(always)]
pub(crate) fn start_difference<'a, F: Field>(
    f: F,
    old: &'a [u8],
    new: &'a [u8],
) -> (u32, &'a [[u8; 8]], &'a [[u8; 8]]) {
    match (Words::cut(old), Words::cut(new)) {
        (Some(old), Some(new)) => (f.crc_word(0, old.first ^ new.first), old.rest, new.rest),
        _ => (0, &[], &[]),
    }
}

/// The register, from 0, after `old ^ new`.
#[inline(always)]
pub(crate) fn crc_difference<F: Field>(f: F, old: &[u8], new: &[u8]) -> u32 {
    let (crc, old, new) = start_difference(f, old, new);
    old.iter().zip(new).fold(crc, |crc, (old, new)| {
        f.crc_word(crc, u64::from_le_bytes(*old) ^ u64::from_le_bytes(*new))
    })
}

/// `old ^ new` as two words, the first one short, if both have the same length in 9..=16 bytes, as
/// an extent, a short directory entry or a pair of counters has.
#[inline(always)]
pub(crate) fn two_words(old: &[u8], new: &[u8]) -> Option<[u64; 2]> {
    let len @ 9..=16 = new.len() else { return None };
    let word = |old: &[u8; 8], new: &[u8; 8]| u64::from_le_bytes(*old) ^ u64::from_le_bytes(*new);
    let first = word(old.first_chunk()?, new.first_chunk()?);
    Some([first << (8 * (16 - len)), word(old.last_chunk()?, new.last_chunk()?)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_word_contains_each_byte_once() {
        let bytes = [0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77];
        for len in 1..=7 {
            let mut padded = [0; 8];
            padded[..len].copy_from_slice(&bytes[..len]);
            assert_eq!(short_word(&bytes[..len]), u64::from_le_bytes(padded), "{len} bytes");
        }
    }
}
