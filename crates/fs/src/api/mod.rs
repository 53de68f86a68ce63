//! The API: paths, nodes and files as programs use them.

mod attributes;
mod borrow;
mod by_path;
mod direct;
pub(crate) mod direct_queue;
pub(crate) mod file;
pub(crate) mod filesystem;
pub(crate) mod free_space;
pub(crate) mod inode_hold;
pub(crate) mod node;
pub(crate) mod quotas;
pub(crate) mod read_dir;
pub(crate) mod sync_way;
mod tree;
pub(crate) mod walk;
mod whole;
mod xattrs;
