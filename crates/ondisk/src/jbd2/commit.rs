//! Commit block: the last block of a transaction in the log.
//!
//! ```text
//!   0      4      8      C         D         10          30         38          3C      bs
//!   ┌──────┬──────┬──────┬─────────┬─────────┬───────────┬──────────┬───────────┬───────┐
//!   │magic │ = 2  │ tid  │csum type│csum size│ csum[8]   │ seconds  │ nanosecs  │ zero  │
//!   └──────┴──────┴──────┴─────────┴─────────┴───────────┴──────────┴───────────┴───────┘
//!   v2, v3: type 0, size 0, csum[0] = crc32c(seed, the block with csum[0] as zero)
//!   v1:     type 1, size 4, csum[0] = CRC-32 over the transaction's descriptors and copies
//! ```
//!
//! Rule: a commit block that was torn after its first sector is valid: its checksum also passes if
//! it is right with all bytes after the first 40h taken as zero. Source: ext4 documentation,
//! "Journal (jbd2)", Commit Block; Linux's recovery for the torn block.

use super::header::{self, BlockType, HEADER_LEN, Header, RawHeader};
use super::log_format::{BlockSum, LogFormat};
use core::mem::offset_of;
use extant_base::narrow::len_u32;
use extant_base::{BlockSize, Tid};
use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a commit block that have a meaning; the rest is zero.
pub const COMMIT_LEN: usize = 0x40;

/// A commit block as stored, without the zeros after it.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the module's picture describes the fields")]
pub struct RawCommit {
    pub h_header: RawHeader,
    pub h_chksum_type: u8,
    pub h_chksum_size: u8,
    pub h_padding: [u8; 2],
    pub h_chksum: [U32; 8],
    pub h_commit_sec: U64,
    pub h_commit_nsec: U32,
}
const _: () = assert!(
    size_of::<RawCommit>() == 0x3C
        && offset_of!(RawCommit, h_chksum) == SUM_AT
        && offset_of!(RawCommit, h_commit_sec) == 0x30
);
const SUM_AT: usize = 0x10;

/// The checksum of a commit block, as far as the block alone shows whether it is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitSum {
    /// There is nothing to check: a log without checksums, or a v1 block without one.
    Absent,
    /// v2, v3: right.
    Right,
    /// v2, v3: right if all bytes after the first 40h are taken as zero: the block was torn.
    RightTorn,
    /// v2, v3: wrong.
    Wrong,
    /// v1: the stored value, to be compared with [`TransactionCrc`] over the transaction.
    Transaction(u32),
    /// v1: a checksum type or size that is not CRC-32's.
    Unknown,
}

impl CommitSum {
    /// Whether the transaction may be replayed; `crc` is the v1 checksum of the blocks that
    /// recovery read.
    pub fn accepts(self, crc: TransactionCrc) -> bool {
        match self {
            CommitSum::Absent | CommitSum::Right | CommitSum::RightTorn => true,
            CommitSum::Wrong | CommitSum::Unknown => false,
            CommitSum::Transaction(stored) => stored == crc.0,
        }
    }
}

/// A commit block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    /// The transaction that it ends.
    pub tid: Tid,
    /// Time of the commit, seconds since 1970.
    pub seconds: u64,
    /// And nanoseconds.
    pub nanoseconds: u32,
    /// Its checksum.
    pub sum: CommitSum,
}

impl Commit {
    /// The commit block in `block`, or `None` when its header is not that of one.
    pub fn read(block: &[u8], format: &LogFormat) -> Option<Commit> {
        let header = Header::read(block).filter(|header| header.block_type == BlockType::Commit)?;
        let (raw, _) = RawCommit::ref_from_prefix(block).ok()?;
        let stored = raw.h_chksum[0].get();
        let sum = match format.sum {
            BlockSum::None => CommitSum::Absent,
            BlockSum::V1 => match (raw.h_chksum_type, raw.h_chksum_size, stored) {
                (0, 0, 0) => CommitSum::Absent,
                (1, 4, crc) => CommitSum::Transaction(crc),
                _ => CommitSum::Unknown,
            },
            BlockSum::V2 | BlockSum::V3 => {
                if stored == header::checksum_without(format.seed, block, SUM_AT) {
                    CommitSum::Right
                } else if stored == torn_checksum(format.seed, block) {
                    CommitSum::RightTorn
                } else {
                    CommitSum::Wrong
                }
            }
        };
        Some(Commit {
            tid: header.tid,
            seconds: raw.h_commit_sec.get(),
            nanoseconds: raw.h_commit_nsec.get(),
            sum,
        })
    }

    /// Overwrites `block` with a commit block. `crc` is the transaction's v1 checksum; only a v1
    /// log stores it.
    pub fn write(
        block: &mut [u8],
        format: &LogFormat,
        tid: Tid,
        (seconds, nanoseconds): (u64, u32),
        crc: TransactionCrc,
    ) {
        assert_eq!(block.len(), format.block_size.bytes(), "a commit block is one block");
        block.fill(0);
        Header { block_type: BlockType::Commit, tid }.write(block);
        let (raw, _) = RawCommit::mut_from_prefix(block).expect("a block is 1024 bytes or more");
        raw.h_commit_sec = U64::new(seconds);
        raw.h_commit_nsec = U32::new(nanoseconds);
        match format.sum {
            BlockSum::None => (),
            BlockSum::V1 => {
                raw.h_chksum_type = 1;
                raw.h_chksum_size = 4;
                raw.h_chksum[0] = U32::new(crc.0);
            }
            BlockSum::V2 | BlockSum::V3 => {
                let sum = header::checksum_without(format.seed, block, SUM_AT);
                block[SUM_AT..SUM_AT + 4].copy_from_slice(&sum.to_be_bytes());
            }
        }
    }
}

fn torn_checksum(seed: u32, block: &[u8]) -> u32 {
    let (live, rest) = block.split_at(COMMIT_LEN.min(block.len()));
    let sum = header::checksum_without(seed, live, SUM_AT);
    extant_crc32c::append_zeros(sum, rest.len() as u64)
}

/// The v1 checksum of a transaction: CRC-32, polynomial 04C11DB7, bits not reflected, from ~0,
/// not inverted, over descriptor blocks and logged copies in log order, without revoke blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransactionCrc(pub u32);

impl Default for TransactionCrc {
    fn default() -> Self {
        TransactionCrc(!0)
    }
}

impl TransactionCrc {
    /// Continues the checksum over one more block.
    #[must_use]
    pub fn with(self, block: &[u8]) -> TransactionCrc {
        TransactionCrc(block.iter().fold(self.0, |crc, &byte| {
            crc << 8 ^ CRC32_TABLE[usize::from((crc >> 24) as u8 ^ byte)]
        }))
    }
}

const CRC32_TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = len_u32(byte) << 24;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000_0000 != 0 { crc << 1 ^ 0x04C1_1DB7 } else { crc << 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

const _: () = assert!(HEADER_LEN == 0xC && BlockSize::ALL[0].bytes() >= COMMIT_LEN);

#[cfg(test)]
mod tests {
    use super::*;

    fn format(sum: BlockSum) -> LogFormat {
        LogFormat { block_size: BlockSize::ALL[2], wide: true, sum, seed: 11 }
    }

    fn written(sum: BlockSum, crc: TransactionCrc) -> [u8; 4096] {
        let mut block = [0xEE; 4096];
        Commit::write(&mut block, &format(sum), Tid(6), (1_700_000_000, 5), crc);
        block
    }

    #[test]
    fn a_commit_block_reads_back() {
        for (sum, want) in [
            (BlockSum::None, CommitSum::Absent),
            (BlockSum::V1, CommitSum::Transaction(42)),
            (BlockSum::V2, CommitSum::Right),
            (BlockSum::V3, CommitSum::Right),
        ] {
            let block = written(sum, TransactionCrc(42));
            let read = Commit::read(&block, &format(sum)).unwrap();
            let want = Commit { tid: Tid(6), seconds: 1_700_000_000, nanoseconds: 5, sum: want };
            assert_eq!(read, want);
            assert!(block[COMMIT_LEN..].iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn a_block_torn_after_its_first_sector_counts() {
        let format = format(BlockSum::V3);
        let sum = |block: &[u8]| Commit::read(block, &format).unwrap().sum;
        let mut block = written(BlockSum::V3, TransactionCrc::default());
        block[512..].fill(0xAA);
        assert_eq!(sum(&block), CommitSum::RightTorn);
        block[0x31] ^= 1;
        assert_eq!(sum(&block), CommitSum::Wrong);
        assert!(!CommitSum::Wrong.accepts(TransactionCrc::default()));
    }

    #[test]
    fn a_v1_commit_may_have_no_checksum() {
        let format = format(BlockSum::V1);
        let mut block = written(BlockSum::V1, TransactionCrc(42));
        let sum = |block: &[u8]| Commit::read(block, &format).unwrap().sum;
        assert!(sum(&block).accepts(TransactionCrc(42)));
        assert!(!sum(&block).accepts(TransactionCrc(43)));
        block[0xC] = 2;
        assert_eq!(sum(&block), CommitSum::Unknown);
        block[0xC..0x14].fill(0);
        assert_eq!(sum(&block), CommitSum::Absent);
        block[7] = 1;
        assert_eq!(Commit::read(&block, &format), None);
    }

    #[test]
    fn the_v1_checksum_is_crc_32_mpeg_2() {
        // The published check value of CRC-32/MPEG-2: the same polynomial, seed and no final xor.
        assert_eq!(TransactionCrc::default().with(b"123456789"), TransactionCrc(0x0376_E6E7));
        let parts = TransactionCrc::default().with(b"1234").with(b"56789");
        assert_eq!(parts, TransactionCrc(0x0376_E6E7));
    }
}
