//! Files through the page cache as seen by many threads and by calls on their metadata.
//!
//! ```text
//!   blocks   │ w0 │ w1 │ w0 │ w1 │ …      │ tail: written, truncated, moved by one thread │
//!   readers  each block is of one write, none older than the last write that had returned
//! ```

use extant::cache::{CacheUse, DontCachePolicy};
use extant::{
    Error, FallocateMode, File, Filesystem, InodeFlags, NewFile, OpenOptions, SetAttributes,
    Timestamp,
};
use extant_testkit::e2fsprogs::{e2fsck, mke2fs};
use extant_testkit::rng::Rng;
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Blocks that the writers share, in stripes.
const BLOCKS: usize = 512;
/// Blocks of a stripe.
const STRIPE: usize = 16;

fn volume(mib: u64, options: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("img");
    mke2fs(&path, mib << 20, options, None).unwrap();
    (dir, path)
}

fn open(path: &Path, cache_kib: u64, policy: DontCachePolicy) -> Filesystem {
    let mut options = OpenOptions::new();
    options.write(true).page_cache_bytes(cache_kib << 10).dont_cache_policy(policy);
    options.dont_cache_cap_bytes(cache_kib << 8).open(path).unwrap()
}

fn create(fs: &Filesystem, name: &str) -> File {
    fs.root().unwrap().create_file(name, &NewFile::default()).unwrap().open().unwrap()
}

/// How long threads run: a second, more with EXTANT_SOAK.
fn duration() -> Duration {
    match std::env::var_os("EXTANT_SOAK") {
        Some(_) => Duration::from_secs(20),
        None => Duration::from_millis(1200),
    }
}

/// The writes of one block while threads write it.
#[derive(Default)]
struct Block {
    /// The newest write, or truncation to zeros, that has started.
    begun: AtomicU64,
    /// The newest that has returned.
    done: AtomicU64,
    /// The numbers of those that made it zeros.
    zeros: Mutex<Vec<u64>>,
}

struct Shared {
    file: File,
    bytes: usize,
    blocks: Vec<Block>,
    /// The number of the next write.
    next: AtomicU64,
    /// Nothing older than this is in the tail.
    tail_since: AtomicU64,
    over: AtomicBool,
}

impl Shared {
    fn new(file: File, bytes: usize) -> Shared {
        let blocks = (0..BLOCKS).map(|_| Block::default()).collect();
        Shared {
            file,
            bytes,
            blocks,
            next: AtomicU64::new(1),
            tail_since: AtomicU64::new(0),
            over: AtomicBool::new(false),
        }
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::SeqCst)
    }

    /// Bytes of `count` blocks from `block` on, in write `number`.
    fn content(&self, block: usize, count: usize, number: u64) -> Vec<u8> {
        let words = self.bytes / 16;
        let of =
            |n| [number.to_le_bytes(), (n as u64 ^ 0x5555).to_le_bytes()].concat().repeat(words);
        (block..block + count).flat_map(of).collect()
    }

    fn write(&self, block: usize, count: usize, number: u64, how: CacheUse) {
        let bytes = self.content(block, count, number);
        let mut done = 0;
        while done < bytes.len() {
            let at = (block * self.bytes + done) as u64;
            let pieces = [IoSlice::new(&bytes[done..])];
            done += self.file.write_vectored_at_with(&pieces, at, how).unwrap();
        }
    }

    /// Writes and zeroes blocks of its own stripes.
    fn writer(&self, which: usize, seed: u64) {
        let mut rng = Rng::new(seed);
        while !self.over.load(Ordering::SeqCst) {
            let stripe = 2 * rng.below(BLOCKS / STRIPE / 2) + which;
            let block = stripe * STRIPE + rng.below(STRIPE);
            let count = 1 + rng.below(STRIPE - block % STRIPE);
            let blocks = &self.blocks[block..block + count];
            let number = self.number();
            let zeroes = rng.below(6) == 0;
            for block in blocks {
                if zeroes {
                    block.zeros.lock().unwrap().push(number);
                }
                block.begun.store(number, Ordering::SeqCst);
            }
            let (at, len) = ((block * self.bytes) as u64, (count * self.bytes) as u64);
            if zeroes {
                let mode = [FallocateMode::PunchHole, FallocateMode::ZeroRangeKeepSize];
                match self.file.allocate(mode[rng.below(2)], at, len) {
                    Ok(()) => {}
                    Err(Error::NotSupported(_)) => {
                        self.file.allocate(FallocateMode::PunchHole, at, len).unwrap();
                    }
                    Err(error) => panic!("{error}"),
                }
            } else {
                self.write(block, count, number, any_use(&mut rng));
            }
            for block in blocks {
                block.done.store(number, Ordering::SeqCst);
            }
        }
    }

    /// Appends, truncates and moves the part after the stripes.
    fn tail(&self, seed: u64, unit: usize) {
        let mut rng = Rng::new(seed);
        let mut len = BLOCKS;
        while !self.over.load(Ordering::SeqCst) {
            let (count, number) = (1 + rng.below(40), self.number());
            match rng.below(8) {
                0 if len > BLOCKS => {
                    len = BLOCKS + rng.below(len - BLOCKS);
                    self.file.set_len((len * self.bytes) as u64).unwrap();
                }
                1 => {
                    len = BLOCKS;
                    self.file.set_len((len * self.bytes) as u64).unwrap();
                    self.tail_since.store(number, Ordering::SeqCst);
                }
                2 if len - BLOCKS > 2 * unit => {
                    let at = BLOCKS.next_multiple_of(unit) * self.bytes;
                    let mode = [FallocateMode::Collapse, FallocateMode::Insert][rng.below(2)];
                    match self.file.allocate(mode, at as u64, (unit * self.bytes) as u64) {
                        Ok(()) if mode == FallocateMode::Collapse => len -= unit,
                        Ok(()) => len += unit,
                        Err(Error::NotSupported(_)) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                3 => {
                    let at = (len * self.bytes) as u64;
                    match self.file.allocate(FallocateMode::Allocate, at, 1000) {
                        Ok(()) => {
                            self.file.set_len(at).unwrap();
                        }
                        Err(Error::NotSupported(_)) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                _ if len < BLOCKS + 400 => {
                    self.write(len, count, number, any_use(&mut rng));
                    len += count;
                }
                _ => {}
            }
            assert_eq!(self.file.metadata().len(), (len * self.bytes) as u64);
        }
    }

    /// Reads single blocks: each must be of one write.
    fn reader(&self, seed: u64) -> usize {
        let mut rng = Rng::new(seed);
        let mut buf = vec![0; self.bytes];
        let mut read = 0;
        while !self.over.load(Ordering::SeqCst) {
            let block = rng.below(BLOCKS + 200);
            let known = self.blocks.get(block);
            let since = known.map_or(&self.tail_since, |known| &known.done).load(Ordering::SeqCst);
            buf.fill(0xEE);
            let n =
                self.file.read_at_with(&mut buf, (block * self.bytes) as u64, any_use(&mut rng));
            let n = n.unwrap();
            if n < self.bytes {
                assert!(known.is_none(), "block {block}: {n} bytes");
                continue;
            }
            read += 1;
            let number = u64::from_le_bytes(buf[..8].try_into().unwrap());
            let torn = buf.chunks(16).position(|word| word != &buf[..16]);
            assert_eq!(torn, None, "block {block} is torn");
            let is_zero = number == 0 && buf[8..16] == [0; 8];
            let Some(known) = known else {
                assert!(is_zero || number >= since, "the tail's block {block}: {number} < {since}");
                continue;
            };
            let begun = known.begun.load(Ordering::SeqCst);
            if is_zero {
                let zeros = known.zeros.lock().unwrap();
                let fits = since == 0 || zeros.iter().any(|n| (since..=begun).contains(n));
                assert!(fits, "block {block} is zeros, of none of {since}..={begun}");
                continue;
            }
            assert_eq!(buf[8..16], (block as u64 ^ 0x5555).to_le_bytes(), "another block's bytes");
            assert!(
                (since..=begun).contains(&number),
                "block {block}: {number}, not {since}..={begun}"
            );
        }
        read
    }

    /// The last write of each block is there.
    fn judge(&self, file: &File) {
        let mut buf = vec![0; self.bytes];
        for (n, block) in self.blocks.iter().enumerate() {
            file.read_at(&mut buf, (n * self.bytes) as u64).unwrap();
            let last = block.done.load(Ordering::SeqCst);
            let is_zero = last == 0 || block.zeros.lock().unwrap().last() == Some(&last);
            let want = if is_zero { vec![0; self.bytes] } else { self.content(n, 1, last) };
            assert!(buf == want, "block {n} is not of write {last}");
        }
    }
}

fn any_use(rng: &mut Rng) -> CacheUse {
    [CacheUse::Keep, CacheUse::DropBehind][rng.below(2)]
}

/// Runs writers, readers and syncing threads concurrently.
fn read_while_writing(options: &str, bytes: usize, cache_kib: u64, policy: DontCachePolicy) {
    let (_dir, path) = volume(48, options);
    let fs = open(&path, cache_kib, policy);
    let file = create(&fs, "f");
    file.set_len((BLOCKS * bytes) as u64).unwrap();
    let unit = if options.contains("bigalloc") { 16 } else { 1 };
    let shared = Shared::new(file, bytes);
    let read: usize = std::thread::scope(|scope| {
        let shared = &shared;
        for which in 0..2 {
            scope.spawn(move || shared.writer(which, which as u64 + 1));
        }
        scope.spawn(move || shared.tail(9, unit));
        let readers: Vec<_> = (20..22).map(|n| scope.spawn(move || shared.reader(n))).collect();
        let ends = Instant::now() + duration();
        let mut rng = Rng::new(77);
        while Instant::now() < ends {
            match rng.below(4) {
                0 => shared.file.sync_all().unwrap(),
                1 => shared.file.sync_data().unwrap(),
                2 => fs.sync().unwrap(),
                _ => drop(shared.file.extents().unwrap()),
            }
            std::thread::sleep(Duration::from_millis(3));
        }
        shared.over.store(true, Ordering::SeqCst);
        readers.into_iter().map(|reader| reader.join().unwrap()).sum()
    });
    assert!(read > 100, "{options}: only {read} blocks were read");
    shared.judge(&shared.file);
    fs.sync().unwrap();
    let stats = fs.cache_stats().unwrap();
    assert_eq!(stats.dirty + stats.writing, 0, "{options}");
    let space = fs.space();
    let mapped: u64 = shared.file.extents().unwrap().iter().map(|extent| extent.len).sum();
    let sectors = shared.file.metadata().sectors();
    let map = sectors.checked_sub(mapped / 512).unwrap();
    assert!(map * 512 <= 60 * 1024 * unit as u64, "{options}: {sectors} for {mapped} bytes");
    // Open files hold the volume.
    let Shared { file, blocks, .. } = shared;
    drop(file);
    fs.close().unwrap();
    e2fsck(&path, None).expect_clean().unwrap();
    let again = open(&path, 0, policy);
    assert_eq!(again.space().free, space.free, "{options}: what statfs said");
    let file = again.open_file("f").unwrap();
    Shared { blocks, ..Shared::new(file.clone(), bytes) }.judge(&file);
}

#[test]
fn readers_see_whole_blocks_of_the_newest_write() {
    read_while_writing("-b 4096", 4096, 512, DontCachePolicy::Flusher);
    read_while_writing("-b 1024", 1024, 256, DontCachePolicy::RateLimited);
    read_while_writing("-b 4096", 4096, 64 << 10, DontCachePolicy::Inline);
}

#[test]
fn readers_see_whole_blocks_on_other_kinds_of_map() {
    read_while_writing("-b 1024 -O ^extents,^64bit", 1024, 256, DontCachePolicy::Flusher);
    read_while_writing("-b 1024 -O bigalloc", 1024, 512, DontCachePolicy::Flusher);
    read_while_writing("-b 1024 -O ^has_journal", 1024, 256, DontCachePolicy::Inline);
}

#[test]
fn a_write_between_two_stats_is_seen_in_their_times() {
    let (_dir, path) = volume(24, "-b 4096");
    let fs = open(&path, 4096, DontCachePolicy::Flusher);
    let file = create(&fs, "f");
    file.write_all_at(&[1; 100_000], 0).unwrap();
    let mut before = file.metadata();
    for n in 0..2000u64 {
        // Many writes within one tick of the clock, after one of which the test reads the times.
        for m in 0..n % 4 {
            file.write_all_at(&[2; 100], m * 1000).unwrap();
        }
        file.write_all_at(&[n as u8; 300], n * 31 % 90_000).unwrap();
        let after = fs.metadata("f").unwrap();
        assert!(after.modified() > before.modified(), "write {n}");
        assert!(after.changed() > before.changed(), "write {n}");
        before = after;
        if n % 500 == 0 {
            file.sync_all().unwrap();
            assert_eq!(file.metadata().modified(), before.modified(), "a sync changes no time");
        }
    }
    let last = file.metadata().modified();
    drop(file);
    fs.close().unwrap();
    let fs = open(&path, 0, DontCachePolicy::Flusher);
    assert_eq!(fs.metadata("f").unwrap().modified(), last);
}

#[test]
fn reserved_space_is_counted_and_returned() {
    for options in [
        "-b 4096",
        "-b 1024 -O ^extents,^64bit",
        "-b 1024 -O bigalloc",
        "-b 1024 -O quota",
        "-b 1024 -O ^has_journal",
    ] {
        let (_dir, path) = volume(24, options);
        let fs = open(&path, 16 << 10, DontCachePolicy::Flusher);
        let file = create(&fs, "f");
        fs.sync().unwrap();
        let (empty, unit) = (fs.space().free, u64::from(fs.space().block_bytes));
        file.write_all_at(&[1; 1_000_000], 0).unwrap();
        assert!(fs.space().free <= empty - 1_000_000 / unit, "{options}: {:?}", fs.space());
        let sectors = file.metadata().sectors();
        assert!(sectors >= 1_000_000 / 512, "{options}: {sectors}");
        // Half of it is removed again before it is written.
        file.set_len(500_000).unwrap();
        let half = fs.space().free;
        assert!(
            half <= empty - 500_000 / unit && half >= empty - 600_000 / unit,
            "{options}: {half}"
        );
        file.set_len(0).unwrap();
        assert_eq!(fs.space().free, empty, "{options}");
        assert_eq!(file.metadata().sectors(), 0, "{options}");
        // Overwritten and after a hole, then written back.
        file.write_all_at(&[2; 300_000], 2_000_000).unwrap();
        file.write_all_at(&[3; 300_000], 2_100_000).unwrap();
        fs.sync().unwrap();
        let mapped: u64 = file.extents().unwrap().iter().map(|extent| extent.len).sum();
        let (free, sectors) = (fs.space().free, file.metadata().sectors());
        assert!((400_000..=430_000).contains(&mapped), "{options}: {mapped}");
        assert_eq!((empty - free) * unit, sectors * 512, "{options}");
        drop(file);
        fs.remove_file("f").unwrap();
        fs.sync().unwrap();
        assert_eq!(fs.space().free, empty, "{options}");
        // Dirty data of a file that is removed.
        create(&fs, "g").write_all_at(&[1; 900_000], 0).unwrap();
        fs.remove_file("g").unwrap();
        assert_eq!(fs.space().free, empty, "{options}");
        fs.close().unwrap();
        e2fsck(&path, None).expect_clean().unwrap();
    }
}

#[test]
fn data_and_holes_are_found_before_anything_is_written_back() {
    for options in ["-b 4096", "-b 1024 -O ^extents,^64bit", "-b 1024 -O bigalloc"] {
        let (_dir, path) = volume(24, options);
        let fs = open(&path, 4 << 10, DontCachePolicy::Flusher);
        let file = create(&fs, "f");
        file.write_all_at(&[1; 65_536], 1 << 20).unwrap();
        file.write_all_at(&[1; 100], 3 << 20).unwrap();
        assert_eq!(file.seek_data(0).unwrap(), Some(1 << 20), "{options}");
        assert_eq!(file.seek_hole(1 << 20).unwrap(), Some((1 << 20) + 65_536), "{options}");
        assert_eq!(file.seek_data((1 << 20) + 65_536).unwrap(), Some(3 << 20), "{options}");
        assert_eq!(file.seek_hole(3 << 20).unwrap(), Some((3 << 20) + 100), "{options}");
        let mut raw = [0; 100];
        file.write_all_at(&[2; 100], 3 << 20).unwrap();
        assert_eq!(file.read_raw_at(&mut raw, 3 << 20).unwrap(), 100);
        assert_eq!(raw, [2; 100], "{options}: as it is stored, or will be");
    }
}

#[test]
fn times_that_the_caller_keeps_stay_until_it_sets_them() {
    for cache_kib in [0, 1024] {
        let (_dir, path) = volume(16, "");
        let fs = open(&path, cache_kib, DontCachePolicy::default());
        let node = fs.root().unwrap().create_file("a", &NewFile::default()).unwrap();
        let file = node.open().unwrap();
        let old = Timestamp { sec: 1_000_000_000, nsec: 5 };
        let times = SetAttributes { modified: Some(old), changed: Some(old), ..Default::default() };
        node.set_times_kept(true);
        node.set_attributes(&times).unwrap();
        file.write_all_at(&[7; 9000], 0).unwrap();
        file.write_all_at(&[8; 100], 4096).unwrap();
        file.sync_all().unwrap();
        // Over existing blocks, into a hole, and with space allocated and freed.
        file.write_all_at(&[9; 100], 4096).unwrap();
        file.set_len(100_000).unwrap();
        file.allocate(FallocateMode::KeepSize, 0, 200_000).unwrap();
        file.write_all_at(&[1; 10], 50_000).unwrap();
        assert_eq!((node.metadata().modified(), node.metadata().changed()), (old, old));
        file.sync_all().unwrap();
        node.set_times_kept(false);
        file.write_all_at(&[1; 10], 0).unwrap();
        assert!(node.metadata().modified() > old && node.metadata().changed() > old);

        // A file that only grows keeps its own times.
        node.set_times_kept(true);
        node.set_attributes(&times).unwrap();
        let grows = SetAttributes {
            flags: Some(node.metadata().flags() | InodeFlags::APPEND),
            ..Default::default()
        };
        node.set_attributes(&grows).unwrap();
        file.append(&[1; 10]).unwrap();
        assert!(node.metadata().modified() > old);
        drop((file, node));
        fs.close().unwrap();
        e2fsck(&path, None).expect_clean().unwrap();
    }
}

#[test]
fn an_image_that_is_only_read_is_not_held_in_memory_twice() {
    extant_testkit::require!(E2fsprogs);
    let (_dir, path) = volume(16, "");
    let bytes: Vec<u8> = (0..300_000u32).map(|n| (n * 7) as u8).collect();
    let fs = OpenOptions::new().write(true).open(&path).unwrap();
    create(&fs, "file").write_all_at(&bytes, 0).unwrap();
    fs.close().unwrap();
    let cached = |fs: &Filesystem| fs.cache_stats().unwrap().cached;
    let fs = Filesystem::open(&path).unwrap();
    assert!(fs.read("/file").unwrap() == bytes);
    assert_eq!(cached(&fs), 0, "the system's page cache has the bytes");
    // Lent bytes must lie in folios, and reads then use them.
    let file = fs.open_file("/file").unwrap();
    assert!(file.borrow(4096).unwrap().starts_with(&bytes[4096..8192]));
    assert!(cached(&fs) > 0 && fs.read("/file").unwrap() == bytes);
    // A caller that asks for a cache gets one.
    let fs = OpenOptions::new().page_cache_bytes(1 << 20).open(&path).unwrap();
    assert!(fs.read("/file").unwrap() == bytes);
    assert!(cached(&fs) > 0);
}
