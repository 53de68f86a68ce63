//! Making a large volume writes little, opening it reads little, and the largest groups work. The
//! tests count and never measure time.

use extant::mkfs::{self, InodeCount, MkfsOptions};
use extant::{Environment, Filesystem, OpenOptions, check};
use extant_base::{ByteOffset, Result};
use extant_blockdev::{BlockDevice, MemoryDevice};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts what is written and read, and keeps the bytes in memory.
struct Counting {
    inner: MemoryDevice,
    reads: AtomicU64,
    writes: AtomicU64,
    written: AtomicU64,
    zeroed: AtomicU64,
}

impl Counting {
    fn new(bytes: u64) -> Arc<Counting> {
        let (reads, writes, written, zeroed) = Default::default();
        Arc::new(Counting { inner: MemoryDevice::new(bytes), reads, writes, written, zeroed })
    }
}

impl BlockDevice for Counting {
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn read_at(&self, at: ByteOffset, buf: &mut [u8]) -> Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.inner.read_at(at, buf)
    }
    fn write_at(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.written.fetch_add(buf.len() as u64, Ordering::Relaxed);
        self.inner.write_at(at, buf)
    }
    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }
    fn discard(&self, at: ByteOffset, len: u64) -> Result<()> {
        self.inner.discard(at, len)
    }
    fn zero(&self, at: ByteOffset, len: u64) -> Result<()> {
        self.zeroed.fetch_add(len, Ordering::Relaxed);
        self.inner.zero(at, len)
    }
}

const TIB: u64 = 1 << 40;

/// Makes a volume. Also returns how much was written: MiB, rounded up, and calls.
fn make(bytes: u64, options: &MkfsOptions) -> (Arc<Counting>, mkfs::Made, u64, u64) {
    let device = Counting::new(bytes);
    let options = options.clone().zeroed(true);
    let made = mkfs::format(device.clone(), &options, &Environment::default()).unwrap();
    assert_eq!(device.zeroed.load(Ordering::Relaxed), 0, "a zeroed device is not zeroed again");
    let mib = device.written.load(Ordering::Relaxed).div_ceil(1 << 20);
    let writes = device.writes.load(Ordering::Relaxed);
    (device, made, mib, writes)
}

#[test]
fn making_a_volume_of_a_tebibyte_writes_a_few_mebibytes() {
    let usual = MkfsOptions::new();
    // Beyond 16 TiB, nearly all that is written are backups of the descriptor table.
    let spread = MkfsOptions::new().features("meta_bg,^resize_inode").unwrap();
    // bytes, groups, most MiB written, most calls
    for (bytes, options, groups, most_mib, most_writes) in [
        (TIB, &usual, 8192, 20, 800),
        (16 * TIB - (4 << 20), &usual, 131_072, 250, 10_000),
        (64 * TIB, &spread, 524_288, 300, 80_000),
    ] {
        let (device, made, mib, writes) = make(bytes, options);
        println!("{} GiB: {mib} MiB in {writes} writes", bytes >> 30);
        assert_eq!(made.groups, groups);
        assert!(mib <= most_mib && writes <= most_writes, "{bytes}: {mib} MiB, {writes} writes");
        let fs = Filesystem::open_device(device).unwrap();
        assert!(fs.metadata("/lost+found").unwrap().is_dir());
    }
}

#[test]
fn groups_of_more_than_65528_blocks_are_made_opened_and_checked() {
    for (block, blocks_per_group, bytes) in [
        (65_536, 524_288, 3 * TIB / 16),
        (65_536, 262_144, TIB / 8),
        (16_384, 131_072, TIB / 64),
        (65_536, 524_288, TIB / 64),
    ] {
        let options = MkfsOptions::new()
            .block_size(extant_base::BlockSize::from_bytes(block).unwrap())
            .blocks_per_group(blocks_per_group)
            .inodes(InodeCount::AtLeast(4096));
        let (device, made, ..) = make(bytes, &options);
        let groups = bytes.div_ceil(u64::from(blocks_per_group) * u64::from(block));
        assert_eq!(u64::from(made.groups), groups);
        let fs = Filesystem::open_device(device.clone()).unwrap();
        assert_eq!(fs.superblock().blocks_per_group, blocks_per_group);
        let names = fs.read_dir("/").unwrap().count();
        assert_eq!(names, 1);
        drop(fs);
        let report = check::check_device(device, &check::Options::default(), &()).unwrap();
        assert!(report.clean, "{block} {blocks_per_group}: {:?}", report.findings);
    }
}

#[test]
fn a_large_volume_is_opened_with_few_requests() {
    let meta_bg = MkfsOptions::new().features("meta_bg,^resize_inode").unwrap();
    // TiB, most reads for reading, most for writing: descriptors are adjacent, or one block per 64
    // groups
    for (tib, options, to_read, to_write) in
        [(1, MkfsOptions::new(), 8, 30), (8, MkfsOptions::new(), 8, 40), (1, meta_bg, 8, 160)]
    {
        let (device, ..) = make(tib * TIB, &options);
        let reads = || device.reads.swap(0, Ordering::Relaxed);
        reads();
        drop(Filesystem::open_device(device.clone()).unwrap());
        let reading = reads();
        device.writes.store(0, Ordering::Relaxed);
        let fs = OpenOptions::new().write(true).open_device(device.clone()).unwrap();
        let writing = reads();
        println!("{tib} TiB: {reading} reads to read, {writing} to write");
        assert!(reading <= to_read && writing <= to_write, "{tib} TiB: {reading}, {writing}");
        fs.space();
        reads();
        fs.space();
        assert_eq!(reads(), 0, "statfs");
        fs.close().unwrap();
        let written = device.writes.load(Ordering::Relaxed);
        assert!(written <= 12, "{tib} TiB: {written} writes to open and close");
    }
}
