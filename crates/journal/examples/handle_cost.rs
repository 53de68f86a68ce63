//! The cost of a handle, and the number of commits that a device takes.
//!
//! `cargo run --release -p extant-journal --example handle_cost [FILE]`: FILE, 64 MiB or longer, is
//! overwritten; without it the volume is in memory. Prints one line per case.

use extant_base::{BlockNr, BlockSize, ByteOffset, Ino, Result, Tid};
use extant_blockdev::{BlockDevice, FileDevice, MemoryDevice};
use extant_journal::{
    CacheOptions, Change, Credits, Journal, JournalOptions, Log, LogMap, Piece, RecordedInode,
    Snapshot,
};
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
    let (log, fast) = (with_log(&device, false), with_log(&device, true));
    for (name, journal) in [("off", &off), ("log", &log), ("log and notes", &fast)] {
        for threads in [1, 2] {
            handles(name, journal, threads, 1);
            handles(name, journal, threads, 6);
        }
    }
    let rounds = if file.is_some() { 1000 } else { 50_000 };
    for fast in [false, true] {
        for threads in [1, 2, 8] {
            commits(&with_log(&device, fast), threads, rounds);
        }
    }
}

fn block_size() -> BlockSize {
    BlockSize::from_bytes(BLOCK as u32).expect("4096 is a block size")
}

fn with_log(device: &Arc<dyn BlockDevice>, fast_commits: bool) -> Journal {
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
        fast_commits,
        byte_log: None,
        clock: Arc::new(|| (0, 0)),
    };
    let cache = CacheOptions::default();
    Journal::with_log(Arc::clone(device), block_size(), cache, log, options)
        .expect("the log is empty")
}

/// CPU time of this thread in nanoseconds, so that other load does not count.
fn processor_time() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux has it");
    text.split(' ').next().and_then(|word| word.parse().ok()).expect("it begins with a number")
}

/// Changes `blocks` blocks in each of many handles, and prints the nanoseconds per handle.
fn handles(name: &str, journal: &Journal, threads: u64, blocks: u64) {
    let rounds = 2_000_000 / blocks;
    let keeps_notes = journal.stats().fast_commits_on;
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
                    for (n, block) in held.iter().enumerate() {
                        let change = block.write(&handle).expect("not aborted");
                        change.bytes_mut()[..8].copy_from_slice(&round.to_le_bytes());
                        handle.note(Change::Inode(inode(thread * 64 + n as u64)));
                    }
                    let point = handle.commit_point();
                    handle.stop().expect("not aborted");
                    // A fast commit, before the notes exceed their limit.
                    if keeps_notes && round % 4096 == 0 {
                        let done = journal.commit_with_data(point, Some(&Cached(journal)));
                        done.expect("it is durable");
                    }
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

/// Block n holds inode n + 12.
fn inode(nr: u64) -> Ino {
    Ino::new(nr as u32 + 12).expect("12 is not 0")
}

/// Inodes of 160 bytes, as the cache has them.
struct Cached<'a>(&'a Journal);

impl Snapshot for Cached<'_> {
    fn inode(&self, ino: Ino, raw: &mut Vec<u8>) -> Result<Option<RecordedInode>> {
        let block = self.0.cache().get(BlockNr(u64::from(ino.get()) - 12))?;
        raw.extend_from_slice(&block.read()[..160]);
        Ok(Some(RecordedInode { links: 1, regular: true, mapped: true }))
    }

    fn pieces(&self, _: Ino, _: u32, _: u32, _: &mut dyn FnMut(Piece)) -> Result<()> {
        Ok(())
    }
}

/// Many small changes, each followed by a commit.
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
                    handle.note(Change::Inode(inode(100 + thread)));
                    let point = handle.commit_point();
                    handle.stop().expect("not aborted");
                    let done = journal.commit_with_data(point, Some(&Cached(journal)));
                    done.expect("it is durable");
                }
            });
        }
    });
    let seconds = started.elapsed().as_secs_f64();
    let stats = journal.stats();
    println!(
        "{threads} threads: {:.0} durable changes a second, {} commits, {} fast ones",
        rounds as f64 / seconds,
        stats.commits,
        stats.fast_commits
    );
}
