//! Reads the byte log: the whole fast commits of one epoch.
//!
//! ```text
//!   ANCHOR in block 0, open      walk from the base to the first record that does not continue it
//!   ANCHOR with a count          exactly its window, as the published design writes it
//! ```
//!
//! Rule B2: a record that does not continue the walk is its end, never an error.
//!
//! Reads go through the log's device. They need no mapping, and the area may lie in several runs.

use crate::fast_commit::fast_commit_log::FastCommitLog;
use crate::log::open_log::Log;
use extant_base::{BlockNr, Result, Site};
use extant_ondisk::byte_log::{Anchor, Cursor, HEADER_LEN, Header, OPEN, Ring, sum};
use extant_ondisk::fast_commit::Record;

/// Bytes of one read.
const PIECE: usize = 64 << 10;

impl Log {
    /// The fast commits of the byte log that `anchor`, from block 0 of the area, leads to; `None`
    /// when none is whole. Errors: `Device`.
    pub(crate) fn byte_log(
        &self,
        anchor: Anchor,
        inode_bytes: usize,
    ) -> Result<Option<FastCommitLog>> {
        let superblock = self.superblock();
        let Some(ring) = Ring::new(superblock.fast_commit_blocks, superblock.block_size) else {
            return Ok(None);
        };
        let inside = ring.base <= anchor.tail && anchor.tail <= anchor.head;
        if !inside || anchor.head > ring.end {
            return Ok(None);
        }
        let window = Ring { base: anchor.tail, end: anchor.head };
        let mut walk = Walk {
            bytes: Bytes { log: self, start: ring.base, end: window.end, bytes: Vec::new() },
            inode_bytes,
            is_open: anchor.seq == OPEN,
            cursor: Cursor { head: window.base, ..Cursor::start(anchor.tid, ring) },
            // The records of a fast commit that is not whole yet.
            pending: Pending { from: window.base, ..Pending::default() },
            found: FastCommitLog::of_byte_log(anchor.tid, inode_bytes),
        };
        match anchor.seq {
            OPEN => while walk.step()? == Step::Next {},
            count => walk.closed(anchor, count)?,
        }
        Ok((walk.found.commits() > 0).then_some(walk.found))
    }
}

/// The ring's bytes from `start` on, read as needed.
struct Bytes<'a> {
    log: &'a Log,
    start: u64,
    end: u64,
    bytes: Vec<u8>,
}

impl Bytes<'_> {
    /// `len` bytes at `at`; `None` past the end.
    fn get(&mut self, at: u64, len: usize) -> Result<Option<&[u8]>> {
        if at.checked_add(len as u64).is_none_or(|end| end > self.end) {
            return Ok(None);
        }
        let from = (at - self.start) as usize;
        while self.bytes.len() < from + len {
            let have = self.bytes.len();
            let piece = (self.end - self.start - have as u64).min(PIECE as u64) as usize;
            self.bytes.resize(have + piece, 0);
            let superblock = self.log.superblock();
            let shift = superblock.block_size.log2();
            // Pieces start at whole blocks: the ring does, and the size of a piece is a multiple of
            // every block size.
            let block = (self.start + have as u64) >> shift;
            let first = superblock.fast_commit_area().start + block as u32;
            self.log.read(first, &mut self.bytes[have..])?;
        }
        Ok(Some(&self.bytes[from..from + len]))
    }
}

/// The records of a fast commit before its ANCHOR.
#[derive(Default)]
struct Pending {
    /// Where the fast commit starts.
    from: u64,
    tlvs: Vec<u8>,
    ranges: Vec<(BlockNr, u32)>,
}

struct Walk<'a> {
    bytes: Bytes<'a>,
    inode_bytes: usize,
    /// Whether ANCHORs end fast commits; if not, the whole window is one.
    is_open: bool,
    cursor: Cursor,
    pending: Pending,
    found: FastCommitLog,
}

#[derive(PartialEq, Eq)]
enum Step {
    Next,
    End,
}

impl Walk<'_> {
    /// Checks and adds one record. Errors: `Device`.
    fn step(&mut self) -> Result<Step> {
        let Cursor { tid, head, seq, crc } = self.cursor;
        let site = Site::NOWHERE.tid(tid);
        let capacity = self.bytes.end.saturating_sub(head);
        let Some(bytes) = self.bytes.get(head, HEADER_LEN)? else { return Ok(Step::End) };
        let header = match Header::read(bytes.first_chunk().expect("64 bytes"), capacity, site) {
            Ok(header) if header.tid == tid && header.seq == seq => header,
            _ => return Ok(Step::End),
        };
        let payload_at = head + HEADER_LEN as u64;
        let Some(payload) = self.bytes.get(payload_at, header.payload_len)? else {
            return Ok(Step::End);
        };
        let Ok(records) = header.records(payload, self.inode_bytes, site) else {
            return Ok(Step::End);
        };
        let (anchor, others) = match records.split_last() {
            Some((Record::Anchor(anchor), others)) if self.is_open => (Some(*anchor), others),
            _ => (None, &records[..]),
        };
        for record in others {
            match record {
                Record::AddRange(range) => {
                    self.pending.ranges.push((range.start, u32::from(range.len_blocks)));
                }
                Record::Anchor(_) => return Ok(Step::End),
                _ => (),
            }
        }
        let anchor_len = if anchor.is_some() { Anchor::LEN } else { 0 };
        let tlvs = &payload[..payload.len() - anchor_len];
        let before = sum(crc, tlvs);
        self.pending.tlvs.extend_from_slice(tlvs);
        let after = head + header.record_len();
        self.cursor = Cursor { tid, head: after, seq: seq + 1, crc: sum(crc, payload) };
        if let Some(anchor) = anchor {
            let want =
                Anchor { tid, head: after, tail: self.pending.from, seq: seq + 1, crc: before };
            if anchor != want {
                return Ok(Step::End);
            }
            self.take();
        }
        Ok(Step::Next)
    }

    /// Adds the pending fast commit, which is whole.
    fn take(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        self.found.add_commit(&pending.tlvs, pending.ranges);
        self.pending.from = self.cursor.head;
    }

    /// Adds the window of `count` records, if all of it is right.
    fn closed(&mut self, anchor: Anchor, count: u64) -> Result<()> {
        while self.cursor.seq < count {
            if self.step()? == Step::End {
                return Ok(());
            }
        }
        if self.cursor.head == anchor.head && self.cursor.crc == anchor.crc {
            self.take();
        }
        Ok(())
    }
}
