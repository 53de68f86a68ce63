//! The bytes of a write: pieces of memory that follow each other in the file.
//!
//! ```text
//!   pieces     [0123][45678][9]
//!   part 3..7     [3][456]            no byte is copied
//! ```

use crate::interface::Source;
use std::io::IoSlice;

/// Bytes to write, in one or more pieces of memory.
#[derive(Clone, Copy, Debug)]
pub struct Content<'a> {
    pieces: &'a [IoSlice<'a>],
    start: usize,
    len: usize,
}

impl<'a> Content<'a> {
    /// All bytes of `pieces`.
    pub fn new(pieces: &'a [IoSlice<'a>]) -> Content<'a> {
        let len = pieces.iter().fold(0usize, |sum, piece| sum.saturating_add(piece.len()));
        Content { pieces, start: 0, len }
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The part `from..to` of these bytes.
    pub fn part(&self, from: usize, to: usize) -> Content<'a> {
        debug_assert!(from <= to && to <= self.len, "a part lies inside");
        Content { start: self.start + from, len: to - from, ..*self }
    }

    /// The pieces in order, none of them empty.
    pub fn slices(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (mut skip, mut left) = (self.start, self.len);
        self.pieces.iter().filter_map(move |piece| {
            let piece: &'a [u8] = piece;
            let from = skip.min(piece.len());
            skip -= from;
            let to = from + left.min(piece.len() - from);
            left -= to - from;
            (from < to).then(|| &piece[from..to])
        })
    }

    /// Copies the bytes to `to`, which has the same length.
    pub fn copy_to(&self, to: &mut [u8]) {
        let mut done = 0;
        for slice in self.slices() {
            to[done..done + slice.len()].copy_from_slice(slice);
            done += slice.len();
        }
    }
}

impl Source for Content<'_> {
    fn len(&self) -> usize {
        self.len
    }

    fn copy_to(&mut self, to: &mut [u8]) -> usize {
        let n = to.len().min(self.len);
        self.part(0, n).copy_to(&mut to[..n]);
        *self = self.part(n, self.len);
        n
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cross_pieces() {
        let pieces = [&b"0123"[..], b"", b"45678", b"9"].map(IoSlice::new);
        let all = Content::new(&pieces);
        for from in 0..=10 {
            for to in from..=10 {
                let part = all.part(from, to).slices().collect::<Vec<_>>().concat();
                assert_eq!(part, b"0123456789"[from..to]);
                let mut copy = vec![0; to - from];
                all.part(from, to).copy_to(&mut copy);
                assert_eq!(copy, part);
            }
        }
        let mut source = all;
        let mut copy = [0; 4];
        assert_eq!(Source::copy_to(&mut source, &mut copy), 4);
        assert_eq!((&copy, Source::len(&source)), (b"0123", 6));
        assert_eq!(all.part(2, 9).part(1, 4).slices().collect::<Vec<_>>().concat(), b"345");
    }
}
