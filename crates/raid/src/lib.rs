//! Layouts: one device made of several.
//!
//! ```text
//!        assemble(parts) ──► records read and compared ──┬─► Stripes   raid0: all of them, or none
//!                                                        ├─► Mirror    raid1: those that agree
//!   create(parts) ──► records written                    └─► the device itself, where it has none
//!
//!   volume                 0        1        2        3        4
//!                          ├────────┼────────┼────────┼────────┤
//!   stripes   member 0     │record… │   0    │   2    │   4    │       data from 1 MiB on
//!             member 1     │record… │   1    │   3    │
//!
//!   mirror    member 0     │ record │   0    │   1    │   2    │ …     the record takes a sector that
//!             member 1     │ record │   0    │   1    │   2    │ …     ext4 leaves alone: each member is
//!                                                                      a plain volume by itself
//! ```
//!
//! What each member says of itself is [`extant_ondisk::member`]. Why it is as it is:
//! `docs/decisions/0007-layouts-by-member-records.md`.

#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

mod assemble;
mod create;
mod crew;
mod mirror;
mod part;
mod stripes;

pub use assemble::{Assembled, Opening, assemble};
pub use create::{Wanted, create};
pub use mirror::{Comparison, Differences, Mirror, MirrorStats, PlaceState};
pub use part::{Part, record_of};
pub use stripes::Stripes;
