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
use crate::field::{self, Field};
use crate::lanes::{self, Lanes};
use crate::portable;

/// Proof that the CPU has SSE4.2 and PCLMULQDQ.
#[derive(Clone, Copy)]
pub(super) struct Clmul(());

impl Clmul {
    /// The proof, if the CPU can give it.
    #[inline(always)]
    fn detect() -> Option<Self> {
        (level::get() >= level::CLMUL).then_some(Clmul(()))
    }
}

/// Asks the CPU for its [`level`].
pub(super) fn detect() -> u8 {
    if !cpu_has!("sse4.2", "pclmulqdq") {
        level::PLAIN
    } else if cpu_has!("avx512f", "avx512bw", "avx512dq", "avx512vl", "vpclmulqdq") {
        level::AVX512
    } else {
        level::CLMUL
    }
}

// SAFETY of the intrinsics in the two impls: they need SSE4.2 or PCLMULQDQ (and what SSE4.2 implies).
// A `Clmul` is built only in `Clmul::detect`, after the CPU reported both, and in functions that
// themselves carry these target features; features do not go away.

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
    fn sum_long(self, seed: u32, bytes: &[u8]) -> u32 {
        lanes::sum(self, seed, bytes)
    }

    #[inline(always)]
    fn sum_difference_long(self, old: &[u8], new: &[u8]) -> u32 {
        lanes::sum_difference(self, old, new)
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

/// A function of [`field`] compiled for the features that a [`Clmul`] proves.
macro_rules! with_clmul {
    ($($name:ident($($arg:ident: $type:ty),*);)+) => { mod on {
        use super::*;
        $(
            #[target_feature(enable = "sse4.2,pclmulqdq")]
            pub(super) fn $name(clmul: Clmul, $($arg: $type),*) -> u32 {
                field::$name(clmul, $($arg),*)
            }
        )+
    }};
}

with_clmul! {
    crc32c(seed: u32, bytes: &[u8]);
    flip_delta(total: u64, offset: u64, count: u64);
    splice_delta(trailing: u64, old: &[u8], new: &[u8]);
    append_zeros(crc: u32, len: u64);
    ones(bits: u64);
}

/// See [`crate::crc32c`].
#[inline]
pub(crate) fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    if bytes.len() >= avx512::LEAST_BYTES
        && let Some(avx512) = Avx512::detect()
    {
        return avx512.sum(seed, bytes);
    }
    match Clmul::detect() {
        // SAFETY: `clmul` proves the features that the function is compiled for.
        Some(clmul) => unsafe { on::crc32c(clmul, seed, bytes) },
        None => portable::crc32c(seed, bytes),
    }
}

/// See [`crate::flip_delta`].
#[inline]
pub(crate) fn flip_delta(total: u64, offset: u64, count: u64) -> u32 {
    match Clmul::detect() {
        // SAFETY: `clmul` proves the features that the function is compiled for.
        Some(clmul) => unsafe { on::flip_delta(clmul, total, offset, count) },
        None => portable::flip_delta(total, offset, count),
    }
}

/// See [`crate::splice_delta`].
#[inline]
pub(crate) fn splice_delta(trailing: u64, old: &[u8], new: &[u8]) -> u32 {
    if old.len() >= avx512::LEAST_BYTES
        && let Some(avx512) = Avx512::detect()
    {
        return append_zeros(avx512.sum_difference(old, new), trailing);
    }
    match Clmul::detect() {
        // SAFETY: `clmul` proves the features that the function is compiled for.
        Some(clmul) => unsafe { on::splice_delta(clmul, trailing, old, new) },
        None => portable::splice_delta(trailing, old, new),
    }
}

/// See [`crate::append_zeros`].
#[inline]
pub(crate) fn append_zeros(crc: u32, len: u64) -> u32 {
    match Clmul::detect() {
        // SAFETY: `clmul` proves the features that the function is compiled for.
        Some(clmul) => unsafe { on::append_zeros(clmul, crc, len) },
        None => portable::append_zeros(crc, len),
    }
}

/// See [`crate::ones`].
#[inline]
pub(crate) fn ones(bits: u64) -> u32 {
    match Clmul::detect() {
        // SAFETY: `clmul` proves the features that the function is compiled for.
        Some(clmul) => unsafe { on::ones(clmul, bits) },
        None => portable::ones(bits),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The AVX-512 path hides this one on a CPU that has it.
    #[test]
    fn sums_without_avx512_equal_plain_ones() {
        let Some(clmul) = Clmul::detect() else { return };
        let bytes: Vec<u8> = (0..3000u32).map(|i| (i * i / 7) as u8).collect();
        let other: Vec<u8> = (0..3000u32).map(|i| (i * i / 11) as u8).collect();
        for len in (0..1200).chain([2047, 2048, 2049, 2999, 3000]) {
            let (old, new) = (&bytes[..len], &other[..len]);
            // SAFETY: `clmul` proves the features that the functions are compiled for.
            let (sum, delta) =
                unsafe { (on::crc32c(clmul, 7, old), on::splice_delta(clmul, 77, old, new)) };
            assert_eq!(sum, portable::crc32c(7, old), "{len} bytes");
            assert_eq!(delta, portable::splice_delta(77, old, new), "{len} bytes");
        }
    }
}
