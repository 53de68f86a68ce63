//! The backend of plain integer arithmetic, for any machine. Tests compare the other backends with
//! it.
//!
//! ```text
//!   clmul    a = ┌─┬─┬─┬─┬─┬─┬─┬─┐ eight digits of 4 bits; each picks one of 16 multiples of b
//!   reduce   ┌──┬──┬──┬──┬──┬──┬──┬──┐ eight bytes; each picks from a table of its own (8 KB)
//! ```
//!
//! The functions are those of the crate's root, without the selection of a backend.

use crate::field::Field;
use crate::operations;
use crate::poly::P;
use crate::words;

/// `BYTES[i][b]`: the register after byte `b` and then `i` zero bytes, from register 0.
static BYTES: [[u32; 256]; 8] = byte_tables();

const fn byte_tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut table = 0;
        while table < 8 {
            let mut bit = 0;
            while bit < 8 {
                crc = (crc >> 1) ^ (P & 0u32.wrapping_sub(crc & 1));
                bit += 1;
            }
            tables[table][byte] = crc;
            table += 1;
        }
        byte += 1;
    }
    tables
}

/// Plain integers.
#[derive(Clone, Copy)]
pub(crate) struct Plain;

impl Field for Plain {
    type Wide = u64;

    #[inline(always)]
    fn clmul(self, a: u32, b: u32) -> u64 {
        let b = u64::from(b);
        let mut multiples = [0; 16];
        multiples[1] = b;
        for digit in 1..8 {
            multiples[2 * digit] = multiples[digit] << 1;
            multiples[2 * digit + 1] = multiples[2 * digit] ^ b;
        }
        let mut product = 0;
        for digit in 0..8 {
            product ^= multiples[(a >> (4 * digit) & 15) as usize] << (4 * digit);
        }
        product
    }

    #[inline(always)]
    fn add(self, a: u64, b: u64) -> u64 {
        a ^ b
    }

    #[inline(always)]
    fn reduce(self, wide: u64) -> u32 {
        let bytes = wide.to_le_bytes();
        let mut crc = 0;
        for (byte, table) in bytes.iter().zip(BYTES.iter().rev()) {
            crc ^= table[usize::from(*byte)];
        }
        crc
    }

    #[inline(always)]
    fn crc_word(self, crc: u32, word: u64) -> u32 {
        self.reduce(word ^ u64::from(crc))
    }

    const LONG: usize = usize::MAX;

    fn crc_long(self, seed: u32, bytes: &[u8]) -> u32 {
        words::crc(self, seed, bytes)
    }

    fn crc_difference_long(self, old: &[u8], new: &[u8]) -> u32 {
        words::crc_difference(self, old, new)
    }
}

/// [`crate::crc32c`] in plain arithmetic.
#[must_use]
pub fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    operations::crc32c(Plain, seed, bytes)
}

/// [`crate::flip_delta`] in plain arithmetic.
///
/// # Panics
/// If the range is not inside `total_bits`.
#[must_use]
pub fn flip_delta(total_bits: u64, offset_bits: u64, count_bits: u64) -> u32 {
    crate::assert_range(total_bits, offset_bits, count_bits);
    operations::flip_delta(Plain, total_bits, offset_bits, count_bits)
}

/// [`crate::ones`] in plain arithmetic.
#[must_use]
pub fn ones(bits: u64) -> u32 {
    operations::ones(Plain, bits)
}

/// [`crate::splice_delta`] in plain arithmetic.
///
/// # Panics
/// If the two regions differ in length.
#[must_use]
pub fn splice_delta(trailing_len: u64, old_region: &[u8], new_region: &[u8]) -> u32 {
    crate::assert_regions(old_region, new_region);
    operations::splice_delta(Plain, trailing_len, old_region, new_region)
}

/// [`splice_delta`] of two words.
pub(crate) fn splice_two(trailing: u64, first: u64, last: u64) -> u32 {
    operations::splice_two(Plain, trailing, first, last)
}

/// [`crate::append_zeros`] in plain arithmetic.
#[must_use]
pub fn append_zeros(crc: u32, len: u64) -> u32 {
    operations::append_zeros(Plain, crc, len)
}

/// [`crate::combine`] in plain arithmetic.
#[must_use]
pub fn combine(crc1: u32, crc2: u32, len2: u64) -> u32 {
    operations::combine(Plain, crc1, crc2, len2)
}
