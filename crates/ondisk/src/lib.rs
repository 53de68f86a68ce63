//! Every structure of ext2, ext3, ext4 and jbd2: parsed, checked at the border, and written.
//!
//! This crate does no I/O. It is handed the bytes of a block and hands back meaning, or the bytes
//! to write. Each structure has the same three steps:
//!
//! ```text
//!   bytes ──zerocopy──► Raw…  ──check(at)──► meaning          any bit pattern → only legal values
//!   bytes ◄──with checksum── write(…) ◄──── meaning           unknown bytes and bits are kept
//! ```
//!
//! A raw type admits every bit pattern. `check` answers `Error::Corrupt` naming what is wrong and
//! where; no input makes it panic, loop or allocate by an unchecked count.

#![cfg_attr(not(feature = "std"), no_std)]
#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

#[allow(unused_extern_crates)]
extern crate alloc;

// The volume: superblock, groups, inodes, block maps.
pub mod bitmap;
pub mod block_map;
pub mod checksum;
pub mod data_sums;
pub mod extent;
pub mod features;
pub mod geometry;
pub mod group_desc;
pub mod inode;
pub mod member;
pub mod mmp;
pub mod orphan_file;
pub mod quota;
pub mod superblock;
pub mod time;

// Names, attributes and the journal.
pub mod acl;
pub mod byte_log;
#[cfg(feature = "casefold")]
pub mod casefold;
pub mod dirent;
pub mod fast_commit;
pub mod hash;
pub mod htree;
pub mod inline_dir;
pub mod jbd2;
pub mod xattr;
