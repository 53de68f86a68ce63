//! Compares every backend with a CRC that is computed bit by bit from its definition.

use extant_crc32c::{self as crc, portable};

/// The CRC, one bit at a time: the reference for all backends.
fn bitwise(crc: u32, bytes: &[u8], bits: usize) -> u32 {
    (0..bits).fold(crc, |crc, i| {
        let bit = u32::from(bytes[i / 8] >> (i % 8)) & 1;
        (crc >> 1) ^ if (crc ^ bit) & 1 == 1 { 0x82F6_3B78 } else { 0 }
    })
}

fn whole(crc: u32, bytes: &[u8]) -> u32 {
    bitwise(crc, bytes, bytes.len() * 8)
}

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// The number of random cases: fewer under an interpreter.
const CASES: usize = if cfg!(miri) { 20 } else { 3000 };
const LONGEST: usize = if cfg!(miri) { 200 } else { 9000 };

fn check_flip(bytes: &mut [u8], total: usize, offset: usize, count: usize, seed: u32) {
    let old = bitwise(seed, bytes, total);
    for bit in offset..offset + count {
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    let want = bitwise(seed, bytes, total);
    let (total, offset, count) = (total as u64, offset as u64, count as u64);
    let place = format!("{offset}+{count} of {total}");
    assert_eq!(crc::flip_range(old, total, offset, count), want, "{place}");
    assert_eq!(old ^ portable::flip_delta(total, offset, count), want, "portable {place}");
    // A checksum cut to 16 bits is updated with the delta cut to 16 bits.
    let cut = old as u16 ^ crc::flip_delta(total, offset, count) as u16;
    assert_eq!(cut, want as u16, "16 bits {place}");
}

#[test]
fn full_sums_equal_the_definition_at_every_short_length_and_alignment() {
    let mut random = Random(1);
    let longest = if cfg!(miri) { 40 } else { 1100 };
    let bytes = random.bytes(longest + 16);
    for len in 0..=longest {
        let start = len % 17;
        let (seed, piece) =
            (random.next() as u32, &bytes[start..][..len.min(longest + 16 - start)]);
        let want = whole(seed, piece);
        assert_eq!(crc::crc32c(seed, piece), want, "{len} bytes");
        assert_eq!(portable::crc32c(seed, piece), want, "portable {len} bytes");
    }
}

#[test]
fn long_sums_equal_the_definition() {
    let mut random = Random(2);
    for _ in 0..CASES / 60 {
        let len = random.below(20 * LONGEST);
        let bytes = random.bytes(len);
        let seed = random.next() as u32;
        assert_eq!(crc::crc32c(seed, &bytes), whole(seed, &bytes), "{len} bytes");
    }
}

#[test]
fn a_copy_is_complete_and_its_crc_right() {
    let mut random = Random(3);
    for len in [0, 1, 63, 8191, 8192, 8193, 20_000, 65_536] {
        let len = if cfg!(miri) { len.min(100) } else { len };
        let bytes = random.bytes(len);
        let mut copy = vec![0; len];
        assert_eq!(crc::crc32c_and_copy(7, &bytes, &mut copy), whole(7, &bytes));
        assert_eq!(copy, bytes);
    }
}

#[test]
fn flips_at_the_edges_equal_recomputation() {
    let mut random = Random(4);
    let lens: &[usize] =
        if cfg!(miri) { &[1, 9] } else { &[1, 2, 8, 31, 1024, 4096, 8192, 65_536] };
    for &len in lens {
        let total = len * 8;
        let mut bytes = random.bytes(len);
        let ranges = [
            (0, 1),
            (total - 1, 1),
            (0, total),
            (0, 0),
            (total, 0),
            (total / 2, 0),
            (7, 1.min(total - 7)),
            (total / 2 - 1, 2),
            (1, total - 2),
            (0, total - 1),
            (1, total - 1),
        ];
        for (offset, count) in ranges {
            check_flip(&mut bytes, total, offset, count, random.next() as u32);
        }
    }
}

#[test]
fn random_flips_equal_recomputation() {
    let mut random = Random(5);
    for _ in 0..CASES {
        let total = 1 + random.below(LONGEST);
        let mut bytes = random.bytes(total.div_ceil(8));
        let offset = random.below(total + 1);
        let count = random.below(total - offset + 1);
        check_flip(&mut bytes, total, offset, count, random.next() as u32);
    }
}

#[test]
fn flips_of_every_digit_count_equal_recomputation() {
    // Two digits reach below 2^20 bits, three below 2^26, four everywhere.
    let mut random = Random(6);
    let top = if cfg!(miri) { 0 } else { 27 };
    for log in 19..=top {
        for total in [(1u64 << log) - 1, 1 << log, (1 << log) + 1] {
            let bytes = vec![0u8; total.div_ceil(8) as usize];
            for _ in 0..4 {
                let offset = random.next() % total;
                let count = random.next() % (total - offset + 1);
                let mut flipped = bytes.clone();
                set_bits(&mut flipped, offset as usize, count as usize);
                // The reference computes bits past the last whole byte.
                let (len, odd) = ((total / 8) as usize, (total % 8) as usize);
                let sum = |bytes: &[u8]| {
                    let crc = portable::crc32c(9, &bytes[..len]);
                    bitwise(crc, &bytes[len..], odd)
                };
                let want = sum(&bytes) ^ sum(&flipped);
                let got = crc::flip_delta(total, offset, count);
                assert_eq!(got, want, "{offset}+{count} of {total}");
                assert_eq!(portable::flip_delta(total, offset, count), want);
                if log > 24 {
                    break;
                }
            }
        }
    }
}

fn set_bits(bytes: &mut [u8], offset: usize, count: usize) {
    for bit in offset..(offset + count).min(offset.next_multiple_of(8)) {
        bytes[bit / 8] |= 1 << (bit % 8);
    }
    let (first, last) = (offset.div_ceil(8), (offset + count) / 8);
    if first <= last {
        bytes[first..last].fill(0xFF);
        for bit in (last * 8)..(offset + count) {
            bytes[bit / 8] |= 1 << (bit % 8);
        }
    }
}

#[test]
fn flips_beyond_any_memory_keep_the_law_of_parts() {
    // The delta of two adjacent ranges is the xor of both, and depends only on the distance to the
    // end.
    let mut random = Random(7);
    for _ in 0..CASES {
        let total = random.next() | 1 << 63;
        let offset = random.next() % total;
        let count = random.next() % (total - offset + 1);
        let first = random.next() % (count + 1);
        let parts = crc::flip_delta(total, offset, first)
            ^ crc::flip_delta(total, offset + first, count - first);
        assert_eq!(crc::flip_delta(total, offset, count), parts);
        assert_eq!(portable::flip_delta(total, offset, count), parts);
        assert_eq!(crc::flip_delta(total - offset, 0, count), parts);
    }
}

#[test]
fn random_splices_equal_recomputation() {
    let mut random = Random(8);
    for case in 0..CASES {
        let len = 1 + random.below(LONGEST);
        let mut bytes = random.bytes(len);
        let offset = random.below(len + 1);
        // Mostly short regions, like directory entries and extents.
        let most = if case % 4 == 0 { len - offset } else { (len - offset).min(300) };
        let (old, seed) = (bytes.clone(), random.next() as u32);
        let region_len = random.below(most + 1);
        let region = offset..offset + region_len;
        let new = random.bytes(region_len);
        bytes[region.clone()].copy_from_slice(&new);
        let (before, want) = (portable::crc32c(seed, &old), portable::crc32c(seed, &bytes));
        let trailing = (len - offset - region_len) as u64;
        let old = &old[region];
        let place = format!("{offset}+{region_len} of {len}");
        assert_eq!(crc::splice(before, len, offset, old, &new), want, "{place}");
        assert_eq!(before ^ portable::splice_delta(trailing, old, &new), want, "{place}");
        let (old_crc, new_crc) = (crc::crc32c(seed, old), crc::crc32c(seed, &new));
        assert_eq!(crc::splice_crcs(before, trailing, old_crc, new_crc), want, "{place}");
        let cut = before as u16 ^ crc::splice_delta(trailing, old, &new) as u16;
        assert_eq!(cut, want as u16, "16 bits {place}");
    }
}

#[test]
fn a_mismatch_stays_a_mismatch() {
    let mut bytes = [0x5A; 512];
    let wrong = crc::crc32c(1, &bytes) ^ 0x10;
    bytes[3] ^= 0xFF;
    assert_eq!(crc::flip_range(wrong, 4096, 24, 8), crc::crc32c(1, &bytes) ^ 0x10);
}

#[test]
fn combined_crcs_equal_the_crc_of_the_whole() {
    let mut random = Random(9);
    for _ in 0..CASES / 2 {
        let len = random.below(LONGEST);
        let (bytes, cut, seed) = (random.bytes(len), random.below(len + 1), random.next() as u32);
        let (one, two) = bytes.split_at(cut);
        let want = portable::crc32c(seed, &bytes);
        let (crc1, len2) = (crc::crc32c(seed, one), two.len() as u64);
        assert_eq!(crc::combine(crc1, crc::crc32c(0, two), len2), want);
        assert_eq!(portable::combine(crc1, crc::crc32c(0, two), len2), want);
        // Standard, inverted CRCs combine in the same way.
        let standard = |bytes: &[u8]| !crc::crc32c(!0, bytes);
        assert_eq!(crc::combine(standard(one), standard(two), len2), standard(&bytes));
        assert_eq!(crc::append_zeros(seed, len2), portable::crc32c(seed, &vec![0; two.len()]));
    }
}

#[test]
fn lengths_past_every_register_keep_the_law_of_parts() {
    let mut random = Random(10);
    for shift in 0..64 {
        let (a, b) = (random.next() >> 1 >> shift, random.next() >> 1 >> shift);
        let crc = random.next() as u32;
        let twice = crc::append_zeros(crc::append_zeros(crc, a), b);
        assert_eq!(crc::append_zeros(crc, a + b), twice, "{a} and {b}");
        assert_eq!(portable::append_zeros(crc, a + b), twice, "{a} and {b}");
        // From the definition: R(8a + 8b) = R(8a)·x^(8b) + R(8b).
        let (a, b) = (a >> 4, b >> 4);
        let parts = crc::combine(crc::ones(8 * a), crc::ones(8 * b), b);
        assert_eq!(crc::ones(8 * (a + b)), parts, "{a} and {b}");
        assert_eq!(portable::ones(8 * (a + b)), parts, "{a} and {b}");
    }
}

#[test]
fn runs_of_ones_equal_the_definition() {
    let mut crc = 0;
    for bits in 0..if cfg!(miri) { 100 } else { 40_000 } {
        assert_eq!(crc::ones(bits), crc, "{bits}");
        assert_eq!(portable::ones(bits), crc, "{bits}");
        crc = bitwise(crc, &[1], 1);
    }
}

/// Release builds check the bounds, too.
#[test]
fn a_range_outside_the_whole_panics() {
    let outside = [(8, 9, 0), (8, 0, 9), (8, 8, 1), (8, u64::MAX, 2), (8, 2, u64::MAX)];
    for (total, offset, count) in outside {
        let flip = std::panic::catch_unwind(|| crc::flip_range(0, total, offset, count));
        assert!(flip.is_err(), "{offset}+{count} of {total}");
    }
    assert!(std::panic::catch_unwind(|| crc::splice(0, 8, 7, &[1, 2], &[3, 4])).is_err());
    assert!(std::panic::catch_unwind(|| crc::splice(0, 8, 0, &[1, 2], &[3])).is_err());
}
