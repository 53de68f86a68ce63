//! Data that was accepted on a volume without free space: either the write fails with NoSpace, or a
//! sync succeeds.
//!
//! ```text
//!   ballast ─► a few free blocks ─► writes until NoSpace ─► sync: never NoSpace ─► data there
//! ```

use crate::common::{judge, mke2fs, new_file};
use extant::mkfs::{InodeCount, MkfsOptions, format};
use extant::{
    BlockSize, Environment, Error, FallocateMode, File, Filesystem, MemoryDevice, OpenOptions,
};
use extant_testkit::rng::Rng;
use std::sync::Arc;

fn open(device: &Arc<MemoryDevice>) -> Filesystem {
    let mut options = OpenOptions::new();
    options.write(true).commit_interval(None).page_cache_bytes(64 << 20);
    options.open_device(device.clone()).unwrap()
}

/// A volume that mke2fs made.
fn volume(mib: u64, mke2fs_options: &str) -> (Arc<MemoryDevice>, Filesystem) {
    let device = Arc::new(mke2fs(mib, mke2fs_options));
    let fs = open(&device);
    (device, fs)
}

/// A volume with 1 KiB blocks and data checksums.
fn with_data_csum(mib: u64) -> (Arc<MemoryDevice>, Filesystem) {
    let device = Arc::new(MemoryDevice::new(mib << 20));
    let options = MkfsOptions::new()
        .block_size(BlockSize::from_bytes(1024).unwrap())
        .features("data_csum")
        .unwrap()
        .inodes(InodeCount::AtLeast(6000))
        .reserved_percent(0.0)
        .zeroed(true);
    format(device.clone(), &options, &Environment::default()).unwrap();
    let fs = open(&device);
    (device, fs)
}

/// Fills the volume except for about `left` bytes; everything is durable.
fn ballast(fs: &Filesystem, left: u64) -> File {
    let file = new_file(fs, "ballast");
    for len in [256 << 10, 4 << 10, 1 << 10] {
        while file.append(&vec![0xBB; len]).is_ok_and(|n| n > 0) {}
    }
    fs.sync().unwrap();
    let keep = file.metadata().len().checked_sub(left).expect("the volume is larger");
    file.set_len(keep).unwrap();
    fs.sync().unwrap();
    file
}

/// Writes every other block of `blocks` to files named `name` and a number, until there is no space
/// or `files` are written. Returns how many are complete.
fn write_every_other(fs: &Filesystem, name: &str, files: u32, blocks: u64) -> u32 {
    for n in 0..files {
        let written = fs.open_file(format!("{name}{n}")).and_then(|file| {
            let mut at = (0..blocks).step_by(2);
            at.try_for_each(|at| file.write_all_at(&[n as u8 | 1; 1024], at * 1024))
        });
        match written {
            Ok(()) => {}
            Err(Error::NoSpace) => return n,
            Err(error) => panic!("{name}{n}: {error}"),
        }
    }
    files
}

fn expect_every_other(fs: &Filesystem, name: &str, files: u32, blocks: u64) {
    for n in 0..files {
        let bytes = fs.read(format!("{name}{n}")).unwrap();
        for at in (0..blocks).step_by(2) {
            let block = &bytes[at as usize * 1024..][..1024];
            assert!(block.iter().all(|byte| *byte == n as u8 | 1), "{name}{n}, block {at}");
        }
    }
}

#[test]
fn many_small_fragmented_files_have_space_for_their_maps() {
    let (device, fs) = volume(64, "-b 1024 -m 0 -N 8192");
    for n in 0..4000 {
        new_file(&fs, &format!("f{n}"));
    }
    let ballast = ballast(&fs, 20 << 20);
    let whole = write_every_other(&fs, "f", 4000, 10);
    assert!(whole > 2000, "{whole}");
    fs.sync().unwrap();
    expect_every_other(&fs, "f", whole, 10);
    drop(ballast);
    fs.close().unwrap();
    judge(&*device);
}

#[test]
fn unwritten_blocks_that_are_written_in_pieces_have_space_for_their_map() {
    let (device, fs) = volume(64, "-b 1024 -m 0 -N 8192");
    for n in 0..2000 {
        new_file(&fs, &format!("f{n}")).allocate(FallocateMode::Allocate, 0, 12 << 10).unwrap();
    }
    let ballast = ballast(&fs, 0);
    let whole = write_every_other(&fs, "f", 2000, 12);
    fs.sync().unwrap();
    expect_every_other(&fs, "f", whole, 12);
    assert!(whole > 500, "{whole}");
    drop(ballast);
    fs.close().unwrap();
    judge(&*device);
}

#[test]
fn clusters_that_are_written_in_pieces_have_space_for_their_map() {
    let (device, fs) = volume(64, "-b 1024 -m 0 -O bigalloc -C 16384");
    let file = new_file(&fs, "f0");
    file.allocate(FallocateMode::Allocate, 0, 30 << 20).unwrap();
    let ballast = ballast(&fs, 0);
    write_every_other(&fs, "f", 1, 30 << 10);
    fs.sync().unwrap();
    drop((file, ballast));
    fs.close().unwrap();
    judge(&*device);
}

#[test]
fn covered_blocks_that_are_overwritten_in_pieces_have_space_for_their_map() {
    let (device, fs) = with_data_csum(96);
    for n in 0..4000 {
        new_file(&fs, &format!("f{n}")).write_all_at(&[n as u8; 12 << 10], 0).unwrap();
    }
    let ballast = ballast(&fs, 24 << 20);
    let whole = write_every_other(&fs, "f", 4000, 12);
    assert!(whole > 1500, "{whole}");
    fs.sync().unwrap();
    expect_every_other(&fs, "f", whole, 12);
    drop(ballast);
    fs.close().unwrap();
    judge(&*device);
}

#[test]
fn a_short_write_reserves_nothing_for_the_bytes_that_it_leaves_out() {
    let (device, fs) = with_data_csum(24);
    let file = new_file(&fs, "f");
    // A hole, then blocks whose overwrite needs new blocks.
    file.write_all_at(&[1; 40 << 10], 60 << 10).unwrap();
    let ballast = ballast(&fs, 50 << 10);
    let free = fs.space().free;
    let n = file.write_at(&[2; 100 << 10], 0).unwrap();
    assert!((45 << 10..60 << 10).contains(&n), "{n} bytes where {free} blocks are free");
    file.sync_all().unwrap();
    let used = (n / 1024) as u64;
    assert!(fs.space().free + used + 2 >= free, "{:?}, {free} before, {used} used", fs.space());
    drop((file, ballast));
    fs.close().unwrap();
    judge(&*device);
}

#[test]
fn space_freed_by_a_removal_is_available_to_the_next_write_and_its_sync() {
    for kind in ["-b 1024 -m 0", "-b 4096 -m 0", "-b 1024 -m 0 -O ^extents,^64bit"] {
        let (device, fs) = volume(32, kind);
        new_file(&fs, "old").write_all_at(&vec![1; 3 << 20], 0).unwrap();
        let ballast = ballast(&fs, 0);
        for round in 0..8u8 {
            // The space that is free now waits for the commit of this removal.
            fs.remove_file("old").unwrap();
            let file = new_file(&fs, "old");
            file.write_all_at(&vec![round; 2 << 20], 0).unwrap_or_else(|e| panic!("{kind}: {e}"));
            file.sync_all().unwrap_or_else(|e| panic!("{kind}, round {round}: {e}"));
            assert!(fs.read("old").unwrap() == vec![round; 2 << 20], "{kind}");
        }
        drop(ballast);
        fs.close().unwrap();
        judge(&*device);
    }
}

/// The content of a file in the random test; `None` if a call on it ran out of space half-way.
type Bytes = Option<Vec<u8>>;

fn random_step(fs: &Filesystem, rng: &mut Rng, files: &mut [Bytes]) -> extant::Result<()> {
    const LEN: usize = 90 << 10;
    let n = rng.below(files.len());
    let name = format!("f{n}");
    let file = fs.open_file(&name)?;
    let at = rng.below(LEN);
    let most = [1, 700, 5000, 60_000][rng.below(4)];
    let len = (1 + rng.below(most)).min(LEN - at);
    let value = 1 + rng.below(250) as u8;
    let mut bytes = files[n].take().unwrap_or_else(|| fs.read(&name).unwrap());
    match rng.below(100) {
        0..60 => {
            file.write_all_at(&vec![value; len], at as u64)?;
            bytes.resize(bytes.len().max(at + len), 0);
            bytes[at..at + len].fill(value);
        }
        60..70 => {
            file.set_len(at as u64)?;
            bytes.resize(at, 0);
        }
        70..78 => match file.allocate(FallocateMode::KeepSize, at as u64, len as u64) {
            Err(Error::NotSupported(_)) => {}
            done => done?,
        },
        78..84 if at + len <= bytes.len() => {
            file.allocate(FallocateMode::PunchHole, at as u64, len as u64)?;
            bytes[at..at + len].fill(0);
        }
        84..88 => {
            file.set_len(0)?;
            bytes.clear();
        }
        _ => {}
    }
    files[n] = Some(bytes);
    Ok(())
}

#[test]
fn every_accepted_write_on_a_full_volume_can_be_synced() {
    let kinds = [
        "-b 1024 -m 0",
        "-b 4096 -m 0",
        "-b 1024 -m 0 -O bigalloc -C 8192",
        "-b 1024 -m 0 -I 256 -O quota,inline_data",
        "-b 1024 -m 0 -O ^has_journal",
        "-b 1024 -m 0 -O ^extents,^64bit",
        "data_csum",
    ];
    for (number, kind) in kinds.into_iter().enumerate() {
        let (device, fs) = match kind {
            "data_csum" => with_data_csum(16),
            kind => volume(16, kind),
        };
        let mut files: Vec<Bytes> = (0..24).map(|_| Some(Vec::new())).collect();
        (0..24).for_each(|n| drop(new_file(&fs, &format!("f{n}"))));
        let ballast = ballast(&fs, 600 << 10);
        let mut rng = Rng::new(0xF011 + number as u64);
        let (mut refused, mut syncs) = (0, 0);
        for step in 0..4000 {
            match random_step(&fs, &mut rng, &mut files) {
                Ok(()) => {}
                Err(Error::NoSpace) => refused += 1,
                Err(error) => panic!("{kind}, step {step}: {error}"),
            }
            if rng.below(25) == 0 {
                syncs += 1;
                let done = match rng.below(4) {
                    0 => fs.sync(),
                    _ => {
                        fs.open_file(format!("f{}", rng.below(24))).and_then(|file| file.sync_all())
                    }
                };
                done.unwrap_or_else(|e| panic!("{kind}, step {step}: {e}"));
            }
        }
        fs.sync().unwrap_or_else(|e| panic!("{kind}: {e}"));
        for (n, bytes) in files.iter().enumerate() {
            if let Some(bytes) = bytes {
                assert!(fs.read(format!("f{n}")).unwrap() == *bytes, "{kind}: f{n}");
            }
        }
        assert!(refused > 20 && syncs > 50, "{kind}: {refused} refused, {syncs} syncs");
        drop(ballast);
        fs.close().unwrap();
        judge(&*device);
    }
}
