//! The header of an attribute block, and the block's checksum.
//!
//! ```text
//!   0 magic EA020000 │ 4 refcount │ 8 blocks = 1 │ C hash │ 10 checksum │ 14 zero │ 20 entries …
//! ```

use core::mem::offset_of;
use extant_base::{BlockNr, Result, Site, What};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The magic number at the start of an attribute block and of the attributes in an inode.
pub const MAGIC: u32 = 0xEA02_0000;
/// Bytes of a block's header.
pub const BLOCK_HEADER_LEN: usize = 32;
/// The most inodes that share one block.
pub const REFCOUNT_MAX: u32 = 1024;
/// The header of an attribute block as stored.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawXattrHeader {
    /// EA020000.
    pub h_magic: U32,
    /// Inodes that use the block.
    pub h_refcount: U32,
    /// 1.
    pub h_blocks: U32,
    /// Hash of all entries' hashes.
    pub h_hash: U32,
    /// crc32c, see the module.
    pub h_checksum: U32,
    /// 0.
    pub h_reserved: [U32; 3],
}
const _: () = assert!(
    size_of::<RawXattrHeader>() == BLOCK_HEADER_LEN && offset_of!(RawXattrHeader, h_checksum) == 16
);

/// The checksum of an attribute block. The seed is the filesystem's and not an inode's, because
/// several inodes may share the block.
pub fn block_checksum(fs_seed: u32, nr: BlockNr, block: &[u8]) -> u32 {
    const AT: usize = offset_of!(RawXattrHeader, h_checksum);
    let sum = extant_crc32c::crc32c(fs_seed, &nr.0.to_le_bytes());
    let sum = extant_crc32c::crc32c(sum, &block[..AT]);
    let sum = extant_crc32c::crc32c(sum, &[0; 4]);
    extant_crc32c::crc32c(sum, &block[AT + 4..])
}

/// The header of an attribute block, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// Inodes that use the block, 1..=1024.
    pub refcount: u32,
    /// Hash of the content; 0 if inodes must not share the block.
    pub hash: u32,
    /// As stored; see [`block_checksum`].
    pub checksum: u32,
}

impl BlockHeader {
    /// The header of `block`.
    ///
    /// # Errors
    /// `Corrupt` with `XattrMagic` or `XattrHeader`.
    pub fn read(block: &[u8], at: Site) -> Result<BlockHeader> {
        let (raw, _) = RawXattrHeader::ref_from_prefix(block)
            .map_err(|_| at.offset(0).corrupt(What::XattrHeader))?;
        if raw.h_magic.get() != MAGIC {
            return Err(at.offset(0).corrupt(What::XattrMagic));
        }
        if raw.h_blocks.get() != 1 || !(1..=REFCOUNT_MAX).contains(&raw.h_refcount.get()) {
            return Err(at.offset(4).corrupt(What::XattrHeader));
        }
        Ok(BlockHeader {
            refcount: raw.h_refcount.get(),
            hash: raw.h_hash.get(),
            checksum: raw.h_checksum.get(),
        })
    }

    /// Checks a block's checksum against its content and number.
    ///
    /// # Errors
    /// `Corrupt` with `XattrChecksum`.
    pub fn verify_checksum(block: &[u8], fs_seed: u32, nr: BlockNr, at: Site) -> Result<()> {
        const AT: usize = offset_of!(RawXattrHeader, h_checksum);
        let header = BlockHeader::read(block, at)?;
        if header.checksum != block_checksum(fs_seed, nr, block) {
            return Err(at.offset(AT).corrupt(What::XattrChecksum));
        }
        Ok(())
    }

    /// Writes the number of inodes that share the block. The caller then sets the checksum.
    pub fn set_refcount(block: &mut [u8], refcount: u32) {
        assert!(
            (1..=REFCOUNT_MAX).contains(&refcount),
            "a refcount of {refcount} would be written"
        );
        block[4..8].copy_from_slice(&refcount.to_le_bytes());
    }

    /// Writes the checksum for the block's place `nr`.
    pub fn set_checksum(block: &mut [u8], fs_seed: u32, nr: BlockNr) {
        const AT: usize = offset_of!(RawXattrHeader, h_checksum);
        let sum = block_checksum(fs_seed, nr, block);
        block[AT..AT + 4].copy_from_slice(&sum.to_le_bytes());
    }
}
