//! The cost of write preparation depends on the write: blocks are counted, not timed.

use crate::common::{Faulty, driver};
use extant_base::Ino;
use extant_pagecache::{Content, Use, visits};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Blocks visited by one overwrite of `size` bytes at `at` in a file of folios of `folio` bytes.
fn visited(folio: u64, at: u64, size: usize, slow: bool) -> u64 {
    let driver = driver(4096, 64 << 20);
    driver.write(0, &vec![1; folio as usize], Use::Keep);
    driver.write_back(0..folio, folio);
    assert_eq!(driver.cache.stats().misses, 1, "one folio of {folio} bytes");
    let bytes = vec![2; size];
    visits::take();
    let n = match slow {
        false => driver.file.overwrite_hit(at, &mut &*bytes, Use::Keep, &|| true),
        true => driver.file.write(at, &mut &*bytes, Use::Keep, &driver.store).unwrap(),
    };
    let visited = visits::take().expect("debug builds count");
    assert_eq!(n, size);
    visited
}

#[test]
fn an_overwrite_visits_its_own_blocks_for_any_folio_size() {
    for slow in [false, true] {
        for size in [1 << 10, 10 << 10] {
            let folios = [4 << 10, 64 << 10, 1 << 20, 2 << 20];
            let folios = folios.into_iter().filter(|folio| *folio >= size as u64);
            let mut counts = Vec::new();
            for folio in folios {
                let middle = (folio / 2) & !4095;
                let last = folio - (size as u64).next_multiple_of(4096);
                for at in [0, middle.min(last), last] {
                    counts.push(visited(folio, at, size, slow));
                }
            }
            // One visit checks that the blocks are dirty, one makes them dirty.
            let blocks = size.div_ceil(4096) as u64;
            assert!(counts.iter().all(|count| *count == 2 * blocks), "{size}: {counts:?}");
        }
    }
}

#[test]
fn ten_kib_over_small_folios_visit_as_many_blocks_as_in_a_large_one() {
    let driver = driver(4096, 64 << 20);
    for at in 0..8 {
        driver.write(at * 4096, &[1; 4096], Use::Keep);
    }
    driver.write_back(0..u64::MAX, 1 << 20);
    visits::take();
    let n = driver.file.overwrite_hit(0, &mut &[2u8; 10240][..], Use::Keep, &|| true);
    assert_eq!((n, visits::take()), (10240, Some(6)));
}

#[test]
fn a_partial_block_is_read_and_no_other() {
    let driver = driver(4096, 64 << 20);
    let old: Vec<u8> = (0..1 << 20).map(|n| (n / 4096) as u8 ^ n as u8).collect();
    driver.write(0, &old, Use::Keep);
    driver.write_back(0..u64::MAX, 1 << 20);
    driver.file.discard(0..u64::MAX);
    driver.store.log.lock().unwrap().clear();
    driver.write(100_000, &[7; 50_000], Use::Keep);
    let log = driver.store.log.lock().unwrap().clone();
    assert_eq!(log, [98304..102_400, 147_456..151_552], "both edges, and nothing between");
    let mut new = old;
    new[100_000..150_000].fill(7);
    assert!(driver.read(0, 1 << 20, Use::Keep) == new);
}

#[test]
fn a_short_copy_shows_nothing_stale() {
    let driver = driver(4096, 64 << 20);
    driver.write(0, &[5; 65536], Use::Keep);
    driver.write_back(0..u64::MAX, 1 << 20);
    driver.file.discard(0..u64::MAX);
    // The copy stops inside the third block, which the write would have covered.
    let bytes = [9; 16384];
    let n = driver.write_slow(0, &mut Faulty { bytes: &bytes, good: 9000 }, Use::Keep).unwrap();
    assert_eq!(n, 8192);
    let read = driver.read(0, 65536, Use::Keep);
    assert!(read[..8192].iter().all(|byte| *byte == 9));
    assert!(read[8192..].iter().all(|byte| *byte == 5));
    // Up to date blocks keep what was copied.
    let n = driver.write_slow(0, &mut Faulty { bytes: &bytes, good: 9000 }, Use::Keep).unwrap();
    assert_eq!(n, 9000);
}

#[test]
fn a_copy_of_nothing_leaves_nothing() {
    let driver = driver(4096, 64 << 20);
    let n = driver.write_slow(0, &mut Faulty { bytes: &[1; 4096], good: 0 }, Use::Keep).unwrap();
    assert_eq!(n, 0);
    assert!(!driver.file.has_folios() && !driver.file.is_dirty());
}

#[test]
fn an_edge_that_cannot_be_read_fails_the_write_and_shows_nothing() {
    let driver = driver(4096, 64 << 20);
    driver.write(0, &[5; 65536], Use::Keep);
    driver.write_back(0..u64::MAX, 1 << 20);
    driver.file.discard(0..u64::MAX);
    driver.store.fill_fails.store(true, SeqCst);
    assert!(driver.write_slow(100, &mut &[9u8; 20000][..], Use::Keep).is_err());
    assert!(!driver.file.has_folios() && !driver.file.is_dirty());
    driver.store.fill_fails.store(false, SeqCst);
    assert!(driver.read(0, 65536, Use::Keep).iter().all(|byte| *byte == 5));
}

#[test]
fn after_a_failed_write_clean_blocks_need_space_again_and_dirty_ones_do_not() {
    let driver = driver(4096, 64 << 20);
    driver.write(0, &[5; 65536], Use::Keep);
    driver.write_back(0..u64::MAX, 1 << 20);
    let over = |at: u64| driver.file.overwrite_hit(at, &mut &[6u8; 100][..], Use::Keep, &|| true);
    // One block is dirty, another under write-back.
    assert_eq!((over(8192), over(20480)), (100, 100));
    let taken = driver.file.take_dirty(20480..24576).unwrap();
    let clean = driver.file.forget_clean(5000..40_000);
    assert_eq!(clean, [4096..8192, 12288..20480, 24576..40960]);
    taken.done();
    let backed: Vec<u64> = (0..16).filter(|block| over(block * 4096) > 0).collect();
    assert_eq!(backed, [0, 2, 5, 10, 11, 12, 13, 14, 15]);
    // Without a folio no block is dirty.
    let clean = driver.file.forget_clean(1 << 20..2 << 20);
    assert!(matches!(&clean[..], [one] if *one == (1 << 20..2 << 20)), "{clean:?}");
    assert_eq!(driver.read(4096, 100, Use::Keep), [5; 100], "the old bytes are still there");
    driver.write_slow(4096, &mut &[7u8; 100][..], Use::Keep).unwrap();
    assert_eq!(over(4096), 100, "a write on the slow path has space for it");
}

#[test]
fn a_fresh_block_is_zero_around_the_write() {
    for block in [1024, 4096, 65536] {
        let driver = driver(block, 64 << 20);
        driver.write(300, b"x", Use::Keep);
        driver.write(3 * block as u64 + 5, b"y", Use::Keep);
        let read = driver.read(0, 4 * block, Use::Keep);
        let set: Vec<usize> = (0..read.len()).filter(|n| read[*n] != 0).collect();
        assert_eq!(set, [300, 3 * block + 5]);
    }
}

#[test]
fn an_overwrite_checks_every_condition_before_it_changes_a_byte() {
    let driver = driver(4096, 64 << 20);
    driver.write(0, &[1; 4096], Use::Keep);
    driver.write(4096, &[1; 4096], Use::Keep);
    let file = &driver.file;
    let over = |at: u64, len: usize, may: bool| {
        file.overwrite_hit(at, &mut &vec![2; len][..], Use::Keep, &|| may)
    };
    assert_eq!(over(0, 100, false), 0, "`may` is false");
    assert_eq!(over(8000, 200, true), 0, "past the end");
    assert_eq!(over(u64::MAX, 2, true), 0, "past every end");
    file.set_hits(false);
    assert_eq!(over(0, 8192, true), 0, "hidden");
    file.set_hits(true);
    assert!(driver.read(0, 8192, Use::Keep).iter().all(|byte| *byte == 1));
    assert_eq!(over(100, 8000, true), 8000, "two folios");
    file.discard(4096..8192);
    assert_eq!(over(100, 8000, true), 0, "all or nothing");
    let mut faulty = Faulty { bytes: &[3; 50], good: 20 };
    assert_eq!(file.overwrite_hit(0, &mut faulty, Use::Keep, &|| true), 20);
}

#[test]
fn an_overwrite_that_is_disabled_changes_nothing() {
    let driver = driver(4096, 64 << 20);
    driver.write(0, &[1; 4096], Use::Keep);
    let pieces = [&[2u8; 40][..], &[3u8; 60][..]].map(std::io::IoSlice::new);
    let over = |until: u64| {
        let (content, until) = (Content::new(&pieces), AtomicU64::new(until));
        driver.cache.overwrite(&driver.file, 100, content, Use::Keep, &until).unwrap()
    };
    assert!(!over(0));
    assert!(driver.read(0, 4096, Use::Keep).iter().all(|byte| *byte == 1));
    assert!(over(1));
    assert_eq!(driver.read(99, 102, Use::Keep), [&[1][..], &[2; 40], &[3; 60], &[1]].concat());
}

#[test]
fn bytes_past_the_old_end_are_zero_when_the_file_grows() {
    let driver = driver(4096, 64 << 20);
    driver.write(0, &[0xEE; 8192], Use::Keep);
    driver.truncate(0);
    driver.write(0, &[1; 5000], Use::Keep);
    driver.write_back(0..u64::MAX, 1 << 20);
    driver.file.discard(0..u64::MAX);
    // A frame that was used before, and a write up to the end: nothing is read.
    driver.cache.forget(Ino::new(13).unwrap());
    let other = driver.cache.file(Ino::new(13).unwrap());
    other.write(0, &mut &[0xEE; 8192][..], Use::Keep, &driver.store).unwrap();
    other.discard(0..u64::MAX);
    driver.store.log.lock().unwrap().clear();
    driver.write(0, &[2; 5000], Use::Keep);
    assert_eq!(driver.store.log.lock().unwrap().len(), 0);
    driver.truncate(8192);
    let read = driver.read(0, 8192, Use::Keep);
    assert!(read[..5000].iter().all(|byte| *byte == 2) && read[5000..].iter().all(|b| *b == 0));
}
