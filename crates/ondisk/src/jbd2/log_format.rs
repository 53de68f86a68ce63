//! The format of the log's blocks, as the journal superblock defines it.
//!
//! Source: ext4 documentation, "Journal (jbd2)".

use super::header::{self, HEADER_LEN};
use extant_base::{BlockSize, Tid};

/// The kind of checksums of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockSum {
    /// None.
    None,
    /// CRC-32 of each transaction, in its commit block.
    V1,
    /// CRC32C everywhere, the low 16 bits of it in tags.
    V2,
    /// CRC32C everywhere.
    V3,
}

/// The parameters for reading and writing the log's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogFormat {
    /// Block size of the log, and of the volume.
    pub block_size: BlockSize,
    /// Block numbers have 64 bits.
    pub wide: bool,
    /// The kind of checksums.
    pub sum: BlockSum,
    /// crc32c(~0, the journal's uuid).
    pub seed: u32,
}

impl LogFormat {
    /// Whether descriptor and revoke blocks end in a checksum.
    pub fn has_tail(&self) -> bool {
        matches!(self.sum, BlockSum::V2 | BlockSum::V3)
    }

    /// The end of the tags or records in a block, in bytes.
    pub fn records_end(&self) -> usize {
        self.block_size.bytes() - if self.has_tail() { header::TAIL_LEN } else { 0 }
    }

    /// Bytes of a tag, its uuid not counted.
    pub fn tag_len(&self) -> usize {
        match (self.sum, self.wide) {
            (BlockSum::V3, _) => 16,
            (BlockSum::V2, true) => 14,
            (BlockSum::V2, false) => 10,
            (BlockSum::None | BlockSum::V1, true) => 12,
            (BlockSum::None | BlockSum::V1, false) => 8,
        }
    }

    /// The most blocks in one descriptor that this crate writes. As Linux does, the writer adds a
    /// tag only if a tag with a uuid still fits; without that rule a v3 descriptor could hold one
    /// more.
    pub fn blocks_per_descriptor(&self) -> usize {
        (self.records_end() - HEADER_LEN - 2 * super::descriptor::UUID_LEN) / self.tag_len()
    }

    /// Bytes of a revoke record.
    pub fn revoke_len(&self) -> usize {
        if self.wide { 8 } else { 4 }
    }

    /// Blocks that one revoke block can name.
    pub fn revokes_per_block(&self) -> usize {
        (self.records_end() - super::revoke::REVOKE_HEADER_LEN) / self.revoke_len()
    }

    /// The checksum of a logged copy, as it is in the log (escaped), before any cut to 16 bits.
    pub fn copy_sum(&self, tid: Tid, copy: &[u8]) -> u32 {
        extant_crc32c::crc32c(extant_crc32c::crc32c(self.seed, &tid.0.to_be_bytes()), copy)
    }
}
