//! Discarding free clusters: `fstrim`, and the mount option `discard`.
//!
//! ```text
//!   trim      group by group: free runs ──Group locked──► still free? ──► discard
//!   discard   freed in 7 ──► pending (7) ──7 is durable, Group locked──► discard ──► free extents
//! ```
//!
//! Rule D8 holds here, too. A run is discarded only if it is in the free extents or goes there,
//! that is, once the transaction that freed it is durable. Blocks that recovery can still bring
//! back are never discarded. Blocks that are allocated but not committed are not in the free
//! extents. The group stays locked while the device works, so no file gets the run meanwhile.

use crate::space::Space;
use crate::space::free_extents::Span;
use crate::space::free_space::FreeSpace;
use crate::space::group_edit::{GroupBlocks, GroupEdit, Map};
use extant_base::{ByteOffset, Error, GroupNr, Result};
use extant_journal::Credits;
use std::ops::Range;

/// Most clusters of one discard. Allocations in the group wait for it.
const PIECE: u32 = 8192;
/// The bitmap and its descriptor, if the group was never used.
const CREDITS: u32 = 2;

impl Space {
    /// Discards the free runs of at least `min` bytes in `range`, which is in bytes. Returns the
    /// number of bytes discarded.
    ///
    /// Commits first, so that space freed before counts. Errors: `Invalid` for a range that begins
    /// after the volume's end or is shorter than a block; `ReadOnly`; `NotSupported` if the device
    /// cannot discard; `Corrupt`, `Device`, `Aborted`. Locks: none may be held.
    pub(crate) fn trim(&self, range: Range<u64>, min: u64) -> Result<u64> {
        self.context.check_writable()?;
        let block_bytes = self.context.block_size().bytes() as u64;
        let cluster_bytes = block_bytes * u64::from(self.context.geometry().cluster_ratio());
        let end = range.end.min(self.context.geometry().blocks_count().saturating_mul(block_bytes));
        if range.end.saturating_sub(range.start) < block_bytes || range.start >= end {
            return Err(Error::Invalid("a range to trim that holds no block of the volume"));
        }
        self.reclaim_pending()?;
        let mut bytes = 0;
        for group in 0..self.context.geometry().groups_count() {
            bytes += self.free_space.trim_group(
                GroupNr(group),
                range.start..end,
                min.div_ceil(cluster_bytes),
            )?;
        }
        Ok(bytes)
    }
}

impl FreeSpace {
    fn trim_group(&self, nr: GroupNr, range: Range<u64>, min: u64) -> Result<u64> {
        let Some(clusters) = self.context().geometry().clusters_in_group(nr) else { return Ok(0) };
        let whole = Span { start: 0, len: clusters };
        let bytes = self.bytes_of(nr, whole);
        if bytes.end <= range.start
            || bytes.start >= range.end
            || self.groups().get(nr).is_bad(Map::Blocks)
        {
            return Ok(0);
        }
        // Reads the bitmap into the free extents, and creates it if the group was never used.
        let handle = self.context().journal().start(Credits::blocks(CREDITS))?;
        let blocks = GroupBlocks::fetch(self, nr, Map::Blocks)?;
        let mut edit = GroupEdit::begin(self, &blocks, &handle)?;
        let read = edit.read_free_extents();
        edit.leave(&blocks, &handle)?;
        handle.stop()?;
        read?;
        // The end of the last run that is long enough.
        let (mut done, mut at, mut long_end) = (0, 0, 0);
        loop {
            let state = self.groups().get(nr).state.lock();
            let Some(run) = state.free.as_ref().and_then(|free| free.next_from(at, u32::MAX))
            else {
                return Ok(done);
            };
            if u64::from(run.len) >= min {
                long_end = run.end();
            }
            let piece = Span { len: run.len.min(PIECE), ..run };
            at = piece.end();
            let bytes = self.bytes_of(nr, piece);
            let bytes = bytes.start.max(range.start)..bytes.end.min(range.end);
            // The rest of a long run counts as part of it, however short it is.
            if piece.start < long_end && bytes.start < bytes.end {
                self.context()
                    .device()
                    .discard(ByteOffset(bytes.start), bytes.end - bytes.start)?;
                done += bytes.end - bytes.start;
            }
        }
    }

    /// Discards clusters of a locked group whose freeing is durable, if the volume was opened with
    /// `discard`.
    pub(super) fn discard_freed(&self, nr: GroupNr, span: Span) {
        if self.discards() {
            let bytes = self.bytes_of(nr, span);
            // A discard is a hint to the device. The space is free even if it fails.
            let _ =
                self.context().device().discard(ByteOffset(bytes.start), bytes.end - bytes.start);
        }
    }

    /// The bytes of clusters of a group, cut at the volume's end.
    fn bytes_of(&self, nr: GroupNr, span: Span) -> Range<u64> {
        let block_bytes = self.context().block_size().bytes() as u64;
        let Some(first) = self.context().geometry().block_of_bit(nr, span.start) else {
            return 0..0;
        };
        let len = u64::from(span.len) * u64::from(self.context().geometry().cluster_ratio());
        let end = (first.0 + len).min(self.context().geometry().blocks_count());
        first.0 * block_bytes..end * block_bytes
    }
}
