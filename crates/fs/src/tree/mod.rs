//! The directory tree: directories, names, paths, extended attributes, and usage by owner.

pub(crate) mod dir;
pub(crate) mod inline_change;
pub(crate) mod names;
pub(crate) mod path;
pub(crate) mod usage;
pub(crate) mod xattr;
