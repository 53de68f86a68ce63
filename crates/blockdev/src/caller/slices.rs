//! Plain memory of this program: slices, one after the other. It never faults.

use super::{Access, CallerMemory, Faults, Span, stream};
use std::any::Any;
use std::io::{IoSlice, IoSliceMut};
use std::marker::PhantomData;
use std::sync::Arc;

/// A position in a sequence of pieces.
#[derive(Clone, Debug, Default)]
struct Cursor {
    /// Bytes passed in all pieces together.
    at: usize,
    /// The current piece, and the byte in it.
    piece: usize,
    within: usize,
}

impl Cursor {
    /// The next bytes of one piece, at most `most`: the piece's index, the first byte in it, the
    /// length. `None` at the end.
    fn next(
        &mut self,
        most: usize,
        len_of: impl Fn(usize) -> Option<usize>,
    ) -> Option<(usize, usize, usize)> {
        while self.within == len_of(self.piece)? {
            (self.piece, self.within) = (self.piece + 1, 0);
        }
        let n = most.min(len_of(self.piece)? - self.within);
        let found = (self.piece, self.within, n);
        self.within += n;
        self.at += n;
        Some(found)
    }

    fn back(&mut self, mut len: usize, len_of: impl Fn(usize) -> usize) {
        assert!(len <= self.at, "gives back more than was taken");
        self.at -= len;
        while len > self.within {
            len -= self.within;
            self.piece -= 1;
            self.within = len_of(self.piece);
        }
        self.within -= len;
    }
}

/// Bytes to write. They do not change while they are borrowed.
#[derive(Clone, Debug)]
pub struct Source<'m> {
    one: [&'m [u8]; 1],
    pieces: Option<&'m [IoSlice<'m>]>,
    len: usize,
    cursor: Cursor,
}

impl<'m> Source<'m> {
    /// The bytes of a slice.
    pub fn new(bytes: &'m [u8]) -> Source<'m> {
        Source { one: [bytes], pieces: None, len: bytes.len(), cursor: Cursor::default() }
    }

    /// The bytes of several slices.
    pub fn vectored(pieces: &'m [IoSlice<'m>]) -> Source<'m> {
        let len = pieces.iter().fold(0usize, |sum, piece| sum.saturating_add(piece.len()));
        Source { one: [&[]], pieces: Some(pieces), len, cursor: Cursor::default() }
    }

    fn piece(&self, n: usize) -> Option<&'m [u8]> {
        match self.pieces {
            Some(pieces) => pieces.get(n).map(|piece| {
                let bytes: &'m [u8] = piece;
                bytes
            }),
            None => self.one.get(n).copied(),
        }
    }

    fn next(&mut self, most: usize) -> Option<&'m [u8]> {
        let mut cursor = self.cursor.clone();
        let (piece, from, n) = cursor.next(most, |n| self.piece(n).map(<[u8]>::len))?;
        self.cursor = cursor;
        Some(&self.piece(piece)?[from..from + n])
    }
}

impl<'m> CallerMemory<'m> for Source<'m> {
    fn left(&self) -> usize {
        self.len - self.cursor.at
    }

    fn copy_out(&mut self, to: &mut [u8], _: Faults) -> usize {
        let mut done = 0;
        while done < to.len()
            && let Some(from) = self.next(to.len() - done)
        {
            stream::copy(&mut to[done..done + from.len()], from);
            done += from.len();
        }
        done
    }

    /// Copies nothing: a source is only read.
    fn copy_in(&mut self, _: &[u8], _: Faults) -> usize {
        0
    }

    fn is_present(&self) -> bool {
        true
    }

    fn revert(&mut self, len: usize) {
        let mut cursor = std::mem::take(&mut self.cursor);
        cursor.back(len, |n| self.piece(n).map_or(0, <[u8]>::len));
        self.cursor = cursor;
    }

    fn lend(&mut self, most: usize, access: Access) -> Option<Span<'m>> {
        match access {
            Access::Read => self.next(most).map(Span::of),
            Access::Write => None,
        }
    }
}

/// Memory to read into, borrowed exclusively.
#[derive(Debug)]
pub struct Target<'m> {
    pieces: Vec<(*mut u8, usize)>,
    len: usize,
    cursor: Cursor,
    /// Each lent span holds one clone.
    loans: Arc<()>,
    _memory: PhantomData<&'m mut [u8]>,
}

#[allow(unsafe_code)]
mod raw {
    use super::{Access, Any, Arc, Span, Target};

    // SAFETY: the pieces are exclusive borrows, which may move to another thread.
    unsafe impl Send for Target<'_> {}

    impl<'m> Target<'m> {
        /// `n` bytes of a piece from `from` on, which are borrowed for `'m` and lent only once:
        /// `revert` panics while a span is lent, so no other span or copy touches them.
        pub(super) fn part(&mut self, (piece, from, n): (usize, usize, usize)) -> Span<'m> {
            let (start, len) = self.pieces[piece];
            assert!(from + n <= len, "a part of the piece");
            let keep: Arc<dyn Any + Send + Sync> = self.loans.clone();
            // SAFETY: the piece is borrowed exclusively for `'m`, the part lies in it, and the
            // cursor has passed it.
            unsafe { Span::exclusive(start.add(from), n, Access::Write, Some(keep)) }
        }
    }
}

impl<'m> Target<'m> {
    /// All bytes of a slice.
    pub fn new(bytes: &'m mut [u8]) -> Target<'m> {
        Target::of_pieces(vec![(bytes.as_mut_ptr(), bytes.len())])
    }

    /// All bytes of several slices.
    pub fn vectored(pieces: &'m mut [IoSliceMut<'_>]) -> Target<'m> {
        Target::of_pieces(
            pieces.iter_mut().map(|piece| (piece.as_mut_ptr(), piece.len())).collect(),
        )
    }

    fn of_pieces(pieces: Vec<(*mut u8, usize)>) -> Target<'m> {
        let len = pieces.iter().fold(0usize, |sum, (_, len)| sum.saturating_add(*len));
        Target { pieces, len, cursor: Cursor::default(), loans: Arc::new(()), _memory: PhantomData }
    }

    fn next(&mut self, most: usize) -> Option<Span<'m>> {
        let pieces = &self.pieces;
        let part = self.cursor.next(most, |n| pieces.get(n).map(|(_, len)| *len))?;
        Some(self.part(part))
    }
}

impl<'m> CallerMemory<'m> for Target<'m> {
    fn left(&self) -> usize {
        self.len - self.cursor.at
    }

    fn copy_out(&mut self, to: &mut [u8], _: Faults) -> usize {
        let mut done = 0;
        while done < to.len()
            && let Some(span) = self.next(to.len() - done)
        {
            span.load(&mut to[done..done + span.len()]);
            done += span.len();
        }
        done
    }

    fn copy_in(&mut self, from: &[u8], _: Faults) -> usize {
        let mut done = 0;
        while done < from.len()
            && let Some(mut span) = self.next(from.len() - done)
        {
            let n = span.len();
            let to = span.exclusive_bytes_mut().expect("a target's spans are exclusive");
            to.copy_from_slice(&from[done..done + n]);
            done += n;
        }
        done
    }

    fn is_present(&self) -> bool {
        true
    }

    fn revert(&mut self, len: usize) {
        assert_eq!(Arc::strong_count(&self.loans), 1, "gives back what is lent");
        let pieces = &self.pieces;
        self.cursor.back(len, |n| pieces[n].1);
    }

    fn lend(&mut self, most: usize, _: Access) -> Option<Span<'m>> {
        self.next(most)
    }
}
