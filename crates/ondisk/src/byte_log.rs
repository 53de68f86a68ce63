//! Byte-log records: fast commits stored directly in persistent memory.
//!
//! ```text
//!   fast-commit area   0            base = 1 block                             end = blocks - 1
//!                      ┌────────────┬────────┬────────┬──────┬─────────────────┬──────┐
//!                      │HEAD ANCHOR │ record │ record │record│ older bytes     │unused│
//!                      │TAIL        │        │+ANCHOR │+ANCH.│                 │      │
//!                      └────────────┴────────┴────────┴──────┴─────────────────┴──────┘
//!                      block 0 of     one fast commit │ next │ offsets are from the area's start
//!                      the area       └───────────────┴──────┘ appended until the next full commit
//!
//!   record, all little-endian
//!   00       04     06      08     0C     0E      10          14          18         1C
//!   ┌───────┬──────┬───────┬──────┬──────┬───────┬───────────┬───────────┬──────────┬──────────┐
//!   │"FCBL" │ = 1  │ = 64  │ tid  │ tag  │ flags │payload_len│payload_crc│record_len│header_crc│
//!   └───────┴──────┴───────┴──────┴──────┴───────┴───────────┴───────────┴──────────┴──────────┘
//!   20 seq u64 │ 28 three u64, zero │ 40 payload │ zeros up to a multiple of 64
//!
//!   payload: fast-commit records (tags 1..6 and ANCHOR) back to back; more than one: tag = FFFF
//!   ANCHOR, tag 000A: tid u32, 0 u32 │ head u64 │ tail u64 │ seq u64 │ crc u32, 0 u32
//! ```
//!
//! Rules:
//! - A fast commit is complete once its ANCHOR is stored. That ANCHOR is the last fast-commit
//!   record in the payload of the fast commit's last byte-log record.
//! - The ANCHOR holds the start (tail) and the end (head) of the fast commit, the number of records
//!   of the epoch up to its end (seq), and the checksum of all payload bytes of the epoch that
//!   precede the ANCHOR.
//! - The ANCHOR in block 0 opens the epoch: its seq is [`OPEN`], and its tail and head are the ends
//!   of the whole ring.
//! - If the ANCHOR in block 0 has a number of records in seq, it is the closed window of the
//!   published design: exactly those records form one fast commit.
//!
//! Source: the ByteLog series of February 2026 for the record and the ANCHOR; decision 0006 for
//! the differences.

pub use crate::anchor::{ANCHOR_VALUE_LEN, Anchor, RawAnchor};
use crate::fast_commit::{HEAD_LEN, Record, RecordTag, Records};
use alloc::vec::Vec;
use core::mem::offset_of;
use extant_base::narrow::{fits_usize, len_u16, len_u32, low_u32};
use extant_base::{BlockSize, Result, Site, Tid, What};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a record's header, and the alignment of records.
pub const HEADER_LEN: usize = 64;
/// "FCBL".
pub const MAGIC: u32 = 0x4C42_4346;
/// The most payload bytes that a writer gathers in one record of several fast-commit records.
pub const BATCH_BYTES: usize = 4096;
/// The tag of a record that holds several fast-commit records.
pub const TAG_BATCH: u16 = 0xFFFF;
/// Flag: the header is complete.
pub const COMMITTED: u16 = 1;
/// [`Anchor::seq`] of the one that opens an epoch.
pub const OPEN: u64 = u64::MAX;
/// The most payload bytes of a record: one fast-commit record of the greatest length.
pub const PAYLOAD_MAX: usize = HEAD_LEN + 0xFFFF;
/// The seed of every checksum of the byte log.
pub const SUM_START: u32 = !0;

/// A record's header as stored.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the names are the format's")]
pub struct RawHeader {
    pub magic: U32,
    pub version: U16,
    pub hdr_len: U16,
    pub tid: U32,
    pub tag: U16,
    pub flags: U16,
    pub payload_len: U32,
    pub payload_crc: U32,
    pub record_len: U32,
    pub header_crc: U32,
    pub seq: U64,
    pub reserved: [U64; 3],
}
const _: () = assert!(size_of::<RawHeader>() == HEADER_LEN && offset_of!(RawHeader, seq) == 0x20);

/// The bytes of the area that records are appended to, counted from the area's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    /// The place of the first record: after the area's first block.
    pub base: u64,
    /// One past the last byte.
    pub end: u64,
}

impl Ring {
    /// The ring of an area of `blocks` blocks, as the superblock counts them; `None` if the area
    /// has no space for records.
    pub fn new(blocks: u32, block_size: BlockSize) -> Option<Ring> {
        let ring = Ring {
            base: block_size.bytes() as u64,
            end: u64::from(blocks.checked_sub(1)?) << block_size.log2(),
        };
        (ring.base < ring.end).then_some(ring)
    }
}

impl Anchor {
    /// Bytes of an ANCHOR, its head included.
    pub const LEN: usize = HEAD_LEN + ANCHOR_VALUE_LEN;

    /// The ANCHOR that opens an epoch.
    pub fn open(tid: Tid, ring: Ring) -> Anchor {
        Anchor { tid, head: ring.end, tail: ring.base, seq: OPEN, crc: SUM_START }
    }
}

/// A header, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The transaction.
    pub tid: Tid,
    /// The tag of the only fast-commit record in the payload, or [`TAG_BATCH`].
    pub tag: u16,
    /// The record's number in the epoch, from 0.
    pub seq: u64,
    /// Bytes of the payload, which follows the header.
    pub payload_len: usize,
    /// Checksum of the payload.
    pub payload_crc: u32,
}

impl Header {
    /// Reads a header; its record may be at most `space` bytes long.
    ///
    /// # Errors
    /// `Corrupt(ByteLogRecord)`.
    pub fn read(bytes: &[u8; HEADER_LEN], space: u64, at: Site) -> Result<Header> {
        let raw = RawHeader::ref_from_bytes(bytes).expect("RawHeader is 64 bytes long");
        let payload_len = raw.payload_len.get() as usize;
        let whole = raw.magic.get() == MAGIC
            && raw.version.get() == 1
            && usize::from(raw.hdr_len.get()) == HEADER_LEN
            && raw.flags.get() & COMMITTED != 0
            && (HEAD_LEN..=PAYLOAD_MAX).contains(&payload_len)
            && u64::from(raw.record_len.get()) <= space
            && u64::from(raw.record_len.get()) == record_len(payload_len)
            && raw.header_crc.get() == header_crc(raw);
        if !whole {
            return Err(at.corrupt(What::ByteLogRecord));
        }
        Ok(Header {
            tid: Tid(raw.tid.get()),
            tag: raw.tag.get(),
            seq: raw.seq.get(),
            payload_len,
            payload_crc: raw.payload_crc.get(),
        })
    }

    /// The bytes to store. The payload has at most [`PAYLOAD_MAX`] bytes.
    pub fn bytes(&self) -> [u8; HEADER_LEN] {
        let mut raw = RawHeader {
            magic: U32::new(MAGIC),
            version: U16::new(1),
            hdr_len: U16::new(len_u16(HEADER_LEN)),
            tid: U32::new(self.tid.0),
            tag: U16::new(self.tag),
            flags: U16::new(COMMITTED),
            payload_len: U32::new(len_u32(self.payload_len)),
            payload_crc: U32::new(self.payload_crc),
            record_len: U32::new(low_u32(record_len(self.payload_len))),
            header_crc: U32::ZERO,
            seq: U64::new(self.seq),
            reserved: [U64::ZERO; 3],
        };
        raw.header_crc = U32::new(header_crc(&raw));
        raw.as_bytes().try_into().expect("RawHeader is 64 bytes long")
    }

    /// Bytes from the start of this record to the start of the next.
    pub fn record_len(&self) -> u64 {
        record_len(self.payload_len)
    }

    /// The fast-commit records of `payload`, the bytes that follow this header; `inode_len` is the
    /// volume's inode size.
    ///
    /// # Errors
    /// `Corrupt` if the checksum is wrong, if a record is malformed or of a kind that the byte log
    /// does not hold, or if the header's tag does not match the records.
    pub fn records<'a>(
        &self,
        payload: &'a [u8],
        inode_len: usize,
        at: Site,
    ) -> Result<Vec<Record<'a>>> {
        let bad = || at.corrupt(What::ByteLogRecord);
        if payload.len() != self.payload_len || sum(SUM_START, payload) != self.payload_crc {
            return Err(bad());
        }
        let (mut records, mut seen) = (Vec::new(), 0);
        for located in Records::new(payload, inode_len, at) {
            let located = located?;
            if matches!(located.record, Record::Pad | Record::Tail { .. } | Record::Head { .. }) {
                return Err(bad());
            }
            seen = located.offset + located.bytes.len();
            records.push(located.record);
        }
        let one = payload.first_chunk::<2>().map_or(0, |tag| u16::from_le_bytes(*tag));
        let tag = if records.len() == 1 { one } else { TAG_BATCH };
        match seen == payload.len() && tag == self.tag {
            true => Ok(records),
            false => Err(bad()),
        }
    }
}

fn header_crc(raw: &RawHeader) -> u32 {
    sum(SUM_START, RawHeader { header_crc: U32::ZERO, ..*raw }.as_bytes())
}

/// Bytes of a record with `payload_len` bytes of payload.
fn record_len(payload_len: usize) -> u64 {
    (HEADER_LEN as u64 + payload_len as u64).next_multiple_of(HEADER_LEN as u64)
}

/// Continues the checksum `seed` over `bytes`.
pub fn sum(seed: u32, bytes: &[u8]) -> u32 {
    extant_crc32c::crc32c(seed, bytes)
}

/// The end of an epoch's records: the next record's place and number, and the checksum so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The transaction.
    pub tid: Tid,
    /// The place of the next record.
    pub head: u64,
    /// Its number.
    pub seq: u64,
    /// Checksum of the epoch's payload bytes so far.
    pub crc: u32,
}

impl Cursor {
    /// The start of an epoch.
    pub fn start(tid: Tid, ring: Ring) -> Cursor {
        Cursor { tid, head: ring.base, seq: 0, crc: SUM_START }
    }
}

/// Builds the records of one fast commit in memory.
///
/// ```text
///   add … add ──► open record ──full──► closed ──► …        finish: + ANCHOR ──► bytes to store
/// ```
#[derive(Debug)]
pub struct FastCommitBytes {
    ring: Ring,
    batch: usize,
    from: Cursor,
    /// After the closed records.
    now: Cursor,
    bytes: Vec<u8>,
    /// The place in `bytes` of the open record's header, which is not filled in yet.
    open: usize,
    /// Fast-commit records in the open record.
    count: usize,
}

const ANCHOR_LEN: usize = Anchor::LEN;

impl FastCommitBytes {
    /// Starts a fast commit at `from`.
    ///
    /// One byte-log record takes several fast-commit records, up to `batch` bytes of payload (at
    /// most [`BATCH_BYTES`]); if `batch` is 0, each gets a byte-log record of its own. The memory
    /// of `buffer` is reused.
    pub fn new(ring: Ring, from: Cursor, batch: usize, mut buffer: Vec<u8>) -> FastCommitBytes {
        buffer.clear();
        let batch = batch.min(BATCH_BYTES);
        FastCommitBytes { ring, batch, from, now: from, bytes: buffer, open: 0, count: 0 }
    }

    /// Whether no record was added.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Adds one fast-commit record, head and value. Returns `false` and changes nothing if the
    /// record and an ANCHOR after it do not fit in the ring.
    pub fn add(&mut self, tlv: &[u8]) -> bool {
        debug_assert!(tlv.len() >= HEAD_LEN);
        let joins = self.joins(tlv.len());
        let with = match joins {
            true => self.payload_len() + tlv.len(),
            false => tlv.len(),
        };
        let start = if joins || self.count == 0 { self.now.head } else { self.open_end() };
        let after = start + record_len(with);
        let end = match self.batch > 0 && with + ANCHOR_LEN <= self.batch {
            true => start + record_len(with + ANCHOR_LEN),
            false => after + record_len(ANCHOR_LEN),
        };
        if end > self.ring.end {
            return false;
        }
        self.put(tlv, joins);
        true
    }

    /// Ends the fast commit with its ANCHOR. Returns its bytes, to be stored at the `head` of the
    /// cursor it started from, and the cursor after them.
    pub fn finish(mut self) -> (Vec<u8>, Cursor) {
        let joins = self.joins(ANCHOR_LEN);
        if !joins {
            self.close();
        }
        let payload = if joins { self.payload_len() } else { 0 };
        let anchor = Anchor {
            tid: self.from.tid,
            head: self.now.head + record_len(payload + ANCHOR_LEN),
            tail: self.from.head,
            seq: self.now.seq + 1,
            crc: match joins {
                true => sum(self.now.crc, &self.bytes[self.open + HEADER_LEN..]),
                false => self.now.crc,
            },
        };
        let mut tlv = [0; ANCHOR_LEN];
        tlv[..2].copy_from_slice(&RecordTag::Anchor.code().to_le_bytes());
        tlv[2..4].copy_from_slice(&len_u16(ANCHOR_VALUE_LEN).to_le_bytes());
        tlv[4..].copy_from_slice(&anchor.value());
        self.put(&tlv, joins);
        self.close();
        debug_assert_eq!(self.now.head, anchor.head);
        (self.bytes, self.now)
    }

    /// Discards the fast commit and returns the buffer.
    pub fn into_buffer(self) -> Vec<u8> {
        self.bytes
    }

    fn payload_len(&self) -> usize {
        match self.count {
            0 => 0,
            _ => self.bytes.len() - self.open - HEADER_LEN,
        }
    }

    fn open_end(&self) -> u64 {
        self.now.head + record_len(self.payload_len())
    }

    /// Whether `len` more bytes of payload go into the open record.
    fn joins(&self, len: usize) -> bool {
        self.count > 0 && self.batch > 0 && self.payload_len() + len <= self.batch
    }

    fn put(&mut self, tlv: &[u8], joins: bool) {
        if !joins {
            self.close();
            self.open = self.bytes.len();
            self.bytes.resize(self.open + HEADER_LEN, 0);
        }
        self.bytes.extend_from_slice(tlv);
        self.count += 1;
    }

    /// Writes the open record's header and pads it.
    fn close(&mut self) {
        if self.count == 0 {
            return;
        }
        let payload = &self.bytes[self.open + HEADER_LEN..];
        let header = Header {
            tid: self.from.tid,
            tag: match self.count {
                1 => u16::from_le_bytes([payload[0], payload[1]]),
                _ => TAG_BATCH,
            },
            seq: self.now.seq,
            payload_len: payload.len(),
            payload_crc: sum(SUM_START, payload),
        };
        self.now.crc = sum(self.now.crc, payload);
        self.now.seq += 1;
        self.now.head += header.record_len();
        self.bytes[self.open..self.open + HEADER_LEN].copy_from_slice(&header.bytes());
        self.bytes.resize(self.open + fits_usize(header.record_len()), 0);
        self.count = 0;
    }
}

#[cfg(test)]
mod tests;
