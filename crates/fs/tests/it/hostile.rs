//! Damaged volumes: everything is walked and read, and nothing panics, hangs or grows without
//! bound.
//!
//! ```text
//!   small valid images ──some bytes changed, by seed──► open ──► walk, read, list, look up
//!                                                        every result is valid, or an error
//! ```
//!
//! Work is bounded by counting device reads, not by time: an operation that reads more than a scan
//! of the whole volume could need is a failure.

use extant::{BlockDevice, Error, FileKind, Filesystem, MemoryDevice, OpenOptions, Result};
use extant_base::ByteOffset;
use extant_testkit::e2fsprogs::mke2fs;
use extant_testkit::rng::{self, Rng};
use extant_testkit::scratch::Scratch;
use std::fs;
use std::os::unix::fs::symlink;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many device reads one operation may make on an image of a few MiB.
const READS_MAX: u64 = 60_000;

/// How many names a walk may list before the test ends it.
const ENTRIES_MAX: usize = 3000;

/// A device that counts requests.
struct Counting {
    inner: MemoryDevice,
    reads: AtomicU64,
}

impl Counting {
    /// Ends an operation and checks its number of reads.
    fn end_of(&self, what: &str) {
        let reads = self.reads.swap(0, Ordering::Relaxed);
        assert!(reads < READS_MAX, "{what}: {reads} device reads");
    }
}

impl BlockDevice for Counting {
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn read_at(&self, at: ByteOffset, buf: &mut [u8]) -> Result<()> {
        let reads = self.reads.fetch_add(1, Ordering::Relaxed);
        assert!(reads < 4 * READS_MAX, "one operation made {reads} device reads");
        self.inner.read_at(at, buf)
    }
    fn write_at(&self, _: ByteOffset, _: &[u8]) -> Result<()> {
        panic!("a volume opened to read was written");
    }
    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("a/b/c")).unwrap();
    for (name, len) in [("empty", 0), ("small", 50), ("medium", 9000), ("large", 300_000)] {
        fs::write(root.join(name), rng::bytes(len as u64, len)).unwrap();
        fs::write(root.join("a").join(name), rng::bytes(7, len / 2)).unwrap();
    }
    fs::create_dir(root.join("many")).unwrap();
    for n in 0..300 {
        fs::write(root.join(format!("many/quite-a-long-name-to-fill-blocks-{n:03}")), "x").unwrap();
    }
    symlink("../a/b/c", root.join("a/short")).unwrap();
    symlink("long/".repeat(40), root.join("long")).unwrap();
    fs::hard_link(root.join("small"), root.join("a/b/hard")).unwrap();
    let value = rng::bytes(5, 300);
    for path in ["small", "a", "large"] {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::lsetxattr(root.join(path), "user.attribute", &value, flags).unwrap();
        rustix::fs::lsetxattr(root.join(path), "user.b", &value[..9], flags).unwrap();
    }
}

/// Reads everything that can be read, and ignores errors.
fn read_all(device: &Arc<Counting>) {
    let shared = Arc::clone(device) as Arc<dyn BlockDevice>;
    let opened = OpenOptions::new().cache_bytes(1 << 20).open_device(shared);
    device.end_of("open");
    let Ok(fs) = opened else { return };
    let mut buf = vec![0; 40_000];
    for entry in fs.walk("/").take(ENTRIES_MAX) {
        device.end_of("walk");
        let Ok(entry) = entry else { continue };
        let _ = entry.metadata();
        let _ = fs.node_of_ino(entry.ino()).and_then(|node| node.xattr_values());
        device.end_of("xattrs");
        match entry.file_type() {
            FileKind::Regular => read_file(&fs, &entry, &mut buf, device),
            FileKind::Symlink => drop(entry.read_link()),
            _ => {}
        }
        device.end_of("symlink");
    }
    for path in ["a/b/c/../hard", "a/short", "long", "many/quite-a-long-name-to-fill-blocks-123"] {
        let _ = fs.metadata(path);
        device.end_of("lookup");
    }
    let _ = fs.metadata("many/quite-a-long-name-to-fill-blocks-999");
    device.end_of("lookup of nothing");
}

fn read_file(fs: &Filesystem, entry: &extant::WalkEntry, buf: &mut [u8], device: &Counting) {
    let Ok(file) = entry.open() else { return };
    let len = file.metadata().len();
    for at in [0, len / 2, len.saturating_sub(10_000)] {
        let _ = file.read_at(buf, at);
        device.end_of("read");
    }
    let mut at = 0;
    for _ in 0..20 {
        let Ok(Some(data)) = file.seek_data(at) else { break };
        let Ok(Some(hole)) = file.seek_hole(data) else { break };
        assert!(hole > at, "seeking goes on");
        at = hole;
        device.end_of("seek");
    }
    let _ = file.extents();
    device.end_of("extents");
    let _ = fs.node_of_ino(entry.ino()).map(|node| node.metadata());
}

/// Where an image has content. Changes matter only there.
pub(crate) fn used_chunks(image: &[u8]) -> Vec<usize> {
    let chunks = image.chunks(64).enumerate();
    chunks.filter(|(_, chunk)| chunk.iter().any(|byte| *byte != 0)).map(|(n, _)| n * 64).collect()
}

/// Changes one to four places.
pub(crate) fn damage(image: &mut [u8], used: &[usize], rng: &mut Rng) {
    const WORDS: [u32; 10] =
        [0, 1, 2, 12, 0xFF, 0x8000, 0xFFFF, 0x7FFF_FFFF, 0x8000_0000, u32::MAX];
    for _ in 0..1 + rng.below(4) {
        // Half of the damage goes to the first part, where the metadata is.
        let range = if rng.below(2) == 0 { used.len() / 4 } else { used.len() };
        let at = (used[rng.below(range.max(1))] + rng.below(64)).min(image.len() - 8);
        match rng.below(5) {
            0 => image[at] ^= 1 << rng.below(8),
            1 => image[at] = rng.next_u64() as u8,
            2 => image[at & !1..][..2].copy_from_slice(&(WORDS[rng.below(7)] as u16).to_le_bytes()),
            3 => image[at & !3..][..4].copy_from_slice(&WORDS[rng.below(10)].to_le_bytes()),
            _ => {
                // A word from elsewhere: a valid block number, but not the right one.
                let from = used[rng.below(used.len())] & !3;
                image.copy_within(from..from + 4, at & !3);
            }
        }
    }
}

const IMAGES: &[(&str, &str)] = &[
    ("ext2 at 1 KiB", "-t ext2 -b 1024 -N 600"),
    ("block maps, htree", "-t ext3 -b 1024 -N 600 -O ^has_journal,dir_index"),
    ("ext4 without checksums", "-b 1024 -N 600 -O ^metadata_csum,^has_journal"),
    ("ext4 with checksums", "-b 1024 -N 600 -O ^has_journal"),
    ("inline data", "-b 1024 -N 600 -O inline_data,^metadata_csum,^has_journal"),
    ("clusters", "-b 1024 -N 600 -O bigalloc,^metadata_csum,^has_journal -C 2048"),
    ("value inodes, 4 KiB", "-b 4096 -N 600 -O ea_inode,casefold,^metadata_csum,^has_journal"),
];

fn images(scratch: &Scratch) -> Vec<(&'static str, Vec<u8>)> {
    let tree = scratch.file("tree");
    make_tree(&tree);
    let make = |(name, options): &(&'static str, &str)| {
        let image = scratch.file("image");
        mke2fs(&image, 4 << 20, options, Some(&tree)).unwrap();
        let fsck = Command::new("e2fsck").args(["-fyD"]).arg(&image).output().unwrap();
        assert!(fsck.status.code().is_some_and(|code| code <= 1), "{name}: {fsck:?}");
        (*name, fs::read(&image).unwrap())
    };
    IMAGES.iter().map(make).collect()
}

/// How many damaged volumes of each kind are read.
fn rounds() -> u64 {
    std::env::var("EXTANT_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(400)
}

#[test]
fn damaged_volumes_are_read_without_harm() {
    extant_testkit::require!(E2fsprogs);
    let scratch = Scratch::new();
    let images = images(&scratch);
    let first = std::env::var("EXTANT_SEED").ok().and_then(|n| n.parse().ok());
    std::thread::scope(|threads| {
        for (name, image) in &images {
            threads.spawn(move || {
                let used = used_chunks(image);
                let seeds = match first {
                    Some(seed) => seed..seed + 1,
                    None => 0..rounds(),
                };
                for seed in seeds {
                    let mut rng = Rng::new(seed);
                    let mut bytes = image.clone();
                    damage(&mut bytes, &used, &mut rng);
                    let device = Counting {
                        inner: MemoryDevice::from_bytes(&bytes),
                        reads: AtomicU64::new(0),
                    };
                    let device = Arc::new(device);
                    let done = catch_unwind(AssertUnwindSafe(|| read_all(&device)));
                    assert!(done.is_ok(), "{name}: EXTANT_SEED={seed}");
                }
            });
        }
    });
}

#[test]
fn truncated_volumes_are_refused_with_an_error() {
    extant_testkit::require!(E2fsprogs);
    let scratch = Scratch::new();
    let image = scratch.file("image");
    mke2fs(&image, 1 << 20, "-b 1024", None).unwrap();
    let bytes = fs::read(&image).unwrap();
    for len in [0, 1, 1023, 1024, 1500, 2047, 2048, 4096, 100_000, bytes.len() - 1] {
        let device = Arc::new(MemoryDevice::from_bytes(&bytes[..len]));
        match Filesystem::open_device(device) {
            Err(Error::Corrupt { .. } | Error::Device { .. }) => {}
            Err(other) => panic!("{len}: {other}"),
            Ok(_) => panic!("{len}: opened"),
        }
    }
}

#[test]
fn volumes_that_e2fsprogs_calls_damaged_are_read_without_harm() {
    let Some(images) = extant_testkit::damaged::images() else { return };
    let scratch = Scratch::new();
    for damaged in images {
        let path = scratch.file("image");
        damaged.unpack(&path).unwrap();
        println!("{}", damaged.name);
        let Ok(fs) = OpenOptions::new().recover(false).open(&path) else { continue };
        let mut buf = vec![0; 1 << 16];
        for entry in fs.walk("/").take(20_000).flatten() {
            let _ = fs.node_of_ino(entry.ino()).and_then(|node| node.xattr_values());
            if let Ok(file) = entry.open() {
                let _ = file.read_at(&mut buf, 0);
                let _ = file.extents();
            }
            let _ = entry.read_link();
        }
        fs::remove_file(&path).unwrap();
    }
}
