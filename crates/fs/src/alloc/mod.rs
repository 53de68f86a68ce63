//! Which blocks and inodes are free, and handing them out.
//!
//! ```text
//!   request (goal, want) ─► ladder ──group index──► one group, under its lock:
//!                                                     free extents   find, take
//!                                                     bitmap         set bits          ┐ one unit:
//!                                                     descriptor     count, flip sums  ┘ all or none
//!                └ growing file: out of what is held for it ── preallocation
//!   free                 ─► one group ─► pending ──its transaction is durable──► free extents
//! ```
//!
//! Blocks and permission to change them are fetched before the group lock, so nothing waits for a
//! device inside it. Checksums follow by `flip_delta` where every bit of the range surely changed,
//! and by a full sum where that is not known. Source: ext4 documentation, "Block and Inode
//! Allocation Policy"; what must hold on disk is in `docs/FORMAT.md`.

pub(crate) mod blocks;
pub(crate) mod bulk;
pub(crate) mod claims;
pub(crate) mod free_extents;
pub(crate) mod group_edit;
pub(crate) mod group_index;
pub(crate) mod held_runs;
pub(crate) mod inodes;
pub(crate) mod ladder;
pub(crate) mod loaded;
pub(crate) mod mark;
pub(crate) mod pending;
pub(crate) mod preallocation;
pub(crate) mod stripes;
mod trim;
