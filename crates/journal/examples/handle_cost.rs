//! What a handle costs, and how many commits a device takes.
//!
//! `cargo run --release -p extant-journal --example handle_cost [FILE]`: FILE, 64 MiB or longer, is
//! overwritten; without it the volume is in memory. Prints one line a case.

use extant_base::{BlockNr, BlockSize, ByteOffset, Tid};
use extant_blockdev::{BlockDevice, FileDevice, MemoryDevice};
use extant_journal::{CacheOptions, Credits, Journal, JournalOptions, Log, LogMap};
use extant_ondisk::jbd2::{
    JournalCompat, JournalFeatures, JournalIncompat, JournalRoCompat, JournalSuperblock,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const BLOCK: usize = 4096;
const HOME_BLOCKS: u64 = 4096;
const LOG_BLOCKS: u32 = 8192;

fn main() {
    let file = std::env::args().nth(1);
    let device: Arc<dyn BlockDevice> = match &file {
        Some(path) => Arc::new(FileDevice::open_rw(path).expect("FILE can be opened")),
        None => Arc::new(MemoryDevice::new((HOME_BLOCKS + u64::from(LOG_BLOCKS)) * BLOCK as u64)),
    };
    let off = Journal::off(Arc::clone(&device), block_size(), CacheOptions::default());
    for (name, journal) in [("off", &off), ("log", &with_log(&device))] {
        for threads in [1, 2] {
            handles(name, journal, threads, 1);
            handles(name, journal, threads, 6);
        }
    }
    let rounds = if file.is_some() { 1000 } else { 50_000 };
    for threads in [1, 2, 8] {
        commits(&with_log(&device), threads, rounds);
    }
}

fn block_size() -> BlockSize {
    BlockSize::from_bytes(BLOCK as u32).expect("4096 is a block size")
}

fn with_log(device: &Arc<dyn BlockDevice>) -> Journal {
    let features = JournalFeatures {
        compat: JournalCompat::empty(),
        incompat: JournalIncompat::empty(),
        ro_compat: JournalRoCompat::empty(),
    };
    let superblock = JournalSuperblock {
        block_size: block_size(),
        maxlen: LOG_BLOCKS,
        first: 1,
        sequence: Tid(7),
        start: None,
        errno: 0,
        features,
        uuid: [7; 16],
        fast_commit_blocks: 256,
        head: 0,
        is_v1: false,
        nr_users: 1,
    };
    let at = ByteOffset(HOME_BLOCKS * BLOCK as u64);
    let mut block = vec![0; BLOCK];
    superblock.write(&mut block);
    device.write_at(at, &block).expect("the log's superblock can be written");
    let map = LogMap::contiguous(block_size(), at, LOG_BLOCKS).expect("one run is a map");
    let log = Log::open(Arc::clone(device), map).expect("it was just made");
    let options = JournalOptions {
        commit_interval: Some(Duration::from_secs(5)),
        one_transaction: false,
        checksums: true,
        wide: true,
        fast_commits: false,
        byte_log: None,
        clock: Arc::new(|| (0, 0)),
    };
    let cache = CacheOptions::default();
    Journal::with_log(Arc::clone(device), block_size(), cache, log, options)
        .expect("the log is empty")
}

/// Nanoseconds that this thread has had a processor, so that a busy machine does not count.
fn processor_time() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux has it");
    text.split(' ').next().and_then(|word| word.parse().ok()).expect("it begins with a number")
}

/// Changes `blocks` blocks under one handle, again and again; nanoseconds a handle.
fn handles(name: &str, journal: &Journal, threads: u64, blocks: u64) {
    let rounds = 2_000_000 / blocks;
    let spent = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let spent = &spent;
            scope.spawn(move || {
                let started = processor_time();
                let held: Vec<_> = (0..blocks)
                    .map(|n| journal.cache().get(BlockNr(thread * 64 + n)).expect("it is read"))
                    .collect();
                for round in 0..rounds {
                    let handle = journal.start(Credits::blocks(8)).expect("it starts");
                    for block in &held {
                        let change = block.write(&handle).expect("not aborted");
                        change.bytes_mut()[..8].copy_from_slice(&round.to_le_bytes());
                    }
                    handle.stop().expect("not aborted");
                }
                spent.fetch_add(processor_time() - started, Ordering::Relaxed);
            });
        }
    });
    let each = spent.into_inner() / (rounds * threads);
    println!(
        "{name}: {threads} threads, handle with {blocks} blocks changed: {each} ns of processor"
    );
}

/// One small change and its commit, again and again.
fn commits(journal: &Journal, threads: u64, rounds: u64) {
    let started = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                for round in 0..rounds / threads {
                    let handle = journal.start(Credits::blocks(3)).expect("it starts");
                    for nr in [0, 1, 100 + thread] {
                        let block = journal.cache().get(BlockNr(nr)).expect("it is read");
                        let change = block.write(&handle).expect("not aborted");
                        change.bytes_mut()[..8].copy_from_slice(&round.to_le_bytes());
                    }
                    let tid = handle.tid();
                    handle.stop().expect("not aborted");
                    journal.commit(tid).expect("it is durable");
                }
            });
        }
    });
    let seconds = started.elapsed().as_secs_f64();
    println!("{threads} threads: {:.0} durable changes a second", rounds as f64 / seconds);
}
