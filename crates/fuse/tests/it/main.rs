//! The protocol: mounts of a filesystem in memory, how they end, and requests of a hostile kernel.

mod closed;
mod costs;
mod ends;
mod hostile;
mod listings;
mod mounted;
#[path = "../parsers/mod.rs"]
mod parsers;
mod rig;
mod sync_series;
