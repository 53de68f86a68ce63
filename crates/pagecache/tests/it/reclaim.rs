//! The memory limit, the choice of folios to evict, and drop-behind.

use crate::common::{config, driver, failed};
use extant_base::{Ino, IoOp};
use extant_pagecache::{PageCache, Use};
use std::sync::atomic::AtomicU64;

#[test]
fn the_limit_holds_for_clean_folios() {
    let driver = driver(4096, 4 << 20);
    for at in (0..32 << 20).step_by(64 << 10) {
        driver.write(at, &vec![1; 64 << 10], Use::Keep);
        driver.write_back(0..u64::MAX, 1 << 20);
    }
    for at in (0..32 << 20).step_by(16 << 10) {
        assert_eq!(driver.read(at, 16 << 10, Use::Keep).len(), 16 << 10);
    }
    let stats = driver.cache.stats();
    assert!(stats.evicted > 400);
    assert!(stats.cached_peak <= 4 << 20, "{}", stats.cached_peak);
}

#[test]
fn dirty_folios_stay_and_go_once_clean() {
    let driver = driver(4096, 1 << 20);
    driver.write(0, &vec![7; 3 << 20], Use::Keep);
    assert_eq!(driver.file.dirty_bytes(), 3 << 20, "nothing is lost");
    driver.write_back(0..u64::MAX, 1 << 20);
    driver.write(8 << 20, &[1; 4096], Use::Keep);
    let stats = driver.cache.stats();
    assert!(stats.cached <= 1 << 20, "{}", stats.cached);
    assert!(driver.read(0, 3 << 20, Use::Keep).iter().all(|byte| *byte == 7));
}

#[test]
fn a_scan_does_not_evict_hot_folios() {
    let driver = driver(4096, 8 << 20);
    driver.write(0, &vec![1; 64 << 20], Use::DropBehind);
    driver.write_back(0..u64::MAX, 1 << 20);
    driver.file.discard(0..u64::MAX);
    let hot: Vec<u64> = (0..128).map(|n| (40 << 20) + n * (32 << 10)).collect();
    for _ in 0..4 {
        hot.iter().for_each(|at| drop(driver.read(*at, 4096, Use::Keep)));
    }
    // A scan of four times the cache's size, by small sequential reads. The hot folios are used
    // rarely.
    for (n, at) in (0..32u64 << 20).step_by(8 << 10).enumerate() {
        driver.read(at, 8 << 10, Use::Keep);
        if n % 16 == 0 {
            driver.read(hot[n / 16 % hot.len()], 4096, Use::Keep);
        }
    }
    let mut buf = [0; 4096];
    let kept = hot.iter().filter(|at| driver.file.read_hit(**at, &mut buf, Use::Keep) > 0).count();
    assert!(kept > 120, "{kept} of 128 stayed");
}

#[test]
fn drop_behind_writes_leave_once_clean_unless_used_meanwhile() {
    let driver = driver(4096, 64 << 20);
    driver.write(0, &vec![1; 1 << 20], Use::DropBehind);
    driver.write(1 << 20, &vec![2; 1 << 20], Use::DropBehind);
    let stats = driver.cache.stats();
    assert_eq!((stats.drop_behind, stats.drop_behind_dirty), (2 << 20, 2 << 20));
    driver.read(1 << 20, 10, Use::Keep);
    let stats = driver.cache.stats();
    assert_eq!((stats.drop_behind, stats.drop_behind_dirty), (1 << 20, 1 << 20));
    driver.write_back(0..u64::MAX, 256 << 10);
    let stats = driver.cache.stats();
    assert_eq!((stats.cached, stats.dirty, stats.drop_behind), (1 << 20, 0, 0));
    assert_eq!(driver.file.read_hit(0, &mut [0; 1], Use::Keep), 0, "gone");
    assert_eq!(driver.file.read_hit(1 << 20, &mut [0; 1], Use::Keep), 1, "stayed");
}

#[test]
fn a_mark_lost_while_the_folio_is_written_keeps_the_counts_exact() {
    let driver = driver(4096, 64 << 20);
    driver.write(0, &vec![1; 64 << 10], Use::DropBehind);
    let taken = driver.file.take_dirty(0..32 << 10).unwrap();
    let stats = driver.cache.stats();
    assert_eq!((stats.dirty, stats.writing, stats.drop_behind_dirty), (32768, 32768, 65536));
    driver.write(0, &[2; 4096], Use::Keep);
    let stats = driver.cache.stats();
    assert_eq!((stats.dirty, stats.writing), (32768 + 4096, 32768));
    assert_eq!((stats.drop_behind, stats.drop_behind_dirty), (0, 0));
    taken.done();
    let stats = driver.cache.stats();
    assert_eq!((stats.dirty, stats.writing, stats.cached), (32768 + 4096, 0, 65536));
    driver.write_back(0..u64::MAX, 1 << 20);
    assert_eq!(driver.cache.stats().cached, 65536);
}

#[test]
fn write_back_that_fails_leaves_the_blocks_dirty() {
    let driver = driver(4096, 64 << 20);
    driver.write(0, &vec![1; 1 << 20], Use::DropBehind);
    let taken = driver.file.take_dirty(0..1 << 20).unwrap();
    assert_eq!(taken.slices().iter().map(|slice| slice.len()).sum::<usize>(), 1 << 20);
    let taken = taken.release_buffers();
    assert!(driver.file.is_dirty() && driver.file.dirty_bytes() == 0);
    // One block changes meanwhile.
    driver.write(8192, &[3; 100], Use::DropBehind);
    drop(taken);
    let stats = driver.cache.stats();
    assert_eq!((stats.dirty, stats.writing), (1 << 20, 0));
    assert_eq!((driver.file.dirty_bytes(), stats.drop_behind_dirty), (1 << 20, 1 << 20));
    assert_eq!(driver.file.next_dirty(0..u64::MAX, u64::MAX), Some(0..1 << 20));
    assert!(!driver.file.drop_clean(0..10));
}

#[test]
fn drop_behind_readers_leave_nothing() {
    let driver = driver(4096, 64 << 20);
    driver.write(0, &vec![1; 4 << 20], Use::DropBehind);
    driver.write_back(0..u64::MAX, 1 << 20);
    assert_eq!(driver.cache.stats().cached, 0);
    for at in (0..4 << 20).step_by(10_000) {
        driver.read(at, 10_000, Use::DropBehind);
        assert!(driver.cache.stats().cached <= 64 << 10);
    }
    assert_eq!(driver.cache.stats().cached, 0);
}

#[test]
fn clean_marked_folios_are_bounded_by_the_cap() {
    let mut config = config(4096, 64 << 20);
    config.dont_cache_cap = 1 << 20;
    let cache = PageCache::new(config);
    let file = cache.file(Ino::new(5).unwrap());
    file.set_len(32 << 20);
    let store = crate::common::Store::new(4096);
    for at in (0..32 << 20).step_by(256 << 10) {
        file.populate(at..at + (256 << 10), Use::DropBehind, &store).unwrap();
        assert!(cache.stats().drop_behind <= 1 << 20);
    }
    assert!(cache.stats().drop_behind > 512 << 10);
}

#[test]
fn each_opener_gets_an_error_once() {
    let driver = driver(4096, 64 << 20);
    let file = &driver.file;
    let (a, b) = (AtomicU64::new(file.error_seen()), AtomicU64::new(file.error_seen()));
    assert!(file.check_error(&a).is_ok());
    file.note_error(&failed(IoOp::Write));
    assert_eq!(file.check_error(&a).unwrap_err().errno(), 5);
    assert!(file.check_error(&a).is_ok());
    let late = AtomicU64::new(file.error_seen());
    assert!(file.check_error(&late).is_ok(), "it was opened afterwards");
    file.note_error(&extant_base::Error::NoSpace);
    for seen in [&a, &b, &late] {
        assert_eq!(file.check_error(seen).unwrap_err().errno(), 28);
        assert!(file.check_error(seen).is_ok());
    }
}

#[test]
fn after_forget_the_inode_gets_a_new_file_object() {
    let driver = driver(4096, 64 << 20);
    driver.write(0, &[1; 5000], Use::Keep);
    let ino = driver.file.ino();
    assert!(std::ptr::eq(&*driver.cache.file(ino), &*driver.file));
    driver.cache.forget(ino);
    assert!(!driver.file.has_folios() && !driver.file.is_dirty());
    assert!(!std::ptr::eq(&*driver.cache.file(ino), &*driver.file));
    assert!(
        driver.write_slow(0, &mut &b"x"[..], Use::Keep).is_err(),
        "the old object takes no folio"
    );
    let stats = driver.cache.stats();
    assert_eq!((stats.cached, stats.dirty), (0, 0));
}

#[test]
fn discard_removes_its_blocks_and_leaves_the_others_dirty() {
    let driver = driver(4096, 64 << 20);
    driver.write(0, &vec![1; 64 << 10], Use::Keep);
    driver.file.discard(8192..12288);
    assert_eq!(driver.file.dirty_bytes(), 60 << 10);
    assert_eq!(driver.file.next_dirty(0..u64::MAX, u64::MAX), Some(0..8192));
    assert_eq!(driver.file.next_dirty(8192..u64::MAX, 8192), Some(12288..20480));
    assert_eq!(driver.file.read_hit(4096, &mut [0; 8192], Use::Keep), 4096);
    driver.file.discard(0..u64::MAX);
    assert!(!driver.file.has_folios());
}

#[test]
fn offsets_out_of_range_are_refused() {
    let driver = driver(4096, 64 << 20);
    driver.file.set_len(u64::MAX);
    assert!(driver.file.write(u64::MAX - 3, &mut &b"abcd"[..], Use::Keep, &driver.store).is_err());
    assert!(driver.file.write(1 << 62, &mut &b"abcd"[..], Use::Keep, &driver.store).is_err());
    assert!(driver.file.dirty_block(u64::MAX, &driver.store).is_err());
    let mut buf = [0; 10];
    let read = driver.file.read(u64::MAX - 5, &mut buf, Use::Keep, None, &driver.store);
    assert_eq!(read.unwrap(), 0);
    assert!(driver.file.borrow(u64::MAX, Use::Keep, &driver.store).is_err());
    assert!(driver.file.borrow_mut(0..u64::MAX, &driver.store).is_err());
    assert!(driver.file.take_dirty(0..u64::MAX).is_err());
    assert_eq!(driver.file.next_dirty(5..u64::MAX, 0), None);
}
