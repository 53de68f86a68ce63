//! The formulas of the crate, written once for all backends: a [`Field`] is a backend's arithmetic.
//!
//! ```text
//!                offset      count
//!   ├──────────────┼───────────┼──────────────────────┤ total           flip
//!                  │           └────── start ─────────┤
//!                  └────────────── end ───────────────┤   delta = R(end) ^ R(start)
//!
//!   ├──────────────┬ old ^ new ┬───── trailing ───────┤                 splice
//!                  └───────────┴──────────────────────┤   delta = crc0(old ^ new) · x^(8·trailing)
//!
//!   ├────── 1 ───────────┼───────── 2, len2 ──────────┤                 combine
//!                                                            crc1 · x^(8·len2) ^ crc2
//! ```
//!
//! R(n) is the CRC, from register 0, of n one-bits; crc0 is the CRC from register 0. All formulas
//! use one primitive: `reduce(clmul(a, b)) = a · b · x^33 mod P`, where `reduce` is the CRC of
//! eight bytes from register 0. Branches depend on the size of the whole buffer and not on the
//! place of the change.
//!
//! "Sum" and "+" below are additions of polynomials over GF(2), which are xors.

use crate::table::{Entry, HIGH_BITS, LEVELS, LOW_BITS, TWO_DIGITS};

/// A backend's operations on polynomials: multiplication, and reduction mod P.
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

    /// The register `seed` after `bytes`. Faster than word by word if `bytes` is long.
    fn crc_long(self, seed: u32, bytes: &[u8]) -> u32;
    /// The register, from 0, after `old ^ new`. Faster than word by word if they are long.
    fn crc_difference_long(self, old: &[u8], new: &[u8]) -> u32;
    /// The length in bytes from which on the `long` functions are faster.
    const LONG: usize;

    /// a · b · x^33 mod P.
    #[inline(always)]
    fn mul(self, a: u32, b: u32) -> u32 {
        self.reduce(self.clmul(a, b))
    }

    /// a · b · x^33 + sum mod P.
    #[inline(always)]
    fn mul_add(self, a: u32, b: u32, sum: u32) -> u32 {
        self.mul(a, b) ^ sum
    }
}

/// The lowest digit of `n`.
#[inline(always)]
fn low(n: u64) -> &'static Entry {
    &LEVELS.low[(n & 1023) as usize]
}

/// The second digit.
#[inline(always)]
fn mid(n: u64) -> &'static Entry {
    &LEVELS.mid[((n >> LOW_BITS) & 1023) as usize]
}

/// The third digit.
#[inline(always)]
fn high(n: u64) -> &'static Entry {
    &LEVELS.high[((n >> (2 * LOW_BITS)) & 63) as usize]
}

/// The fourth digit.
#[inline(always)]
fn top(n: u64) -> &'static Entry {
    &LEVELS.top[((n >> (2 * LOW_BITS + HIGH_BITS)) & 63) as usize]
}

/// R(n) before its reduction: R(n) = `reduce(wide) ^ rest`.
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

/// The xor of two values R(n), with one reduction.
#[inline(always)]
fn difference<F: Field>(f: F, a: Half<F::Wide>, b: Half<F::Wide>) -> u32 {
    a.rest ^ b.rest ^ f.reduce(f.add(a.wide, b.wide))
}

/// See [`crate::flip_delta`].
#[inline(always)]
pub(crate) fn flip_delta<F: Field>(f: F, total: u64, offset: u64, count: u64) -> u32 {
    let end = total - offset;
    let start = end - count;
    // The branch depends on `total`, which rarely changes from call to call, so that the CPU
    // predicts it. `end` and `start` vary.
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
pub(crate) fn power_of_bytes<F: Field>(f: F, len: u64) -> u32 {
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

/// See [`crate::combine`].
#[inline(always)]
pub(crate) fn combine<F: Field>(f: F, crc1: u32, crc2: u32, len2: u64) -> u32 {
    f.mul_add(crc1, power_of_bytes(f, len2), crc2)
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
    fn lengths_reduce_to_their_periods() {
        for n in [0, 1, 0xFFFF_FFFD, 0xFFFF_FFFE, 0xFFFF_FFFF, 1 << 32, u64::MAX] {
            assert_eq!(within_ones_period(n) % 0xFFFF_FFFE, n % 0xFFFF_FFFE);
            assert!(within_ones_period(n) < 1 << 32, "{n:#x}");
            assert_eq!(within_power_period(n) % 0x7FFF_FFFF, n % 0x7FFF_FFFF);
            assert!(within_power_period(n) < 1 << 34, "{n:#x}");
        }
    }
}
