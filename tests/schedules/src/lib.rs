//! The journal, the page cache and the table of direct transfers, with the code that ships, in
//! every order that an explorer chooses.
//!
//! ```text
//!   crates/journal ──┐                     ┌─ journal_scenes  handles, commits, checkpoints, cuts
//!   crates/pagecache ┼─ build.rs ─► here ──┼─ cache_scenes    writers, readers, flusher, cuts
//!   fs: transfers.rs ┘   │                 └─ direct_scenes   transfers, threads that exclude them
//!                        │ model    locks, threads, time: the explorer's
//!                        └ wrong_forms    what must be found
//! ```
//!
//! `docs/TESTING.md`, "Schedules", describes how to run it longer and how to run one schedule
//! again.

#[cfg(test)]
mod cache_scenes;
#[cfg(test)]
mod direct_scenes;
#[cfg(test)]
mod explore;
#[cfg(test)]
mod fast_overwrite;
#[cfg(test)]
mod journal_scenes;
#[cfg(test)]
mod model;
#[cfg(test)]
mod wrong_forms;

include!(concat!(env!("OUT_DIR"), "/modules.rs"));
