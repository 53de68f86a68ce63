//! The superblock.
