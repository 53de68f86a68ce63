//! Descriptor block: the home block number of every metadata block logged after it.
//!
//! ```text
//!   0      4      8      12                                       bs-4   bs
//!   ┌──────┬──────┬──────┬──────┬──────┬───────────┬──────────────┬──────┐
//!   │magic │ = 1  │ tid  │ tag  │ tag  │ tag, LAST │  unused      │ csum │   all big-endian
//!   └──────┴──────┴──────┴──────┴──────┴───────────┴──────────────┴──────┘
//!                         and 16 bytes more when the tag carries a UUID (SAME_UUID unset)
//!
//!   tag v3        16  blocknr u32 │ flags u32 │ blocknr_hi u32 │ checksum u32
//!   tag v2     14, 10 blocknr u32 │ checksum u16 │ flags u16 │ [blocknr_hi u32] │ 2 unused
//!   tag none/v1 12, 8 blocknr u32 │ 0 u16        │ flags u16 │ [blocknr_hi u32]
//! ```
//!
//! Rule: a reader reads tags up to the one marked LAST, or until the next one would pass the end of
//! the block or the start of its checksum. Source: ext4 documentation, "Journal (jbd2)", Descriptor
//! Block.

use super::header::{self, BlockType, HEADER_LEN, Header};
use super::log_format::{BlockSum, LogFormat};
use extant_base::narrow::{low_u8, low_u16, low_u32};
use extant_base::{BlockNr, Result, Site, Tid, What};

/// Bytes of the uuid after a tag without SAME_UUID.
pub const UUID_LEN: usize = 16;

bitflags::bitflags! {
    /// The flags of a tag.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct TagFlags: u32 {
        /// The block starts with the jbd2 magic, and its copy in the log has zeros there.
        const ESCAPE = 1;
        /// No uuid follows: the uuid is that of the tag before.
        const SAME_UUID = 2;
        /// Unused by any writer.
        const DELETED = 4;
        /// The last tag of the block.
        const LAST = 8;
        const _ = !0;
    }
}

/// One logged block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The home of the block; not checked against the volume's size.
    pub block: BlockNr,
    /// ESCAPE, LAST and others as stored.
    pub flags: TagFlags,
    /// Checksum of the copy as it lies in the log: 32 bits (v3), 16 bits (v2), 0 (others).
    pub checksum: u32,
}

impl Tag {
    /// Checks the copy in the log that this tag describes, before it is unescaped. In a log without
    /// v2 or v3 checksums every copy passes.
    ///
    /// # Errors
    /// `Corrupt(JournalBlockChecksum)` naming the block's home and `tid`.
    pub fn verify_copy(&self, format: &LogFormat, tid: Tid, copy: &[u8]) -> Result<()> {
        let right = match format.sum {
            BlockSum::None | BlockSum::V1 => true,
            BlockSum::V2 => format.copy_sum(tid, copy) & 0xFFFF == self.checksum,
            BlockSum::V3 => format.copy_sum(tid, copy) == self.checksum,
        };
        let at = Site::of_block(self.block).tid(tid);
        if right { Ok(()) } else { Err(at.corrupt(What::JournalBlockChecksum)) }
    }
}

/// Whether the checksum of a descriptor block is right; true if the log has no such checksum.
pub fn checksum_matches(block: &[u8], format: &LogFormat) -> bool {
    !format.has_tail() || header::tail_matches(format.seed, block)
}

/// The tags of a descriptor block in order.
#[derive(Clone, Debug)]
pub struct Tags<'a> {
    block: &'a [u8],
    format: LogFormat,
    next: usize,
    end: usize,
    at: Site,
}

impl<'a> Tags<'a> {
    /// The tags of a block whose header has the descriptor type. Does not check the checksum.
    pub fn new(block: &'a [u8], format: LogFormat, at: Site) -> Tags<'a> {
        let end = format.records_end().min(block.len());
        Tags { block, format, next: HEADER_LEN, end, at }
    }
}

impl Iterator for Tags<'_> {
    type Item = Result<Tag>;

    /// Errors: `Corrupt(JournalDescriptor)` if a tag's uuid passes the end; the iteration then
    /// ends.
    fn next(&mut self) -> Option<Self::Item> {
        let len = self.format.tag_len();
        let at = self.next;
        if self.end.saturating_sub(at) < len {
            return None;
        }
        let tag = &self.block[at..at + len];
        let be32 = |i: usize| u32::from_be_bytes([tag[i], tag[i + 1], tag[i + 2], tag[i + 3]]);
        let be16 = |i: usize| u32::from(u16::from_be_bytes([tag[i], tag[i + 1]]));
        let (flags, high, checksum) = match self.format.sum {
            BlockSum::V3 => (be32(4), be32(8), be32(12)),
            _ => (be16(6), if self.format.wide { be32(8) } else { 0 }, be16(4)),
        };
        let high = if self.format.wide { high } else { 0 };
        let flags = TagFlags::from_bits_retain(flags);
        self.next += len;
        if !flags.contains(TagFlags::SAME_UUID) {
            self.next += UUID_LEN;
            if self.next > self.end {
                self.next = self.end;
                return Some(Err(self.at.offset(at).corrupt(What::JournalDescriptor)));
            }
        }
        if flags.contains(TagFlags::LAST) {
            self.next = self.end;
        }
        let block = BlockNr(u64::from(high) << 32 | u64::from(be32(0)));
        let checksum = if self.format.has_tail() { checksum } else { 0 };
        Some(Ok(Tag { block, flags, checksum }))
    }
}

/// Fills a descriptor block tag by tag.
#[derive(Debug)]
pub struct DescriptorWriter<'a> {
    block: &'a mut [u8],
    format: LogFormat,
    next: usize,
    last: Option<usize>,
}

impl<'a> DescriptorWriter<'a> {
    /// Starts a descriptor of transaction `tid` in `block`, which is one log block long.
    pub fn new(block: &'a mut [u8], format: LogFormat, tid: Tid) -> DescriptorWriter<'a> {
        assert_eq!(block.len(), format.block_size.bytes(), "a descriptor is one block");
        block.fill(0);
        Header { block_type: BlockType::Descriptor, tid }.write(block);
        DescriptorWriter { block, format, next: HEADER_LEN, last: None }
    }

    /// Whether the block holds no tag yet.
    pub fn is_empty(&self) -> bool {
        self.last.is_none()
    }

    /// Whether another tag fits, see [`LogFormat::blocks_per_descriptor`].
    pub fn has_room(&self) -> bool {
        self.next + self.format.tag_len() + UUID_LEN <= self.format.records_end()
    }

    /// Adds a tag for the block `home`. Returns `false` and changes nothing if the descriptor is
    /// full.
    ///
    /// The block's copy follows in the log. `escape` says that the copy is escaped; `copy_sum` is
    /// its checksum (see [`LogFormat::copy_sum`]), which a log without checksums ignores.
    ///
    /// # Panics
    /// If `home` needs more than 32 bits in a log without 64-bit block numbers.
    pub fn push(&mut self, home: BlockNr, escape: bool, copy_sum: u32) -> bool {
        if !self.has_room() {
            return false;
        }
        let high = (home.0 >> 32) as u32;
        assert!(self.format.wide || high == 0, "block {home} does not fit a 32-bit log");
        let mut flags = TagFlags::empty();
        flags.set(TagFlags::ESCAPE, escape);
        flags.set(TagFlags::SAME_UUID, !self.is_empty());
        let len = self.format.tag_len();
        let tag = &mut self.block[self.next..self.next + len];
        tag[..4].copy_from_slice(&low_u32(home.0).to_be_bytes());
        match self.format.sum {
            BlockSum::V3 => {
                tag[4..8].copy_from_slice(&flags.bits().to_be_bytes());
                tag[8..12].copy_from_slice(&high.to_be_bytes());
                tag[12..16].copy_from_slice(&copy_sum.to_be_bytes());
            }
            sum => {
                let cut = if sum == BlockSum::V2 { low_u16(copy_sum) } else { 0 };
                tag[4..6].copy_from_slice(&cut.to_be_bytes());
                tag[6..8].copy_from_slice(&low_u16(flags.bits()).to_be_bytes());
                if self.format.wide {
                    tag[8..12].copy_from_slice(&high.to_be_bytes());
                }
            }
        }
        let uuid = if self.is_empty() { UUID_LEN } else { 0 };
        self.last = Some(self.next);
        self.next += len + uuid;
        true
    }

    /// Marks the last tag and writes the checksum.
    ///
    /// # Panics
    /// If there is no tag: a descriptor without blocks has no meaning.
    pub fn finish(self) {
        let last = self.last.expect("a descriptor names at least one block");
        // The low byte of the flags is byte 7 of every tag: of a u32 at 4 in v3, of a u16 at 6
        // else.
        self.block[last + 7] |= low_u8(TagFlags::LAST.bits());
        if self.format.has_tail() {
            header::put_tail(self.format.seed, self.block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use extant_base::BlockSize;

    const LAYOUTS: [(BlockSum, bool); 8] = [
        (BlockSum::None, false),
        (BlockSum::None, true),
        (BlockSum::V1, false),
        (BlockSum::V1, true),
        (BlockSum::V2, false),
        (BlockSum::V2, true),
        (BlockSum::V3, false),
        (BlockSum::V3, true),
    ];

    fn format(sum: BlockSum, wide: bool) -> LogFormat {
        LogFormat { block_size: BlockSize::ALL[0], wide, sum, seed: 3 }
    }

    #[test]
    fn a_v3_descriptor_is_laid_out_byte_by_byte() {
        let mut block = [0; 1024];
        let mut writer = DescriptorWriter::new(&mut block, format(BlockSum::V3, true), Tid(5));
        assert!(writer.push(BlockNr(0x1_0000_0002), true, 0xAABB_CCDD));
        assert!(writer.push(BlockNr(3), false, 1));
        writer.finish();
        let want = [
            &[0xC0, 0x3B, 0x39, 0x98, 0, 0, 0, 1, 0, 0, 0, 5][..],
            &[0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1, 0xAA, 0xBB, 0xCC, 0xDD],
            &[0; 16],
            &[0, 0, 0, 3, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0, 1],
            &[0; 12],
        ]
        .concat();
        assert_eq!(block[..want.len()], want);
    }

    #[test]
    fn tags_read_back_in_every_layout() {
        for (sum, wide) in LAYOUTS {
            let format = format(sum, wide);
            let high = if wide { 0x1234_0000_0000 } else { 0 };
            let mut block = [0; 1024];
            let mut writer = DescriptorWriter::new(&mut block, format, Tid(9));
            let mut count = 0;
            while writer.push(
                BlockNr(high + 77 + count),
                count % 3 == 0,
                0xABCD_0000 + count as u32,
            ) {
                count += 1;
            }
            writer.finish();
            assert_eq!(count as usize, format.blocks_per_descriptor(), "{sum:?} {wide}");
            assert!(checksum_matches(&block, &format));
            let tags: Vec<_> =
                Tags::new(&block, format, Site::NOWHERE).map(Result::unwrap).collect();
            assert_eq!(tags.len(), count as usize);
            for (i, tag) in (0..).zip(&tags) {
                assert_eq!(tag.block, BlockNr(high + 77 + i));
                assert_eq!(tag.flags.contains(TagFlags::ESCAPE), i % 3 == 0);
                assert_eq!(tag.flags.contains(TagFlags::LAST), i + 1 == count);
                let want = match sum {
                    BlockSum::None | BlockSum::V1 => 0,
                    BlockSum::V2 => i as u32,
                    BlockSum::V3 => 0xABCD_0000 + i as u32,
                };
                assert_eq!(tag.checksum, want);
            }
        }
    }

    #[test]
    fn a_copy_is_checked_against_its_tag() {
        for (sum, wide) in LAYOUTS {
            let format = format(sum, wide);
            let mut copy = [9; 1024];
            let full = format.copy_sum(Tid(4), &copy);
            let checksum = if sum == BlockSum::V2 { full & 0xFFFF } else { full };
            let tag = Tag { block: BlockNr(1), flags: TagFlags::empty(), checksum };
            assert!(tag.verify_copy(&format, Tid(4), &copy).is_ok());
            copy[1000] = 8;
            let right = tag.verify_copy(&format, Tid(4), &copy).is_ok();
            assert_eq!(right, !format.has_tail(), "{sum:?}");
        }
    }

    #[test]
    fn tags_without_last_end_with_the_block() {
        let format = format(BlockSum::V3, true);
        let mut block = [0; 1024];
        Header { block_type: BlockType::Descriptor, tid: Tid(1) }.write(&mut block);
        // Every tag carries a uuid: 31 fit whole, the next passes the end within its uuid.
        let tags: Vec<_> = Tags::new(&block, format, Site::NOWHERE).collect();
        assert_eq!(tags.len(), 32);
        assert!(tags[..31].iter().all(|tag| tag.is_ok()));
        assert!(tags[31].is_err());
        assert_eq!(Tags::new(&block[..12], format, Site::NOWHERE).count(), 0);
        assert_eq!(Tags::new(&[], format, Site::NOWHERE).count(), 0);
    }
}
