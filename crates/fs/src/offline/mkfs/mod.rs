//! Making volumes.
//!
//! ```text
//!   options ─► plan ─► static metadata on the device ─► engine, journal off ─► backups
//!              geometry  bitmaps, tables, descriptors     root, lost+found,
//!                                                         journal, quota, …
//! ```
//!
//! Only what must be on the device before a volume can be opened is written here. The engine makes
//! every inode, directory and bit after that.
//!
//! # Examples
//!
//! ```
//! # let _here = extant_guide_tests::scratch_as_home();
//! use extant::mkfs::{JournalSize, MkfsOptions, format};
//! use extant::{BlockSize, Environment, FileDevice};
//! use std::sync::Arc;
//!
//! let device = Arc::new(FileDevice::create("disk.img", 256 << 20)?);
//! let options = MkfsOptions::new()
//!     .block_size(BlockSize::from_bytes(4096).expect("it is one"))
//!     .features("fast_commit,^resize_inode")?
//!     .journal(JournalSize::Bytes(16 << 20))
//!     .label("data")?
//!     .zeroed(true); // a new file reads as zeros: nothing has to be zeroed
//! let made = format(device, &options, &Environment::default())?;
//! assert_eq!(made.blocks, 65536);
//! # Ok::<(), extant::Error>(())
//! ```

pub(crate) mod format;
mod options;
pub(crate) mod place;
pub(crate) mod plan;
pub(crate) mod reserved;
mod settings;

pub(crate) use format::{Formatted, format_open};
pub use format::{Made, fits, format, free_blocks};
pub use options::{InodeCount, JournalSize, MkfsOptions};
pub use plan::{Planned, planned};
pub use settings::Settings;
