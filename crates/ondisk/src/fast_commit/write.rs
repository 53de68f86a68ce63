//! Writing fast-commit records: to bytes, and bytes into blocks.

use super::{
    FcSum, HEAD_LEN, INODE_LEN_MIN, NameChange, RawAddRange, RawDelRange, RawRecordHead, Record,
    RecordTag, TAIL_VALUE_LEN,
};
use alloc::vec::Vec;
use extant_base::Tid;
use extant_base::narrow::{high_u32, low_u16, low_u32};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32};

/// Appends `record`, head and value, to `into`.
///
/// # Panics
/// For a record that no reader would accept (a bad name, length or block number), and for PAD and
/// TAIL: their length depends on the block, so [`BlockWriter`] writes them.
pub fn encode(record: &Record<'_>, into: &mut Vec<u8>) {
    match record {
        Record::AddRange(range) => {
            let max = if range.unwritten { 0x7FFF } else { 0x8000 };
            assert!((1..=max).contains(&range.len_blocks), "an extent of no legal length");
            assert!(range.start.0 < 1 << 48, "block {} has more than 48 bits", range.start);
            let raw = RawAddRange {
                fc_ino: U32::new(range.ino.get()),
                ee_block: U32::new(range.first.0),
                ee_len: U16::new(range.len_blocks + if range.unwritten { 0x8000 } else { 0 }),
                ee_start_hi: U16::new(low_u16(high_u32(range.start.0))),
                ee_start_lo: U32::new(low_u32(range.start.0)),
            };
            put(into, RecordTag::AddRange, &[raw.as_bytes()]);
        }
        Record::DelRange { ino, first, len_blocks } => {
            assert!(*len_blocks != 0, "an empty range");
            let raw = RawDelRange {
                fc_ino: U32::new(ino.get()),
                fc_lblk: U32::new(first.0),
                fc_len: U32::new(*len_blocks),
            };
            put(into, RecordTag::DelRange, &[raw.as_bytes()]);
        }
        Record::Create(change) => put_name(into, RecordTag::Create, change),
        Record::Link(change) => put_name(into, RecordTag::Link, change),
        Record::Unlink(change) => put_name(into, RecordTag::Unlink, change),
        Record::Inode { ino, raw } => {
            assert!(raw.len() >= INODE_LEN_MIN, "an inode of {} bytes", raw.len());
            put(into, RecordTag::Inode, &[&ino.get().to_le_bytes(), raw]);
        }
        Record::Head { tid } => put(into, RecordTag::Head, &[&[0; 4], &tid.0.to_le_bytes()]),
        Record::Anchor(anchor) => put(into, RecordTag::Anchor, &[&anchor.value()]),
        Record::Pad | Record::Tail { .. } => panic!("PAD and TAIL end a block: pad(), tail()"),
    }
}

fn put_name(into: &mut Vec<u8>, tag: RecordTag, change: &NameChange<'_>) {
    assert!(crate::dirent::name_is_legal(change.name), "an illegal name");
    let (parent, ino) = (change.parent.get().to_le_bytes(), change.ino.get().to_le_bytes());
    put(into, tag, &[&parent, &ino, change.name]);
}

fn put(into: &mut Vec<u8>, tag: RecordTag, parts: &[&[u8]]) {
    let len = parts.iter().map(|part| part.len()).sum::<usize>();
    let fc_len = u16::try_from(len).expect("a value has at most 65535 bytes");
    let head = RawRecordHead { fc_tag: U16::new(tag.code()), fc_len: U16::new(fc_len) };
    into.extend_from_slice(head.as_bytes());
    for part in parts {
        into.extend_from_slice(part);
    }
}

/// The records of bytes that [`encode`] wrote, one by one, head and value of each.
pub fn whole_records(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    core::iter::from_fn(move || {
        let &[_, _, low, high, ..] = bytes else { return None };
        let len = HEAD_LEN + usize::from(u16::from_le_bytes([low, high]));
        let (record, rest) = bytes.split_at_checked(len)?;
        bytes = rest;
        Some(record)
    })
}

/// Fills one block of the area with records, and computes the checksum of the fast commit across
/// blocks.
#[derive(Debug)]
pub struct BlockWriter<'a> {
    block: &'a mut [u8],
    next: usize,
    sum: FcSum,
}

impl<'a> BlockWriter<'a> {
    /// Starts a block and zeroes it. `sum` is the default for the first block of a fast commit, and
    /// the result of [`BlockWriter::pad`] for a later one.
    pub fn new(block: &'a mut [u8], sum: FcSum) -> BlockWriter<'a> {
        assert!(block.len() < 65536 + HEAD_LEN, "a TAIL's length has 16 bits");
        block.fill(0);
        BlockWriter { block, next: 0, sum }
    }

    /// Bytes in use.
    pub fn len(&self) -> usize {
        self.next
    }

    /// Whether the block holds no record yet.
    pub fn is_empty(&self) -> bool {
        self.next == 0
    }

    /// Whether a record with a value of `value_len` bytes fits, and the head of a PAD after it.
    pub fn fits(&self, value_len: usize) -> bool {
        self.next + HEAD_LEN + value_len + HEAD_LEN <= self.block.len()
    }

    /// Adds a whole record, head and value, that is neither PAD nor TAIL. Returns `false` and
    /// changes nothing if it does not fit.
    pub fn push(&mut self, record: &[u8]) -> bool {
        let fits = record.len() >= HEAD_LEN && self.fits(record.len() - HEAD_LEN);
        if fits {
            self.block[self.next..self.next + record.len()].copy_from_slice(record);
            self.next += record.len();
            self.sum = self.sum.with(record);
        }
        fits
    }

    /// Adds a record that is neither PAD nor TAIL. Returns `false` and changes nothing if it does
    /// not fit.
    ///
    /// # Panics
    /// For a record that no reader would accept (a bad name, length or block number).
    pub fn record(&mut self, record: &Record<'_>) -> bool {
        let is_head = matches!(record, Record::Head { .. });
        assert!(!is_head || self.is_empty(), "HEAD starts the area");
        let mut bytes = Vec::new();
        encode(record, &mut bytes);
        self.push(&bytes)
    }

    /// Fills the rest of the block with a PAD. Returns the checksum for the next block's writer.
    pub fn pad(self) -> FcSum {
        let value_len = self.block.len() - self.next - HEAD_LEN;
        put_end(&mut self.block[self.next..], RecordTag::Pad, value_len);
        self.sum.with(&self.block[self.next..])
    }

    /// Ends the fast commit with a TAIL that fills the rest of the block.
    ///
    /// # Errors
    /// If the TAIL does not fit: the block is padded, and the caller writes the TAIL to the next
    /// block. The error is the checksum for that block's writer.
    pub fn tail(self, tid: Tid) -> core::result::Result<(), FcSum> {
        let left = self.block.len() - self.next;
        if left < HEAD_LEN + TAIL_VALUE_LEN {
            return Err(self.pad());
        }
        let tail = &mut self.block[self.next..];
        put_end(tail, RecordTag::Tail, left - HEAD_LEN);
        tail[HEAD_LEN..HEAD_LEN + 4].copy_from_slice(&tid.0.to_le_bytes());
        let crc = self.sum.at_tail(tail);
        tail[HEAD_LEN + 4..HEAD_LEN + 8].copy_from_slice(&crc.to_le_bytes());
        Ok(())
    }
}

/// Writes the head of a record that fills the rest of a block.
fn put_end(rest: &mut [u8], tag: RecordTag, value_len: usize) {
    let fc_len = u16::try_from(value_len).expect("new() refused blocks that do not fit 16 bits");
    let head = RawRecordHead { fc_tag: U16::new(tag.code()), fc_len: U16::new(fc_len) };
    rest[..HEAD_LEN].copy_from_slice(head.as_bytes());
}
