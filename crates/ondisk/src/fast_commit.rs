//! Fast-commit records: the changes of one fsync, written to the area after the log.
//!
//! ```text
//!   0       2      4               4+len
//!   ┌───────┬──────┬───────────────┬─────────── …          all little-endian, no alignment
//!   │ tag   │ len  │ value         │ next record
//!   └───────┴──────┴───────────────┴─────────── …          no record crosses a block
//!
//!   HEAD ─ records … ─ TAIL │ records … ─ TAIL │ …         one epoch: from block 0 of the area
//!                           └ each commit starts a block   only the first has a HEAD before it
//!
//!   TAIL: tid u32 │ crc u32 │ to the block's end
//!   crc = crc32c(0; every record since the TAIL before, heads, PAD and HEAD included;
//!                   this TAIL's head and tid)
//! ```
//!
//! Rules:
//! - At least 4 bytes of the block remain after a record, so that the head of a PAD fits. Only a
//!   PAD or a TAIL ends at the block's end.
//! - If the next record does not fit in the block, a PAD fills it, and the record goes to the next.
//!
//! The byte log holds the same records. Of this module only [`Records`] depends on the end of a
//! block.
//! Source: ext4 documentation, "Fast Commits"; jbd2's fast-commit area.

mod write;

pub use write::{BlockWriter, encode, whole_records};

use crate::anchor::Anchor;
use core::mem::offset_of;
use extant_base::{
    BlockNr, Error, Feature, FeatureSet, Ino, LogicalBlock, Result, Site, Tid, What,
};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a record before its value.
pub const HEAD_LEN: usize = 4;
/// Value bytes of a HEAD.
pub const HEAD_VALUE_LEN: usize = 8;
/// Value bytes of a TAIL that have a meaning.
pub const TAIL_VALUE_LEN: usize = 8;
/// Bytes of the fixed part of an inode: the shortest value of an INODE holds them.
pub const INODE_LEN_MIN: usize = 128;
/// The largest inode.
pub const INODE_LEN_MAX: usize = 65536;

/// The head of a record as stored.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawRecordHead {
    /// See [`RecordTag`].
    pub fc_tag: U16,
    /// Bytes of the value.
    pub fc_len: U16,
}
const _: () = assert!(size_of::<RawRecordHead>() == HEAD_LEN);

/// The value of ADD_RANGE as stored: an inode number and a leaf extent.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the names are the format's")]
pub struct RawAddRange {
    pub fc_ino: U32,
    pub ee_block: U32,
    pub ee_len: U16,
    pub ee_start_hi: U16,
    pub ee_start_lo: U32,
}
const _: () = assert!(size_of::<RawAddRange>() == 16 && offset_of!(RawAddRange, ee_start_lo) == 12);

/// The value of DEL_RANGE as stored.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the names are the format's")]
pub struct RawDelRange {
    pub fc_ino: U32,
    pub fc_lblk: U32,
    pub fc_len: U32,
}
const _: () = assert!(size_of::<RawDelRange>() == 12);

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordTag {
    /// 1: blocks of a file are mapped.
    AddRange,
    /// 2: blocks of a file are not mapped.
    DelRange,
    /// 3: an inode is created with a name.
    Create,
    /// 4: an inode gets a name.
    Link,
    /// 5: a name goes.
    Unlink,
    /// 6: an inode as it is now.
    Inode,
    /// 7: nothing, up to the block's end.
    Pad,
    /// 8: ends a fast commit.
    Tail,
    /// 9: starts an epoch.
    Head,
    /// 10: opens an epoch of the byte log, or ends a fast commit there.
    Anchor,
    /// An unknown tag.
    Other(u16),
}

impl RecordTag {
    /// The tag stored as `code`.
    pub const fn from_code(code: u16) -> RecordTag {
        match code {
            1 => RecordTag::AddRange,
            2 => RecordTag::DelRange,
            3 => RecordTag::Create,
            4 => RecordTag::Link,
            5 => RecordTag::Unlink,
            6 => RecordTag::Inode,
            7 => RecordTag::Pad,
            8 => RecordTag::Tail,
            9 => RecordTag::Head,
            10 => RecordTag::Anchor,
            other => RecordTag::Other(other),
        }
    }

    /// The stored number.
    pub const fn code(self) -> u16 {
        match self {
            RecordTag::AddRange => 1,
            RecordTag::DelRange => 2,
            RecordTag::Create => 3,
            RecordTag::Link => 4,
            RecordTag::Unlink => 5,
            RecordTag::Inode => 6,
            RecordTag::Pad => 7,
            RecordTag::Tail => 8,
            RecordTag::Head => 9,
            RecordTag::Anchor => 10,
            RecordTag::Other(code) => code,
        }
    }
}

/// A name that is added to or removed from a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameChange<'a> {
    /// The directory.
    pub parent: Ino,
    /// The inode that the name refers to.
    pub ino: Ino,
    /// The name: 1..=255 bytes, no slash, no NUL.
    pub name: &'a [u8],
}

/// A run of blocks of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedRange {
    /// The file.
    pub ino: Ino,
    /// First block in the file.
    pub first: LogicalBlock,
    /// Blocks, 1..=32768 written or 1..=32767 unwritten.
    pub len_blocks: u16,
    /// Whether the blocks read as zeros.
    pub unwritten: bool,
    /// First block on the volume, below 2^48; not checked against the volume's size.
    pub start: BlockNr,
}

/// One record, checked as far as that is possible without the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// Blocks of a file are mapped.
    AddRange(MappedRange),
    /// Blocks of a file are not mapped.
    DelRange {
        /// The file.
        ino: Ino,
        /// First block in the file.
        first: LogicalBlock,
        /// Blocks; `first + len_blocks` does not pass 2^32.
        len_blocks: u32,
    },
    /// An inode is created with a name; its INODE record precedes this one.
    Create(NameChange<'a>),
    /// An inode gets a name.
    Link(NameChange<'a>),
    /// A name goes.
    Unlink(NameChange<'a>),
    /// An inode as it is now.
    Inode {
        /// Its number.
        ino: Ino,
        /// 128 + extra_isize bytes, or the whole inode when it holds data. Checksum, block count
        /// and (without inline data) the 60 bytes of `i_block` are not valid.
        raw: &'a [u8],
    },
    /// No content: fills the block.
    Pad,
    /// Ends a fast commit.
    Tail {
        /// The transaction.
        tid: Tid,
        /// Checksum since the last TAIL; see [`FcSum`].
        crc: u32,
    },
    /// Starts an epoch.
    Head {
        /// The transaction.
        tid: Tid,
    },
    /// Opens an epoch of the byte log, or ends a fast commit there.
    Anchor(Anchor),
}

/// A record, its bytes and their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located<'a> {
    /// Bytes from the block's start.
    pub offset: usize,
    /// Head and value.
    pub bytes: &'a [u8],
    /// The decoded record.
    pub record: Record<'a>,
}

/// The records of one block of the fast-commit area.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    block: &'a [u8],
    inode_len: usize,
    next: usize,
    at: Site,
}

impl<'a> Records<'a> {
    /// The records of `block`; `inode_len` is the volume's inode size in bytes.
    ///
    /// A TAIL ends the iteration, and so does a PAD, which fills the block.
    pub fn new(block: &'a [u8], inode_len: usize, at: Site) -> Records<'a> {
        Records { block, inode_len, next: 0, at }
    }

    fn parse(&self) -> Result<Located<'a>> {
        let at = self.at.offset(self.next);
        let bad = || at.corrupt(What::FastCommitTag);
        let rest = &self.block[self.next..];
        let (head, values) = RawRecordHead::ref_from_prefix(rest).map_err(|_| bad())?;
        let len = usize::from(head.fc_len.get());
        let value = values.get(..len).ok_or_else(bad)?;
        let ino = |number: u32| Ino::new(number).ok_or(at.corrupt(What::FastCommitInode));
        let record = match RecordTag::from_code(head.fc_tag.get()) {
            RecordTag::AddRange => {
                let raw = RawAddRange::ref_from_bytes(value).map_err(|_| bad())?;
                let (len_blocks, unwritten) = match raw.ee_len.get() {
                    0 => return Err(bad()),
                    n @ 1..=0x8000 => (n, false),
                    n => (n - 0x8000, true),
                };
                let first = raw.ee_block.get();
                if first.checked_add(u32::from(len_blocks) - 1).is_none() {
                    return Err(bad());
                }
                let high = u64::from(raw.ee_start_hi.get()) << 32;
                Record::AddRange(MappedRange {
                    ino: ino(raw.fc_ino.get())?,
                    first: LogicalBlock(first),
                    len_blocks,
                    unwritten,
                    start: BlockNr(high | u64::from(raw.ee_start_lo.get())),
                })
            }
            RecordTag::DelRange => {
                let raw = RawDelRange::ref_from_bytes(value).map_err(|_| bad())?;
                let (first, len_blocks) = (raw.fc_lblk.get(), raw.fc_len.get());
                if len_blocks == 0 || first.checked_add(len_blocks - 1).is_none() {
                    return Err(bad());
                }
                let first = LogicalBlock(first);
                Record::DelRange { ino: ino(raw.fc_ino.get())?, first, len_blocks }
            }
            tag @ (RecordTag::Create | RecordTag::Link | RecordTag::Unlink) => {
                let (&parent, value) = value.split_first_chunk::<4>().ok_or_else(bad)?;
                let (&target, name) = value.split_first_chunk::<4>().ok_or_else(bad)?;
                if !crate::dirent::name_is_legal(name) {
                    return Err(bad());
                }
                let parent = ino(u32::from_le_bytes(parent))?;
                let change = NameChange { parent, ino: ino(u32::from_le_bytes(target))?, name };
                match tag {
                    RecordTag::Create => Record::Create(change),
                    RecordTag::Link => Record::Link(change),
                    _ => Record::Unlink(change),
                }
            }
            RecordTag::Inode => {
                let (&number, raw) = value.split_first_chunk::<4>().ok_or_else(bad)?;
                if raw.len() < INODE_LEN_MIN || raw.len() > self.inode_len {
                    return Err(bad());
                }
                Record::Inode { ino: ino(u32::from_le_bytes(number))?, raw }
            }
            RecordTag::Pad => Record::Pad,
            RecordTag::Tail => {
                let (&tid, value) = value.split_first_chunk::<4>().ok_or_else(bad)?;
                let (&crc, _) = value.split_first_chunk::<4>().ok_or_else(bad)?;
                let tid = Tid(u32::from_le_bytes(tid));
                Record::Tail { tid, crc: u32::from_le_bytes(crc) }
            }
            RecordTag::Head => {
                let &[f0, f1, f2, f3, t0, t1, t2, t3] = value else { return Err(bad()) };
                let features = u32::from_le_bytes([f0, f1, f2, f3]);
                if features != 0 {
                    let name = "fast-commit feature";
                    let feature = Feature { set: FeatureSet::Option, bits: features, name };
                    return Err(Error::Unsupported { feature });
                }
                Record::Head { tid: Tid(u32::from_le_bytes([t0, t1, t2, t3])) }
            }
            RecordTag::Anchor => Record::Anchor(Anchor::read(value).ok_or_else(bad)?),
            RecordTag::Other(_) => return Err(bad()),
        };
        Ok(Located { offset: self.next, bytes: &rest[..HEAD_LEN + len], record })
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Located<'a>>;

    /// Errors: `Corrupt` with `FastCommitTag` or `FastCommitInode`, `Unsupported` for a HEAD with
    /// features; the iteration then ends.
    fn next(&mut self) -> Option<Self::Item> {
        if self.block.len().saturating_sub(self.next) < HEAD_LEN {
            return None;
        }
        let parsed = self.parse();
        self.next = match &parsed {
            Ok(Located { record: Record::Tail { .. }, .. }) | Err(_) => self.block.len(),
            Ok(located) => self.next + located.bytes.len(),
        };
        Some(parsed)
    }
}

/// The running checksum of one fast commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FcSum(u32);

impl FcSum {
    /// Continues the checksum over one more record, which is not a TAIL.
    #[must_use]
    pub fn with(self, record: &[u8]) -> FcSum {
        FcSum(extant_crc32c::crc32c(self.0, record))
    }

    /// The checksum that the TAIL at the start of `tail` must hold; `tail` has at least its head
    /// and tid.
    pub fn at_tail(self, tail: &[u8]) -> u32 {
        extant_crc32c::crc32c(self.0, &tail[..HEAD_LEN + 4])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    fn ino(number: u32) -> Ino {
        Ino::new(number).unwrap()
    }

    /// Writes records, HEAD first, into as many blocks as they need.
    fn area(records: &[Record<'_>], tid: Tid) -> Vec<[u8; 1024]> {
        let mut blocks = vec![[0xEE; 1024]];
        let mut sum = FcSum::default();
        let mut next = 0;
        loop {
            let last = blocks.last_mut().unwrap();
            let mut writer = BlockWriter::new(last, sum);
            while next < records.len() && writer.record(&records[next]) {
                next += 1;
            }
            sum = if next < records.len() {
                writer.pad()
            } else {
                match writer.tail(tid) {
                    Ok(()) => return blocks,
                    Err(sum) => sum,
                }
            };
            blocks.push([0xEE; 1024]);
        }
    }

    #[test]
    fn every_record_reads_back_and_the_checksum_spans_blocks() {
        let (raw, name) = ([7; 160], [b'n'; 255]);
        let change = NameChange { parent: ino(2), ino: ino(12), name: &name };
        let range = |len_blocks, unwritten| MappedRange {
            ino: ino(12),
            first: LogicalBlock(5),
            len_blocks,
            unwritten,
            start: BlockNr(0x1234_5678_9ABC),
        };
        let mut records = vec![
            Record::Head { tid: Tid(9) },
            Record::Inode { ino: ino(12), raw: &raw },
            Record::AddRange(range(0x8000, false)),
            Record::AddRange(range(0x7FFF, true)),
            Record::DelRange { ino: ino(12), first: LogicalBlock(1), len_blocks: u32::MAX },
            Record::Create(change),
            Record::Link(change),
            Record::Unlink(change),
        ];
        // Whatever is left of the last block, a TAIL must find its place.
        for extra in 0..1024 / 12 {
            records.push(Record::Unlink(NameChange { name: b"1234", ..change }));
            let blocks = area(&records, Tid(9));
            let (mut read, mut sum, mut tails) = (Vec::new(), FcSum::default(), 0);
            for block in &blocks {
                for located in Records::new(block, 256, Site::NOWHERE) {
                    let located = located.unwrap();
                    match located.record {
                        Record::Tail { tid, crc } => {
                            assert_eq!((tid, crc), (Tid(9), sum.at_tail(located.bytes)));
                            tails += 1;
                        }
                        record => {
                            sum = sum.with(located.bytes);
                            if record != Record::Pad {
                                read.push(record);
                            }
                        }
                    }
                }
            }
            assert_eq!((read == records, tails), (true, 1), "{extra}");
        }
    }

    #[test]
    fn a_head_and_a_tail_are_laid_out_byte_by_byte() {
        let block = area(&[Record::Head { tid: Tid(0x0102_0304) }], Tid(0x0102_0304))[0];
        let want = [
            &[9, 0, 8, 0, 0, 0, 0, 0, 4, 3, 2, 1][..],
            &[8, 0, 0xF0, 3, 4, 3, 2, 1],
            &extant_crc32c::crc32c(0, &block[..20]).to_le_bytes(),
        ]
        .concat();
        assert_eq!(block[..24], want);
        assert!(block[24..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn each_malformed_record_is_named() {
        // tag, length as stored, value
        let rows: &[(u16, u16, &[u8])] = &[
            (1, 15, &[1; 15]),
            (1, 16, &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0]),
            (1, 16, &[1, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 2, 0, 0, 0, 9, 0, 0, 0]),
            (1, 16, &[0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 9, 0, 0, 0]),
            (2, 12, &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            (2, 12, &[1, 0, 0, 0, 2, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF]),
            (3, 8, &[2, 0, 0, 0, 3, 0, 0, 0]),
            (3, 7, &[2, 0, 0, 0, 3, 0, 0]),
            (4, 9, &[2, 0, 0, 0, 3, 0, 0, 0, b'/']),
            (5, 9, &[2, 0, 0, 0, 3, 0, 0, 0, 0]),
            (5, 9, &[2, 0, 0, 0, 0, 0, 0, 0, b'a']),
            (6, 131, &[1; 131]),
            (6, 261, &[1; 261]),
            (7, 1021, &[]),
            (8, 7, &[0; 7]),
            (9, 9, &[0; 9]),
            (0, 0, &[]),
            (10, 0, &[]),
            (10, 39, &[0; 39]),
            (10, 32, &[0; 32]),
            (11, 0, &[]),
        ];
        for (tag, len, value) in rows {
            let mut block = [0; 1024];
            block[..2].copy_from_slice(&tag.to_le_bytes());
            block[2..4].copy_from_slice(&len.to_le_bytes());
            block[4..4 + value.len()].copy_from_slice(value);
            let read: Vec<_> = Records::new(&block, 256, Site::NOWHERE).collect();
            assert_eq!(read.len(), 1, "{tag} {len}");
            assert!(matches!(read[0], Err(Error::Corrupt { .. })), "{tag} {len} {:?}", read[0]);
        }
        let mut block = [0; 1024];
        block[..8].copy_from_slice(&[9, 0, 8, 0, 1, 0, 0, 0]);
        let read = Records::new(&block, 256, Site::NOWHERE).next();
        assert!(matches!(read, Some(Err(Error::Unsupported { .. }))));
        assert_eq!(Records::new(&block[..3], 256, Site::NOWHERE).count(), 0);
    }
}
