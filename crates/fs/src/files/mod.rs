//! Content of files: read and written on the device, through the page cache, or directly.

pub(crate) mod attributes;
pub(crate) mod cached;
pub(crate) mod data;
pub(crate) mod direct;
pub(crate) mod file;
pub(crate) mod remove_inode;
