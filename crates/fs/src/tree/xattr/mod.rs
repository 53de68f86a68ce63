//! Extended attributes of an inode, in all the places where they are stored.
//!
//! ```text
//!   inode tail ──┬─ name = value                    small values, inline data
//!                └─ name ─► value inode ──┐
//!   block ───────┬─ name = value          ├─► the value's bytes      (feature ea_inode)
//!   (shared)     └─ name ─► value inode ──┘
//! ```
//!
//! Reading and changing are in `read.rs` and `change.rs`. Callers get names with their prefix, and
//! pass names as prefix and rest.

pub(crate) mod block;
pub(crate) mod by_name;
pub(crate) mod change;
mod credits;
pub(crate) mod list;
pub(crate) mod read;
mod release;
pub(crate) mod value_inode;
