//! The volume as it would be with some of its bytes from one member and some from another.

use super::roles::Role;
use extant_base::{ByteOffset, Error, Result};
use extant_blockdev::BlockDevice;
use extant_raid::Mirror;
use std::ops::Range;
use std::sync::Arc;

/// Bytes in which members differ, and which are judged together.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    /// First byte and the one past the last.
    pub(super) range: Range<u64>,
    /// For each member in use, as [`Comparison::contents`](extant_raid::Comparison::contents).
    pub(super) contents: Arc<[Option<usize>]>,
    /// What the bytes are.
    pub(super) role: Role,
}

impl Piece {
    /// A whole block, of which nothing is known.
    pub(super) fn whole(range: Range<u64>, contents: &Arc<[Option<usize>]>) -> Piece {
        Piece { range, contents: Arc::clone(contents), role: Role::Other }
    }
}

/// A device to read: where members differ, the copy that was chosen.
pub(super) struct Patchwork {
    mirror: Arc<Mirror>,
    /// Ascending, with the place that is read there.
    ranges: Vec<(Range<u64>, usize)>,
    /// The place that is read elsewhere: it is behind nowhere.
    rest: usize,
}

impl Patchwork {
    pub(super) fn new(mirror: Arc<Mirror>, pieces: &[Piece], choice: &[usize]) -> Patchwork {
        let ranges = pieces.iter().map(|piece| piece.range.clone());
        let ranges = ranges.zip(choice.iter().copied()).collect();
        let rest = mirror.source().unwrap_or(0);
        Patchwork { mirror, ranges, rest }
    }

    /// All from the member in `place`; nothing is mended by being read.
    pub(super) fn of_member(mirror: Arc<Mirror>, place: usize) -> Patchwork {
        Patchwork { mirror, ranges: Vec::new(), rest: place }
    }
}

impl BlockDevice for Patchwork {
    fn len(&self) -> u64 {
        self.mirror.len()
    }

    fn read_at(&self, at: ByteOffset, buf: &mut [u8]) -> Result<()> {
        let end = at.0 + buf.len() as u64;
        let first = self.ranges.partition_point(|(range, _)| range.end <= at.0);
        let (mut pos, mut rest) = (at.0, buf);
        for (range, place) in &self.ranges[first..] {
            if range.start >= end {
                break;
            }
            let (same, later) = rest.split_at_mut(range.start.saturating_sub(pos) as usize);
            self.read_same(pos, same)?;
            pos += same.len() as u64;
            let (here, later) = later.split_at_mut((range.end.min(end) - pos) as usize);
            self.mirror.read_of(*place, pos, here)?;
            pos += here.len() as u64;
            rest = later;
        }
        self.read_same(pos, rest)
    }

    fn write_at(&self, _: ByteOffset, _: &[u8]) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn flush(&self) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn is_read_only(&self) -> bool {
        true
    }
}

impl Patchwork {
    /// Reads where all members that are in line hold the same.
    fn read_same(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        match buf.is_empty() {
            true => Ok(()),
            false => self.mirror.read_of(self.rest, at, buf),
        }
    }
}
