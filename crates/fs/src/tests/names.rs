//! Names put in, taken out and pointed elsewhere, against a map in memory.

use super::{Bench, Random, features};
use crate::mkfs::MkfsOptions;
use extant_base::{BlockSize, Error, Ino};
use extant_ondisk::dirent::EntryKind;
use extant_ondisk::inode::InodeFlags;
use std::collections::BTreeMap;

/// A name of some length, short or long by turns; few enough for repeats.
fn name(random: &mut Random, range: usize) -> Vec<u8> {
    let n = random.below(range);
    let len = [3, 8, 20, 60, 200][n % 5] + n % 7;
    let mut name = format!("{n:x}-").into_bytes();
    name.extend((0..len).map(|i| b'a' + ((n * 7 + i * 3) % 26) as u8));
    name.truncate(255);
    name
}

/// Random inserts, removes and sets in one directory; then all judges.
fn run(bench: &Bench, steps: usize, range: usize, seed: u64, flags: InodeFlags) {
    let mut random = Random::new(seed);
    let (dir, mut body) = bench.mkdir("d", flags);
    let targets = [bench.file(dir, 1), bench.file(dir, 1)];
    let mut model: BTreeMap<Vec<u8>, Ino> = BTreeMap::new();
    for step in 0..steps {
        let name = name(&mut random, range);
        let target = targets[random.below(2)];
        let kind = EntryKind::Regular;
        // Filling first, emptying later.
        let remove = random.below(10) < if step * 2 < steps { 2 } else { 6 };
        bench
            .with(|volume, handle| {
                if remove {
                    match volume.dir_remove(handle, dir, &mut body, &name) {
                        Ok(ino) => assert_eq!(model.remove(&name), Some(ino)),
                        Err(Error::NotFound) => assert!(!model.contains_key(&name)),
                        Err(error) => panic!("{error}"),
                    }
                } else if random.below(8) == 0 && model.contains_key(&name) {
                    let before = volume.dir_set(handle, dir, &mut body, &name, target, kind)?;
                    assert_eq!(model.insert(name.clone(), target), Some(before));
                } else {
                    match volume.dir_insert(handle, dir, &mut body, &name, target, kind) {
                        Ok(()) => assert_eq!(model.insert(name.clone(), target), None),
                        Err(Error::Exists) => assert!(model.contains_key(&name)),
                        Err(error) => panic!("step {step}: {error}"),
                    }
                }
                Ok(())
            })
            .unwrap();
    }
    for target in targets {
        let count = model.values().filter(|ino| **ino == target).count();
        bench.set_links(target, count as u16);
        if count == 0 {
            bench
                .with(|volume, handle| {
                    let mut body = volume.read_inode(target)?;
                    volume.release_inode(handle, target, &mut body)
                })
                .unwrap();
        }
    }
    bench.store(dir, &mut body);
    bench.judge();
    let expected: Vec<_> = model.iter().map(|(name, ino)| (name.clone(), ino.get())).collect();
    assert_eq!(bench.names(dir, &body), expected);
    let view = bench.volume.dir(dir, &body).unwrap();
    for (name, ino) in &model {
        assert_eq!(view.lookup(name).unwrap().ino, *ino);
    }
    let listing = bench.debugfs("ls -p /d");
    assert_eq!(
        listing.lines().filter(|line| line.starts_with('/') && !line.starts_with("/0/")).count(),
        model.len() + 2
    );
    if body.disk.flags.contains(InodeFlags::INDEX) {
        assert!(!bench.debugfs("htree_dump /d").contains("orrupt"));
    }
}

fn block(bytes: u32) -> MkfsOptions {
    MkfsOptions::new().block_size(BlockSize::from_bytes(bytes).unwrap())
}

#[test]
fn random_names_on_volumes_of_many_kinds() {
    let no_flags = InodeFlags::empty();
    let kinds: Vec<(&str, u64, MkfsOptions, usize, InodeFlags)> = vec![
        ("1k", 64, block(1024), 4000, no_flags),
        ("4k", 64, block(4096), 4000, no_flags),
        ("64k", 512, block(65536), 4000, no_flags),
        ("inline", 64, features("inline_data"), 40, no_flags),
        ("inline-big", 64, features("inline_data"), 2000, no_flags),
        ("nocsum", 64, features("^metadata_csum"), 2000, no_flags),
        ("gdtcsum", 64, features("uninit_bg"), 2000, no_flags),
        ("noindex", 64, features("^dir_index"), 600, no_flags),
        ("nofiletype", 64, features("^filetype"), 1000, no_flags),
        ("ext2", 64, MkfsOptions::of_type("ext2").unwrap(), 1000, no_flags),
        ("ext3", 64, MkfsOptions::of_type("ext3").unwrap(), 1000, no_flags),
        ("casefold", 64, features("casefold"), 1500, InodeFlags::CASEFOLD),
        (
            "casefold-1k",
            64,
            features("casefold").block_size(BlockSize::from_bytes(1024).unwrap()),
            1500,
            InodeFlags::CASEFOLD,
        ),
        (
            "bigalloc",
            64,
            features("bigalloc")
                .block_size(BlockSize::from_bytes(4096).unwrap())
                .cluster_bytes(16_384),
            1500,
            no_flags,
        ),
    ];
    for (kind, mib, options, steps, flags) in kinds {
        eprintln!("{kind}");
        run(&Bench::made(mib, options), steps, steps, 11, flags);
    }
}

#[test]
fn random_names_on_volumes_of_mke2fs() {
    for (options, steps) in [
        ("-t ext4 -b 1024", 2000),
        ("-t ext4 -b 4096 -O inline_data,^metadata_csum", 1500),
        ("-t ext3 -b 2048", 1000),
        ("-t ext2 -I 128", 800),
    ] {
        eprintln!("{options}");
        run(&Bench::mke2fs(64, options), steps, steps, 5, InodeFlags::empty());
    }
}
