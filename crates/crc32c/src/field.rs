//! The formulas, once, over whatever machine can multiply: a [`Field`] is such a machine.
//!
//! ```text
//!                offset      count
//!   ├──────────────┼───────────┼──────────────────────┤ total           flip
//!                  │           └────── start ─────────┤
//!                  └────────────── end ───────────────┤      delta = R(end) ^ R(start)
//!
//!   ├──────────────┬ old ^ new ┬───── trailing ───────┤                 splice
//!                  └───────────┴──────────────────────┤      delta = crc0(old ^ new) · x^(8·trailing)
//!
//!   ├────── 1 ───────────┼───────── 2, len2 ──────────┤                 combine
//!                                                            crc1 · x^(8·len2) ^ crc2
//! ```
//!
//! One primitive pays for all: `reduce(clmul(a, b)) = a · b · x^33 mod P`, where `reduce` is the CRC of
//! eight bytes from register 0. No branch depends on a distance, only on the size of the whole.

use crate::table::{HIGH_BITS, LEVELS, LOW_BITS, TWO_DIGITS};

/// A machine's way to multiply polynomials and to reduce them mod P.
pub(crate) trait Field: Copy {
    /// A sum of products, not yet reduced.
    type Wide: Copy;

    /// The product of two polynomials, 63 bits.
    fn clmul(self, a: u32, b: u32) -> Self::Wide;
    /// The sum of two products.
    fn add(self, a: Self::Wide, b: Self::Wide) -> Self::Wide;
    /// A 63-bit sum of `clmul`s, times x^33, mod P.
    fn reduce(self, wide: Self::Wide) -> u32;
    /// The register `crc` after the eight bytes of `word`.
    fn crc_word(self, crc: u32, word: u64) -> u32;

    /// a · b · x^33 mod P.
    #[inline(always)]
    fn mul(self, a: u32, b: u32) -> u32 {
        self.reduce(self.clmul(a, b))
    }
}

/// The lowest digit of `n`.
#[inline(always)]
fn low(n: u64) -> &'static crate::table::Entry {
    &LEVELS.low[(n & 1023) as usize]
}

/// The second digit.
#[inline(always)]
fn mid(n: u64) -> &'static crate::table::Entry {
    &LEVELS.mid[((n >> LOW_BITS) & 1023) as usize]
}

/// The third digit.
#[inline(always)]
fn high(n: u64) -> &'static crate::table::Entry {
    &LEVELS.high[((n >> (2 * LOW_BITS)) & 63) as usize]
}

/// The fourth digit.
#[inline(always)]
fn top(n: u64) -> &'static crate::table::Entry {
    &LEVELS.top[((n >> (2 * LOW_BITS + HIGH_BITS)) & 63) as usize]
}

/// A run of ones, half summed: R(n) is `reduce(wide) ^ rest`.
struct Half<W> {
    wide: W,
    rest: u32,
}

/// R(n) for n below 2^20.
#[inline(always)]
fn ones_two<F: Field>(f: F, n: u64) -> Half<F::Wide> {
    let (low, mid) = (low(n), mid(n));
    Half { wide: f.clmul(low.power, mid.ones), rest: low.ones }
}

/// R(n) for n below 2^26.
#[inline(always)]
fn ones_three<F: Field>(f: F, n: u64) -> Half<F::Wide> {
    let (low, mid, high) = (low(n), mid(n), high(n));
    let above = f.mul(mid.power, high.ones) ^ mid.ones;
    Half { wide: f.clmul(low.power, above), rest: low.ones }
}

/// R(n) for any n.
#[inline(always)]
fn ones_four<F: Field>(f: F, n: u64) -> Half<F::Wide> {
    let n = within_ones_period(n);
    let (low, mid, high, top) = (low(n), mid(n), high(n), top(n));
    let above = f.mul(high.power, top.ones) ^ high.ones;
    let below_power = f.mul(mid.power, low.power);
    let wide = f.add(f.clmul(below_power, above), f.clmul(low.power, mid.ones));
    Half { wide, rest: low.ones }
}

/// An n below 2^32 with the same R(n): R has period 2^32 − 2, so 2^32 counts as 2.
#[inline(always)]
fn within_ones_period(mut n: u64) -> u64 {
    for _ in 0..3 {
        n = (n >> 32) * 2 + (n & 0xFFFF_FFFF);
    }
    n
}

/// An n below 2^32 with the same x^n: powers of x have period 2^31 − 1, so 2^31 counts as 1.
#[inline(always)]
fn within_power_period(mut n: u64) -> u64 {
    for _ in 0..2 {
        n = (n >> 31) + (n & 0x7FFF_FFFF);
    }
    n
}

/// The sum of two half-summed runs.
#[inline(always)]
fn difference<F: Field>(f: F, a: Half<F::Wide>, b: Half<F::Wide>) -> u32 {
    a.rest ^ b.rest ^ f.reduce(f.add(a.wide, b.wide))
}

/// See [`crate::flip_delta`].
#[inline(always)]
pub(crate) fn flip_delta<F: Field>(f: F, total: u64, offset: u64, count: u64) -> u32 {
    let end = total - offset;
    let start = end - count;
    // The digits are chosen by `total`: it hardly changes from call to call, so the branch is free,
    // whereas `end` and `start` jump about.
    if total < TWO_DIGITS {
        difference(f, ones_two(f, end), ones_two(f, start))
    } else if total < TWO_DIGITS << HIGH_BITS {
        difference(f, ones_three(f, end), ones_three(f, start))
    } else {
        difference(f, ones_four(f, end), ones_four(f, start))
    }
}

/// See [`crate::ones`].
#[inline(always)]
pub(crate) fn ones<F: Field>(f: F, bits: u64) -> u32 {
    let half = if bits < TWO_DIGITS { ones_two(f, bits) } else { ones_four(f, bits) };
    f.reduce(half.wide) ^ half.rest
}

/// x^(8·len − 33) mod P.
#[inline(always)]
fn power_of_bytes<F: Field>(f: F, len: u64) -> u32 {
    if len < TWO_DIGITS / 8 {
        let bits = len * 8;
        f.mul(low(bits).power, mid(bits).power)
    } else {
        let bits = within_power_period(within_power_period(len) * 8);
        let above = f.mul(high(bits).power, top(bits).power);
        f.mul(above, f.mul(low(bits).power, mid(bits).power))
    }
}

/// See [`crate::append_zeros`].
#[inline(always)]
pub(crate) fn append_zeros<F: Field>(f: F, crc: u32, len: u64) -> u32 {
    f.mul(crc, power_of_bytes(f, len))
}

/// A region of bytes as words. The first word is short: its bytes stand at the top, zeros below
/// them, and leading zeros do not count in a CRC that starts from register 0.
#[derive(Clone, Copy)]
struct Words<'a> {
    first: u64,
    /// Bits of zero below the bytes of `first`, 0..=56.
    shift: u32,
    rest: &'a [[u8; 8]],
}

/// Cuts `bytes` into words; `None` if there are none.
#[inline(always)]
fn words(bytes: &[u8]) -> Option<Words<'_>> {
    let last = bytes.len().checked_sub(1)?;
    let first_len = last % 8 + 1;
    let shift = 64 - 8 * first_len as u32;
    let first = match bytes.first_chunk::<8>() {
        Some(chunk) => u64::from_le_bytes(*chunk) << shift,
        None => short_word(bytes) << shift,
    };
    Some(Words { first, shift, rest: bytes[first_len..].as_chunks().0 })
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

/// See [`crate::crc32c`].
#[inline(always)]
pub(crate) fn crc32c<F: Field>(f: F, seed: u32, bytes: &[u8]) -> u32 {
    let Some(Words { first, shift, rest }) = words(bytes) else { return seed };
    // The seed covers the first four bytes; what of it hangs over a shorter first word stays in the
    // register.
    let first_bits = 64 - shift;
    let over = (u64::from(seed) >> (first_bits / 2)) >> (first_bits / 2);
    let mut crc = f.crc_word(0, first ^ (u64::from(seed) << shift)) ^ over as u32;
    for word in rest {
        crc = f.crc_word(crc, u64::from_le_bytes(*word));
    }
    crc
}

/// The raw CRC of `old ^ new`, from register 0.
#[inline(always)]
fn difference_crc<F: Field>(f: F, old: &[u8], new: &[u8]) -> u32 {
    let (Some(old), Some(new)) = (words(old), words(new)) else { return 0 };
    let mut crc = f.crc_word(0, old.first ^ new.first);
    for (old, new) in old.rest.iter().zip(new.rest) {
        crc = f.crc_word(crc, u64::from_le_bytes(*old) ^ u64::from_le_bytes(*new));
    }
    crc
}

/// See [`crate::splice_delta`].
#[inline(always)]
pub(crate) fn splice_delta<F: Field>(f: F, trailing: u64, old: &[u8], new: &[u8]) -> u32 {
    f.mul(difference_crc(f, old, new), power_of_bytes(f, trailing))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::poly;

    /// x^n, one step at a time.
    pub(crate) fn x_to(n: u32) -> u32 {
        (0..n).fold(poly::ONE, |power, _| poly::mul(power, poly::X))
    }

    #[test]
    fn a_short_word_takes_each_byte_once() {
        let bytes = [0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77];
        for len in 1..=7 {
            let mut padded = [0; 8];
            padded[..len].copy_from_slice(&bytes[..len]);
            assert_eq!(short_word(&bytes[..len]), u64::from_le_bytes(padded), "{len} bytes");
        }
    }

    #[test]
    fn lengths_fold_into_their_periods() {
        for n in [0, 1, 0xFFFF_FFFD, 0xFFFF_FFFE, 0xFFFF_FFFF, 1 << 32, u64::MAX] {
            assert_eq!(within_ones_period(n) % 0xFFFF_FFFE, n % 0xFFFF_FFFE);
            assert!(within_ones_period(n) < 1 << 32, "{n:#x}");
            assert_eq!(within_power_period(n) % 0x7FFF_FFFF, n % 0x7FFF_FFFF);
            assert!(within_power_period(n) < 1 << 34, "{n:#x}");
        }
    }
}
