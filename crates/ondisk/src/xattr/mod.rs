//! Extended attributes: entries grow from the start of the area, values from its end.
//!
//! ```text
//!   block:    header 32 │ entry │ entry │ … │ 0 0 0 0 │  free  │ … value │ value │
//!   in inode: magic   4 │ entry │ entry │ … │ 0 0 0 0 │  free  │ … value │ value │
//!                       ▲ value offsets count from here in an inode, from 0 in a block
//!
//!   header   0 magic EA020000 │ 4 refcount │ 8 blocks = 1 │ C hash │ 10 checksum │ 14 zero
//!   entry    0 name_len │ 1 name_index │ 2 value_offs u16 │ 4 value_inum │ 8 value_size │ C hash
//!            10 name, padded with zeros to a multiple of 4
//!
//!   checksum = crc32c(filesystem seed; block number u64; the block with the checksum as zero)
//! ```
//!
//! Rules:
//! - The entries of a block are sorted by index, name length, name. Up to 1024 inodes share a
//!   block.
//! - The entries in an inode are in order of insertion. Their hash is 0, unless the value is in an
//!   inode of its own.
//! - A value is padded with zeros to a multiple of 4, or it is the content of an inode of its own
//!   (feature `ea_inode`).
//!
//! Source: ext4 documentation, "Extended Attributes".

mod area;
mod encode;
mod hash;
mod header;
mod name;

pub use area::{
    ENTRY_LEN, RawXattrEntry, TERMINATOR_LEN, ValueRef, XattrArea, XattrEntry, entry_len,
};
pub use area::{INODE_HEADER_LEN, VALUE_MAX};
pub use encode::{NewValue, NewXattr, block_len, encode_block, encode_in_inode, in_inode_len};
pub use hash::{block_hash, entry_hash, entry_hash_of_inode_value};
pub use header::{
    BLOCK_HEADER_LEN, BlockHeader, MAGIC, REFCOUNT_MAX, RawXattrHeader, block_checksum,
};
pub use name::NameIndex;
