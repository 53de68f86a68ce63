//! Revoke block: blocks whose copies in this and earlier transactions recovery does not replay.
//!
//! ```text
//!   0      4      8      12       16                              bs-4   bs
//!   ┌──────┬──────┬──────┬────────┬───────┬───────┬───────────────┬──────┐
//!   │magic │ = 5  │ tid  │ count  │ block │ block │  unused       │ csum │   all big-endian
//!   └──────┴──────┴──────┴────────┴───────┴───────┴───────────────┴──────┘
//!                         bytes in use, these 16 included     blocks: u64 with 64bit, else u32
//! ```
//!
//! Source: ext4 documentation, "Journal (jbd2)", Revocation Block.

use super::header::{self, BlockType, HEADER_LEN, Header};
use super::log_format::LogFormat;
use extant_base::narrow::len_u32;
use extant_base::{BlockNr, Result, Site, Tid, What};

/// Bytes before the first record.
pub const REVOKE_HEADER_LEN: usize = HEADER_LEN + 4;

/// Whether the checksum of a revoke block is right; true if the log has no such checksum.
pub fn checksum_matches(block: &[u8], format: &LogFormat) -> bool {
    !format.has_tail() || header::tail_matches(format.seed, block)
}

/// The records of a revoke block in order.
#[derive(Clone, Debug)]
pub struct Revokes<'a> {
    records: &'a [u8],
    wide: bool,
}

impl<'a> Revokes<'a> {
    /// The records of a block whose header has the revoke type. Does not check the checksum.
    ///
    /// # Errors
    /// `Corrupt(JournalRevoke)` if the count of bytes is below 16 or past the end of the records.
    pub fn new(block: &'a [u8], format: &LogFormat, at: Site) -> Result<Revokes<'a>> {
        let bad = at.offset(HEADER_LEN).corrupt(What::JournalRevoke);
        let count = block.get(HEADER_LEN..REVOKE_HEADER_LEN).and_then(|b| b.try_into().ok());
        let Some(count) = count.map(u32::from_be_bytes) else { return Err(bad) };
        let end = usize::try_from(count).unwrap_or(usize::MAX);
        if end > format.records_end().min(block.len()) {
            return Err(bad);
        }
        match block.get(REVOKE_HEADER_LEN..end) {
            Some(records) => Ok(Revokes { records, wide: format.wide }),
            None => Err(bad),
        }
    }
}

impl Iterator for Revokes<'_> {
    type Item = BlockNr;

    /// Ignores a rest that is shorter than a record, as Linux does.
    fn next(&mut self) -> Option<BlockNr> {
        if self.wide {
            let (record, rest) = self.records.split_first_chunk::<8>()?;
            self.records = rest;
            Some(BlockNr(u64::from_be_bytes(*record)))
        } else {
            let (record, rest) = self.records.split_first_chunk::<4>()?;
            self.records = rest;
            Some(BlockNr(u64::from(u32::from_be_bytes(*record))))
        }
    }
}

/// Fills a revoke block record by record.
#[derive(Debug)]
pub struct RevokeWriter<'a> {
    block: &'a mut [u8],
    format: LogFormat,
    next: usize,
}

impl<'a> RevokeWriter<'a> {
    /// Starts a revoke block of transaction `tid` in `block`, which is one log block long.
    pub fn new(block: &'a mut [u8], format: LogFormat, tid: Tid) -> RevokeWriter<'a> {
        assert_eq!(block.len(), format.block_size.bytes(), "a revoke block is one block");
        block.fill(0);
        Header { block_type: BlockType::Revoke, tid }.write(block);
        RevokeWriter { block, format, next: REVOKE_HEADER_LEN }
    }

    /// Adds a record. Returns `false` and changes nothing if the block is full.
    ///
    /// # Panics
    /// If `revoked` needs more than 32 bits in a log without 64-bit block numbers.
    pub fn push(&mut self, revoked: BlockNr) -> bool {
        let len = self.format.revoke_len();
        if self.next + len > self.format.records_end() {
            return false;
        }
        let record = &mut self.block[self.next..self.next + len];
        if self.format.wide {
            record.copy_from_slice(&revoked.0.to_be_bytes());
        } else {
            let narrow = u32::try_from(revoked.0).expect("a 32-bit log revokes 32-bit blocks");
            record.copy_from_slice(&narrow.to_be_bytes());
        }
        self.next += len;
        true
    }

    /// Writes the count and the checksum.
    pub fn finish(self) {
        let count = len_u32(self.next);
        self.block[HEADER_LEN..REVOKE_HEADER_LEN].copy_from_slice(&count.to_be_bytes());
        if self.format.has_tail() {
            header::put_tail(self.format.seed, self.block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::log_format::BlockSum;
    use super::*;
    use extant_base::BlockSize;

    fn format(wide: bool, sum: BlockSum) -> LogFormat {
        LogFormat { block_size: BlockSize::ALL[0], wide, sum, seed: 7 }
    }

    #[test]
    fn records_read_back_in_every_layout() {
        for wide in [false, true] {
            for sum in [BlockSum::None, BlockSum::V1, BlockSum::V2, BlockSum::V3] {
                let format = format(wide, sum);
                let mut block = [0; 1024];
                let mut writer = RevokeWriter::new(&mut block, format, Tid(9));
                let mut count = 0;
                while writer.push(BlockNr(1000 + count)) {
                    count += 1;
                }
                writer.finish();
                assert_eq!(count as usize, format.revokes_per_block());
                assert!(checksum_matches(&block, &format));
                let read = Revokes::new(&block, &format, Site::NOWHERE).unwrap();
                assert!(read.eq((0..count).map(|i| BlockNr(1000 + i))));
                block[20] ^= 1;
                assert_eq!(checksum_matches(&block, &format), !format.has_tail());
            }
        }
    }

    #[test]
    fn a_count_outside_the_block_is_refused() {
        let format = format(true, BlockSum::V3);
        for (count, fine) in
            [(0, false), (15, false), (16, true), (1020, true), (1021, false), (u32::MAX, false)]
        {
            let mut block = [0; 1024];
            block[12..16].copy_from_slice(&u32::to_be_bytes(count));
            let read = Revokes::new(&block, &format, Site::NOWHERE);
            assert_eq!(read.is_ok(), fine, "{count}");
        }
    }
}
