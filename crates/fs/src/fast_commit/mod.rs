//! Fast commits, the engine's side: what a change is said to be, and what is told of it.
//!
//! ```text
//!   store an inode ──► stored.rs    fields of a file? follows from names? cannot be told?
//!   map changes ─────┐                  │
//!   names change ────┼─► notes.rs ──────┴─► Handle::note ──► the journal's running transaction
//!   number taken,    │                                            │ fsync of a regular file
//!   number free ─────┘                                            ▼
//!                          snapshot.rs ◄── raw inode? mapped pieces? ── the journal folds and writes
//! ```
//!
//! What is told is what recovery rebuilds the rest from: the fields of regular files, where their blocks
//! are, and their names. Directory blocks, tree nodes, bitmaps, descriptors and counters follow from that.
//! Rule C4: everything else is a full commit. The hooks lie where such things are changed, at the lowest place that
//! knows what it does, and a step that changed something and said nothing counts as one of those.
//!
//! Rule: what one step changed is told whole or not at all. A step that says a part of it would be replayed
//! as half a change, so a hook is added where metadata is written, not where an operation begins.

mod notes;
mod snapshot;
mod stored;

pub(crate) use notes::Named;
