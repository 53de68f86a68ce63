//! CRCs of 64 bytes and more with VPCLMULQDQ on 512 bits.
//!
//! ```text
//!   up to 512 bytes: a dot product, eight words per step; a mask cuts off the last step
//!     words     │ w0 … w7 │ w8 … w15 │ w16 w17 t─ ─ ─ ─ ─│
//!     powers    row len mod 8 of POWERS, from column 64 − len/8
//!
//!   above: four accumulators run over blocks of 256 bytes; their result takes the place of the
//!   blocks, before the tail
//!     │ block │ block │ … │ block │ tail │
//!     └─ × x^2048 ┴→ … ──┘ = 256 bytes ++ tail, a dot product
//! ```

use core::arch::x86_64::{
    __m128i, __m512i, _mm_crc32_u64, _mm_cvtsi32_si128, _mm_cvtsi128_si64, _mm_extract_epi64,
    _mm_xor_si128, _mm256_castsi256_si128, _mm256_extracti128_si256, _mm256_loadu_si256,
    _mm256_xor_si256, _mm512_castsi512_si256, _mm512_clmulepi64_epi128, _mm512_cvtepu32_epi64,
    _mm512_extracti64x4_epi64, _mm512_loadu_si512, _mm512_maskz_loadu_epi8, _mm512_set_epi64,
    _mm512_setzero_si512, _mm512_ternarylogic_epi64, _mm512_xor_si512, _mm512_zextsi128_si512,
};

use super::level;
use crate::poly::{mul_by_x, x_to_minus};

/// The shortest message for this module, in bytes.
pub(super) const LEAST_BYTES: usize = 64;

/// The most bytes of one dot product.
const MOST_BYTES: usize = 512;

/// Words of the longest dot product.
const WORDS: usize = MOST_BYTES / 8;

/// `POWERS[r][WORDS − i]` = x^(8·(8·(i − 1) + r) − 33): the factor of a word that i − 1 words and r
/// bytes follow. Column WORDS is for an incomplete word, which is read with zeros after it. The
/// columns above it are multiplied by zeros only.
static POWERS: [[u32; WORDS + 8]; 8] = powers();

const fn powers() -> [[u32; WORDS + 8]; 8] {
    let mut powers = [[0; WORDS + 8]; 8];
    let mut r = 0;
    while r < 8 {
        let mut power = mul_by_x(x_to_minus(33 + 64), 8 * r as u32);
        let mut column = WORDS + 1;
        while column > 0 {
            column -= 1;
            powers[r][column] = power;
            power = mul_by_x(power, 64);
        }
        r += 1;
    }
    powers
}

/// Bytes of a block.
const BLOCK: usize = 256;
/// x^(2048 + 64 − 33) and x^(2048 − 33): move the two words of 16 bytes over a block.
const OVER_BLOCK: [u32; 2] =
    [mul_by_x(x_to_minus(33), 8 * BLOCK as u32 + 64), mul_by_x(x_to_minus(33), 8 * BLOCK as u32)];

/// Proof that the CPU has AVX-512 (F, BW, DQ, VL), VPCLMULQDQ, PCLMULQDQ and SSE4.2.
#[derive(Clone, Copy)]
pub(super) struct Avx512(());

impl Avx512 {
    /// The proof, if the CPU's level is already detected and it has these features.
    #[inline(always)]
    pub(super) fn known() -> Option<Self> {
        (level::known() == level::AVX512).then_some(Avx512(()))
    }

    /// The register `seed` after `bytes`, at least [`LEAST_BYTES`].
    #[inline]
    pub(super) fn crc(self, seed: u32, bytes: &[u8]) -> u32 {
        // SAFETY: `self` proves the features that the functions are compiled for.
        unsafe {
            if bytes.len() <= MOST_BYTES {
                dot_product(seed, bytes)
            } else {
                crc_blocks(seed, bytes)
            }
        }
    }

    /// The register, from 0, after `old ^ new`, at least [`LEAST_BYTES`].
    #[inline]
    pub(super) fn crc_difference(self, old: &[u8], new: &[u8]) -> u32 {
        if old.len() > MOST_BYTES {
            return self.crc(0, old) ^ self.crc(0, new);
        }
        // SAFETY: `self` proves the features that the function is compiled for.
        unsafe { dot_product_difference(old, new) }
    }
}

/// A function compiled for the features that an [`Avx512`] proves.
macro_rules! with_avx512 {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),*) -> $out:ty $body:block)+) => {$(
        $(#[$doc])*
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,vpclmulqdq,pclmulqdq,sse4.2")]
        #[inline]
        fn $name($($arg: $type),*) -> $out $body
    )+};
}

with_avx512! {
    /// The CRC of a message of at most [`MOST_BYTES`] bytes, as one dot product.
    fn dot_product(seed: u32, bytes: &[u8]) -> u32 {
        let (whole, tail) = bytes.as_chunks::<64>();
        let (steps, last) = steps_for(bytes.len(), whole.len());
        let mut before = register(seed);
        let mut sum = _mm512_setzero_si512();
        for (chunk, powers) in whole.iter().zip(steps) {
            sum = add_product(sum, _mm512_xor_si512(load(chunk), before), powers);
            before = _mm512_setzero_si512();
        }
        reduce(add_product(sum, load_tail(tail), last))
    }

    /// The same for `old ^ new`, which have the same length.
    fn dot_product_difference(old: &[u8], new: &[u8]) -> u32 {
        let (whole_old, tail_old) = old.as_chunks::<64>();
        let (whole_new, tail_new) = new.as_chunks::<64>();
        let (steps, last) = steps_for(old.len(), whole_old.len());
        let mut sum = _mm512_setzero_si512();
        for ((old, new), powers) in whole_old.iter().zip(whole_new).zip(steps) {
            sum = add_product(sum, _mm512_xor_si512(load(old), load(new)), powers);
        }
        reduce(add_product(sum, _mm512_xor_si512(load_tail(tail_old), load_tail(tail_new)), last))
    }

    /// The CRC of a message of at least one [`BLOCK`], block by block.
    fn crc_blocks(seed: u32, bytes: &[u8]) -> u32 {
        let (blocks, tail) = bytes.as_chunks::<BLOCK>();
        let Some((first, blocks)) = blocks.split_first() else { return dot_product(seed, bytes) };
        let mut sums = load_block(first);
        sums[0] = _mm512_xor_si512(sums[0], register(seed));
        let over = lanes_of(OVER_BLOCK);
        for block in blocks {
            let block = load_block(block);
            for (sum, next) in sums.iter_mut().zip(block) {
                let low = _mm512_clmulepi64_epi128::<0x00>(*sum, over);
                let high = _mm512_clmulepi64_epi128::<0x11>(*sum, over);
                *sum = xor3(low, high, next);
            }
        }

        let (whole, tail) = tail.as_chunks::<64>();
        let (steps, last) = steps_for(BLOCK + 64 * whole.len() + tail.len(), 4 + whole.len());
        let (for_sums, for_whole) = steps.split_at(4);
        let mut sum = _mm512_setzero_si512();
        for (words, powers) in sums.into_iter().zip(for_sums) {
            sum = add_product(sum, words, powers);
        }
        for (chunk, powers) in whole.iter().zip(for_whole) {
            sum = add_product(sum, load(chunk), powers);
        }
        reduce(add_product(sum, load_tail(tail), last))
    }

    /// `sum` plus eight words times eight powers.
    fn add_product(sum: __m512i, words: __m512i, powers: &[u32; 8]) -> __m512i {
        // SAFETY: the reference covers the 32 bytes read, and the load needs no alignment.
        let powers = unsafe { _mm256_loadu_si256(powers.as_ptr().cast()) };
        let powers = _mm512_cvtepu32_epi64(powers);
        let low = _mm512_clmulepi64_epi128::<0x00>(words, powers);
        let high = _mm512_clmulepi64_epi128::<0x11>(words, powers);
        xor3(sum, low, high)
    }

    /// The sum of the four lanes, times x^32, mod P.
    fn reduce(sum: __m512i) -> u32 {
        let half = _mm256_xor_si256(
            _mm512_castsi512_si256(sum),
            _mm512_extracti64x4_epi64::<1>(sum),
        );
        let lane: __m128i =
            _mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256::<1>(half));
        let low = _mm_crc32_u64(0, _mm_cvtsi128_si64(lane).cast_unsigned());
        _mm_crc32_u64(low, _mm_extract_epi64::<1>(lane).cast_unsigned()) as u32
    }

    /// The xor of three values.
    fn xor3(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
        _mm512_ternarylogic_epi64::<0x96>(a, b, c)
    }

    /// A register before 64 bytes, as if it were xored into their start.
    fn register(crc: u32) -> __m512i {
        _mm512_zextsi128_si512(_mm_cvtsi32_si128(crc.cast_signed()))
    }

    /// Two powers in each lane.
    fn lanes_of(powers: [u32; 2]) -> __m512i {
        let [low, high] = powers.map(i64::from);
        _mm512_set_epi64(high, low, high, low, high, low, high, low)
    }

    /// Loads 64 bytes.
    fn load(bytes: &[u8; 64]) -> __m512i {
        // SAFETY: the reference covers the 64 bytes read, and the load needs no alignment.
        unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
    }

    /// Loads 256 bytes.
    fn load_block(bytes: &[u8; BLOCK]) -> [__m512i; 4] {
        let (quarters, _) = bytes.as_chunks::<64>();
        [load(&quarters[0]), load(&quarters[1]), load(&quarters[2]), load(&quarters[3])]
    }

    /// Loads at most 63 bytes, with zeros after them.
    fn load_tail(bytes: &[u8]) -> __m512i {
        debug_assert!(bytes.len() < 64);
        let mask = (1u64 << (bytes.len() & 63)) - 1;
        // SAFETY: the mask has a bit for each byte of `bytes` and no more (its length is below 64),
        // and a masked load touches no other byte.
        unsafe { _mm512_maskz_loadu_epi8(mask, bytes.as_ptr().cast()) }
    }
}

/// The powers for a message of `len` bytes: eight for each of its `whole` chunks of 64 bytes, and
/// eight for the incomplete chunk.
#[inline(always)]
fn steps_for(len: usize, whole: usize) -> (&'static [[u32; 8]], &'static [u32; 8]) {
    let steps = POWERS[len % 8][WORDS - len / 8..].as_chunks().0;
    (&steps[..whole], &steps[whole])
}
