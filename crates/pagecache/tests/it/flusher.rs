//! The cache with its flusher, over files on a device of known speed.

use crate::common::{Driver, Store, config, failed};
use extant_base::{Ino, IoOp, Result};
use extant_pagecache::{CacheConfig, Demand, DontCachePolicy, FileCache, Owner, PageCache, Use};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use std::ops::Range;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

const BLOCK: usize = 4096;
const MIB: u64 = 1 << 20;

/// The files, by inode number from 12 on.
struct Engine {
    files: Vec<Driver>,
    bytes_per_second: f64,
    fails: AtomicBool,
}

impl Owner for Engine {
    fn write_back(
        &self,
        file: &Arc<FileCache>,
        range: Range<u64>,
        demand: &dyn Demand,
    ) -> Result<u64> {
        let limit = demand.wanted(0);
        let driver = &self.files[file.ino().get() as usize - 12];
        let _only = driver.write_back.lock().unwrap();
        let (mut at, mut written) = (range.start, 0);
        while written < limit
            && let Some(run) = file.next_dirty(at..range.end, MIB.min(limit - written))
        {
            let taken = file.take_dirty(run)?;
            if self.fails.load(SeqCst) {
                return Err(failed(IoOp::Write));
            }
            let mut place = taken.range().start;
            for slice in taken.slices() {
                driver.store.put(place, &slice);
                place += slice.len() as u64;
            }
            let bytes = place - taken.range().start;
            std::thread::sleep(Duration::from_secs_f64(bytes as f64 / self.bytes_per_second));
            taken.done();
            at = place;
            written += bytes;
        }
        Ok(written)
    }

    fn read_ahead(&self, file: &Arc<FileCache>, range: Range<u64>, how: Use) {
        let driver = &self.files[file.ino().get() as usize - 12];
        let _inode = driver.inode.read().unwrap();
        let _ = file.populate(range, how, &driver.store);
    }
}

fn engine(config: CacheConfig, files: u32, bytes_per_second: f64) -> (PageCache, Arc<Engine>) {
    let cache = PageCache::new(config);
    let driver = |n| Driver {
        cache: cache.clone(),
        file: cache.file(Ino::new(12 + n).unwrap()),
        store: Store::new(BLOCK),
        inode: RwLock::new(()),
        write_back: Mutex::new(()),
    };
    let files = (0..files).map(driver).collect();
    let engine = Arc::new(Engine { files, bytes_per_second, fails: AtomicBool::new(false) });
    cache.start(engine.clone()).unwrap();
    (cache, engine)
}

fn becomes_clean(cache: &PageCache) -> bool {
    let until = Instant::now() + Duration::from_secs(5);
    while Instant::now() < until {
        let stats = cache.stats();
        if stats.dirty + stats.writing == 0 {
            return true;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    false
}

fn pattern(file: usize, range: Range<u64>) -> Vec<u8> {
    range.map(|at| (at / 61 + at + file as u64 * 17) as u8).collect()
}

fn a_stream_stays_within_the_cap(policy: DontCachePolicy) {
    let cap = 8 * MIB;
    let settings = CacheConfig { dont_cache_cap: cap, policy, ..config(BLOCK, 128 * MIB) };
    let (cache, engine) = engine(settings, 4, 400e6);
    let len = 12 * MIB;
    std::thread::scope(|scope| {
        for (n, driver) in engine.files.iter().enumerate() {
            let cache = &cache;
            scope.spawn(move || {
                let (mut at, step) = (0, 150_000);
                while at < len {
                    let end = (at + step).min(len);
                    let permit = cache.acquire_permit(end - at, Use::DropBehind).unwrap();
                    driver.write(at, &pattern(n, at..end), Use::DropBehind);
                    drop(permit);
                    cache.wrote(&driver.file, at, end - at, Use::DropBehind).unwrap();
                    at = end;
                }
            });
        }
    });
    let stats = cache.stats();
    assert!(stats.drop_behind_dirty_peak <= cap, "{stats:?}");
    assert!(stats.drop_behind_peak <= 2 * cap, "{stats:?}");
    assert!(becomes_clean(&cache), "{:?}", cache.stats());
    let stats = cache.stats();
    assert_eq!((stats.drop_behind_dirty, stats.drop_behind), (0, 0), "{stats:?}");
    assert_eq!(stats.cached, 0, "written folios leave the cache");
    for (n, driver) in engine.files.iter().enumerate() {
        let bytes = driver.read(0, len as usize, Use::DropBehind);
        assert!(bytes == pattern(n, 0..len), "file {n}");
    }
    cache.stop();
}

#[test]
fn with_the_flusher_streams_stay_within_the_cap_and_leave() {
    a_stream_stays_within_the_cap(DontCachePolicy::Flusher);
}

#[test]
fn rate_limited_streams_stay_within_the_cap_and_leave() {
    a_stream_stays_within_the_cap(DontCachePolicy::RateLimited);
}

#[test]
fn inline_streams_stay_within_the_cap_and_leave() {
    a_stream_stays_within_the_cap(DontCachePolicy::Inline);
}

#[test]
fn the_counts_are_exact_after_any_mix_of_uses() {
    let settings = CacheConfig {
        dont_cache_cap: 4 * MIB,
        expire: Duration::from_millis(20),
        dirty_limit: Some(8 * MIB),
        ..config(BLOCK, 32 * MIB)
    };
    let (cache, engine) = engine(settings, 3, 500e6);
    let failures = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for n in 0..6 {
            let (cache, engine, failures) = (&cache, &engine, &failures);
            scope.spawn(move || {
                let mut random = StdRng::seed_from_u64(n);
                let driver = &engine.files[n as usize / 2];
                let until = Instant::now() + Duration::from_millis(400);
                while Instant::now() < until {
                    let how = if random.random_bool(0.5) { Use::DropBehind } else { Use::Keep };
                    let at = random.random_range(0..12 * MIB);
                    let len = 1 << random.random_range(0..19);
                    match random.random_range(0..20) {
                        0 => engine.fails.store(true, SeqCst),
                        1..4 => engine.fails.store(false, SeqCst),
                        // Never longer: the driver does not support a hole at its end.
                        4 if n % 2 == 0 => driver.truncate(at.min(driver.file.len())),
                        5..10 => drop(driver.read(at, len, how)),
                        _ => {
                            driver.write(at, &vec![7; len], how);
                            let done = cache.wrote(&driver.file, at, len as u64, how);
                            failures.fetch_add(u64::from(done.is_err()), SeqCst);
                        }
                    }
                }
            });
        }
    });
    engine.fails.store(false, SeqCst);
    cache.write_everything();
    assert!(becomes_clean(&cache), "{:?}", cache.stats());
    let stats = cache.stats();
    assert_eq!(stats.drop_behind_dirty, 0, "{stats:?}");
    for driver in &engine.files {
        driver.truncate(0);
    }
    let stats = cache.stats();
    assert_eq!((stats.cached, stats.drop_behind, stats.dirty, stats.writing), (0, 0, 0, 0));
    assert!(cache.dirty_files().is_empty());
    cache.stop();
}

#[test]
fn a_failed_write_back_is_reported_once_and_retried() {
    let settings = CacheConfig { expire: Duration::from_millis(10), ..config(BLOCK, 32 * MIB) };
    let (cache, engine) = engine(settings, 1, 1e9);
    let driver = &engine.files[0];
    let seen = AtomicU64::new(driver.file.error_seen());
    engine.fails.store(true, SeqCst);
    driver.write(0, &[1; 5000], Use::Keep);
    cache.wrote(&driver.file, 0, 5000, Use::Keep).unwrap();
    let until = Instant::now() + Duration::from_secs(5);
    while driver.file.error_seen() == seen.load(SeqCst) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    engine.fails.store(false, SeqCst);
    assert_eq!(driver.file.check_error(&seen).unwrap_err().errno(), 5);
    driver.file.check_error(&seen).unwrap();
    assert!(becomes_clean(&cache));
    cache.stop();
}
