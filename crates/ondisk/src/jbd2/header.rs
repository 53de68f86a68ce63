//! The header at the start of every block of the log, except for logged copies.
//!
//! ```text
//!   0         4          8          12
//!   ┌─────────┬──────────┬──────────┬─────
//!   │C03B3998 │blocktype │ sequence │ …         all big-endian
//!   └─────────┴──────────┴──────────┴─────
//! ```
//!
//! Rule: if a block starts with the magic, the writer zeroes those 4 bytes of its copy in the log
//! and marks its tag ESCAPE. Replay restores them.
//! Source: ext4 documentation, "Journal (jbd2)", Block Header.

use core::mem::offset_of;
use extant_base::Tid;
use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The magic number of the header.
pub const MAGIC: u32 = 0xC03B_3998;
/// Bytes of the header.
pub const HEADER_LEN: usize = 12;
/// Bytes of the checksum that ends a descriptor or revoke block.
pub const TAIL_LEN: usize = 4;

/// The header as stored.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawHeader {
    /// C03B3998.
    pub h_magic: U32,
    /// See [`BlockType`].
    pub h_blocktype: U32,
    /// The transaction.
    pub h_sequence: U32,
}
const _: () =
    assert!(size_of::<RawHeader>() == HEADER_LEN && offset_of!(RawHeader, h_sequence) == 8);

/// The type of a block of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockType {
    /// 1: descriptor of the blocks logged after it.
    Descriptor,
    /// 2: commit block, the last of a transaction.
    Commit,
    /// 3: the oldest superblock.
    SuperblockV1,
    /// 4: the superblock.
    SuperblockV2,
    /// 5: list of blocks whose older copies are revoked.
    Revoke,
    /// An unknown type.
    Other(u32),
}

impl BlockType {
    /// The type stored as `code`.
    pub const fn from_code(code: u32) -> BlockType {
        match code {
            1 => BlockType::Descriptor,
            2 => BlockType::Commit,
            3 => BlockType::SuperblockV1,
            4 => BlockType::SuperblockV2,
            5 => BlockType::Revoke,
            other => BlockType::Other(other),
        }
    }

    /// The stored number.
    pub const fn code(self) -> u32 {
        match self {
            BlockType::Descriptor => 1,
            BlockType::Commit => 2,
            BlockType::SuperblockV1 => 3,
            BlockType::SuperblockV2 => 4,
            BlockType::Revoke => 5,
            BlockType::Other(code) => code,
        }
    }
}

/// The header of a log block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The block's type.
    pub block_type: BlockType,
    /// The transaction it belongs to.
    pub tid: Tid,
}

impl Header {
    /// The header of `block`, or `None` if it does not start with the magic: then it is a logged
    /// copy or not a block of the log.
    pub fn read(block: &[u8]) -> Option<Header> {
        let (raw, _) = RawHeader::ref_from_prefix(block).ok()?;
        (raw.h_magic.get() == MAGIC).then(|| Header {
            block_type: BlockType::from_code(raw.h_blocktype.get()),
            tid: Tid(raw.h_sequence.get()),
        })
    }

    /// Writes the header over the first 12 bytes of `block`.
    pub fn write(self, block: &mut [u8]) {
        let raw = RawHeader {
            h_magic: U32::new(MAGIC),
            h_blocktype: U32::new(self.block_type.code()),
            h_sequence: U32::new(self.tid.0),
        };
        block[..HEADER_LEN].copy_from_slice(raw.as_bytes());
    }
}

/// Whether a copy of `block` must be escaped in the log.
pub fn needs_escape(block: &[u8]) -> bool {
    block.starts_with(&MAGIC.to_be_bytes())
}

/// Zeroes the magic of a copy that is about to be logged.
pub fn escape(copy: &mut [u8]) {
    copy[..4].fill(0);
}

/// Restores the magic of a copy before replay writes it to its home.
pub fn unescape(copy: &mut [u8]) {
    copy[..4].copy_from_slice(&MAGIC.to_be_bytes());
}

/// crc32c(seed, `block` with the 4 bytes at `field` taken as zero).
pub(super) fn checksum_without(seed: u32, block: &[u8], field: usize) -> u32 {
    let sum = extant_crc32c::crc32c(seed, &block[..field]);
    let sum = extant_crc32c::crc32c(sum, &[0; 4]);
    extant_crc32c::crc32c(sum, &block[field + 4..])
}

/// Whether the last 4 bytes of a descriptor or revoke block are its checksum.
pub(super) fn tail_matches(seed: u32, block: &[u8]) -> bool {
    let Some(field) = block.len().checked_sub(TAIL_LEN) else { return false };
    block[field..] == checksum_without(seed, block, field).to_be_bytes()
}

/// Writes the checksum into the last 4 bytes of a descriptor or revoke block.
pub(super) fn put_tail(seed: u32, block: &mut [u8]) {
    let field = block.len() - TAIL_LEN;
    let sum = checksum_without(seed, block, field);
    block[field..].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_reads_back() {
        let mut block = [0xEE; 16];
        Header { block_type: BlockType::Revoke, tid: Tid(0x0102_0304) }.write(&mut block);
        assert_eq!(block[..12], [0xC0, 0x3B, 0x39, 0x98, 0, 0, 0, 5, 1, 2, 3, 4]);
        assert_eq!(block[12..], [0xEE; 4]);
        let read = Header::read(&block).unwrap();
        assert_eq!((read.block_type, read.tid), (BlockType::Revoke, Tid(0x0102_0304)));
        assert_eq!(Header::read(&block[..11]), None);
        block[0] = 0;
        assert_eq!(Header::read(&block), None);
    }

    #[test]
    fn escaping_hides_the_magic_and_unescaping_restores_it() {
        let mut copy = *b"\xC0\x3B\x39\x98rest";
        assert!(needs_escape(&copy));
        escape(&mut copy);
        assert!(!needs_escape(&copy));
        assert_eq!(copy, *b"\0\0\0\0rest");
        unescape(&mut copy);
        assert_eq!(copy, *b"\xC0\x3B\x39\x98rest");
    }
}
