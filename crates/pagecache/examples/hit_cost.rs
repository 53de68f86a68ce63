//! The cost of a hit: nanoseconds per call and blocks visited, for folios of 4 KiB to 2 MiB.
//!
//! `cargo run --release -p extant-pagecache --example hit_cost [--features count-visits]`
//!
//! One file of 8 MiB per folio size, fully cached; 4 KiB blocks; the fastest of 25 rounds, with the
//! cases interleaved. Last: the CPU time of an overwrite while another thread overwrites other
//! folios of the same file, and while another thread shares nothing.

use extant_base::{BlockSize, Ino};
use extant_pagecache::{CacheConfig, FileCache, PageCache, Use, visits};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Barrier};
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

/// A file with folios of `folio` bytes each.
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
    // Within 256 KiB: this measures the cost of the cache, not of memory.
    let cases: [Case; 4] = [
        ("overwrite 1 KiB", |file| overwrite(file, 1 << 10, 512, 256 << 10)),
        ("overwrite 10 KiB", |file| overwrite(file, 10 << 10, 0, 256 << 10)),
        ("read 1 KiB", |file| read(file, 1 << 10, 512, 256 << 10)),
        ("read 4 KiB", |file| read(file, 4 << 10, 0, 256 << 10)),
    ];
    let mut times = vec![vec![Vec::new(); sizes.len()]; cases.len()];
    let mut blocks = vec![vec![None; sizes.len()]; cases.len()];
    for _ in 0..25 {
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
            line += &format!("  {:>6} ({visited})", times[c][f][0]);
        }
        println!("{line}");
    }
    println!(
        "CPU time per overwrite of 1 KiB: as long with two threads as with one when no line is shared"
    );
    let other = PageCache::new(CacheConfig { limit: 256 << 20, ..CacheConfig::new(block) });
    let apart = file(&other, 30, 1 << 20);
    for (name, second) in [
        ("one thread", None),
        ("two threads, one file", files.get(2)),
        ("two threads, two caches", apart.as_ref()),
    ] {
        // In the fastest rounds the threads may have run one after the other, so the median is
        // printed, too.
        let mut times: Vec<u64> =
            (0..25).filter_map(|_| side_by_side(files.get(2)?, second)).collect();
        times.sort_unstable();
        if let [best, .., worst] = times[..] {
            println!("{name:>24}: {best} ns, median {}, worst {worst}", times[times.len() / 2]);
        }
    }
}

/// Nanoseconds of CPU time per overwrite by the first of two threads.
fn side_by_side(first: &FileCache, second: Option<&Arc<FileCache>>) -> Option<u64> {
    let stop = AtomicBool::new(false);
    let starting = Barrier::new(if second.is_some() { 2 } else { 1 });
    std::thread::scope(|scope| {
        if let Some(file) = second {
            let (stop, starting) = (&stop, &starting);
            scope.spawn(move || {
                starting.wait();
                while !stop.load(Relaxed) {
                    overwrite(file, 1 << 10, 4 << 20, 5 << 20);
                }
            });
        }
        starting.wait();
        let before = cpu_time();
        (0..20).for_each(|_| overwrite(first, 1 << 10, 0, 1 << 20));
        let after = cpu_time();
        stop.store(true, Relaxed);
        Some((after? - before?) / (20 * CALLS))
    })
}

/// Nanoseconds of CPU time of this thread, from the kernel.
fn cpu_time() -> Option<u64> {
    // The kernel updates the count when the thread yields.
    std::thread::yield_now();
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok()
}
