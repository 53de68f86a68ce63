//! The selection of a backend, and the backends. Only this module and its submodules use `unsafe`.
//!
//! ```text
//!                      ┌─ x86-64 with AVX ──┬─ from 64 bytes on, if present: AVX-512, VPCLMULQDQ
//!                      │                    └─ otherwise: PCLMULQDQ, CRC32
//!   one relaxed load ──┼─ x86-64 without AVX: PCLMULQDQ, CRC32 in SSE encoding
//!                      ├─ aarch64: PMULL, CRC32CX
//!                      └─ plain
//! ```
//!
//! The first call queries the CPU and stores its level. A later call costs one load and one branch,
//! which always goes the same way.

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

/// The CPU's level: which instructions it has. It is detected once.
#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")))]
mod level {
    use core::sync::atomic::{AtomicU8, Ordering};

    /// Not detected yet.
    const UNKNOWN: u8 = 0;
    /// None of the instructions.
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

    /// The CPU's level, or a lower one if it is not detected yet.
    #[inline(always)]
    pub(super) fn known() -> u8 {
        // Relaxed: the level is one byte, and every detection returns the same one.
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

/// Whether the CPU has the features: detected at run time with `std`, else those of the target.
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
