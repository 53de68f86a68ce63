//! Real ext4 images from directories, tars and container images, without root.
//!
//! ```text
//!   SourceSpec ──► Tree::read ──► Tree ──► ImageBuilder::build ──► image
//!   directory, tar,               names, inodes, and
//!   OCI layout, docker save       where the bytes are
//! ```
//!
//! # Examples
//!
//! ```
//! # let _here = extant_guide_tests::scratch_as_home();
//! # std::fs::create_dir_all("rootfs/etc")?;
//! # std::fs::write("rootfs/etc/hostname", "guest\n")?;
//! use extant_image::{ImageBuilder, ImageSize, SourceOptions, SourceSpec, Tree};
//! use std::sync::atomic::AtomicBool;
//!
//! let sources = [SourceSpec::parse("rootfs".as_ref())];
//! let tree = Tree::read(&sources, &SourceOptions::new().owner(0, 0), &())?;
//! let built = ImageBuilder::new()
//!     .size(ImageSize::Auto { free: 16 << 20 })
//!     .build(&tree, "root.img".as_ref(), &(), &AtomicBool::new(false))?;
//! assert_eq!(built.bytes, std::fs::metadata("root.img")?.len());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]
// Casts that can lose bits are in `extant_base::narrow` only.
#![cfg_attr(
    not(test),
    warn(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)
)]

mod beneath;
mod builder;
mod content;
mod digest;
mod draft;
mod entry;
mod error;
mod exclude;
mod glob;
mod graft;
mod merge;
mod overlay;
mod owner;
mod source;
mod tree;

pub use builder::{BuildError, Built, COMPAT_SETS, Compat, ImageBuilder, ImageSize};
pub use content::ContentReader;
pub use entry::{
    ArchiveId, Content, DataRange, Entries, ExtraTimes, HostFileId, Kind, MapId, Meta, Node,
    NodeId, Text, Time, Xattr,
};
pub use error::SourceError;
pub use exclude::Excludes;
pub use owner::{ModeChange, Ownership};
pub use source::{SourceKind, SourceOptions, SourceSpec, data_ranges};
pub use tree::{Children, DataMap, Tree};
