//! Making volumes.
//!
//! ```text
//!   options ─► plan ─► static metadata on the device ─► engine, journal off ─► backups
//!              geometry  bitmaps, tables, descriptors     root, lost+found,
//!                                                         journal, quota, …
//! ```
//!
//! Only what must stand before a volume can be opened is laid down here; every inode, directory and
//! bit after that is the engine's work.

pub(crate) mod format;
mod options;
pub(crate) mod place;
pub(crate) mod plan;
pub(crate) mod reserved;

pub(crate) use format::{Formatted, format_open};
pub use format::{Made, fits, format, free_blocks};
pub use options::{InodeCount, JournalSize, MkfsOptions};
