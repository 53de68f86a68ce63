//! Read-ahead: which ranges the cache requests, when, and what their readers then hit.

use crate::common::{Store, config};
use extant_base::{Ino, Result};
use extant_pagecache::{Demand, FileCache, Owner, PageCache, ReadStream, Use};
use std::ops::Range;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const LEN: u64 = 32 << 20;

/// Reads ahead as the engine does, and records the requests.
struct Reader {
    store: Arc<Store>,
    requested: Mutex<Vec<Range<u64>>>,
}

impl Owner for Reader {
    fn write_back(&self, _: &Arc<FileCache>, _: Range<u64>, _: &dyn Demand) -> Result<u64> {
        Ok(0)
    }

    fn read_ahead(&self, file: &Arc<FileCache>, range: Range<u64>, how: Use) {
        let _ = file.populate(range.clone(), how, &*self.store);
        self.requested.lock().unwrap().push(range);
    }
}

struct Run {
    cache: PageCache,
    file: Arc<FileCache>,
    store: Arc<Store>,
    owner: Arc<Reader>,
}

fn start() -> Run {
    let cache = PageCache::new(config(4096, 128 << 20));
    let file = cache.file(Ino::new(12).unwrap());
    let store = Arc::new(Store::new(4096));
    store.back(0..LEN);
    let bytes: Vec<u8> = (0..LEN).map(|n| (n >> 12) as u8).collect();
    store.put(0, &bytes);
    store.set_len(LEN);
    file.set_len(LEN);
    let owner = Arc::new(Reader { store: store.clone(), requested: Mutex::default() });
    cache.start(owner.clone()).unwrap();
    Run { cache, file, store, owner }
}

impl Run {
    /// Reads as the engine does; true if the fast path served the whole read.
    fn read(&self, at: u64, len: usize, how: Use, stream: &ReadStream) -> bool {
        let mut buf = vec![0; len];
        let hit = self.file.read_hit(at, &mut buf, how);
        if hit < len {
            let rest = &mut buf[hit..];
            let n = self.file.read(at + hit as u64, rest, how, Some(stream), &*self.store).unwrap();
            assert_eq!(hit + n, len);
        }
        for (n, byte) in buf.iter().enumerate() {
            assert_eq!(*byte, ((at + n as u64) >> 12) as u8);
        }
        hit == len
    }

    fn requested(&self) -> Vec<Range<u64>> {
        self.owner.requested.lock().unwrap().clone()
    }

    /// Waits until `count` ranges have been read ahead.
    fn wait(&self, count: usize) {
        let start = Instant::now();
        while self.requested().len() < count && start.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_micros(200));
        }
        assert!(self.requested().len() >= count, "{:?}", self.requested());
    }
}

#[test]
fn a_sequential_reader_finds_ever_larger_windows() {
    let run = start();
    let stream = ReadStream::new();
    let mut hits = 0;
    for at in (0..LEN).step_by(32 << 10) {
        let before = run.requested();
        let hit = run.read(at, 32 << 10, Use::Keep, &stream);
        hits += usize::from(hit);
        // The slow path requests one window, and this reader waits for it.
        let all = before.last().is_some_and(|range| range.end == LEN);
        if !hit && at > 0 && !all {
            run.wait(before.len() + 1);
        }
    }
    run.cache.stop();
    let requested = run.requested();
    for pair in requested.windows(2) {
        assert_eq!(pair[0].end, pair[1].start, "one after the other: {requested:?}");
    }
    let sizes: Vec<u64> = requested.iter().map(|range| range.end - range.start).collect();
    assert!(sizes.contains(&(2 << 20)) && sizes.iter().all(|size| *size <= 2 << 20), "{sizes:?}");
    assert_eq!(requested.last().unwrap().end, LEN, "and not past it");
    assert!(hits > 900, "{hits} of 1024 reads found everything");
    assert!(run.store.fills.load(SeqCst) < 40, "{} fills", run.store.fills.load(SeqCst));
}

#[test]
fn a_strided_reader_finds_its_records() {
    let run = start();
    let stream = ReadStream::new();
    let at = |n: u64| n * 327_680 + 8192;
    for n in 0..4 {
        run.read(at(n), 8192, Use::Keep, &stream);
    }
    run.wait(8);
    for n in 4..8 {
        run.read(at(n), 8192, Use::Keep, &stream);
    }
    let requested = run.requested();
    for n in 4..10 {
        assert!(requested.contains(&(at(n)..at(n) + 8192)), "{n}: {requested:?}");
    }
    run.wait(10);
    run.cache.stop();
    let misses = run.cache.stats().misses as usize;
    assert!(misses <= 4 + run.requested().len(), "no record is filled twice: {misses}");
}

#[test]
fn a_random_reader_reads_nothing_else() {
    let run = start();
    let stream = ReadStream::new();
    let mut at = 77;
    for _ in 0..50 {
        at = at * 1_103_515_245 % 4001;
        run.read(at * 8192, 4096, Use::Keep, &stream);
    }
    assert_eq!(run.requested(), []);
    run.cache.stop();
    assert!(run.cache.stats().cached <= 50 * 4096);
}

#[test]
fn a_drop_behind_reader_gets_read_ahead_and_leaves_no_folio() {
    let run = start();
    let stream = ReadStream::new();
    for at in (0..LEN).step_by(64 << 10) {
        run.read(at, 64 << 10, Use::DropBehind, &stream);
    }
    run.cache.stop();
    assert!(!run.requested().is_empty());
    // A window that was read after its reader passed stays, up to the cap.
    assert!(run.cache.stats().cached <= 64 << 20);
    assert!(run.cache.stats().cached_peak <= 64 << 20);
}

#[test]
fn a_read_ahead_error_reaches_the_reader_only() {
    let run = start();
    let stream = ReadStream::new();
    run.store.fill_fails.store(true, SeqCst);
    let mut buf = [0; 4096];
    assert!(run.file.read(0, &mut buf, Use::Keep, Some(&stream), &*run.store).is_err());
    run.store.fill_fails.store(false, SeqCst);
    run.read(0, 4096, Use::Keep, &stream);
    run.cache.stop();
}

#[test]
fn a_trigger_does_not_stop_hits_for_ever() {
    let run = start();
    run.file.populate(0..65536, Use::Keep, &*run.store).unwrap();
    let mut buf = [0; 4096];
    assert_eq!(run.file.read_hit(0, &mut buf, Use::Keep), 0);
    run.file.read(0, &mut buf, Use::Keep, None, &*run.store).unwrap();
    assert_eq!(run.file.read_hit(0, &mut buf, Use::Keep), 4096);
    run.cache.stop();
}
