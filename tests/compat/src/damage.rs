//! Damage of one structure, or of a few; the seed determines which.

use crate::volume::{Kind, Place, Rich};
use extant_testkit::rng::Rng;

/// Damages one structure of `bytes`, sometimes two or three. Returns what was done to which.
pub fn damage(rich: &Rich, bytes: &mut [u8], rng: &mut Rng) -> String {
    let times = [1, 1, 1, 2, 3][rng.below(5)];
    let all: Vec<String> = (0..times).map(|_| damage_one(rich, bytes, rng)).collect();
    all.join("; ")
}

fn damage_one(rich: &Rich, bytes: &mut [u8], rng: &mut Rng) -> String {
    let place = pick(rich, rng);
    let other = rich.places[rng.below(rich.places.len())];
    let at = place.at + rng.below(place.len);
    let what = match rng.below(10) {
        0..=3 => {
            let bit = rng.below(8);
            bytes[at] ^= 1 << bit;
            format!("bit {bit} of byte {at}")
        }
        4 => {
            bytes[at] = [0, 0xFF, 1, 0x80][rng.below(4)];
            format!("byte {at} = {}", bytes[at])
        }
        5 => {
            let at = at & !1;
            let value = [0, 1, 0xFFFF, 0x8000, 0x7FFF, rng.next_u64() as u16][rng.below(6)];
            bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
            format!("u16 at {at} = {value:#x}")
        }
        6 | 7 => {
            let at = at & !3;
            let near = (other.at / rich.block) as u32;
            let value = match rng.below(6) {
                0 => 0,
                1 => u32::MAX,
                2 => 0x8000_0000,
                3 => rng.below(bytes.len() / rich.block) as u32,
                _ => near,
            };
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            format!("u32 at {at} = {value:#x}")
        }
        8 => {
            let fill = if rng.below(2) == 0 { 0 } else { 0xFF };
            bytes[place.at..place.at + place.len].fill(fill);
            format!("{} bytes at {} = {fill:#x}", place.len, place.at)
        }
        _ => {
            let len = place.len.min(other.len);
            bytes.copy_within(other.at..other.at + len, place.at);
            format!("{len} bytes at {} as at {} ({:?})", place.at, other.at, other.kind)
        }
    };
    format!("{:?}: {what}", place.kind)
}

/// First selects a kind and then one of that kind: there are many more directories than
/// superblocks.
fn pick(rich: &Rich, rng: &mut Rng) -> Place {
    let mut kinds: Vec<Kind> = rich.places.iter().map(|place| place.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let kind = kinds[rng.below(kinds.len())];
    let of_kind: Vec<&Place> = rich.places.iter().filter(|place| place.kind == kind).collect();
    *of_kind[rng.below(of_kind.len())]
}
