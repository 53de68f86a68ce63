//! What a hit costs: nanoseconds per call and blocks visited, for folios of 4 KiB to 2 MiB.
//!
//! `cargo run --release -p extant-pagecache --example hit_cost [--features count-visits]`
//!
//! One file of 8 MiB per folio size, all in the cache; 4 KiB blocks; the median of 15 rounds, the
//! cases in turn. Last: two threads on different folios of one file, against one.

use extant_base::{BlockSize, Ino};
use extant_pagecache::{CacheConfig, FileCache, PageCache, Use, visits};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

const CALLS: u64 = 20_000;
const LEN: u64 = 8 << 20;

struct Nothing;

impl extant_pagecache::Fill for Nothing {
    fn fill(
        &self,
        _: u64,
        buf: &mut [u8],
        _: &mut dyn FnMut(std::ops::Range<u64>),
    ) -> extant_base::Result<()> {
        buf.fill(0);
        Ok(())
    }
}

/// A file whose folios are all of `folio` bytes.
fn file(cache: &PageCache, ino: u32, folio: u64) -> Option<Arc<FileCache>> {
    let file = cache.file(Ino::new(ino)?);
    let bytes = vec![1; folio as usize];
    for at in (0..LEN).step_by(folio as usize) {
        file.write(at, &mut &*bytes, Use::Keep, &Nothing).ok()?;
    }
    file.set_len(LEN);
    Some(file)
}

fn overwrite(file: &FileCache, size: usize, from: u64, to: u64) {
    let bytes = vec![2u8; size];
    let mut at = from;
    for _ in 0..CALLS {
        let n = file.overwrite_hit(at, &mut black_box(&bytes[..]), Use::Keep, &|| true);
        assert_eq!(n, size);
        at += 16 << 10;
        if at + size as u64 > to {
            at = from;
        }
    }
}

fn read(file: &FileCache, size: usize, from: u64, to: u64) {
    let mut bytes = vec![0u8; size];
    let mut at = from;
    for _ in 0..CALLS {
        assert_eq!(file.read_hit(at, black_box(&mut bytes), Use::Keep), size);
        at += 16 << 10;
        if at + size as u64 > to {
            at = from;
        }
    }
}

/// Nanoseconds per call, and blocks visited per call.
fn timed(work: impl FnOnce()) -> (u64, Option<u64>) {
    visits::take();
    let start = Instant::now();
    work();
    let nanos = start.elapsed().as_nanos() as u64 / CALLS;
    (nanos, visits::take().map(|n| n / CALLS))
}

fn main() {
    let Some(block) = BlockSize::from_bytes(4096) else { return };
    let cache = PageCache::new(CacheConfig { limit: 256 << 20, ..CacheConfig::new(block) });
    let sizes = [4u64 << 10, 64 << 10, 1 << 20, 2 << 20];
    let files: Vec<_> =
        sizes.iter().zip(20..).filter_map(|(size, ino)| file(&cache, ino, *size)).collect();
    type Case = (&'static str, fn(&FileCache));
    // Within 256 KiB: what is measured is the cache's own cost, not the memory's.
    let cases: [Case; 4] = [
        ("overwrite 1 KiB", |file| overwrite(file, 1 << 10, 512, 256 << 10)),
        ("overwrite 10 KiB", |file| overwrite(file, 10 << 10, 0, 256 << 10)),
        ("read 1 KiB", |file| read(file, 1 << 10, 512, 256 << 10)),
        ("read 4 KiB", |file| read(file, 4 << 10, 0, 256 << 10)),
    ];
    let mut times = vec![vec![Vec::new(); sizes.len()]; cases.len()];
    let mut blocks = vec![vec![None; sizes.len()]; cases.len()];
    for _ in 0..15 {
        for (c, (_, case)) in cases.iter().enumerate() {
            for (f, file) in files.iter().enumerate() {
                let (nanos, visited) = timed(|| case(file));
                times[c][f].push(nanos);
                blocks[c][f] = visited;
            }
        }
    }
    println!("ns per call (blocks visited)   folios of 4 KiB, 64 KiB, 1 MiB, 2 MiB");
    for (c, (name, _)) in cases.iter().enumerate() {
        let mut line = format!("{name:>18}");
        for f in 0..sizes.len() {
            times[c][f].sort_unstable();
            let visited = blocks[c][f].map_or("-".to_owned(), |n| n.to_string());
            line += &format!("  {:>6} ({visited})", times[c][f][7]);
        }
        println!("{line}");
    }
    for (name, threads) in [("one thread", 1u64), ("two threads", 2)] {
        let mut rates = Vec::new();
        for _ in 0..9 {
            let start = Instant::now();
            std::thread::scope(|scope| {
                for n in 0..threads {
                    let file = &files[2];
                    scope.spawn(move || {
                        for _ in 0..10 {
                            overwrite(file, 1 << 10, (n * 2) << 20, (n * 2 + 1) << 20);
                        }
                    });
                }
            });
            rates.push(threads * 10 * CALLS * 1000 / start.elapsed().as_micros() as u64);
        }
        rates.sort_unstable();
        println!("{name}: {} thousand overwrites of 1 KiB a second", rates[4]);
    }
}
