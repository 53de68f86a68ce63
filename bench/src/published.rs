//! The method of the published kernel series, rebuilt from its description as a rival to measure.
//!
//! ```text
//!   shift by 2^k bits   register ─► 8 nibbles ─► 8 rows of 16 words ─► xor  19 matrices, 9728 B
//!   shift by n bits     one such step for each set bit of n
//!   ones(n)             for each set bit of n: shift, then xor ones(2^k)    20 words
//!   flip                shift(ones(count), bits after the range)
//! ```
//!
//! It supports bitmaps of up to 64 KiB. Its cost grows with the number of set bits in the two
//! lengths.

/// The largest supported number of bits.
pub(crate) const MOST_BITS: u32 = 1 << 19;

const P: u32 = 0x82F6_3B78;

/// `[k][nibble][value]`: the result for a nibble of the register after 2^k zero bits.
type Matrices = [[[u32; 16]; 8]; 19];

static SHIFTS: Matrices = shifts();
static ONES: [u32; 20] = ones_of_powers();

const fn apply(matrix: &[[u32; 16]; 8], crc: u32) -> u32 {
    let mut sum = 0;
    let mut nibble = 0;
    while nibble < 8 {
        sum ^= matrix[nibble][(crc >> (4 * nibble)) as usize & 15];
        nibble += 1;
    }
    sum
}

const fn shifts() -> Matrices {
    let mut matrices = [[[0; 16]; 8]; 19];
    let mut k = 0;
    while k < 19 {
        let mut at = 0;
        while at < 8 * 16 {
            let register = ((at % 16) as u32) << (4 * (at / 16));
            matrices[k][at / 16][at % 16] = if k == 0 {
                (register >> 1) ^ (P & 0u32.wrapping_sub(register & 1))
            } else {
                apply(&matrices[k - 1], apply(&matrices[k - 1], register))
            };
            at += 1;
        }
        k += 1;
    }
    matrices
}

const fn ones_of_powers() -> [u32; 20] {
    let matrices = shifts();
    let mut ones = [P; 20];
    let mut k = 1;
    while k < 20 {
        ones[k] = apply(&matrices[k - 1], ones[k - 1]) ^ ones[k - 1];
        k += 1;
    }
    ones
}

/// The register after `bits` zero bits, fewer than [`MOST_BITS`].
fn shift(mut crc: u32, mut bits: u32) -> u32 {
    while bits != 0 {
        crc = apply(&SHIFTS[bits.trailing_zeros() as usize], crc);
        bits &= bits - 1;
    }
    crc
}

/// The register, starting from 0, after `bits` one-bits, at most [`MOST_BITS`].
fn ones(mut bits: u32) -> u32 {
    let mut crc = 0;
    while bits != 0 {
        let k = bits.trailing_zeros() as usize;
        // The highest power needs no shift, because nothing precedes it.
        crc = if crc == 0 { ONES[k] } else { apply(&SHIFTS[k], crc) ^ ONES[k] };
        bits &= bits - 1;
    }
    crc
}

/// The checksum after `count` bits from `offset` on were inverted. With a range outside `total`
/// bits, or a `total` above [`MOST_BITS`], returns the old one.
pub(crate) fn flip_range(old: u32, total: u32, offset: u32, count: u32) -> u32 {
    if total > MOST_BITS || offset > total || count > total - offset || count == 0 {
        return old;
    }
    old ^ shift(ones(count), total - offset - count)
}

/// The checksum after a region that is followed by `trailing` bytes changed.
pub(crate) fn splice(old: u32, trailing: u32, old_region: &[u8], new_region: &[u8]) -> u32 {
    let changed = extant_crc32c::crc32c(0, old_region) ^ extant_crc32c::crc32c(0, new_region);
    if changed == 0 { old } else { old ^ shift(changed, 8 * trailing) }
}

/// The checksum of two consecutive messages.
pub(crate) fn combine(crc1: u32, crc2: u32, len2: u32) -> u32 {
    shift(crc1, 8 * len2) ^ crc2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_computes_what_the_definition_says() {
        let total = MOST_BITS;
        for (offset, count) in [(0, 1), (0, total), (total - 1, 1), (77, 0), (12345, 54321), (5, 8)]
        {
            let want = extant_crc32c::flip_range(9, total.into(), offset.into(), count.into());
            assert_eq!(flip_range(9, total, offset, count), want, "{offset}+{count}");
        }
        assert_eq!(combine(7, 9, 65_535), extant_crc32c::combine(7, 9, 65_535));
        let want = extant_crc32c::splice(7, 20, 4, b"abc", b"xyz");
        assert_eq!(splice(7, 13, b"abc", b"xyz"), want);
    }
}
