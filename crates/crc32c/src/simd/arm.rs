//! aarch64: PMULL multiplies, CRC32CX reduces.
//!
//! ```text
//!   clmul   d ← 32 bits   d ← 32 bits   pmull → 63 bits
//!   reduce  crc32cx(0, low 64 bits)           → 32 bits
//! ```

// Functions without target features call the intrinsics. They are inlined into the functions at the
// bottom of the file, which have the features, and only there do the intrinsics become
// instructions.
#![allow(unknown_lints, inline_always_mismatching_target_features)]

use core::arch::aarch64::{
    __crc32cd, uint64x2_t, vcombine_u64, vcreate_u64, veorq_u64, vgetq_lane_u64, vld1q_u8,
    vmull_p64, vreinterpretq_u64_p128, vreinterpretq_u64_u8,
};

use super::{cpu_has, level};
use crate::field::Field;
use crate::lanes::{self, Lanes};
use crate::operations;
use crate::portable;

/// Proof that the CPU has NEON, CRC and PMULL.
#[derive(Clone, Copy)]
pub(super) struct Pmull(());

impl Pmull {
    /// The proof, if the CPU has these features.
    #[inline(always)]
    fn detect() -> Option<Self> {
        (level::get() >= level::CLMUL).then_some(Pmull(()))
    }
}

/// Detects the CPU's [`level`]. The feature `aes` includes PMULL.
pub(super) fn detect() -> u8 {
    if cpu_has!("neon", "aes", "crc") { level::CLMUL } else { level::PLAIN }
}

/// The product of two words.
#[inline(always)]
fn product(_proof: Pmull, a: u64, b: u64) -> uint64x2_t {
    // SAFETY: a `Pmull` is built only in `Pmull::detect`, after the CPU reported NEON and PMULL.
    unsafe { vreinterpretq_u64_p128(vmull_p64(a, b)) }
}

/// The low and the high word.
#[inline(always)]
fn halves(_proof: Pmull, wide: uint64x2_t) -> (u64, u64) {
    // SAFETY: a `Pmull` is built only in `Pmull::detect`, after the CPU reported NEON.
    unsafe { (vgetq_lane_u64::<0>(wide), vgetq_lane_u64::<1>(wide)) }
}

/// Two words.
#[inline(always)]
fn pair(_proof: Pmull, low: u64, high: u64) -> uint64x2_t {
    // SAFETY: a `Pmull` is built only in `Pmull::detect`, after the CPU reported NEON.
    unsafe { vcombine_u64(vcreate_u64(low), vcreate_u64(high)) }
}

impl Field for Pmull {
    type Wide = uint64x2_t;

    const LONG: usize = 64;

    #[inline(always)]
    fn clmul(self, a: u32, b: u32) -> uint64x2_t {
        product(self, u64::from(a), u64::from(b))
    }

    #[inline(always)]
    fn add(self, a: uint64x2_t, b: uint64x2_t) -> uint64x2_t {
        // SAFETY: `self` proves NEON.
        unsafe { veorq_u64(a, b) }
    }

    #[inline(always)]
    fn reduce(self, wide: uint64x2_t) -> u32 {
        self.crc_word(0, halves(self, wide).0)
    }

    #[inline(always)]
    fn crc_word(self, crc: u32, word: u64) -> u32 {
        // SAFETY: `self` proves CRC.
        unsafe { __crc32cd(crc, word) }
    }

    #[inline(always)]
    fn crc_long(self, seed: u32, bytes: &[u8]) -> u32 {
        lanes::crc(self, seed, bytes)
    }

    #[inline(always)]
    fn crc_difference_long(self, old: &[u8], new: &[u8]) -> u32 {
        lanes::crc_difference(self, old, new)
    }
}

impl Lanes for Pmull {
    #[inline(always)]
    fn load(self, bytes: &[u8; 16]) -> uint64x2_t {
        // SAFETY: `self` proves NEON; the reference covers the 16 bytes read; the load needs no
        // alignment.
        unsafe { vreinterpretq_u64_u8(vld1q_u8(bytes.as_ptr())) }
    }

    #[inline(always)]
    fn widen(self, powers: &[u32; 2]) -> uint64x2_t {
        pair(self, u64::from(powers[0]), u64::from(powers[1]))
    }

    #[inline(always)]
    fn before(self, crc: u32) -> uint64x2_t {
        pair(self, u64::from(crc), 0)
    }

    #[inline(always)]
    fn mul_lanes(self, words: uint64x2_t, powers: uint64x2_t) -> uint64x2_t {
        let (words, powers) = (halves(self, words), halves(self, powers));
        self.add(product(self, words.0, powers.0), product(self, words.1, powers.1))
    }

    #[inline(always)]
    fn reduce_128(self, wide: uint64x2_t) -> u32 {
        let (low, high) = halves(self, wide);
        self.crc_word(self.crc_word(0, low), high)
    }
}

/// The functions of [`operations`], compiled for the features that a [`Pmull`] proves, and their
/// selection.
macro_rules! with_pmull {
    ($($name:ident($($arg:ident: $type:ty),*);)+) => {
        mod on {
            use super::*;
            $(
                #[target_feature(enable = "neon,aes,crc")]
                pub(super) fn $name(pmull: Pmull, $($arg: $type),*) -> u32 {
                    operations::$name(pmull, $($arg),*)
                }
            )+
        }
        $(
            /// See the function of this name at the crate's root.
            #[inline]
            pub(crate) fn $name($($arg: $type),*) -> u32 {
                match Pmull::detect() {
                    // SAFETY: `pmull` proves the features that the function is compiled for.
                    Some(pmull) => unsafe { on::$name(pmull, $($arg),*) },
                    None => portable::$name($($arg),*),
                }
            }
        )+
    };
}

with_pmull! {
    crc32c(seed: u32, bytes: &[u8]);
    flip_delta(total: u64, offset: u64, count: u64);
    splice_delta(trailing: u64, old: &[u8], new: &[u8]);
    splice_two(trailing: u64, first: u64, last: u64);
    append_zeros(crc: u32, len: u64);
    combine(crc1: u32, crc2: u32, len2: u64);
    ones(bits: u64);
}
