//! The flusher's threads beside writers of don't-cache bytes: no byte stays for ever, and the cap
//! holds.

use super::{BLOCK, cache, file, is_clean};
use crate::cache_driver::Driver;
use crate::explore::{Scene, Timers, explore, finds};
use crate::lock::{Condvar, Mutex, Rank};
use crate::model::thread;
use crate::pagecache::{Demand, FileCache, Owner, PageCache, Use};
use extant_base::Result;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a page: smaller writes may wait for more.
const PAGE: usize = 4 * BLOCK;

/// The engine: it writes back, and reports what was written.
struct Engine {
    files: Vec<Driver>,
    writes: Mutex<u64>,
    more: Condvar,
}

impl Engine {
    fn new(cache: &PageCache) -> Engine {
        let files = (12..14).map(|ino| file(cache, ino)).collect();
        Engine { files, writes: Mutex::new(Rank::Leaf, 0), more: Condvar::new() }
    }

    /// Sleeps until every don't-cache byte was written.
    fn wait(&self, cache: &PageCache) {
        let mut writes = self.writes.lock();
        while cache.stats().drop_behind_dirty > 0 {
            self.more.wait(&mut writes);
        }
    }
}

impl Owner for Engine {
    fn write_back(
        &self,
        file: &Arc<FileCache>,
        range: Range<u64>,
        demand: &dyn Demand,
    ) -> Result<u64> {
        let driver = self.files.iter().find(|driver| Arc::ptr_eq(&driver.file, file)).unwrap();
        let mut written = 0;
        while written < demand.wanted(written) {
            let n = {
                let _only = driver.write_back.lock().unwrap();
                let Some(run) = file.next_dirty(range.clone(), PAGE as u64) else { break };
                let taken = file.take_dirty(run)?;
                let mut at = taken.range().start;
                for slice in taken.slices() {
                    driver.store.put(at, &slice);
                    at += slice.len() as u64;
                }
                let n = at - taken.range().start;
                taken.done();
                n
            };
            written += n;
            *self.writes.lock() += 1;
            self.more.notify_all();
        }
        Ok(written)
    }

    fn read_ahead(&self, _: &Arc<FileCache>, _: Range<u64>, _: Use) {}
}

/// A don't-cache write of a page, as the engine makes one.
fn write(cache: &PageCache, driver: &Driver, page: u64, tell: bool) {
    let permit = cache.acquire_permit(PAGE as u64, Use::DropBehind).unwrap();
    let at = page * PAGE as u64;
    driver.write_slow(at, &mut &[page as u8 + 1; PAGE][..], Use::DropBehind).unwrap();
    drop(permit);
    if tell {
        cache.wrote(&driver.file, at, PAGE as u64, Use::DropBehind).unwrap();
    }
}

fn check(cache: &PageCache, engine: &Engine, cap: u64) {
    cache.stop();
    let stats = cache.stats();
    is_clean(&stats);
    assert_eq!(stats.drop_behind, 0, "folios stayed behind");
    assert!(stats.drop_behind_dirty_peak <= cap, "{} bytes", stats.drop_behind_dirty_peak);
    for driver in &engine.files {
        assert!(!driver.file.is_dirty());
    }
}

/// Writers notify the flusher, which already knows the files for other bytes, of each write. Then
/// all sleep until everything is written.
fn notified() {
    let cap = 1 << 20;
    let cache = cache(4 << 20, cap);
    let engine = Arc::new(Engine::new(&cache));
    for driver in &engine.files {
        driver.write(8 * PAGE as u64, &[9; PAGE], Use::Keep);
    }
    cache.start(engine.clone()).unwrap();
    thread::scope(|scope| {
        for driver in &engine.files {
            let cache = &cache;
            scope.spawn(move || {
                for page in 0..2 {
                    write(cache, driver, page, true);
                }
            });
        }
    });
    engine.wait(&cache);
    for driver in &engine.files {
        driver.write_back(0..u64::MAX, 1 << 20);
    }
    check(&cache, &engine, cap);
}

/// The cap allows two pages: writers wait for a permit, and only the flusher makes space.
fn gate() {
    let cap = 2 * PAGE as u64;
    let cache = cache(4 << 20, cap);
    let engine = Arc::new(Engine::new(&cache));
    cache.start(engine.clone()).unwrap();
    thread::scope(|scope| {
        for n in 0..3 {
            let (cache, driver) = (&cache, &engine.files[n % 2]);
            scope.spawn(move || {
                for page in 0..2 {
                    write(cache, driver, 2 * n as u64 + page, false);
                }
            });
        }
    });
    // All permits are free: the flusher has written everything.
    drop(cache.acquire_permit(cap, Use::DropBehind).unwrap());
    check(&cache, &engine, cap);
}

/// As a mount does it: a permit before a write, throttling after it, sleeps that end.
fn both() {
    let cap = 3 * PAGE as u64;
    let cache = cache(4 << 20, cap);
    let engine = Arc::new(Engine::new(&cache));
    cache.start(engine.clone()).unwrap();
    thread::scope(|scope| {
        for n in 0..3 {
            let (cache, driver) = (&cache, &engine.files[n % 2]);
            scope.spawn(move || {
                for page in 0..2 {
                    write(cache, driver, 2 * n as u64 + page, true);
                }
            });
        }
    });
    engine.wait(&cache);
    check(&cache, &engine, cap);
}

const NOTIFIED: Scene = Scene {
    name: "cache_scenes::flusher::what_writers_report_is_written",
    timers: Timers::Never,
    run: notified,
};
const GATE: Scene =
    Scene { name: "cache_scenes::flusher::writers_at_the_gate", timers: Timers::Never, run: gate };
const BOTH: Scene =
    Scene { name: "cache_scenes::flusher::gate_and_brakes", timers: Timers::Sometimes, run: both };

#[test]
fn what_writers_report_is_written() {
    explore(&NOTIFIED, 500);
}

#[test]
fn writers_at_the_gate() {
    explore(&GATE, 500);
}

#[test]
fn gate_and_brakes() {
    explore(&BOTH, 300);
}

#[test]
fn lost_wake_ups_are_found() {
    finds("a writer does not notify the flusher of its bytes", &NOTIFIED, 3000, "deadlock");
    finds("a waiter at the gate is not woken when space is free", &GATE, 500, "deadlock");
    finds("a waiter at the gate checks before it is counted", &GATE, 5000, "deadlock");
    finds("the gate looks at the room and takes it in two steps", &GATE, 3000, "bytes");
}
