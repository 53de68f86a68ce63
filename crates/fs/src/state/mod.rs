//! What the threads of an open volume share in memory about inodes, files and quota.

pub(crate) mod bounce;
pub(crate) mod checksum_file;
pub(crate) mod closed_files;
pub(crate) mod file_cache;
pub(crate) mod inode;
pub(crate) mod quota;
pub(crate) mod shared_xattrs;
