//! x86-64: PCLMULQDQ multiplies, the CRC32 instruction reduces.
//!
//! ```text
//!   clmul   xmm ← 32 bits   xmm ← 32 bits   pclmulqdq → 63 bits
//!   reduce  crc32q(0, low 64 bits of xmm)             → 32 bits
//! ```

use core::arch::x86_64::{
    __m128i, _mm_clmulepi64_si128, _mm_crc32_u64, _mm_cvtepu32_epi64, _mm_cvtsi32_si128,
    _mm_cvtsi64_si128, _mm_cvtsi128_si64, _mm_extract_epi64, _mm_loadu_si128, _mm_xor_si128,
};

use super::avx512::{self, Avx512};
use super::{cpu_has, level};
use crate::field::Field;
use crate::lanes::{self, Lanes};
use crate::operations;
use crate::poly::x_to_minus;
use crate::portable;

/// Proof that the CPU has SSE4.2 and PCLMULQDQ.
#[derive(Clone, Copy)]
pub(super) struct Clmul(());

impl Clmul {
    /// The proof, if the CPU has these features.
    #[inline(always)]
    fn detect() -> Option<Self> {
        (level::get() >= level::CLMUL).then_some(Clmul(()))
    }
}

/// Proof that the CPU has AVX too.
#[derive(Clone, Copy)]
struct Avx(Clmul);

impl Avx {
    /// The proof, if the CPU's level is already detected and it has these features.
    #[inline(always)]
    fn known() -> Option<Self> {
        (level::known() >= level::AVX).then_some(Avx(Clmul(())))
    }

    /// The proof, if the CPU has these features.
    #[inline(always)]
    fn detect() -> Option<Self> {
        (level::get() >= level::AVX).then_some(Avx(Clmul(())))
    }
}

/// Detects the CPU's [`level`].
pub(super) fn detect() -> u8 {
    if !cpu_has!("sse4.2", "pclmulqdq") {
        level::PLAIN
    } else if !cpu_has!("avx") {
        level::CLMUL
    } else if cpu_has!("avx512f", "avx512bw", "avx512dq", "avx512vl", "vpclmulqdq") {
        level::AVX512
    } else {
        level::AVX
    }
}

// SAFETY of the intrinsics in the two impls: they need SSE4.2 (and the features that it implies) or
// PCLMULQDQ. Only the functions above make a `Clmul`, after the CPU reported both features, and a
// CPU does not lose features.

/// x^-64, which undoes eight zero bytes, times x^-33 for [`Field::mul`].
const X_TO_MINUS_97: u32 = x_to_minus(64 + 33);

impl Field for Clmul {
    type Wide = __m128i;

    const LONG: usize = 64;

    #[inline(always)]
    fn clmul(self, a: u32, b: u32) -> __m128i {
        // SAFETY: `self` proves PCLMULQDQ.
        unsafe {
            let (a, b) = (_mm_cvtsi32_si128(a.cast_signed()), _mm_cvtsi32_si128(b.cast_signed()));
            _mm_clmulepi64_si128::<0x00>(a, b)
        }
    }

    #[inline(always)]
    fn add(self, a: __m128i, b: __m128i) -> __m128i {
        // SAFETY: SSE2 is part of x86-64.
        unsafe { _mm_xor_si128(a, b) }
    }

    #[inline(always)]
    fn reduce(self, wide: __m128i) -> u32 {
        // SAFETY: SSE2 is part of x86-64.
        self.crc_word(0, unsafe { _mm_cvtsi128_si64(wide) }.cast_unsigned())
    }

    #[inline(always)]
    fn crc_word(self, crc: u32, word: u64) -> u32 {
        // SAFETY: `self` proves SSE4.2.
        (unsafe { _mm_crc32_u64(u64::from(crc), word) }) as u32
    }

    #[inline(always)]
    fn mul_add(self, a: u32, b: u32, sum: u32) -> u32 {
        // The register that becomes `sum` after eight zero bytes. It does not depend on `a`, so a
        // chain of calls through `a` does not wait for it, and needs no addition after the
        // reduction.
        let before = self.mul(sum, X_TO_MINUS_97);
        // SAFETY: SSE2 is part of x86-64.
        self.crc_word(before, unsafe { _mm_cvtsi128_si64(self.clmul(a, b)) }.cast_unsigned())
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

impl Lanes for Clmul {
    #[inline(always)]
    fn load(self, bytes: &[u8; 16]) -> __m128i {
        // SAFETY: the reference covers the 16 bytes read, and the load needs no alignment.
        unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
    }

    #[inline(always)]
    fn widen(self, powers: &[u32; 2]) -> __m128i {
        let both = u64::from(powers[1]) << 32 | u64::from(powers[0]);
        // SAFETY: `self` proves SSE4.2, which includes SSE4.1.
        unsafe { _mm_cvtepu32_epi64(_mm_cvtsi64_si128(both.cast_signed())) }
    }

    #[inline(always)]
    fn before(self, crc: u32) -> __m128i {
        // SAFETY: SSE2 is part of x86-64.
        unsafe { _mm_cvtsi32_si128(crc.cast_signed()) }
    }

    #[inline(always)]
    fn mul_lanes(self, words: __m128i, powers: __m128i) -> __m128i {
        // SAFETY: `self` proves PCLMULQDQ.
        unsafe {
            let low = _mm_clmulepi64_si128::<0x00>(words, powers);
            _mm_xor_si128(low, _mm_clmulepi64_si128::<0x11>(words, powers))
        }
    }

    #[inline(always)]
    fn reduce_128(self, wide: __m128i) -> u32 {
        let low = self.reduce(wide);
        // SAFETY: `self` proves SSE4.2, which includes SSE4.1.
        self.crc_word(low, unsafe { _mm_extract_epi64::<1>(wide) }.cast_unsigned())
    }
}

/// The functions of [`operations`], compiled for the features of each proof, and the selection of
/// one.
macro_rules! backends {
    ($($name:ident($($arg:ident: $type:ty),*);)+) => {
        mod with_sse {
            use super::*;
            $(
                #[target_feature(enable = "sse4.2,pclmulqdq")]
                pub(super) fn $name(clmul: Clmul, $($arg: $type),*) -> u32 {
                    operations::$name(clmul, $($arg),*)
                }
            )+
        }
        mod with_avx {
            use super::*;
            $(
                #[target_feature(enable = "sse4.2,pclmulqdq,avx")]
                pub(super) fn $name(Avx(clmul): Avx, $($arg: $type),*) -> u32 {
                    operations::$name(clmul, $($arg),*)
                }
            )+
        }
        /// For the first call, and for machines without AVX.
        mod otherwise {
            use super::*;
            $(
                #[cold]
                #[inline(never)]
                pub(super) fn $name($($arg: $type),*) -> u32 {
                    if let Some(avx) = Avx::detect() {
                        // SAFETY: `avx` proves the features that the function is compiled for.
                        unsafe { with_avx::$name(avx, $($arg),*) }
                    } else if let Some(clmul) = Clmul::detect() {
                        // SAFETY: `clmul` proves the features that the function is compiled for.
                        unsafe { with_sse::$name(clmul, $($arg),*) }
                    } else {
                        portable::$name($($arg),*)
                    }
                }
            )+
        }
        /// The selection, without AVX-512 for long regions.
        mod any {
            use super::*;
            $(
                #[inline(always)]
                pub(crate) fn $name($($arg: $type),*) -> u32 {
                    match Avx::known() {
                        // SAFETY: `avx` proves the features that the function is compiled for.
                        Some(avx) => unsafe { with_avx::$name(avx, $($arg),*) },
                        None => otherwise::$name($($arg),*),
                    }
                }
            )+
        }
    };
}

backends! {
    crc32c(seed: u32, bytes: &[u8]);
    flip_delta(total: u64, offset: u64, count: u64);
    splice_delta(trailing: u64, old: &[u8], new: &[u8]);
    splice_two(trailing: u64, first: u64, last: u64);
    append_zeros(crc: u32, len: u64);
    combine(crc1: u32, crc2: u32, len2: u64);
    ones(bits: u64);
}

pub(crate) use any::{append_zeros, combine, flip_delta, ones, splice_two};

/// See [`crate::crc32c`].
#[inline]
pub(crate) fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    if bytes.len() >= avx512::LEAST_BYTES
        && let Some(avx512) = Avx512::known()
    {
        return avx512.crc(seed, bytes);
    }
    any::crc32c(seed, bytes)
}

/// See [`crate::splice_delta`]. Not inlined, so that the fast path of its caller need not save
/// registers for it.
#[inline(never)]
pub(crate) fn splice_delta(trailing: u64, old: &[u8], new: &[u8]) -> u32 {
    if old.len() >= avx512::LEAST_BYTES
        && let Some(avx512) = Avx512::known()
    {
        return append_zeros(avx512.crc_difference(old, new), trailing);
    }
    any::splice_delta(trailing, old, new)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a CPU with AVX-512, other tests do not reach this path.
    #[test]
    fn crcs_without_avx512_equal_portable_ones() {
        let Some(clmul) = Clmul::detect() else { return };
        let bytes: Vec<u8> = (0..3000u32).map(|i| (i * i / 7) as u8).collect();
        let other: Vec<u8> = (0..3000u32).map(|i| (i * i / 11) as u8).collect();
        for len in (0..1200).chain([2047, 2048, 2049, 2999, 3000]) {
            let (old, new) = (&bytes[..len], &other[..len]);
            // SAFETY: `clmul` proves the features that the functions are compiled for.
            let with_sse = unsafe {
                (with_sse::crc32c(clmul, 7, old), with_sse::splice_delta(clmul, 77, old, new))
            };
            let any = (any::crc32c(7, old), any::splice_delta(77, old, new));
            let want = (portable::crc32c(7, old), portable::splice_delta(77, old, new));
            assert_eq!((with_sse, any), (want, want), "{len} bytes");
            // SAFETY: `clmul` proves the features that the functions are compiled for.
            let with_sse = unsafe {
                (
                    with_sse::flip_delta(clmul, 1 << 30, len as u64, 77),
                    with_sse::combine(clmul, 7, 9, len as u64),
                    with_sse::append_zeros(clmul, 7, len as u64),
                    with_sse::ones(clmul, len as u64),
                )
            };
            let want = (
                portable::flip_delta(1 << 30, len as u64, 77),
                portable::combine(7, 9, len as u64),
                portable::append_zeros(7, len as u64),
                portable::ones(len as u64),
            );
            assert_eq!(with_sse, want, "{len}");
        }
    }
}
