//! The judges that nobody here wrote, and the volumes to put before them.
//!
//! ```text
//!   populate, scenario ──► kernel_images ──► image, manifest, must-survive list
//!                                                  │
//!        extant (the command) ◄────────────────────┤
//!                 │                                ▼
//!                 └────────► manifest::diff ◄── e2fsprogs · loop mount · user-mode Linux
//! ```
//!
//! Nothing in here links against the engine: `extant` is called as a command, as a user calls it.
//! A judge that is missing makes a test return early with a printed reason; under `CI=true` it
//! fails the test instead ([`require!`]).

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
