//! CRC32C of whole buffers, and its update in constant time after a change.
//!
//! ```text
//!   crc32c(seed, bytes)        ███████████████████████████████   reads every byte
//!   flip_range(old, …)         ───────────┤flip├──────────────   reads none
//!   splice(old, …, a, b)       ───────────┤ab├────────────────   reads the changed bytes
//!   combine(crc1, crc2, len2)  ──────1──────┼────────2────────   reads none
//! ```
//!
//! A CRC is linear. If a message changes, the CRC changes by a value (xor) that depends only on the
//! change and on its distance to the end of the message. So an update after flipped bits in a
//! bitmap takes the same few nanoseconds for 64 KiB as for 1 KiB.
//!
//! # Convention
//! Every CRC in this crate is the raw register: it starts at a given `seed` and is not inverted at
//! the end, as ext4 stores it. The standard CRC32C of a message is `!crc32c(!0, message)`:
//!
//! ```
//! assert_eq!(!extant_crc32c::crc32c(!0, b"123456789"), 0xE306_9283);
//! ```
//!
//! The `*_delta` functions return the value to xor into an old CRC. It is the same for every seed,
//! for inverted and raw CRCs, and for every old value. For a checksum that was cut to its low 16
//! bits, the low 16 bits of the delta are right.
//!
//! # A mismatch stays a mismatch
//! If a CRC does not match its bytes before an incremental update, it does not match afterwards
//! either. So damage stays detectable. A CRC that is computed again from the bytes would hide it.
//!
//! # Backends
//! x86-64 with SSE4.2 and PCLMULQDQ, aarch64 with CRC and PMULL, and [`portable`]. With the feature
//! `std` the first call selects a backend by the CPU's features; without it, the compiler selects
//! one by the target's features.

#![cfg_attr(not(any(feature = "std", test)), no_std)]
#![deny(unsafe_code)]
#![warn(missing_debug_implementations)]

mod field;
mod lanes;
mod operations;
mod poly;
pub mod portable;
mod simd;
mod table;
mod words;

/// The CRC of `bytes`: the raw register after them, if it starts at `seed`.
///
/// ```
/// let seed = extant_crc32c::crc32c(!0, b"volume");
/// let whole = extant_crc32c::crc32c(!0, b"volume and block");
/// assert_eq!(extant_crc32c::crc32c(seed, b" and block"), whole);
/// ```
#[inline]
#[must_use]
pub fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    simd::crc32c(seed, bytes)
}

/// Copies `src` to `dst` and returns the CRC of the copied bytes, in one pass.
///
/// The CRC is that of `dst`, also if another process changes `src` during the call.
///
/// # Panics
/// If the lengths differ.
///
/// ```
/// let mut copy = [0; 5];
/// let crc = extant_crc32c::crc32c_and_copy(!0, b"bytes", &mut copy);
/// assert_eq!((crc, &copy), (extant_crc32c::crc32c(!0, b"bytes"), b"bytes"));
/// ```
#[must_use]
pub fn crc32c_and_copy(seed: u32, src: &[u8], dst: &mut [u8]) -> u32 {
    assert_eq!(src.len(), dst.len(), "crc32c_and_copy: the lengths differ");
    // The CRC reads each piece while it is in the first-level cache. It reads `dst`: if another
    // process changes `src` meanwhile, CRC and copy still agree.
    let mut crc = seed;
    for (from, to) in src.chunks(COPY_PIECE_BYTES).zip(dst.chunks_mut(COPY_PIECE_BYTES)) {
        to.copy_from_slice(from);
        crc = crc32c(crc, to);
    }
    crc
}

/// Bytes of a piece: source and copy fit into a first-level cache of 32 KiB.
const COPY_PIECE_BYTES: usize = 8192;

/// The CRC of a buffer of `total_bits` bits after `count_bits` bits from `offset_bits` on were
/// inverted; `old` is the CRC before.
///
/// Bit i is bit i mod 8 of byte i/8, the order of ext4's bitmaps. Every bit of the range must have
/// changed. `total_bits` is the length that the CRC covers, and need not be a multiple of 8. If
/// `count_bits` is zero, the result is `old`.
///
/// # Panics
/// If the range is not inside `total_bits`.
///
/// ```
/// use extant_crc32c::{crc32c, flip_range};
/// let mut bitmap = [0u8; 1024];
/// let old = crc32c(7, &bitmap);
/// bitmap[100] = 0xF0; // bits 804..808
/// bitmap[101] = 0x03; // bits 808..810
/// assert_eq!(flip_range(old, 8192, 804, 6), crc32c(7, &bitmap));
/// ```
#[inline]
#[must_use]
pub fn flip_range(old: u32, total_bits: u64, offset_bits: u64, count_bits: u64) -> u32 {
    old ^ flip_delta(total_bits, offset_bits, count_bits)
}

/// The value that [`flip_range`] xors into the old CRC.
///
/// # Panics
/// If the range is not inside `total_bits`.
///
/// ```
/// use extant_crc32c::{crc32c, flip_delta};
/// // A checksum cut to 16 bits is updated by the cut delta.
/// let old = crc32c(7, &[0; 64]) as u16;
/// let new = crc32c(7, &[0xFF; 64]) as u16;
/// assert_eq!(old ^ flip_delta(512, 0, 512) as u16, new);
/// ```
#[inline]
#[must_use]
pub fn flip_delta(total_bits: u64, offset_bits: u64, count_bits: u64) -> u32 {
    assert_range(total_bits, offset_bits, count_bits);
    simd::flip_delta(total_bits, offset_bits, count_bits)
}

/// The CRC of a buffer of `total_len` bytes after the bytes from `offset` on changed from
/// `old_region` to `new_region`; `old` is the CRC before.
///
/// # Panics
/// If the regions differ in length, or do not lie inside `total_len`.
///
/// ```
/// use extant_crc32c::{crc32c, splice};
/// let old = crc32c(!0, b"a block of eleven bytes");
/// assert_eq!(splice(old, 23, 11, b"eleven", b"twelve"), crc32c(!0, b"a block of twelve bytes"));
/// ```
#[inline]
#[must_use]
pub fn splice(
    old: u32,
    total_len: usize,
    offset: usize,
    old_region: &[u8],
    new_region: &[u8],
) -> u32 {
    assert_range(total_len as u64, offset as u64, new_region.len() as u64);
    let trailing_len = total_len - offset - new_region.len();
    old ^ splice_delta(trailing_len as u64, old_region, new_region)
}

/// The value that [`splice`] xors into the old CRC; `trailing_len` bytes follow the region.
///
/// # Panics
/// If the regions differ in length.
#[inline]
#[must_use]
pub fn splice_delta(trailing_len: u64, old_region: &[u8], new_region: &[u8]) -> u32 {
    assert_regions(old_region, new_region);
    // This reads a short region, so that the call needs only registers for its arguments.
    if let Some([first, last]) = words::two_words(old_region, new_region) {
        return simd::splice_two(trailing_len, first, last);
    }
    simd::splice_delta(trailing_len, old_region, new_region)
}

/// [`splice`] for a caller that has the CRCs of the old and of the new region, both from the same
/// seed, which may be any.
///
/// ```
/// use extant_crc32c::{crc32c, splice_crcs};
/// let old = crc32c(!0, b"a block of eleven bytes");
/// let region = crc32c(0, b"eleven");
/// let new = splice_crcs(old, 6, region, crc32c(0, b"twelve"));
/// assert_eq!(new, crc32c(!0, b"a block of twelve bytes"));
/// ```
#[inline]
#[must_use]
pub fn splice_crcs(old: u32, trailing_len: u64, old_region_crc: u32, new_region_crc: u32) -> u32 {
    old ^ append_zeros(old_region_crc ^ new_region_crc, trailing_len)
}

/// The CRC of two concatenated messages. `crc1` is that of the first, from any seed; `crc2` is that
/// of the second, which has `len2` bytes, from seed 0. Standard, inverted CRCs combine in the same
/// way.
///
/// ```
/// use extant_crc32c::{combine, crc32c};
/// let whole = crc32c(7, b"one and two");
/// assert_eq!(combine(crc32c(7, b"one "), crc32c(0, b"and two"), 7), whole);
/// ```
#[inline]
#[must_use]
pub fn combine(crc1: u32, crc2: u32, len2: u64) -> u32 {
    simd::combine(crc1, crc2, len2)
}

/// The register `crc` after `len` zero bytes.
///
/// ```
/// use extant_crc32c::{append_zeros, crc32c};
/// assert_eq!(append_zeros(7, 4096), crc32c(7, &[0; 4096]));
/// ```
#[inline]
#[must_use]
pub fn append_zeros(crc: u32, len: u64) -> u32 {
    simd::append_zeros(crc, len)
}

/// The register that becomes `crc` by `bytes`: the seed of a checksum.
///
/// Appending zeros multiplies the register by a power of x, and the powers of x repeat after
/// 2^31 - 1. So zeros are removed by appending the rest of such a round.
///
/// ```
/// use extant_crc32c::{crc32c, seed_of};
/// assert_eq!(seed_of(crc32c(7, b"some bytes"), b"some bytes"), 7);
/// ```
#[must_use]
pub fn seed_of(crc: u32, bytes: &[u8]) -> u32 {
    const ROUND: u64 = (1 << 31) - 1;
    append_zeros(crc ^ crc32c(0, bytes), ROUND - bytes.len() as u64 % ROUND)
}

/// The register, from 0, after `bits` one-bits.
///
/// ```
/// use extant_crc32c::{crc32c, ones};
/// assert_eq!(ones(800), crc32c(0, &[0xFF; 100]));
/// ```
#[inline]
#[must_use]
pub fn ones(bits: u64) -> u32 {
    simd::ones(bits)
}

#[inline(always)]
fn assert_range(total: u64, offset: u64, count: u64) {
    assert!(offset <= total && count <= total - offset, "the range is not inside the whole");
}

#[inline(always)]
fn assert_regions(old_region: &[u8], new_region: &[u8]) {
    // Not `assert_eq!`: it would store both lengths in memory for its message on each call.
    assert!(old_region.len() == new_region.len(), "the regions differ in length");
}

/// Runs the examples of the README as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
