//! What one opening of a directory gave, so that it can go back to a place.
//!
//! ```text
//!   given     a b c d e │ d x e  │ …     it went back to place 4, behind b: what is not a or b is given again,
//!   places    3 4 5 6 7 │ 9 10 11        under new places, since others may have come and gone
//! ```
//!
//! A listing has no order that outlasts changes, so a place is known by the names that came before it.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

/// The place before the first name: below it are "." and "..".
pub(super) const FIRST: u64 = 2;
/// Names that one opening gives again before it forgets places.
const BACK_MAX: u64 = 1 << 17;

/// All names that one opening gave, to know which came before a place: 8 bytes each.
#[derive(Default)]
pub(super) struct Given {
    hasher: RandomState,
    /// Hashes of names, in the order of their places.
    names: Vec<u64>,
    /// The place before that of the first of them.
    start: u64,
    /// Places before this one are forgotten.
    known_from: u64,
    /// Each time it went back: the place where that began, which nobody was told of, and the one that it went to.
    backs: Vec<(u64, u64)>,
    /// Hashes of errors that were told: once is enough until it goes back to the start.
    errors: HashSet<u64>,
}

impl Given {
    /// Nothing was given yet but "." and "..".
    pub(super) fn new() -> Given {
        Given { start: FIRST, known_from: FIRST, ..Given::default() }
    }

    pub(super) fn hash(&self, name: &[u8]) -> u64 {
        self.hasher.hash_one(name)
    }

    /// A name has its place from now on.
    pub(super) fn add(&mut self, name: &[u8]) {
        self.names.push(self.hash(name));
    }

    /// Whether this error was not told yet; from now on it was.
    pub(super) fn add_error(&mut self, error: &extant::Error) -> bool {
        self.errors.insert(self.hash(error.to_string().as_bytes()))
    }

    /// The last place.
    pub(super) fn end(&self) -> u64 {
        self.start + self.names.len() as u64
    }

    fn hashes(&self, places: Range<u64>) -> &[u64] {
        &self.names[(places.start - self.start) as usize..(places.end - self.start) as usize]
    }

    /// The names that were given before somebody was at `place`.
    fn before(&self, mut place: u64) -> HashSet<u64> {
        let mut names = HashSet::new();
        for (from, to) in self.backs.iter().rev() {
            if *from < place {
                names.extend(self.hashes(*from..place));
                place = *to;
            }
        }
        // Where it is forgotten nothing counts as given: rather twice than not at all.
        if place >= self.known_from {
            names.extend(self.hashes(self.start..place));
        }
        names
    }

    /// The listing begins anew behind `place`; the names that it gave before, by their hashes.
    pub(super) fn go_back(&mut self, place: u64) -> HashSet<u64> {
        let before = self.before(place);
        if place == FIRST {
            self.errors.clear();
        }
        // Nobody was told of the place where the names begin that come now: it is `place`, too.
        self.names.push(0);
        let begin = self.end();
        match self.backs.first() {
            Some((first, _)) if begin - first > BACK_MAX => {
                self.names = before.iter().copied().collect();
                (self.start, self.known_from) = (begin - self.names.len() as u64, begin);
                self.backs.clear();
            }
            _ => self.backs.push((begin, place)),
        }
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives names, each of one byte; their places.
    fn give(told: &mut Given, names: &[u8]) -> Vec<u64> {
        let place = |name| {
            told.names.push(name);
            told.end()
        };
        names.iter().map(|name| u64::from(*name)).map(place).collect()
    }

    fn before(told: &Given, place: u64) -> Vec<u8> {
        let mut names: Vec<u8> = told.before(place).into_iter().map(|hash| hash as u8).collect();
        names.sort();
        names
    }

    #[test]
    fn what_came_before_a_place_is_known_in_each_pass() {
        let mut told = Given::new();
        let first = give(&mut told, b"abcde");
        assert_eq!(first, [3, 4, 5, 6, 7]);
        assert_eq!(told.go_back(first[1]).len(), 2);
        let second = give(&mut told, b"dxe");
        assert_eq!(second, [9, 10, 11]);
        told.go_back(second[1]);
        let third = give(&mut told, b"ey");
        told.go_back(FIRST);
        let fourth = give(&mut told, b"yx");
        for (place, names) in [
            (FIRST, &b""[..]),
            (first[0], b"a"),
            (first[4], b"abcde"),
            (second[0], b"abd"),
            (second[1], b"abdx"),
            (second[2], b"abdex"),
            (third[0], b"abdex"),
            (third[1], b"abdexy"),
            (fourth[0], b"y"),
            (fourth[1], b"xy"),
        ] {
            assert_eq!(before(&told, place), names, "{place}");
        }
    }

    #[test]
    fn an_opening_that_goes_back_for_ever_forgets_old_places() {
        let mut told = Given::new();
        let first = give(&mut told, b"abc");
        let mut last = first[2];
        while told.known_from == FIRST {
            told.go_back(first[1]);
            last = give(&mut told, &[b'c'; 1 << 16])[0];
        }
        assert!(told.names.len() < 1 << 17, "{}", told.names.len());
        assert_eq!(before(&told, first[1]), b"");
        assert_eq!(before(&told, last), b"abc");
        told.go_back(last);
        let next = give(&mut told, b"d");
        assert_eq!(before(&told, next[0]), b"abcd");
    }
}
