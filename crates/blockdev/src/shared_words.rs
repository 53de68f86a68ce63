//! Copies from and to memory that others may change at the same time, in atomic 8-byte words.
//!
//! ```text
//!   words    ├── word 0 ──┼── word 1 ──┼── word 2 ──┼── word 3 ──┤     each access is a whole word
//!   bytes          ├──────┼────────────┼────────────┼───┤
//!                   part      whole        whole     part
//!   load          load, cut    load         load     load, cut
//!   store           CAS        store        store      CAS          the word's other bytes stay
//! ```
//!
//! Rust's memory model has no atomic accesses of two sizes to the same bytes: where they race, the
//! behaviour is undefined. So this module never accesses single bytes. It stores a part of a word
//! by compare-exchange, which does not lose a concurrent store to the other bytes of that word.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Bytes in a word.
pub(crate) const WORD: usize = size_of::<AtomicU64>();

/// Fills `to` with the bytes of `words` from byte `at` on. Each word is read once, as a whole.
///
/// # Panics
/// If `words` has fewer bytes.
pub(crate) fn load(words: &[AtomicU64], at: usize, to: &mut [u8]) {
    let words = &words[at / WORD..(at + to.len()).div_ceil(WORD)];
    let head = (at.next_multiple_of(WORD) - at).min(to.len());
    let (first, to) = to.split_at_mut(head);
    let (whole, last) = to.as_chunks_mut::<WORD>();
    let words = match first.is_empty() {
        true => words,
        false => {
            load_part(&words[0], at % WORD, first);
            &words[1..]
        }
    };
    for (word, to) in words.iter().zip(&mut *whole) {
        *to = word.load(Relaxed).to_ne_bytes();
    }
    if !last.is_empty() {
        load_part(&words[whole.len()], 0, last);
    }
}

/// Writes `from` at byte `at` of `words`. Each whole word is written once. In the first and the
/// last word, the bytes outside of `from` keep what other threads store to them meanwhile.
///
/// # Panics
/// If `words` has fewer bytes.
pub(crate) fn store(words: &[AtomicU64], at: usize, from: &[u8]) {
    let words = &words[at / WORD..(at + from.len()).div_ceil(WORD)];
    let head = (at.next_multiple_of(WORD) - at).min(from.len());
    let (first, from) = from.split_at(head);
    let (whole, last) = from.as_chunks::<WORD>();
    let words = match first.is_empty() {
        true => words,
        false => {
            store_part(&words[0], at % WORD, first);
            &words[1..]
        }
    };
    for (word, from) in words.iter().zip(whole) {
        word.store(u64::from_ne_bytes(*from), Relaxed);
    }
    if !last.is_empty() {
        store_part(&words[whole.len()], 0, last);
    }
}

/// The bytes of a word from byte `within` on.
fn load_part(word: &AtomicU64, within: usize, to: &mut [u8]) {
    to.copy_from_slice(&word.load(Relaxed).to_ne_bytes()[within..within + to.len()]);
}

/// Replaces the bytes of a word from byte `within` on.
fn store_part(word: &AtomicU64, within: usize, from: &[u8]) {
    let mut old = word.load(Relaxed);
    loop {
        let mut bytes = old.to_ne_bytes();
        bytes[within..within + from.len()].copy_from_slice(from);
        match word.compare_exchange_weak(old, u64::from_ne_bytes(bytes), Relaxed, Relaxed) {
            Ok(_) => return,
            Err(now) => old = now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zeros(n: usize) -> Vec<AtomicU64> {
        (0..n).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn every_range_is_copied_and_its_neighbours_stay() {
        let all: Vec<u8> = (1..=40).collect();
        // Every byte of a word as the first and as the last one; Miri, which is slow, takes some of
        // them.
        let step = if cfg!(miri) { 7 } else { 1 };
        for at in (0..=40).step_by(step) {
            for len in (0..=40 - at).step_by(step) {
                let words = zeros(5);
                store(&words, at, &all[at..at + len]);
                let mut whole = [0; 40];
                load(&words, 0, &mut whole);
                let want = |n: usize| if (at..at + len).contains(&n) { all[n] } else { 0 };
                assert!((0..40).all(|n| whole[n] == want(n)), "{len} bytes at {at}");
                store(&words, 0, &all);
                let mut part = vec![0; len];
                load(&words, at, &mut part);
                assert_eq!(part, all[at..at + len], "{len} bytes at {at}");
            }
        }
    }

    #[test]
    fn threads_that_store_parts_of_one_word_lose_none() {
        let rounds = if cfg!(miri) { 40 } else { 20_000 };
        let words = zeros(2);
        std::thread::scope(|scope| {
            for (at, len) in [(0, 3), (3, 8), (11, 5)] {
                let words = &words;
                scope.spawn(move || {
                    for n in 0..rounds {
                        let stored = vec![n as u8; len];
                        store(words, at, &stored);
                        let mut back = vec![0; len];
                        load(words, at, &mut back);
                        assert_eq!(back, stored);
                    }
                });
            }
        });
    }
}
