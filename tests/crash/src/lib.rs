//! Power cuts at every point of a recorded run, and checks of what must be there afterwards.
//!
//! ```text
//!   alone, random, text ──► Workload ──record──► History: device log, a View after each operation
//!                                                   │
//!   replay line ◄── Failure ◄── Explorer ◄── every cut, any subset of unflushed writes, torn
//!                                  │
//!                   oracle · checker · recovery cut again · e2fsck · Linux in user mode
//! ```
//! Where files go through the page cache, [`buffered`] replaces the views and their oracle.
//! `EXTANT_CRASH_REPLAY`, with the text that a failure printed, runs that state alone (test program
//! `replay`). `EXTANT_SEED` selects other states and other random workloads; `EXTANT_SOAK` takes
//! many more.
#![forbid(unsafe_code)]

pub mod alone;
pub mod apply;
pub mod buffered;
pub mod direct;
pub mod explorer;
pub mod external;
pub mod failure;
pub mod fingerprint;
pub mod group;
pub mod history;
pub mod judges;
pub mod layouts;
pub mod make;
pub mod op;
pub mod oracle;
pub mod parse;
pub mod prepare;
pub mod random;
pub mod record;
pub mod recorded;
pub mod recovered;
pub mod soak;
pub mod view;
pub mod workload;
