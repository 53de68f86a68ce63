//! Random operations on a file and on a plain vector agree at each step. The cache is so small that
//! it creates and evicts folios all the time.

use crate::common::{Faulty, driver};
use extant_pagecache::{ReadStream, Use};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::sync::atomic::Ordering::SeqCst;

const SPAN: u64 = 6 << 20;

fn run(seed: u64, block: usize, steps: usize) {
    let mut rng = StdRng::seed_from_u64(seed);
    let limit = if seed.is_multiple_of(2) { 1 << 20 } else { 12 << 20 };
    let driver = driver(block, limit);
    let mut model: Vec<u8> = Vec::new();
    let stream = ReadStream::new();
    for step in 0..steps {
        let how = if rng.random_bool(0.3) { Use::DropBehind } else { Use::Keep };
        let size = match rng.random_range(0..10) {
            0 => rng.random_range(1..2 << 20),
            1..4 => rng.random_range(1..64 << 10),
            4 => 64 << 10,
            _ => rng.random_range(1..3000),
        };
        let mut at = rng.random_range(0..SPAN - size);
        if rng.random_bool(0.3) {
            at &= !0xffff;
        }
        if rng.random_bool(0.2) {
            at = (model.len() as u64).min(SPAN - size);
        }
        let fill = (step % 251) as u8 + 1;
        let bytes: Vec<u8> = (0..size).map(|n| fill.wrapping_add((n / 500) as u8)).collect();
        let put = |model: &mut Vec<u8>, bytes: &[u8]| {
            if bytes.is_empty() {
                return;
            }
            let end = at as usize + bytes.len();
            model.resize(model.len().max(end), 0);
            model[at as usize..end].copy_from_slice(bytes);
        };
        match rng.random_range(0..100) {
            0..35 => {
                let n = driver.write(at, &bytes, how);
                assert_eq!(n as u64, size);
                put(&mut model, &bytes);
            }
            35..40 => {
                let good = rng.random_range(0..size) as usize;
                let mut source = Faulty { bytes: &bytes, good };
                let mut n = driver.file.overwrite_hit(at, &mut source, how, &|| true);
                if n == 0 {
                    let mut source = Faulty { bytes: &bytes, good };
                    n = driver.write_slow(at, &mut source, how).unwrap();
                }
                assert!(n <= good && n + block > good, "{n} of {good}");
                put(&mut model, &bytes[..n]);
            }
            40..43 => {
                driver.store.fill_fails.store(true, SeqCst);
                let done = driver.write_slow(at, &mut &*bytes, how);
                if let Ok(n) = done {
                    put(&mut model, &bytes[..n]);
                }
                if let Ok(read) = driver.read_with(at, size as usize, how, Some(&stream)) {
                    let end = (at as usize + read.len()).min(model.len());
                    assert!(read == model[(at as usize).min(end)..end], "step {step}");
                }
                driver.store.fill_fails.store(false, SeqCst);
            }
            43..75 => {
                let from = (at as usize).min(model.len());
                let end = (at as usize + size as usize).min(model.len()).max(from);
                let read = driver.read_with(at, size as usize, how, Some(&stream)).unwrap();
                assert!(read == model[from..end], "step {step}: read of {size} at {at}");
            }
            75..82 => {
                let max = rng.random_range(1..1 << 20);
                driver.write_back(at..at + size, max);
                assert!(driver.file.next_dirty(at..at + size, 4096).is_none());
            }
            82..84 => {
                driver.write_back(0..u64::MAX, 1 << 20);
                assert!(!driver.file.is_dirty() && driver.file.dirty_bytes() == 0);
                assert!(driver.file.drop_clean(at..at + size));
            }
            84..87 => {
                // Write-back fails: the bytes are dirty again.
                if let Some(run) = driver.file.next_dirty(0..u64::MAX, 1 << 20) {
                    let before = driver.file.dirty_bytes();
                    let taken = driver.file.take_dirty(run).unwrap();
                    assert!(driver.file.is_dirty());
                    drop(taken);
                    assert_eq!(driver.file.dirty_bytes(), before);
                }
            }
            87..90 => {
                let len = rng.random_range(0..=SPAN);
                if len <= model.len() as u64 || driver.file.len().is_multiple_of(block as u64) {
                    driver.truncate(len);
                    model.resize(len as usize, 0);
                }
            }
            90..94 if !model.is_empty() => {
                let at = at.min(model.len() as u64 - 1);
                let lent = driver.file.borrow(at, how, &driver.store).unwrap();
                let (start, len) = (lent.start() as usize, lent.len());
                assert!(start <= at as usize && (at as usize) < start + len);
                assert!(*lent == model[start..start + len], "step {step}: borrowed at {at}");
            }
            94..97 if !model.is_empty() => {
                let at = at.min(model.len() as u64 - 1);
                let end = (at + size.min(900)).min(model.len() as u64);
                driver.store.back(at..end);
                if let Ok(mut lent) = driver.file.borrow_mut(at..end, &driver.store) {
                    assert!(*lent == model[at as usize..end as usize]);
                    lent.fill(fill);
                    model[at as usize..end as usize].fill(fill);
                }
            }
            _ => {
                let len = size.min(256 << 10);
                let _ = driver.file.populate(at..at + len, how, &driver.store);
            }
        }
    }
    let read = driver.read(0, model.len() + 10, Use::Keep);
    assert!(read == model, "at the end");
    driver.write_back(0..u64::MAX, 4 << 20);
    driver.file.discard(0..u64::MAX);
    assert!(!driver.file.has_folios());
    let read = driver.read(0, model.len(), Use::Keep);
    assert!(read == model, "from the store");
    driver.cache.forget(driver.file.ino());
    let stats = driver.cache.stats();
    assert_eq!((stats.cached, stats.dirty, stats.writing), (0, 0, 0));
    assert_eq!((stats.drop_behind, stats.drop_behind_dirty), (0, 0));
}

#[test]
fn random_work_agrees_with_a_plain_file() {
    let number = |name| std::env::var(name).ok().and_then(|n: String| n.parse::<u64>().ok());
    let first = number("EXTANT_SEED").unwrap_or(0x5eed);
    for round in 0..2 * number("EXTANT_SOAK").unwrap_or(1) {
        for (n, block) in [1024, 2048, 4096, 8192, 16384, 65536].into_iter().enumerate() {
            let seed = first + round * 17 + n as u64;
            let done = std::panic::catch_unwind(|| run(seed, block, 700));
            assert!(done.is_ok(), "seed {seed}, blocks of {block}; EXTANT_SEED={first}");
        }
    }
}
