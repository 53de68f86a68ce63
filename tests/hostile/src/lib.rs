//! What the engine does with hostile bytes.
//!
//! ```text
//!   volumes ─► seeds ─┬─► corpus (hostile-corpus) ─► fuzz/: libFuzzer, for hours
//!                     └─► mutate, by a seed ───────► tests/bounded: seconds for each
//!                           both ─► Target::run: no panic, an end, bounded memory
//! ```
//!
//! | module | targets |
//! |---|---|
//! | `parsers`, `disk` | one for each parser of a structure, and of words |
//! | `image` | whole volumes with few changed fields: all that reads, writes or repairs volumes |
//! | `source` | tar archives and container images, built into a volume |
//! | `requests` | FUSE requests to a volume |
//!
//! Each crash that is found becomes a named test beside the code that caused it.
#![forbid(unsafe_code)]

pub mod bounded;
pub mod disk;
pub mod image;
pub mod mutate;
pub mod parsers;
pub mod requests;
pub mod source;

/// Code that accepts any bytes.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name.
    pub name: &'static str,
    /// Runs it on the bytes. It panics if something is wrong.
    pub run: fn(&[u8]),
    /// Initial inputs: valid ones, or nearly valid ones.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Its share of a bounded run, relative to the others.
    pub weight: u32,
    /// The length in bytes of the longest useful input.
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
