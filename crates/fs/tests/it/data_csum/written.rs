//! After every way of writing, blocks match their checksums and are never the former blocks.

use crate::common::{judge, new_file, pattern};
use crate::data_csum::{below, cut, findings, made, open, options, read_back, seed};
use extant::direct::DirectOptions;
use extant::mkfs::MkfsOptions;
use extant::{
    Environment, Error, FallocateMode, File, InodeFlags, MemoryDevice, NewFile, SetAttributes, mkfs,
};
use extant_testkit::rng::Rng;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

#[test]
fn a_new_volume_with_data_csum_is_clean_for_e2fsck_without_the_feature_bit() {
    for (block, features) in
        [(1024, ""), (4096, "quota,^resize_inode"), (4096, "inline_data"), (65_536, "")]
    {
        let device = made(192, block, features);
        let fs = open(&device, 8);
        let file = new_file(&fs, "a");
        file.write_all_at(&pattern(300_000, 1), 0).unwrap();
        drop(file);
        fs.close().unwrap();
        judge(&*device);
        assert_eq!(read_back(&device, "/a").unwrap(), pattern(300_000, 1));
    }
}

#[test]
fn features_and_flags_that_exclude_data_csum_are_refused() {
    for features in [
        "data_csum,bigalloc",
        "data_csum,^has_journal",
        "data_csum,^metadata_csum",
        "data_csum,^extent",
    ] {
        let device = Arc::new(MemoryDevice::new(64 << 20));
        let options = MkfsOptions::new().features(features).unwrap();
        assert!(
            matches!(
                mkfs::format(device, &options, &Environment::default()),
                Err(Error::Invalid(_))
            ),
            "{features}"
        );
    }
    let device = made(64, 4096, "");
    let journaled = options(8).data_mode(extant::DataMode::Journal).open_device(device.clone());
    assert!(matches!(journaled, Err(Error::NotSupported(_))));
    let fs = open(&device, 8);
    new_file(&fs, "a").write_all_at(&[1; 5000], 0).unwrap();
    let flags = |flags| SetAttributes { flags: Some(flags), ..SetAttributes::default() };
    for flag in [
        InodeFlags::JOURNAL_DATA | InodeFlags::EXTENTS,
        InodeFlags::empty(),
        InodeFlags::NOCOW | InodeFlags::EXTENTS,
    ] {
        assert!(
            matches!(fs.set_attributes("/a", &flags(flag)), Err(Error::NotSupported(_))),
            "{flag:?}"
        );
    }
    fs.close().unwrap();
    judge(&*device);
}

/// Random work compared with a plain vector, by every way of reading and writing.
fn random_work(block: usize, cache_mib: u64, one_transaction: bool, seed: u64) {
    let device = made(if block > 4096 { 192 } else { 64 }, block, "");
    let mut rng = Rng::new(seed);
    let mut want: Vec<u8> = Vec::new();
    let mut opened = options(cache_mib);
    opened.one_transaction(one_transaction);
    let fs = opened.open_device(device.clone()).unwrap();
    let file = new_file(&fs, "f");
    for step in 0..120 {
        let at = below(&mut rng, 600_000);
        let len = 1 + below(&mut rng, if step % 5 == 0 { 200_000 } else { 9000 }) as usize;
        let bytes = pattern(len, below(&mut rng, 256) as u8);
        let end = at as usize + len;
        match below(&mut rng, if one_transaction { 6 } else { 9 }) {
            0..=2 => {
                file.write_all_at(&bytes, at).unwrap();
                want.resize(want.len().max(end), 0);
                want[at as usize..end].copy_from_slice(&bytes);
            }
            3 => {
                file.set_len(at).unwrap();
                want.resize(at as usize, 0);
            }
            4 if !one_transaction => {
                let mode =
                    [FallocateMode::PunchHole, FallocateMode::ZeroRange, FallocateMode::Allocate]
                        [below(&mut rng, 3) as usize];
                file.allocate(mode, at, len as u64).unwrap();
                if mode != FallocateMode::PunchHole {
                    want.resize(want.len().max(end), 0);
                }
                if mode != FallocateMode::Allocate {
                    let (from, to) = ((at as usize).min(want.len()), end.min(want.len()));
                    want[from..to].fill(0);
                }
            }
            4 | 5 => file.sync_data().unwrap_or_else(|error| assert!(one_transaction, "{error}")),
            6 | 7 => {
                let at = at / 512 * 512;
                let end = at as usize + len;
                let n = file.write_direct_at(&bytes, at, &DirectOptions::default()).unwrap();
                assert_eq!(n, len);
                want.resize(want.len().max(end), 0);
                want[at as usize..end].copy_from_slice(&bytes);
            }
            _ => {
                let mut buf = vec![0; len];
                let n = file.read_direct_at(&mut buf, at, &DirectOptions::default()).unwrap();
                let there = want.get(at as usize..).unwrap_or_default();
                assert!(buf[..n] == there[..len.min(there.len())], "seed {seed}, step {step}");
            }
        }
        let mut seen = vec![1; want.len() + 1];
        let n = file.read_at(&mut seen, 0).unwrap();
        assert!(seen[..n] == want, "seed {seed}, step {step}: {} of {}", n, want.len());
    }
    drop(file);
    fs.close().unwrap();
    assert!(read_back(&device, "/f").unwrap() == want, "seed {seed}");
    judge(&*device);
    assert_eq!(findings(&device).0, [], "seed {seed}");
}

#[test]
fn all_written_data_is_read_back_and_matches() {
    let first = seed();
    for (n, block) in [1024, 4096, 65_536].into_iter().enumerate() {
        let seed = first + n as u64;
        random_work(block, 4, false, seed);
        random_work(block, 0, false, seed + 10);
        random_work(block, 0, true, seed + 20);
    }
}

#[test]
fn a_file_without_data_checksums_is_written_in_place_and_its_flag_is_inherited() {
    let device = made(64, 4096, "");
    let fs = open(&device, 8);
    let root = fs.root().unwrap();
    let dir = root.create_dir("d", &NewFile::directory()).unwrap();
    let nocow = |flags| SetAttributes { flags: Some(flags), ..SetAttributes::default() };
    dir.set_attributes(&nocow(InodeFlags::NOCOW | InodeFlags::EXTENTS)).unwrap();
    let file = dir.create_file("f", &NewFile::default()).unwrap().open().unwrap();
    assert!(file.metadata().flags().contains(InodeFlags::NOCOW));
    let covered = new_file(&fs, "g");
    let place = |file: &File| file.extents().unwrap()[0].block;
    let mut places = Vec::new();
    for round in 0..3u8 {
        for file in [&file, &covered] {
            file.write_all_at(&[round; 8192], 0).unwrap();
            file.sync_data().unwrap();
            places.push(place(file));
        }
    }
    assert!(places[0] == places[2] && places[2] == places[4], "{places:?}");
    assert!(places[1] != places[3] && places[3] != places[5], "{places:?}");
    drop((file, covered, dir, root));
    fs.close().unwrap();
    judge(&*device);
}

#[test]
fn readers_of_a_file_that_is_written_over_and_over_never_meet_an_error() {
    let device = made(64, 4096, "");
    // A small cache: what is read was written back, and its blocks are soon replaced.
    let fs = options(1)
        .commit_interval(Some(std::time::Duration::from_millis(20)))
        .open_device(device.clone())
        .unwrap();
    let file = new_file(&fs, "f");
    const LEN: usize = 4 << 20;
    file.write_all_at(&vec![0; LEN], 0).unwrap();
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..2u64 {
            let (file, ends) = (&file, &ends);
            scope.spawn(move || {
                let mut rng = Rng::new(seed() + writer);
                for _ in 0..1500 {
                    let n = below(&mut rng, LEN as u64 / 4096);
                    let byte = [below(&mut rng, 256) as u8; 4096];
                    match writer {
                        0 => file.write_at(&byte, n * 4096).unwrap(),
                        _ => file
                            .write_direct_at(&byte, n * 4096, &DirectOptions::default())
                            .unwrap(),
                    };
                    if n.is_multiple_of(100) {
                        file.sync_data().unwrap();
                    }
                }
                ends.store(true, Relaxed);
            });
        }
        for reader in 0..2u64 {
            let (file, ends) = (&file, &ends);
            scope.spawn(move || {
                let mut rng = Rng::new(seed() + 100 + reader);
                let mut buf = vec![0; 65_536];
                while !ends.load(Relaxed) {
                    let at = below(&mut rng, LEN as u64 / 65_536) * 65_536;
                    match reader {
                        0 => file.read_at(&mut buf, at).unwrap(),
                        _ => file.read_direct_at(&mut buf, at, &DirectOptions::default()).unwrap(),
                    };
                    for block in buf.chunks(4096) {
                        assert!(block.iter().all(|byte| *byte == block[0]), "a torn block");
                    }
                }
            });
        }
    });
    drop(file);
    fs.close().unwrap();
    read_back(&device, "/f").unwrap();
    judge(&*device);
    assert_eq!(findings(&device).0, []);
}

#[test]
fn a_write_over_a_zeroed_range_keeps_the_blocks_of_the_last_commit() {
    for (cache, is_direct) in [(0, false), (8, false), (8, true)] {
        let device = made(64, 4096, "");
        let fs = open(&device, cache);
        let file = new_file(&fs, "f");
        let old = pattern(400_000, 1);
        file.write_all_at(&old, 0).unwrap();
        fs.sync().unwrap();
        file.allocate(FallocateMode::ZeroRange, 0, 300_000).unwrap();
        let new = pattern(262_144, 2);
        match is_direct {
            true => {
                let n = file.write_direct_at(&new, 0, &DirectOptions::default()).unwrap();
                assert_eq!(n, new.len());
            }
            false => file.write_all_at(&new, 0).unwrap(),
        }
        // Nothing was committed, but the data may be on the device.
        assert!(read_back(&cut(&device), "/f").unwrap() == old, "cache {cache}, {is_direct}");
        fs.sync().unwrap();
        let mut want = old.clone();
        want[..300_000].fill(0);
        want[..new.len()].copy_from_slice(&new);
        assert!(read_back(&cut(&device), "/f").unwrap() == want);
        drop(file);
        fs.close().unwrap();
        judge(&*device);
        assert_eq!(findings(&device).0, []);
    }
}
