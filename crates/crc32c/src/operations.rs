//! The operations of the crate, for any [`Field`]: those on lengths and bits, which `field` has,
//! and those over regions of bytes.

use crate::field::{Field, power_of_bytes};
pub(crate) use crate::field::{append_zeros, combine, flip_delta, ones};
use crate::words;

/// See [`crate::crc32c`].
#[inline(always)]
pub(crate) fn crc32c<F: Field>(f: F, seed: u32, bytes: &[u8]) -> u32 {
    if bytes.len() >= F::LONG { f.crc_long(seed, bytes) } else { words::crc(f, seed, bytes) }
}

/// See [`crate::splice_delta`].
#[inline(always)]
pub(crate) fn splice_delta<F: Field>(f: F, trailing: u64, old: &[u8], new: &[u8]) -> u32 {
    let sum = if old.len() >= F::LONG {
        f.crc_difference_long(old, new)
    } else {
        words::crc_difference(f, old, new)
    };
    f.mul(sum, power_of_bytes(f, trailing))
}

/// See [`crate::splice_delta`]; `first` and `last` are the words of [`words::two_words`].
#[inline(always)]
pub(crate) fn splice_two<F: Field>(f: F, trailing: u64, first: u64, last: u64) -> u32 {
    f.mul(f.crc_word(f.crc_word(0, first), last), power_of_bytes(f, trailing))
}
