//! The choice of a backend, and the machines behind it. All `unsafe` of the crate is here and below.
//!
//! ```text
//!                      ┌─ x86-64: SSE4.2 + PCLMULQDQ ──┬─ sums from 64 bytes: AVX-512 + VPCLMULQDQ
//!   one relaxed load ──┼─ aarch64: CRC + PMULL         └─ all else
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

pub(crate) use machine::{append_zeros, crc32c, flip_delta, ones, splice_delta};

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
    /// The same on 512 bits.
    #[cfg(target_arch = "x86_64")]
    pub(super) const AVX512: u8 = 3;

    static LEVEL: AtomicU8 = AtomicU8::new(UNKNOWN);

    /// The CPU's level.
    #[inline(always)]
    pub(super) fn get() -> u8 {
        // Relaxed: the answer is one byte, and whoever asks twice gets the same one.
        match LEVEL.load(Ordering::Relaxed) {
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
