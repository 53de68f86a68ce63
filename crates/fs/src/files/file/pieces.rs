//! Writes bytes to the blocks of a file: pads them, joins them, and uses one device write where the
//! blocks are neighbours on disk.
//!
//! ```text
//!   file      │····5678│9ABC│DE··│        bytes 4..14 into three blocks
//!   pieces    [fresh   ][    ][fresh]     8, 9 and 20 on disk
//!   device    write 8: 0000 5678 9ABC     write 20: DE 00
//! ```

use crate::files::DataIo;
use crate::files::data::{DataPath, zeros};
use crate::inodes::data_csum::{ChecksumStream, NewChecksums};
use crate::inodes::map::{Run, Target};
use extant_base::narrow::fits_usize;
use extant_base::{BlockNr, Result};
use extant_pagecache::Content;
use std::io::IoSlice;

/// Blocks of the file that a step writes to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) logical: u32,
    pub(crate) len: u32,
    pub(crate) block: BlockNr,
    /// The blocks hold no data of the file yet.
    pub(crate) fresh: bool,
    /// The blocks are also only held: they will replace the blocks that the map has now, see
    /// `Volume::hold_run`.
    pub(crate) moved: bool,
}

impl Piece {
    /// The part of it before block `end` of the file.
    pub(crate) fn before(self, end: u32) -> Option<Piece> {
        let len = self.len.min(end.saturating_sub(self.logical));
        (len > 0).then_some(Piece { len, ..self })
    }

    /// The part of it from block `start` of the file on.
    pub(crate) fn from(self, start: u32) -> Option<Piece> {
        let skip = start.saturating_sub(self.logical).min(self.len);
        let block = BlockNr(self.block.0 + u64::from(skip));
        let (logical, len) = (self.logical + skip, self.len - skip);
        (len > 0).then_some(Piece { logical, len, block, ..self })
    }

    /// The blocks of a run that is written.
    pub(crate) fn of(run: &Run) -> Option<Piece> {
        match run.target {
            Target::Written(block) => Some(Piece {
                logical: run.logical.0,
                len: run.len,
                block,
                fresh: false,
                moved: false,
            }),
            _ => None,
        }
    }
}

impl DataIo<'_> {
    /// Writes `content` at byte `pos` into `pieces`, which cover it. `size` is the file's size
    /// before: the rest of the block around that end is written with zeros. With `checksums`,
    /// computes the checksums of the fresh blocks.
    pub(crate) fn write_pieces(
        self,
        path: DataPath<'_, '_>,
        pieces: &[Piece],
        size: u64,
        pos: u64,
        content: Content<'_>,
        mut checksums: Option<&mut NewChecksums>,
    ) -> Result<()> {
        let log2 = self.volume.block_size().log2();
        let end = pos + content.len() as u64;
        // Bytes that are written together: where they start, where they end, and the bytes.
        let mut start = (BlockNr(0), 0);
        let mut next = (u64::MAX, false);
        let mut parts: Vec<IoSlice<'_>> = Vec::new();
        for piece in pieces {
            let first = u64::from(piece.logical) << log2;
            let (from, to) = (pos.max(first), end.min(first + (u64::from(piece.len) << log2)));
            if from >= to {
                break;
            }
            let (lead, trail) = padding(piece.fresh, size, from, to, 1 << log2);
            let at = (piece.block.0 << log2) + (from - lead as u64 - first);
            // The former content of a block matters only to the journal.
            let fresh = piece.fresh && matches!(path, DataPath::Journal { .. });
            if (at, fresh) != next {
                self.write_data(path.to_fresh(next.1), start.0, start.1, &parts)?;
                parts.clear();
                start = (BlockNr(at >> log2), fits_usize(at & ((1 << log2) - 1)));
            }
            parts.extend((lead > 0).then(|| zeros(lead)));
            let part = content.part(fits_usize(from - pos), fits_usize(to - pos));
            parts.extend(part.slices().map(IoSlice::new));
            parts.extend((trail > 0).then(|| zeros(trail)));
            if piece.fresh
                && let Some(checksums) = &mut checksums
            {
                let mut blocks = ChecksumStream::new(BlockNr(at >> log2), 1 << log2);
                blocks.add(&zeros(lead), checksums);
                part.slices().for_each(|slice| blocks.add(slice, checksums));
                blocks.add(&zeros(trail), checksums);
            }
            next = (at + lead as u64 + (to - from) + trail as u64, fresh);
        }
        self.write_data(path.to_fresh(next.1), start.0, start.1, &parts)
    }
}

/// Zeros to write before and after bytes `from..to` of a piece: to the borders of its blocks if
/// they are fresh, and around the end of a file of `size` bytes.
fn padding(fresh: bool, size: u64, from: u64, to: u64, block: u64) -> (usize, usize) {
    let before = from % block;
    let after = to.next_multiple_of(block) - to;
    if fresh {
        return (fits_usize(before), fits_usize(after));
    }
    let gap = if size < from { (from - size).min(before) } else { 0 };
    let tail = if size < to { after } else { 0 };
    (fits_usize(gap), fits_usize(tail))
}
