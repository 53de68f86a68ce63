//! Every on-disk structure of ext2, ext3, ext4 and jbd2: parsed, checked, and written.
//!
//! This crate does no I/O. The caller passes the bytes of a block; the crate returns the decoded
//! structure, or writes a structure into the caller's bytes. Each structure has the same steps:
//!
//! ```text
//!   bytes ──zerocopy──► Raw… ──check(at)──► structure         any bit pattern → only legal values
//!   bytes ◄──with checksum── write(…) ◄──── structure         unknown bytes and bits are kept
//! ```
//!
//! Rules:
//! - A raw type (`Raw…`) accepts every bit pattern and does not interpret it.
//! - `check` is the only way from untrusted bytes to a structure. It returns `Error::Corrupt`,
//!   which names the failed check and the place. No input makes it panic, loop for ever, or
//!   allocate memory by a count that it has not checked.
//! - A write keeps all bytes and feature bits that this crate does not know.
//! - Functions named `parse` or `trusted` check less than `check` does; their documentation says
//!   what, and who may call them.

#![cfg_attr(not(feature = "std"), no_std)]
#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]
// Casts that can lose bits are in `extant_base::narrow` only.
#![cfg_attr(
    not(test),
    warn(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)
)]

#[allow(unused_extern_crates)]
extern crate alloc;

// The volume: superblock, groups, inodes, block maps.
mod anchor;
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
