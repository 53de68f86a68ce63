//! Polynomials over GF(2) modulo P, in 32 bits, and the constants for the other modules.
//!
//! ```text
//!   bit   31    30    29          1     0
//!        ┌─────┬─────┬─────┬ … ┬─────┬─────┐
//!        │ x^0 │ x^1 │ x^2 │   │x^30 │x^31 │     reflected: the high bit is the low power
//!        └─────┴─────┴─────┴ … ┴─────┴─────┘
//! ```
//!
//! P = x^32 + 0x1EDC6F41 (Castagnoli), written reflected and without x^32: `82F63B78`. These
//! functions are slow and simple: they run at compile time, and as the reference in tests.

/// P without its x^32, reflected.
pub(crate) const P: u32 = 0x82F6_3B78;

/// The polynomial 1.
pub(crate) const ONE: u32 = 0x8000_0000;

/// `a · b mod P`, one bit at a time.
pub(crate) const fn mul(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut bit = 32;
    while bit > 0 {
        bit -= 1;
        product ^= b & 0u32.wrapping_sub((a >> bit) & 1);
        b = (b >> 1) ^ (P & 0u32.wrapping_sub(b & 1));
    }
    product
}

/// `a / x mod P`.
const fn div_x(a: u32) -> u32 {
    // A multiplication by x sets the high bit if and only if it reduced, because P has its high bit
    // set.
    if a & ONE != 0 { ((a ^ P) << 1) | 1 } else { a << 1 }
}

/// `x^-n mod P`.
pub(crate) const fn x_to_minus(n: u32) -> u32 {
    let mut power = ONE;
    let mut step = 0;
    while step < n {
        power = div_x(power);
        step += 1;
    }
    power
}

/// `a · x^n mod P`.
pub(crate) const fn mul_by_x(mut a: u32, n: u32) -> u32 {
    let mut step = 0;
    while step < n {
        a = (a >> 1) ^ (P & 0u32.wrapping_sub(a & 1));
        step += 1;
    }
    a
}

/// The polynomial x.
pub(crate) const X: u32 = ONE >> 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_equal_those_printed_in_the_reference() {
        let printed = [
            0x4000_0000,
            0x2000_0000,
            0x0800_0000,
            0x0080_0000,
            0x0000_8000,
            0x82F6_3B78,
            0x6EA2_D55C,
            0x18B8_EA18,
        ];
        let mut power = X;
        for (k, want) in printed.into_iter().enumerate() {
            assert_eq!(power, want, "x^(2^{k})");
            power = mul(power, power);
        }
        for _ in 8..19 {
            power = mul(power, power);
        }
        assert_eq!(power, 0xFE77_40E6, "x^(2^19)");
    }

    #[test]
    fn dividing_by_x_undoes_multiplying() {
        let mut power = ONE;
        for n in 0..100 {
            assert_eq!(mul(power, x_to_minus(n)), ONE);
            power = mul(power, X);
        }
    }
}
