//! Repair of damaged ext2, ext3 and ext4 volumes.
//!
//! ```text
//!   device ──► overlay ──► journal ──► rounds: inodes, claims, names, tree, counts ──► check
//!                                        ▲                                              │
//!                                        └───────────── findings are left ──────────────┤
//!   home ◄── apply ◄── side file, flushed ◄── plan: what differs ◄──────── nothing ─────┘
//! ```
//!
//! Nothing is written to the device before the whole repair is known, a check of the result has
//! found nothing, and a side file holds the old and the new bytes. So an interrupted repair can be
//! completed, and any repair undone.
//!
//! The modules, from the top: a module uses those below it.
//!
//! ```text
//!   rounds, plan, side        order of the repair; what it changes; how that reaches the device
//!   undo_file                 undo files of e2fsprogs as plans
//!   counts, own, tree         what follows from the rest; internal files; connectivity
//!   names, claims, values     directories; owners of blocks; values of attributes
//!   scan                      inodes, judged one by one
//!   claimed                   clusters that maps claim
//!   replay, map, dir_block    journal; block maps; entries of directory blocks
//!   volume, usage             superblock, descriptors, slots; clusters in use
//!   older                     copies of blocks that the log still holds
//!   disk, report, hints       the overlay; what is repaired; what the check before found
//!   by_ino                    something about each of many inodes
//!   copy                      a copy of a device that fails
//! ```
//!
//! # Examples
//!
//! ```
//! # let _here = extant_guide_tests::with_image();
//! use extant_blockdev::FileDevice;
//! use extant_repair::{Options, plan};
//! use std::sync::Arc;
//!
//! let device = Arc::new(FileDevice::open("disk.img")?);
//! let plan = plan(device, &Options::default(), &())?;
//! assert!(plan.is_empty()? && plan.is_clean());
//! # Ok::<(), extant::Error>(())
//! ```

#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]
// Casts that can lose bits are in `extant_base::narrow` only.
#![cfg_attr(
    not(test),
    warn(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)
)]

mod by_ino;
mod claimed;
mod claims;
mod copy;
mod counts;
mod dir_block;
mod disk;
mod hints;
mod map;
mod names;
mod older;
mod own;
mod plan;
mod replay;
mod report;
mod rounds;
mod scan;
mod side;
mod tree;
mod undo_file;
mod usage;
mod values;
mod volume;

pub use copy::copy;
pub use plan::{Change, Plan};
pub use report::{Class, FileVerdict, Report};
pub use rounds::{Options, plan};
pub use side::{SideFile, SideState, Stage};
pub use undo_file::UndoFile;
pub use volume::search::FoundVolume;
