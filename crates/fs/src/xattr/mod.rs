//! Extended attributes of an inode, wherever they live.
//!
//! ```text
//!   inode tail ──┬─ name = value                    small values, inline data
//!                └─ name ─► value inode ──┐
//!   block ───────┬─ name = value          ├─► the value's bytes      (feature ea_inode)
//!   (shared)     └─ name ─► value inode ──┘
//! ```
//!
//! Reading is here; `read.rs` says how. Names are given to callers with their prefix.

pub(crate) mod read;
