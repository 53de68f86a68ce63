//! The choice of a backend, and the machines behind it. All `unsafe` of the crate is here and below.
//!
//! ```text
//!                      ┌─ x86-64 with AVX ────┬─ sums from 64 bytes, if it can: AVX-512, VPCLMULQDQ
//!                      │                      └─ all else: PCLMULQDQ, CRC32
//!   one relaxed load ──┼─ x86-64 without AVX: the same in SSE4.2's form
//!                      ├─ aarch64: PMULL, CRC32CX
//!                      └─ plain
//! ```
//!
//! The first call asks the CPU and remembers the answer; from then on a call costs one load and
//! one branch that always goes the same way.

#![allow(unsafe_code)]

#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
mod arm;
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
use arm as machine;

#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod x86;
#[cfg(target_arch = "x86_64")]
use x86 as machine;

#[cfg(not(any(
    target_arch = "x86_64",
    all(target_arch = "aarch64", target_endian = "little")
)))]
use crate::portable as machine;

pub(crate) use machine::{
    append_zeros, combine, crc32c, flip_delta, ones, splice_delta, splice_two,
};

/// What the CPU can do, asked once.
#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")))]
mod level {
    use core::sync::atomic::{AtomicU8, Ordering};

    /// Not asked yet.
    const UNKNOWN: u8 = 0;
    /// Nothing of use.
    pub(super) const PLAIN: u8 = 1;
    /// A carry-less multiplication and a CRC instruction.
    pub(super) const CLMUL: u8 = 2;
    /// The same in AVX's three-operand form: moves between register files take two cycles less.
    #[cfg(target_arch = "x86_64")]
    pub(super) const AVX: u8 = 3;
    /// The same on 512 bits.
    #[cfg(target_arch = "x86_64")]
    pub(super) const AVX512: u8 = 4;

    static LEVEL: AtomicU8 = AtomicU8::new(UNKNOWN);

    /// The CPU's level, or less if it has not been asked yet.
    #[inline(always)]
    pub(super) fn known() -> u8 {
        // Relaxed: the answer is one byte, and whoever asks twice gets the same one.
        LEVEL.load(Ordering::Relaxed)
    }

    /// The CPU's level.
    #[inline(always)]
    pub(super) fn get() -> u8 {
        match known() {
            UNKNOWN => ask(),
            level => level,
        }
    }

    #[cold]
    #[inline(never)]
    fn ask() -> u8 {
        let level = super::machine::detect();
        LEVEL.store(level, Ordering::Relaxed);
        level
    }
}

/// Whether the CPU has a feature: asked at run time with `std`, else as the target promises.
#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")))]
macro_rules! cpu_has {
    ($($feature:tt),+) => {{
        #[cfg(all(feature = "std", target_arch = "x86_64"))]
        { true $(&& std::arch::is_x86_feature_detected!($feature))+ }
        #[cfg(all(feature = "std", target_arch = "aarch64"))]
        { true $(&& std::arch::is_aarch64_feature_detected!($feature))+ }
        #[cfg(not(feature = "std"))]
        { true $(&& cfg!(target_feature = $feature))+ }
    }};
}
#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")))]
pub(crate) use cpu_has;
