//! The volume as it would be with some bytes from one member and some from another.

use super::roles::Role;
use extant_base::narrow::fits_usize;
use extant_base::{ByteOffset, Error, Result};
use extant_blockdev::BlockDevice;
use extant_raid::Mirror;
use std::ops::Range;
use std::sync::Arc;

/// Bytes in which members differ and which are judged together.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    /// The first byte and the byte after the last.
    pub(super) range: Range<u64>,
    /// The content of each member in use, as in
    /// [`Comparison::contents`](extant_raid::Comparison::contents).
    pub(super) contents: Arc<[Option<usize>]>,
    /// What the bytes contain.
    pub(super) role: Role,
}

impl Piece {
    /// A whole block of unknown content.
    pub(super) fn whole(range: Range<u64>, contents: &Arc<[Option<usize>]>) -> Piece {
        Piece { range, contents: Arc::clone(contents), role: Role::Other }
    }
}

/// A read-only device. Where members differ, it reads the chosen copy.
pub(super) struct CompositeDevice {
    mirror: Arc<Mirror>,
    /// In ascending order, each with the member to read.
    ranges: Vec<(Range<u64>, usize)>,
    /// The member that is read everywhere else. It is never out of date.
    rest: usize,
}

impl CompositeDevice {
    pub(super) fn new(mirror: Arc<Mirror>, pieces: &[Piece], choice: &[usize]) -> CompositeDevice {
        let ranges = pieces.iter().map(|piece| piece.range.clone());
        let ranges = ranges.zip(choice.iter().copied()).collect();
        let rest = mirror.source().unwrap_or(0);
        CompositeDevice { mirror, ranges, rest }
    }

    /// Reads everything from the member at `place`. Reading repairs nothing.
    pub(super) fn of_member(mirror: Arc<Mirror>, place: usize) -> CompositeDevice {
        CompositeDevice { mirror, ranges: Vec::new(), rest: place }
    }
}

impl BlockDevice for CompositeDevice {
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
            let (same, later) = rest.split_at_mut(fits_usize(range.start.saturating_sub(pos)));
            self.read_same(pos, same)?;
            pos += same.len() as u64;
            let (here, later) = later.split_at_mut(fits_usize(range.end.min(end) - pos));
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

impl CompositeDevice {
    /// Reads bytes that are equal on all members that are up to date.
    fn read_same(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        match buf.is_empty() {
            true => Ok(()),
            false => self.mirror.read_of(self.rest, at, buf),
        }
    }
}
