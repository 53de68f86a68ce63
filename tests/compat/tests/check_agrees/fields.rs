//! Plausible damage: fields in use that are slightly wrong, or that have a neighbour's value.

use extant_compat_tests::volume::{Kind, Rich};
use extant_testkit::rng::Rng;

/// Changes one field of `bytes`, sometimes two. Returns what was done to which.
pub fn damage(rich: &Rich, bytes: &mut [u8], rng: &mut Rng) -> String {
    let times = [1, 1, 1, 2][rng.below(4)];
    let all: Vec<String> = (0..times).map(|_| damage_one(rich, bytes, rng)).collect();
    all.join("; ")
}

fn damage_one(rich: &Rich, bytes: &mut [u8], rng: &mut Rng) -> String {
    let mut kinds: Vec<Kind> = rich.places.iter().map(|place| place.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let kind = kinds[rng.below(kinds.len())];
    let of_kind: Vec<_> = rich.places.iter().filter(|place| place.kind == kind).collect();
    let (place, other) = (of_kind[rng.below(of_kind.len())], of_kind[rng.below(of_kind.len())]);
    let len = [1, 2, 2, 4, 4, 8][rng.below(6)];
    let fields = place.len / len;
    // The first field in use from a random one on, because most of a block is empty.
    let (from, empty) = (rng.below(fields), rng.below(6) == 0);
    let used = |field: &usize| bytes[place.at + field * len..][..len].iter().any(|byte| *byte != 0);
    let field = (from..fields).chain(0..from).find(|field| empty || used(field)).unwrap_or(from);
    let (at, from) = (place.at + field * len, other.at + field * len);
    let mut word = [0; 8];
    word[..len].copy_from_slice(&bytes[at..at + len]);
    let old = u64::from_le_bytes(word);
    let new = match rng.below(8) {
        0 => old.wrapping_add(1),
        1 => old.wrapping_sub(1),
        2 => 0,
        3 => old ^ 1 << rng.below(len * 8),
        4 => old << 1,
        5 => old.wrapping_add(rng.below(64) as u64),
        6 => {
            word[..len].copy_from_slice(&bytes[from..from + len]);
            u64::from_le_bytes(word)
        }
        // Two places exchange their values.
        _ => {
            bytes.copy_within(from..from + len, at);
            bytes[from..from + len].copy_from_slice(&old.to_le_bytes()[..len]);
            return format!("{kind:?}: {len} bytes at {at} and {from} swapped");
        }
    };
    bytes[at..at + len].copy_from_slice(&new.to_le_bytes()[..len]);
    format!("{kind:?}: {len} bytes at {at}: {old:#x} to {new:#x}")
}
