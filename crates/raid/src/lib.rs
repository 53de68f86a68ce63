//! Layouts: one device composed of several member devices.
//!
//! ```text
//!        assemble(parts) ──► read and compare records ──┬─► Stripes   raid0: all members or none
//!                                                       ├─► Mirror    raid1: members that agree
//!   create(parts) ──► write records                     └─► the device itself, if it has no record
//!
//!   volume                 0        1        2        3        4
//!                          ├────────┼────────┼────────┼────────┤
//!   stripes   member 0     │record… │   0    │   2    │   4    │       data from 1 MiB on
//!             member 1     │record… │   1    │   3    │
//!
//!   mirror    member 0     │ record │   0    │   1    │   2    │ …  the record is in a sector that
//!             member 1     │ record │   0    │   1    │   2    │ …  ext4 leaves free: each member
//!                                                                   by itself is a plain volume
//! ```
//!
//! [`extant_ondisk::member`] defines the record. The reasons for this design:
//! `docs/decisions/0007-layouts-by-member-records.md`.

#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

mod assemble;
mod create;
mod mirror;
mod opening;
mod origin;
mod parallel;
mod part;
mod stripes;

pub use assemble::{Assembled, assemble};
pub use create::{Wanted, create};
pub use mirror::{Comparison, Differences, Mirror, MirrorStats, PlaceState};
pub use opening::Opening;
pub use part::{Part, record_of};
pub use stripes::Stripes;
