//! The properties of a volume that determine the format of its inodes.
//!
//! ```text
//!   superblock: sizes, features, seed ──► InodeFormat ──► every Inode::parse, check, write
//! ```

use super::EXTRA_ISIZE;
use crate::checksum::Checksums;
use crate::features::{Compat, Incompat, RoCompat};
use crate::superblock::Superblock;
use extant_base::BlockSize;

/// `s_creator_os` of volumes whose inodes have the Hurd's fields in place of Linux's.
const CREATOR_HURD: u32 = 1;

/// The properties of a volume that determine the format of its inodes. Small, and cheap to copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeFormat {
    pub(super) inode_size: u16,
    pub(super) block_size: BlockSize,
    pub(super) cluster_bytes_log2: u32,
    pub(super) blocks_count: u64,
    pub(super) first_data_block: u64,
    pub(super) checksums: Checksums,
    pub(super) is_64bit: bool,
    pub(super) huge_file: bool,
    pub(super) large_dir: bool,
    pub(super) dir_index: bool,
    pub(super) ea_inode: bool,
    pub(super) casefold: bool,
    pub(super) inline_data: bool,
    pub(super) project: bool,
    pub(super) hurd: bool,
    pub(super) want_extra_isize: u16,
}

impl InodeFormat {
    /// The format that a superblock describes.
    pub fn new(sb: &Superblock) -> InodeFormat {
        let incompat = |bit| sb.features.incompat.contains(bit);
        let ro_compat = |bit| sb.features.ro_compat.contains(bit);
        InodeFormat {
            inode_size: sb.inode_size,
            block_size: sb.block_size,
            cluster_bytes_log2: sb.block_size.log2() + sb.log_cluster_ratio,
            blocks_count: sb.blocks_count,
            first_data_block: u64::from(sb.first_data_block),
            checksums: sb.checksums(),
            is_64bit: incompat(Incompat::IS_64BIT),
            huge_file: ro_compat(RoCompat::HUGE_FILE),
            large_dir: incompat(Incompat::LARGEDIR),
            dir_index: sb.features.compat.contains(Compat::DIR_INDEX),
            ea_inode: incompat(Incompat::EA_INODE),
            casefold: incompat(Incompat::CASEFOLD),
            inline_data: incompat(Incompat::INLINE_DATA),
            project: ro_compat(RoCompat::PROJECT),
            hurd: sb.creator_os == CREATOR_HURD,
            want_extra_isize: match sb.inode_size {
                0..=128 => 0,
                // A multiple of 4 that covers all fields of this crate, or as many as the slot
                // holds.
                size => sb.want_extra_isize.max(EXTRA_ISIZE).min(size - 128) & !3,
            },
        }
    }

    /// Bytes of an inode.
    pub fn inode_size(&self) -> usize {
        usize::from(self.inode_size)
    }

    /// Size of a block.
    pub fn block_size(&self) -> BlockSize {
        self.block_size
    }

    /// How the volume checks its metadata.
    pub fn checksums(&self) -> &Checksums {
        &self.checksums
    }

    /// Bytes beyond 128 that a new inode uses; 0 with 128-byte inodes.
    pub fn want_extra_isize(&self) -> u16 {
        self.want_extra_isize
    }

    /// Whether files may count more than 2^32 sectors.
    pub fn has_huge_file(&self) -> bool {
        self.huge_file
    }

    /// The most 512-byte sectors that a file may occupy.
    pub fn max_sectors(&self) -> u64 {
        if self.huge_file {
            ((1 << 48) - 1) << (self.block_size.log2() - 9)
        } else {
            u64::from(u32::MAX)
        }
    }
}
