//! Whole volumes with a few changed fields.
//!
//! ```text
//!   input:  volume (1) │ choice (1) │ edit (14) │ edit … │   choice: bit 0 keeps checksums,
//!                                                            the rest is for the body
//!   edit:   kind (1) │ which of it (1) │ where (2) │ how (1) │ from which (1) │ value (8)
//! ```
//! An edit names a structure, not a place on the disk. So a mutated input changes another structure
//! of the same volume, and an input keeps much of its meaning when the volumes change. Checksums
//! are corrected afterwards ([`log_sums`], and those of `check_agrees`), so that the changed
//! content is accepted.

pub mod bodies;
mod dump;
mod kept;
pub mod log_sums;
pub mod patch;
mod repair;
pub mod scrub;
pub mod volumes;

use crate::Target;
use extant_testkit::rng::Rng;

/// The targets on volumes.
pub const TARGETS: &[Target] = &[
    image("image_read", bodies::read, 12),
    image("image_write", bodies::write, 16),
    image("image_check", bodies::check, 10),
    image("image_recover", bodies::recover, 12),
    image("image_change", bodies::change, 8),
    image("image_repair", repair::run, 8),
    image("image_dump", dump::run, 6),
    Target { seeds: pairs, ..image("image_scrub", scrub::run, 5) },
];

/// The step by which pairs of seeds are selected.
const PAIRS_STEP: usize = 20;

const fn image(name: &'static str, run: fn(&[u8]), weight: u32) -> Target {
    Target { name, run, seeds, weight, longest: 2 + patch::EDIT * patch::EDITS_MAX }
}

/// Each unchanged volume, and each with a change in a structure of each of its kinds.
fn seeds() -> Vec<Vec<u8>> {
    let (mut seeds, mut rng) = (Vec::new(), Rng::new(5));
    for volume in 0..volumes::all().len() as u8 {
        seeds.push(vec![volume, 0xFE]);
        for kind in 0..patch::kinds(volume) as u8 {
            for _ in 0..3 {
                let value = rng.next_u64().to_le_bytes();
                let (which, at, how) =
                    (rng.next_u64() as u8, rng.below(64) as u8 * 4, rng.next_u64() as u8);
                let edit = [&[kind, which, at, 0, how, value[7]], &value[..]].concat();
                seeds.push([&[volume, value[6] & 0xFE], &edit[..]].concat());
            }
        }
    }
    seeds
}

/// Each unchanged volume, and some with a structure changed in both of two copies, or in one. Only
/// some, because a scrub runs many checks.
fn pairs() -> Vec<Vec<u8>> {
    let is_edited = |seed: &Vec<u8>| seed.len() > 2;
    let (edited, mut whole): (Vec<_>, Vec<_>) = seeds().into_iter().partition(is_edited);
    for pair in edited.chunks_exact(2).step_by(PAIRS_STEP) {
        whole.push(pair[0].clone());
        if pair[0][0] == pair[1][0] {
            whole.push([&pair[0][..], &pair[1][2..]].concat());
        }
    }
    whole
}
