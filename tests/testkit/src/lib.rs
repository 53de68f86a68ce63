//! The judges that are not part of the project, and the volumes that they judge.
//!
//! ```text
//!   populate, scenario ──► kernel_images ──► image, manifest, must-survive list
//!                                                  │
//!        extant (the command) ◄────────────────────┤
//!                 │                                ▼
//!                 └────────► manifest::diff ◄── e2fsprogs · loop mount · user-mode Linux
//! ```
//!
//! Nothing in this crate links against the engine: it calls `extant` as a command, as a user does.
//! If a judge is missing, a test prints the reason and returns early; under `CI=true` it fails
//! ([`require!`]).

pub mod command;
pub mod damaged;
pub mod e2fsprogs;
pub mod extant;
pub mod fuse_mount;
pub mod judge;
pub mod kernel_images;
pub mod loop_mount;
pub mod manifest;
pub mod populate;
pub mod qemu;
pub mod report;
pub mod rng;
pub mod scratch;
pub mod sys;
pub mod uml;
