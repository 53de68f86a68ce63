//! Volumes made by mke2fs and filled by Linux: clean ones with a manifest, and crash states with
//! what had to survive.
//!
//! ```text
//!   clean:  mke2fs ──► mount, populate, unmount ──► mount ro, walk ──► image + manifest
//!   crash:  mke2fs ──► mount, scenario, fsync ──► shutdown (no log flush) ──► image + must survive
//! ```

mod clean;
mod crash;
mod scenario;

pub use clean::{CleanCase, CleanVolume, Maker, clean_cases};
pub use crash::{CrashCase, CrashState, crash_cases};
pub use scenario::{Must, run_scenario};
