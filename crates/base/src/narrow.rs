//! Conversions to narrower integers, for the crates that use no other casts that can lose bits.
//!
//! ```text
//!   low_u32, high_u32, …    one part of a number that the format stores in parts
//!   fits_u32, len_u32, …    a number that is known to fit; debug builds check it
//! ```
// The functions below are the checked or named form of these casts.
#![allow(clippy::cast_possible_truncation)]

/// The low 8 bits.
pub const fn low_u8(n: u32) -> u8 {
    n as u8
}

/// The low 16 bits.
pub const fn low_u16(n: u32) -> u16 {
    n as u16
}

/// The low 32 bits.
pub const fn low_u32(n: u64) -> u32 {
    n as u32
}

/// The high 32 bits.
pub const fn high_u32(n: u64) -> u32 {
    (n >> 32) as u32
}

/// A number of blocks, clusters or bytes that fits into 32 bits.
pub const fn fits_u32(n: u64) -> u32 {
    debug_assert!(n <= u32::MAX as u64);
    n as u32
}

/// A number below 2^16.
pub const fn fits_u16(n: u32) -> u16 {
    debug_assert!(n <= u16::MAX as u32);
    n as u16
}

/// A number of bytes in memory, or a position there.
pub const fn fits_usize(n: u64) -> usize {
    debug_assert!(n <= usize::MAX as u64);
    n as usize
}

/// A length or a position below 2^32.
pub const fn len_u32(n: usize) -> u32 {
    debug_assert!(n as u64 <= u32::MAX as u64);
    n as u32
}

/// A length or a position below 2^16.
pub const fn len_u16(n: usize) -> u16 {
    debug_assert!(n <= u16::MAX as usize);
    n as u16
}

/// A length or a position below 2^8.
pub const fn len_u8(n: usize) -> u8 {
    debug_assert!(n <= u8::MAX as usize);
    n as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_make_the_number() {
        let n = 0x1234_5678_9ABC_DEF0;
        assert_eq!(u64::from(high_u32(n)) << 32 | u64::from(low_u32(n)), n);
        assert_eq!((low_u16(low_u32(n)), low_u8(low_u32(n))), (0xDEF0, 0xF0));
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "assertion failed")]
    fn what_does_not_fit_is_found_in_debug_builds() {
        len_u8(256);
    }
}
