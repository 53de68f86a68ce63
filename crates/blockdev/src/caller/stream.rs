//! Copies of memory that only a device will read: they bypass the CPU's caches where that is
//! faster.
//!
//! After a device has read cache lines, an ordinary store to them has to fetch them again, and
//! evicts other lines. Streaming stores of whole lines do neither. A caller that reads the copy, or
//! passes it to the device while it is still in the caches, copies fewer bytes at a time.

/// Copies of at least this many bytes use streaming stores.
#[cfg_attr(miri, allow(dead_code))]
const WORTH: usize = 32 << 10;

/// Copies `from` to `to`, which has the same length. No code reads `to` except, possibly, a device.
pub(super) fn copy(to: &mut [u8], from: &[u8]) {
    // Miri does not support streaming stores.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if from.len() >= WORTH && to.as_ptr().cast::<Line>().is_aligned() && from.len() == to.len() {
        let (lines, rest) = from.as_chunks::<64>();
        let (to_lines, to_rest) = to.split_at_mut(lines.len() * 64);
        stream(to_lines, lines);
        to_rest.copy_from_slice(rest);
        return;
    }
    to.copy_from_slice(from);
}

/// A cache line.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[repr(align(64))]
struct Line(#[allow(dead_code, reason = "for its alignment")] [u8; 64]);

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[allow(unsafe_code)]
fn stream(to: &mut [u8], lines: &[[u8; 64]]) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    assert_eq!(to.len(), lines.len() * 64, "a copy of whole lines");
    let mut at = to.as_mut_ptr().cast::<__m128i>();
    for line in lines {
        let from = line.as_ptr().cast::<__m128i>();
        // SAFETY: SSE2 is part of x86_64. `from` has 64 readable bytes. The caller aligned `at` to
        // a line, and `to` has as many lines as `lines`.
        unsafe {
            for n in 0..4 {
                _mm_stream_si128(at.add(n), _mm_loadu_si128(from.add(n)));
            }
            at = at.add(4);
        }
    }
    // SAFETY: as above. Until this fence, other threads may see older bytes.
    unsafe { _mm_sfence() };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AlignedBuf;

    #[test]
    fn copies_of_any_length_and_place_are_whole() {
        let most = if cfg!(miri) { 4096 } else { 200_000 };
        let from: Vec<u8> = (0..most as u32 + 64).map(|n| (n * 7) as u8).collect();
        let lens = [0, 1, 64, 4096, WORTH - 1, WORTH, WORTH + 1, WORTH + 63, 150_000];
        for len in lens.into_iter().filter(|len| *len <= most) {
            for shift in [0, 1, 16, 64] {
                let mut to = AlignedBuf::zeroed(most + 65);
                copy(&mut to[shift..shift + len], &from[shift..shift + len]);
                assert_eq!(to[shift..shift + len], from[shift..shift + len], "{len} at {shift}");
                assert_eq!(to[shift + len], 0);
            }
        }
    }
}
