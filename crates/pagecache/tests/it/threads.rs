//! Several threads in parallel: no reader sees a torn or a stale block.

use crate::common::{Driver, driver};
use extant_pagecache::{ReadStream, Use};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

const BLOCK: usize = 4096;
const BLOCKS: u64 = 512;

/// A block of `generation`: every word holds the block's number and its generation.
fn pattern(block: u64, generation: u64) -> Vec<u8> {
    let word = (block << 40 | generation).to_le_bytes();
    word.iter().copied().cycle().take(BLOCK).collect()
}

/// The generation that a block holds; panics when the block is torn or another block's.
fn generation(block: u64, bytes: &[u8]) -> u64 {
    let word = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert!(bytes.chunks(8).all(|chunk| chunk == word.to_le_bytes()), "block {block} is torn");
    assert_eq!(word >> 40, block, "another block's bytes");
    word & ((1 << 40) - 1)
}

fn race(limit: u64, time: Duration) -> Driver {
    let driver = driver(BLOCK, limit);
    let mut rng = StdRng::seed_from_u64(limit);
    let mut at = 0;
    while at < BLOCKS {
        let blocks = (1u64 << rng.random_range(0..7)).min(BLOCKS - at);
        let bytes: Vec<u8> = (at..at + blocks).flat_map(|block| pattern(block, 0)).collect();
        driver.write(at * BLOCK as u64, &bytes, Use::Keep);
        at += blocks;
    }
    // The last generation written and acknowledged, per block; each writer owns a residue class.
    let done: Vec<AtomicU64> = (0..BLOCKS).map(|_| AtomicU64::new(0)).collect();
    let stop = AtomicBool::new(false);
    let deadline = Instant::now() + time;
    std::thread::scope(|scope| {
        let (driver, done, stop) = (&driver, &done, &stop);
        for writer in 0..2u64 {
            scope.spawn(move || {
                let mut rng = StdRng::seed_from_u64(writer);
                let mut next = 1;
                while Instant::now() < deadline {
                    let block = rng.random_range(0..BLOCKS / 2) * 2 + writer;
                    let how = if rng.random_bool(0.3) { Use::DropBehind } else { Use::Keep };
                    let n = driver.write(block * BLOCK as u64, &pattern(block, next), how);
                    assert_eq!(n, BLOCK);
                    done[block as usize].store(next, SeqCst);
                    next += 1;
                }
                stop.store(true, SeqCst);
            });
        }
        for reader in 0..3u64 {
            scope.spawn(move || {
                let mut rng = StdRng::seed_from_u64(100 + reader);
                let stream = ReadStream::new();
                while !stop.load(SeqCst) {
                    let first = rng.random_range(0..BLOCKS);
                    let blocks = rng.random_range(1..20).min(BLOCKS - first);
                    let how = if rng.random_bool(0.3) { Use::DropBehind } else { Use::Keep };
                    let before: Vec<u64> = (first..first + blocks)
                        .map(|block| done[block as usize].load(SeqCst))
                        .collect();
                    let (at, len) = (first * BLOCK as u64, blocks as usize * BLOCK);
                    let read = driver.read_with(at, len, how, Some(&stream)).unwrap();
                    for (n, bytes) in read.chunks(BLOCK).enumerate() {
                        let seen = generation(first + n as u64, bytes);
                        assert!(seen >= before[n], "block {} went back", first + n as u64);
                    }
                }
            });
        }
        scope.spawn(move || {
            let mut rng = StdRng::seed_from_u64(7);
            while !stop.load(SeqCst) {
                let at = rng.random_range(0..BLOCKS) * BLOCK as u64;
                driver.write_back(at..at + (256 << 10), rng.random_range(1..128) << 12);
                if rng.random_bool(0.2) {
                    let _only = driver.write_back.lock().unwrap();
                    let _inode = driver.inode.write().unwrap();
                    driver.file.drop_clean(at..at + (1 << 20));
                }
            }
        });
    });
    for block in 0..BLOCKS {
        let read = driver.read(block * BLOCK as u64, BLOCK, Use::Keep);
        assert_eq!(generation(block, &read), done[block as usize].load(SeqCst));
    }
    driver
}

#[test]
fn no_reader_sees_torn_or_stale_blocks() {
    let soak = std::env::var("EXTANT_SOAK").ok().and_then(|n| n.parse().ok());
    let time = Duration::from_secs(soak.unwrap_or(1));
    race(64 << 20, time);
    // The cache creates and evicts folios all the time.
    let driver = race(1 << 20, time);
    assert!(driver.cache.stats().evicted > 0);
    driver.write_back(0..u64::MAX, 1 << 20);
    assert!(!driver.file.is_dirty());
    for block in 0..BLOCKS {
        driver.file.discard(block * BLOCK as u64..(block + 1) * BLOCK as u64);
    }
    assert!(!driver.file.has_folios());
}

#[test]
fn overwrites_of_several_folios_are_whole_for_each_other() {
    let driver = driver(BLOCK, 16 << 20);
    for block in 0..16u64 {
        driver.write(block * BLOCK as u64, &pattern(0, 0), Use::Keep);
    }
    let deadline = Instant::now() + Duration::from_millis(500);
    std::thread::scope(|scope| {
        for writer in 1..4u64 {
            let driver = &driver;
            scope.spawn(move || {
                let mut next = writer;
                while Instant::now() < deadline {
                    let bytes: Vec<u8> = (0..16).flat_map(|_| pattern(0, next)).collect();
                    // Another thread that holds a folio all the time may force the slow path.
                    driver.file.overwrite_hit(0, &mut &*bytes, Use::Keep, &|| true);
                    next += 3;
                }
            });
        }
    });
    let read = driver.read(0, 16 * BLOCK, Use::Keep);
    let first = generation(0, &read[..BLOCK]);
    assert!(read.chunks(BLOCK).all(|bytes| generation(0, bytes) == first), "mixed");
    assert!(first > 3);
}

#[test]
fn a_block_that_is_overwritten_meanwhile_is_not_forgotten_as_clean() {
    const LEN: u64 = 16 * BLOCK as u64;
    let driver = driver(BLOCK, 16 << 20);
    for _ in 0..300 {
        // From the last block down, so that each folio has one block.
        for block in (0..16).rev() {
            driver.write_slow(block * BLOCK as u64, &mut &[1; BLOCK][..], Use::Keep).unwrap();
        }
        driver.write_back(0..LEN, LEN);
        let (made, clean) = std::thread::scope(|scope| {
            let over = |block: u64| {
                let place = block * BLOCK as u64;
                driver.file.overwrite_hit(place, &mut &[2u8; 10][..], Use::Keep, &|| true) > 0
            };
            let writer = scope.spawn(move || (0..16u64).filter(|n| over(*n)).collect::<Vec<_>>());
            let _inode = driver.inode.write().unwrap();
            let clean = driver.file.forget_clean(0..LEN);
            (writer.join().unwrap(), clean)
        });
        for block in 0..16 {
            let start = block * BLOCK as u64;
            let is_clean = clean.iter().any(|range| range.contains(&start));
            assert_eq!(is_clean, !made.contains(&block), "{block} of {made:?}, {clean:?}");
        }
    }
}

#[test]
fn an_overwrite_that_waited_sees_the_file_shortened() {
    let driver = driver(BLOCK, 16 << 20);
    driver.write(0, &[1; BLOCK], Use::Keep);
    std::thread::scope(|scope| {
        let lent = driver.file.borrow(0, Use::Keep, &driver.store).unwrap();
        let file = &driver.file;
        let waits =
            scope.spawn(|| file.overwrite_hit(0, &mut &[2u8; BLOCK][..], Use::Keep, &|| true));
        std::thread::sleep(Duration::from_millis(50));
        driver.file.set_len(100);
        drop(lent);
        assert_eq!(waits.join().unwrap(), 0);
    });
    driver.file.set_len(BLOCK as u64);
    assert_eq!(driver.read(0, BLOCK, Use::Keep), [1; BLOCK]);
}
