//! The CRC of a long region as a dot product: each 16 bytes are multiplied by a power of x, and one
//! reduction follows for all of them.
//!
//! ```text
//!   bytes   │ short │ word? │  16 bytes  │  16 bytes  │ … │  16 bytes  │
//!           └─ crc, chained ┘→ ^        ×            ×               ×
//!   powers                     x^(128j+64−33), x^(128j−33)  …  j = 0
//!                                    └─────── sum, then reduce ──────┘
//! ```
//!
//! The multiplications are independent of each other, whereas in a chain of CRC instructions each
//! one waits for the one before. Blocks of 512 bytes are combined by Horner's rule.

use crate::field::Field;
use crate::poly::{self, x_to_minus};
use crate::words;

/// A backend that multiplies two pairs of 64-bit words at a time.
pub(crate) trait Lanes: Field {
    /// The two words of 16 bytes.
    fn load(self, bytes: &[u8; 16]) -> Self::Wide;
    /// Two 32-bit polynomials as words.
    fn widen(self, powers: &[u32; 2]) -> Self::Wide;
    /// A register before 16 bytes, as if it were xored into their start.
    fn before(self, crc: u32) -> Self::Wide;
    /// The sum of the products, low with low and high with high.
    fn mul_lanes(self, words: Self::Wide, powers: Self::Wide) -> Self::Wide;
    /// A 128-bit polynomial, times x^32, mod P: the CRC of 16 bytes.
    fn reduce_128(self, wide: Self::Wide) -> u32;
}

/// Pairs of words in a block.
const BLOCK: usize = 32;

/// The most bytes of one dot product.
pub(crate) const MOST_BYTES: usize = 16 * BLOCK;

/// x^(128j + 64 − 33) and x^(128j − 33), the greatest j first.
static POWERS: [[u32; 2]; BLOCK] = powers();

/// x^(8·512 − 33): moves a register over one block.
const OVER_BLOCK: u32 = poly::mul_by_x(x_to_minus(33), 8 * MOST_BYTES as u32);

const fn powers() -> [[u32; 2]; BLOCK] {
    let mut powers = [[0; 2]; BLOCK];
    let mut power = x_to_minus(33);
    let mut pair = BLOCK;
    while pair > 0 {
        pair -= 1;
        powers[pair][1] = power;
        power = poly::mul_by_x(power, 64);
        powers[pair][0] = power;
        power = poly::mul_by_x(power, 64);
    }
    powers
}

/// The sum of at most [`BLOCK`] pairs, each times its power.
#[inline(always)]
fn dot<L: Lanes>(l: L, crc: u32, pairs: impl ExactSizeIterator<Item = L::Wide>) -> u32 {
    let powers = &POWERS[BLOCK - pairs.len()..];
    let mut pairs = pairs.zip(powers);
    let Some((first, power)) = pairs.next() else { return crc };
    let first = l.mul_lanes(l.add(first, l.before(crc)), l.widen(power));
    l.reduce_128(
        pairs.fold(first, |sum, (pair, power)| l.add(sum, l.mul_lanes(pair, l.widen(power)))),
    )
}

/// The register `seed` after `bytes`.
#[inline(always)]
pub(crate) fn crc<L: Lanes>(l: L, seed: u32, bytes: &[u8]) -> u32 {
    let (mut crc, rest) = words::start(l, seed, bytes);
    let (odd, pairs) = rest.as_flattened().as_rchunks::<16>();
    if let Some(word) = odd.first_chunk() {
        crc = l.crc_word(crc, u64::from_le_bytes(*word));
    }
    let (head, blocks) = pairs.as_rchunks::<BLOCK>();
    crc = dot(l, crc, head.iter().map(|pair| l.load(pair)));
    for block in blocks {
        // The dot product of the block does not depend on the register.
        crc = l.mul(crc, OVER_BLOCK) ^ dot(l, 0, block.iter().map(|pair| l.load(pair)));
    }
    crc
}

/// The register, from 0, after `old ^ new`.
#[inline(always)]
pub(crate) fn crc_difference<L: Lanes>(l: L, old: &[u8], new: &[u8]) -> u32 {
    if old.len() > MOST_BYTES {
        return crc(l, 0, old) ^ crc(l, 0, new);
    }
    let (mut crc, old, new) = words::start_difference(l, old, new);
    let (odd_old, old) = old.as_flattened().as_rchunks::<16>();
    let (odd_new, new) = new.as_flattened().as_rchunks::<16>();
    if let (Some(old), Some(new)) = (odd_old.first_chunk(), odd_new.first_chunk()) {
        crc = l.crc_word(crc, u64::from_le_bytes(*old) ^ u64::from_le_bytes(*new));
    }
    dot(l, crc, old.iter().zip(new).map(|(old, new)| l.add(l.load(old), l.load(new))))
}
