//! Workloads whose bytes go through the page cache.
//!
//! ```text
//!   what was done ──► Contents: each file's bytes after each operation   the volume is not read:
//!                        │                                               reading would write back
//!   a cut ──► View ──► the marker says which calls are committed ──► names of that moment,
//!                      bytes of it or later ones, nothing older than what was synced
//! ```
//! After each operation, its number becomes the owner of a marker file. Transactions commit in
//! order, so the marker in a recovered volume shows up to which call the immediate changes are
//! committed. Bytes that were written and not synced may be there or not, sector by sector. A size
//! never covers more than was written back.

mod contents;
mod draw;
mod judge;
mod run;

pub use contents::{Contents, Life};
pub use draw::workload;
pub use run::{MARKER, Run};
