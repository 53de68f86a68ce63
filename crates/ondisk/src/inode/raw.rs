//! The bytes of an inode as they lie on disk.
//!
//! ```text
//!   000                     080                      0A0         128 + extra_isize   inode_size
//!   ┌───────────────────────┬────────────────────────┬───────────┬───────────────────┐
//!   │ RawInode              │ RawInodeExtra          │ unknown   │ attributes        │
//!   └───────────────────────┴────────────────────────┴───────────┴───────────────────┘
//! ```

use super::I_BLOCK_SIZE;
use core::mem::{offset_of, size_of};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The first 128 bytes of an inode; any bit pattern.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawInode {
    /// File type and permissions.
    pub i_mode: U16,
    /// Owner, low half.
    pub i_uid: U16,
    /// Size in bytes, low half.
    pub i_size_lo: U32,
    /// Access time.
    pub i_atime: U32,
    /// Change time.
    pub i_ctime: U32,
    /// Modification time.
    pub i_mtime: U32,
    /// Deletion time, or the next orphan.
    pub i_dtime: U32,
    /// Group, low half.
    pub i_gid: U16,
    /// Links.
    pub i_links_count: U16,
    /// Space, low half.
    pub i_blocks_lo: U32,
    /// See `InodeFlags`.
    pub i_flags: U32,
    /// Version, low half; the translator's block on volumes of the Hurd.
    pub i_version: U32,
    /// Block map, extent root, inline data, symlink target or device.
    pub i_block: [u8; I_BLOCK_SIZE],
    /// Generation.
    pub i_generation: U32,
    /// Attribute block, low half.
    pub i_file_acl_lo: U32,
    /// Size in bytes, high half.
    pub i_size_high: U32,
    /// Historic.
    pub i_obso_faddr: U32,
    /// Space, high half.
    pub i_blocks_high: U16,
    /// Attribute block, high half.
    pub i_file_acl_high: U16,
    /// Owner, high half.
    pub i_uid_high: U16,
    /// Group, high half.
    pub i_gid_high: U16,
    /// Checksum, low half.
    pub i_checksum_lo: U16,
    /// Unused.
    pub i_reserved: U16,
}

/// Bytes 128 to 159 of an inode; any bit pattern.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawInodeExtra {
    /// Bytes in use beyond 128.
    pub i_extra_isize: U16,
    /// Checksum, high half.
    pub i_checksum_hi: U16,
    /// Change time, epoch and nanoseconds.
    pub i_ctime_extra: U32,
    /// Modification time, epoch and nanoseconds.
    pub i_mtime_extra: U32,
    /// Access time, epoch and nanoseconds.
    pub i_atime_extra: U32,
    /// Birth time.
    pub i_crtime: U32,
    /// Birth time, epoch and nanoseconds.
    pub i_crtime_extra: U32,
    /// Version, high half.
    pub i_version_hi: U32,
    /// Project.
    pub i_projid: U32,
}

const _: () = assert!(
    size_of::<RawInode>() == 128
        && size_of::<RawInodeExtra>() == 32
        && offset_of!(RawInode, i_block) == 0x28
        && offset_of!(RawInode, i_generation) == 0x64
        && offset_of!(RawInode, i_checksum_lo) == 0x7C
        && offset_of!(RawInodeExtra, i_crtime) == 0x10
        && offset_of!(RawInodeExtra, i_projid) == 0x1C
);
