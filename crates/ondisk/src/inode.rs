//! Inodes.
