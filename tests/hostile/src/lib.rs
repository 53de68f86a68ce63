//! What is done with hostile bytes.
//!
//! ```text
//!   feature-matrix volumes ──► seeds ──► corpus (hostile-corpus) ──► fuzz/: libFuzzer changes them, for hours
//!                                └─────► mutate, by a seed ────────► tests/bounded: each target for seconds
//!                                                     both ──► Target::run: no panic, an end, memory within bounds
//! ```
//!
//! | room | targets |
//! |---|---|
//! | `parsers` | one for each parser of a structure, and of words |
//! | `image` | whole volumes with a few fields changed, sums set right: read, written, checked, recovered, resized |
//! | `source` | tar archives and container images, built into a volume |
//! | `requests` | FUSE requests put to a volume |
//!
//! A crash that is found becomes a test with a name beside the code that it was in.
#![forbid(unsafe_code)]

pub mod bounded;
pub mod image;
pub mod mutate;
pub mod parsers;
pub mod requests;
pub mod source;

/// Something that takes any bytes.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, that of the fuzz target.
    pub name: &'static str,
    /// Takes the bytes. It panics when something is wrong.
    pub run: fn(&[u8]),
    /// Bytes to begin with: what is right, or nearly.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Its part of a bounded run, beside the others'.
    pub weight: u32,
    /// Bytes of the longest input that is worth trying.
    pub longest: usize,
}

/// Every target.
pub fn targets() -> impl Iterator<Item = &'static Target> {
    [parsers::TARGETS, image::TARGETS, source::TARGETS, requests::TARGETS].into_iter().flatten()
}

/// The target `name`.
///
/// # Panics
/// If there is none.
pub fn target(name: &str) -> &'static Target {
    targets().find(|target| target.name == name).unwrap_or_else(|| panic!("no target {name}"))
}

/// Gives `data` to the target `name`.
pub fn run(name: &str, data: &[u8]) {
    (target(name).run)(data);
}

#[test]
fn each_target_has_a_fuzz_target() {
    let manifest = include_str!("../../../fuzz/Cargo.toml");
    let bins = manifest.lines().filter_map(|line| line.strip_prefix("path = \"fuzz_targets/"));
    let bins: Vec<&str> = bins.filter_map(|rest| rest.strip_suffix(".rs\"")).collect();
    assert_eq!(bins, targets().map(|target| target.name).collect::<Vec<_>>());
}
