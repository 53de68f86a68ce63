//! States of folios: dirty ► in flight ► clean ► evicted; dirty again in flight; truncated; reused.
//!
//! ```text
//!   writer      writes a block's next generation ► it is acknowledged
//!   reader      sees each block whole, and none older than acknowledged before
//!   checker     the file is not dirty ► the store has what was acknowledged before
//!   at the end  written back, dropped, read again: the last generation; the account is at zero
//! ```

use super::{BLOCK, cache, file, generation, is_clean, pattern};
use crate::cache_driver::Driver;
use crate::explore::{Scene, Timers, explore, finds};
use crate::model::{below, point, thread};
use crate::pagecache::{Fill, Use};
use extant_base::Ino;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

const BLOCKS: u64 = 24;

fn any_use() -> Use {
    if below(2) == 0 { Use::DropBehind } else { Use::Keep }
}

/// A block as it is on the device.
fn stored(driver: &Driver, block: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK];
    driver.store.fill(block * BLOCK as u64, &mut bytes, &mut |_| ()).unwrap();
    bytes
}

/// Writes the first dirty bytes back; the device takes time for that.
fn write_back(driver: &Driver) {
    let _only = driver.write_back.lock().unwrap();
    let Some(run) = driver.file.next_dirty(0..u64::MAX, 3 * BLOCK as u64) else { return };
    let taken = driver.file.take_dirty(run).unwrap();
    for _ in 0..8 {
        point();
    }
    let mut at = taken.range().start;
    for slice in taken.slices() {
        driver.store.put(at, &slice);
        at += slice.len() as u64;
    }
    taken.release_buffers().done();
}

fn states() {
    // Six folios, of which three fit.
    let cache = cache(12 << 10, 1 << 20);
    let driver = file(&cache, 12);
    let first: Vec<u8> = (0..BLOCKS).flat_map(|block| pattern(block, 0)).collect();
    driver.write(0, &first, Use::Keep);
    driver.write_back(0..u64::MAX, 1 << 20);
    assert!(driver.file.drop_clean(0..u64::MAX));
    let done: Vec<AtomicU64> = (0..BLOCKS).map(|_| AtomicU64::new(0)).collect();
    thread::scope(|scope| {
        let (driver, done) = (&driver, &done);
        for writer in 0..2 {
            scope.spawn(move || {
                for next in 1..4 {
                    // Two folios are in demand.
                    let block = below(4) * 2 + writer;
                    driver.write(block * BLOCK as u64, &pattern(block, next), any_use());
                    done[block as usize].store(next, SeqCst);
                }
            });
        }
        scope.spawn(move || {
            for _ in 0..3 {
                // Alternately the folios in demand, and those that evict them.
                let first = if below(2) == 0 { below(8) } else { below(BLOCKS - 12) };
                let blocks = 1 + below(12);
                let seen = |block: u64| done[block as usize].load(SeqCst);
                let before: Vec<u64> = (first..first + blocks).map(seen).collect();
                let at = first * BLOCK as u64;
                let read = driver.read(at, blocks as usize * BLOCK, any_use());
                for (n, bytes) in read.chunks(BLOCK).enumerate() {
                    let block = first + n as u64;
                    assert!(generation(block, bytes) >= before[n], "block {block} went back");
                }
            }
        });
        scope.spawn(move || {
            for _ in 0..3 {
                write_back(driver);
            }
        });
        scope.spawn(move || {
            for _ in 0..3 {
                let seen = |block: u64| done[block as usize].load(SeqCst);
                let before: Vec<u64> = (0..8).map(seen).collect();
                point();
                if !driver.file.is_dirty() {
                    for (block, before) in (0..).zip(before) {
                        let stored = generation(block, &stored(driver, block));
                        assert!(stored >= before, "block {block} is not dirty and not written");
                    }
                }
            }
        });
    });
    driver.write_back(0..u64::MAX, 1 << 20);
    assert!(!driver.file.is_dirty(), "something counts as dirty");
    is_clean(&cache.stats());
    assert!(driver.file.drop_clean(0..u64::MAX));
    assert_eq!((cache.stats().cached, cache.stats().drop_behind), (0, 0), "folios are left");
    for block in 0..BLOCKS {
        let read = driver.read(block * BLOCK as u64, BLOCK, Use::Keep);
        let (read, done) = (generation(block, &read), done[block as usize].load(SeqCst));
        assert_eq!(read, done, "block {block} lost a write");
    }
}

/// Readers evict what they can while the bytes of a folio are in flight.
fn reclaim() {
    let cache = cache(8 << 10, 1 << 20);
    let driver = file(&cache, 12);
    let first: Vec<u8> = (0..BLOCKS).flat_map(|block| pattern(block, 0)).collect();
    driver.write(0, &first, Use::Keep);
    driver.write_back(0..u64::MAX, 1 << 20);
    assert!(driver.file.drop_clean(0..u64::MAX));
    driver.write(BLOCK as u64, &pattern(1, 1), Use::Keep);
    thread::scope(|scope| {
        scope.spawn(|| write_back(&driver));
        scope.spawn(|| {
            for block in [8, 12, 16, 20, 1, 4, 1] {
                let read = driver.read(block * BLOCK as u64, BLOCK, Use::Keep);
                assert_eq!(generation(block, &read), u64::from(block == 1), "an old block");
            }
        });
    });
    assert!(cache.stats().evicted > 0);
    is_clean(&cache.stats());
}

/// A file is truncated in the middle of a block that other threads overwrite, write back and read
/// meanwhile.
fn truncation() {
    const CUT: u64 = 5 * BLOCK as u64 + 300;
    let cache = cache(16 << 10, 1 << 20);
    let driver = file(&cache, 12);
    driver.write(0, &[7; 12 * BLOCK], Use::Keep);
    thread::scope(|scope| {
        let driver = &driver;
        scope.spawn(|| {
            let _only = driver.write_back.lock().unwrap();
            let _inode = driver.inode.write().unwrap();
            // In this order: an overwrite sees the new length, or its bytes are truncated.
            driver.file.set_len(CUT);
            driver.file.truncate(CUT);
            driver.store.free(CUT..12 * BLOCK as u64);
            driver.store.set_len(CUT);
        });
        scope.spawn(|| {
            for at in [CUT - 100, CUT + 50, 9 * BLOCK as u64] {
                driver.file.overwrite_hit(at, &mut &[8; 200][..], Use::Keep, &|| true);
            }
        });
        scope.spawn(|| driver.write_back(0..u64::MAX, 3 * BLOCK as u64));
        scope.spawn(|| {
            for _ in 0..2 {
                let read = driver.read(4 * BLOCK as u64, 6 * BLOCK, any_use());
                assert!(read.iter().all(|byte| [7, 8, 0].contains(byte)));
            }
        });
    });
    assert_eq!(driver.file.len(), CUT);
    // It grows again: what was truncated is zeros.
    driver.write(11 * BLOCK as u64, &[9; BLOCK], Use::Keep);
    let read = driver.read(CUT, 11 * BLOCK - CUT as usize, Use::Keep);
    assert!(read.iter().all(|byte| *byte == 0), "bytes that were cut off are back");
    driver.write_back(0..u64::MAX, 1 << 20);
    assert!(!driver.file.is_dirty());
    is_clean(&cache.stats());
}

/// An inode is dropped while its bytes are in flight, and another file's folio takes the slot.
fn reuse() {
    let cache = cache(64 << 10, 1 << 20);
    let (gone, comes) = (file(&cache, 12), file(&cache, 13));
    gone.write(0, &[1; 4 * BLOCK], Use::Keep);
    thread::scope(|scope| {
        scope.spawn(|| {
            if let Ok(taken) = gone.file.take_dirty(0..u64::MAX) {
                let landing = taken.release_buffers();
                point();
                landing.done();
            }
        });
        scope.spawn(|| {
            cache.forget(Ino::new(12).unwrap());
            comes.write(0, &[2; 4 * BLOCK], any_use());
            comes.write_back(0..u64::MAX, 2 * BLOCK as u64);
        });
    });
    assert!(!comes.file.is_dirty() && !gone.file.is_dirty(), "something counts as dirty");
    is_clean(&cache.stats());
    assert_eq!(comes.read(0, 4 * BLOCK, Use::Keep), [2; 4 * BLOCK]);
}

const STATES: Scene =
    Scene { name: "cache_scenes::folios::states_of_folios", timers: Timers::Never, run: states };
const RECLAIM: Scene = Scene {
    name: "cache_scenes::folios::reclaim_beside_write_back",
    timers: Timers::Never,
    run: reclaim,
};
const TRUNCATION: Scene = Scene {
    name: "cache_scenes::folios::a_file_that_is_cut",
    timers: Timers::Never,
    run: truncation,
};
const REUSE: Scene = Scene {
    name: "cache_scenes::folios::a_slot_that_is_reused",
    timers: Timers::Never,
    run: reuse,
};

#[test]
fn states_of_folios() {
    explore(&STATES, 1200);
}

#[test]
fn reclaim_beside_write_back() {
    explore(&RECLAIM, 1000);
    finds("a folio on its way is evicted", &RECLAIM, 3000, "");
}

#[test]
fn a_file_that_is_cut() {
    explore(&TRUNCATION, 1000);
}

#[test]
fn a_slot_that_is_reused() {
    explore(&REUSE, 800);
}

#[test]
fn wrong_states_are_found() {
    finds("what is changed on its way lands clean", &STATES, 2000, "");
    finds("bytes are neither dirty nor on their way for a moment", &STATES, 5000, "not dirty");
    finds("a folio that loses its mark leaves its bytes in the account", &STATES, 2000, "");
    finds("an overwrite does not look at the length under the folio's lock", &TRUNCATION, 3000, "");
    finds("blocks land in whatever folio is in the slot now", &REUSE, 3000, "");
}
