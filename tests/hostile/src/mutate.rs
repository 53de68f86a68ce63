//! Mutations of bytes by a seed: single bits, edge values, parts moved, duplicated, removed, or
//! taken from another input.

use extant_testkit::rng::Rng;

const EDGES: [u64; 12] = [
    0,
    1,
    2,
    0x7F,
    0xFF,
    0x7FFF,
    0x8000,
    0xFFFF,
    0x7FFF_FFFF,
    0x8000_0000,
    u64::MAX >> 1,
    u64::MAX,
];

/// One of `seeds`, changed in one to eight places, at most `longest` bytes long.
pub fn input(seeds: &[Vec<u8>], longest: usize, rng: &mut Rng) -> Vec<u8> {
    let mut bytes = seeds.get(rng.below(seeds.len().max(1))).cloned().unwrap_or_default();
    for _ in 0..[1, 1, 2, 3, 4, 8][rng.below(6)] {
        change(&mut bytes, seeds, rng);
    }
    bytes.truncate(longest);
    bytes
}

fn change(bytes: &mut Vec<u8>, seeds: &[Vec<u8>], rng: &mut Rng) {
    if bytes.is_empty() {
        bytes.extend((0..1 + rng.below(64)).map(|_| 0));
    }
    // Most fields are near the start, and little of a structure is in use.
    let range = if rng.below(2) == 0 { bytes.len().min(160) } else { bytes.len() };
    let mut at = rng.below(range);
    if rng.below(2) == 0 {
        at = bytes[at..].iter().position(|byte| *byte != 0).map_or(at, |more| at + more);
    }
    let room = bytes.len() - at;
    match rng.below(12) {
        0..=2 => bytes[at] ^= 1 << rng.below(8),
        3 => bytes[at] = rng.next_u64() as u8,
        4..=6 => {
            let value = if rng.below(4) == 0 { rng.next_u64() } else { EDGES[rng.below(12)] };
            let len = [1, 2, 4, 8][rng.below(4)].min(room);
            let value = if rng.below(4) == 0 { value.to_be_bytes() } else { value.to_le_bytes() };
            bytes[at..at + len].copy_from_slice(&value[..len]);
        }
        7 => bytes[at] = bytes[at].wrapping_add([1, 0xFF, 4, 0xFC][rng.below(4)]),
        8 => {
            let from = rng.below(bytes.len());
            let len = (1 + rng.below(64)).min(room).min(bytes.len() - from);
            bytes.copy_within(from..from + len, at);
        }
        9 => {
            let len = (1 + rng.below(64)).min(room);
            let part = bytes[at..at + len].to_vec();
            bytes.splice(at..at, part);
        }
        10 => {
            let len = (1 + rng.below(64)).min(room);
            bytes.drain(at..at + len);
        }
        _ => {
            let other = &seeds[rng.below(seeds.len())];
            if !other.is_empty() {
                let from = rng.below(other.len());
                let len = (1 + rng.below(256)).min(room).min(other.len() - from);
                bytes[at..at + len].copy_from_slice(&other[from..from + len]);
            }
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_input() {
    let seeds = [vec![1, 2, 3], vec![9; 500], Vec::new()];
    for seed in 0..2000 {
        let one = input(&seeds, 300, &mut Rng::new(seed));
        assert_eq!(one, input(&seeds, 300, &mut Rng::new(seed)));
        assert!(one.len() <= 300);
    }
    input(&[], 10, &mut Rng::new(1));
}
