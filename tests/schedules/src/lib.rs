//! The journal, the page cache and the entries of direct transfers, as they ship, in every order that an explorer
//! thinks of.
//!
//! ```text
//!   crates/journal ──┐                      ┌─ journal_scenes    handles, commits, checkpoints, power cuts
//!   crates/pagecache ┼─ build.rs ─► here ───┼─ cache_scenes      writers, readers, flusher, truncation
//!   fs: in_flight.rs ┘   │                  └─ direct_scenes     transfers beside who wants none
//!                        │ model    locks, threads, time: the explorer's
//!                        └ wrong_forms    what has to be found
//! ```
//!
//! `docs/TESTING.md`, "Schedules", says how to run it longer and how to run one schedule again.

#[cfg(test)]
mod cache_scenes;
#[cfg(test)]
mod direct_scenes;
#[cfg(test)]
mod explore;
#[cfg(test)]
mod journal_scenes;
#[cfg(test)]
mod model;
#[cfg(test)]
mod quiet;
#[cfg(test)]
mod wrong_forms;

include!(concat!(env!("OUT_DIR"), "/modules.rs"));
