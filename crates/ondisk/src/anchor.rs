//! ANCHOR: the fast-commit record that points into the byte log.
//!
//! ```text
//!   0      4      8          16         24         32     36     40
//!   ┌──────┬──────┬──────────┬──────────┬──────────┬──────┬──────┐
//!   │ tid  │  0   │   head   │   tail   │   seq    │ crc  │  0   │   all little-endian
//!   └──────┴──────┴──────────┴──────────┴──────────┴──────┴──────┘
//! ```
//!
//! [`byte_log`](crate::byte_log) says what the fields mean.

use core::mem::size_of;
use extant_base::Tid;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Value bytes of an ANCHOR.
pub const ANCHOR_VALUE_LEN: usize = 40;

/// The value of an ANCHOR as stored.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the names are the format's")]
pub struct RawAnchor {
    pub tid: U32,
    pub zero: U32,
    pub head: U64,
    pub tail: U64,
    pub seq: U64,
    pub crc: U32,
    pub zero2: U32,
}
const _: () = assert!(size_of::<RawAnchor>() == ANCHOR_VALUE_LEN);

/// An ANCHOR: the place of a fast commit in the byte log, and the checksum up to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// The transaction that the records belong to.
    pub tid: Tid,
    /// One past the last byte of the fast commit.
    pub head: u64,
    /// Its first byte.
    pub tail: u64,
    /// Number of records of the epoch up to `head`, or [`OPEN`](crate::byte_log::OPEN).
    pub seq: u64,
    /// Checksum of the epoch's payload bytes that precede this ANCHOR.
    pub crc: u32,
}

impl Anchor {
    /// Reads the value of a record with the tag ANCHOR. The two padding words are ignored: other
    /// writers leave uninitialized memory there.
    pub(crate) fn read(value: &[u8]) -> Option<Anchor> {
        let raw = RawAnchor::ref_from_bytes(value).ok()?;
        let (head, tail, seq) = (raw.head.get(), raw.tail.get(), raw.seq.get());
        Some(Anchor { tid: Tid(raw.tid.get()), head, tail, seq, crc: raw.crc.get() })
    }

    /// The value to store.
    pub fn value(&self) -> [u8; ANCHOR_VALUE_LEN] {
        let raw = RawAnchor {
            tid: U32::new(self.tid.0),
            zero: U32::ZERO,
            head: U64::new(self.head),
            tail: U64::new(self.tail),
            seq: U64::new(self.seq),
            crc: U32::new(self.crc),
            zero2: U32::ZERO,
        };
        raw.as_bytes().try_into().expect("RawAnchor is 40 bytes long")
    }
}
