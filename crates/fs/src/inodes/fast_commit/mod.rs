//! The engine's side of fast commits: which notes a change makes, and what is recorded of it.
//!
//! ```text
//!   store an inode ──► stored.rs    fields of a file? follows from names? no record for it?
//!   map changes ─────┐                  │
//!   names change ────┼─► notes.rs ──────┴─► Handle::note ──► the journal's running transaction
//!   number taken,    │                                            │ fsync of a regular file
//!   number freed ────┘                                            ▼
//!                          snapshot.rs ◄── raw inode? mapped pieces? ── the journal folds, writes
//! ```
//!
//! Recovery rebuilds everything else from what is recorded: the fields of regular files, where
//! their blocks are, and their names. Directory blocks, tree nodes, bitmaps, descriptors and
//! counters follow from that. Rule C4: every other change needs a full commit. The hooks are where
//! such things change, in the lowest function that knows what it changes. A handle that changed
//! something and noted nothing also needs a full commit.
//!
//! Rule: what one handle changed is recorded completely or not at all. If a handle noted only a
//! part, recovery would replay half a change. Therefore a hook belongs where metadata is written,
//! not where an operation begins.

mod notes;
mod snapshot;
mod stored;

pub(crate) use notes::Named;
