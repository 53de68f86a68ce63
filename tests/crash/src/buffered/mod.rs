//! Workloads whose bytes go through the page cache.
//!
//! ```text
//!   what was done ──► Contents: each file's bytes after each operation      nobody looks at the volume:
//!                        │                                                  looking would write back
//!   a cut ──► View ──► the marker says which calls are committed ──► names of that moment,
//!                      bytes of it or later ones, nothing older than what was synced
//! ```
//! After each operation the owner of a marker file becomes its number: transactions commit in order, so what
//! a recovery shows of it tells how far the calls are there that change the volume at once. Bytes that were
//! written and not synced may be there or not, sector by sector; a size never shows more than was brought
//! there.

mod contents;
mod draw;
mod judge;
mod run;

pub use contents::{Contents, Life};
pub use draw::workload;
pub use run::{MARKER, Run};
