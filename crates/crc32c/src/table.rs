//! Powers of x and CRCs of runs of ones, for every length, in 17 KB.
//!
//! ```text
//!   n  =  32       26       20                10                 0     bits of a length n
//!         ┌────────┬────────┬─────────────────┬──────────────────┐
//!         │ top 6  │ high 6 │     mid 10      │     low 10       │     one table a level
//!         └────────┴────────┴─────────────────┴──────────────────┘
//!   entry for digit d of a level, n = d · 2^shift:   ┌────────────┬──────┐
//!                                                    │ x^(n − 33) │ R(n) │     4 + 4 bytes
//!                                                    └────────────┴──────┘
//! ```
//!
//! R(n) is the raw CRC, from register 0, of n one-bits. Since R(a + b) = R(a)·x^b + R(b), one
//! multiplication combines two digits. The factor x^−33 in each entry cancels the x^33 of
//! [`Field::mul`](crate::field::Field::mul), which returns a·b·x^33.

use crate::poly::{self, ONE, P, X, x_to_minus};

/// The entry of a digit: see the module's picture.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct Entry {
    /// x^(n − 33) mod P.
    pub power: u32,
    /// R(n).
    pub ones: u32,
}

/// Bits of the low and of the middle digit.
pub(crate) const LOW_BITS: u32 = 10;
/// Bits of the high and of the top digit.
pub(crate) const HIGH_BITS: u32 = 6;
/// Lengths below this have two digits. A 64 KiB bitmap is 2^19 bits.
pub(crate) const TWO_DIGITS: u64 = 1 << (2 * LOW_BITS);

/// The four levels, next to each other.
#[repr(C, align(64))]
pub(crate) struct Levels {
    pub low: [Entry; 1 << LOW_BITS],
    pub mid: [Entry; 1 << LOW_BITS],
    pub high: [Entry; 1 << HIGH_BITS],
    pub top: [Entry; 1 << HIGH_BITS],
}

/// Computes one level. `step` is (x^s, R(s)) for the level's unit s. Returns the level and the next
/// level's step.
const fn level<const N: usize>(step: (u32, u32)) -> ([Entry; N], (u32, u32)) {
    let mut entries = [Entry { power: x_to_minus(33), ones: 0 }; N];
    let mut n = (ONE, 0);
    let mut digit = 0;
    while digit < N {
        entries[digit] = Entry { power: poly::mul(n.0, x_to_minus(33)), ones: n.1 };
        n = (poly::mul(n.0, step.0), poly::mul(n.1, step.0) ^ step.1);
        digit += 1;
    }
    (entries, n)
}

const fn levels() -> Levels {
    // One bit: x^1, and R(1) = x^32 mod P = P.
    let (low, step) = level((X, P));
    let (mid, step) = level(step);
    let (high, step) = level(step);
    let (top, _) = level(step);
    Levels { low, mid, high, top }
}

pub(crate) static LEVELS: Levels = levels();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_starts_where_the_one_below_ends() {
        let next = |last: &Entry, first_above: u32, unit: &Entry| {
            let unit_power = poly::mul(unit.power, crate::field::tests::x_to(33));
            assert_eq!(poly::mul(last.power, unit_power), first_above);
        };
        next(&LEVELS.low[1023], LEVELS.mid[1].power, &LEVELS.low[1]);
        next(&LEVELS.mid[1023], LEVELS.high[1].power, &LEVELS.mid[1]);
        next(&LEVELS.high[63], LEVELS.top[1].power, &LEVELS.high[1]);
    }

    #[test]
    fn the_tables_stay_small() {
        assert_eq!(size_of::<Levels>(), 2176 * 8);
        assert_eq!(LEVELS.low[1].ones, 0x82F6_3B78);
        assert_eq!(LEVELS.mid[1].ones, 0x2771_BA61, "R(1024)");
        assert_eq!(LEVELS.high[1].ones, 0x0C03_C0BD, "R(2^20)");
    }
}
