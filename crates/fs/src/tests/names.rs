//! Names inserted, removed and changed, compared with a map in memory.

use super::{Bench, Random, features};
use crate::offline::mkfs::MkfsOptions;
use crate::state::inode::Inode;
use crate::tree::dir::pack::PackEntry;
use crate::tree::names::create::{Content, NewFile};
use crate::tree::names::rename::RenameFlags;
use extant_base::{BlockSize, Error, Ino};
use extant_ondisk::dirent::EntryKind;
use extant_ondisk::inode::{FileKind, InodeFlags};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A name, alternately short and long, from a small set, so that names repeat.
fn name(random: &mut Random, range: usize) -> Vec<u8> {
    let n = random.below(range);
    let len = [3, 8, 20, 60, 200][n % 5] + n % 7;
    let mut name = format!("{n:x}-").into_bytes();
    name.extend((0..len).map(|i| b'a' + ((n * 7 + i * 3) % 26) as u8));
    name.truncate(255);
    name
}

/// Random inserts, removes and sets in one directory; then all checks.
fn run(bench: &Bench, steps: usize, range: usize, seed: u64, flags: InodeFlags) {
    let mut random = Random::new(seed);
    let (dir, mut body) = bench.mkdir("d", flags);
    let targets = [bench.file(dir, 1), bench.file(dir, 1)];
    let mut model: BTreeMap<Vec<u8>, Ino> = BTreeMap::new();
    for step in 0..steps {
        let name = name(&mut random, range);
        let target = targets[random.below(2)];
        let kind = EntryKind::Regular;
        // First mostly inserts, later mostly removes.
        let remove = random.below(10) < if step * 2 < steps { 2 } else { 6 };
        bench
            .with(|volume, handle| {
                if remove {
                    match volume.dir_mut(&mut body).remove(handle, &name) {
                        Ok(ino) => assert_eq!(model.remove(&name), Some(ino)),
                        Err(Error::NotFound) => assert!(!model.contains_key(&name)),
                        Err(error) => panic!("{error}"),
                    }
                } else if random.below(8) == 0 && model.contains_key(&name) {
                    let before = volume.dir_mut(&mut body).set(handle, &name, target, kind)?;
                    assert_eq!(model.insert(name.clone(), target), Some(before));
                } else {
                    match volume.dir_mut(&mut body).insert(handle, &name, target, kind) {
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
                    let mut body = volume.inodes().read(target)?;
                    volume.file_mut(&mut body).release_inode(handle)
                })
                .unwrap();
        }
    }
    bench.store(&mut body);
    bench.judge();
    let expected: Vec<_> = model.iter().map(|(name, ino)| (name.clone(), ino.get())).collect();
    assert_eq!(bench.names(&body), expected);
    let view = bench.volume.file(&body).dir().unwrap();
    for (name, ino) in &model {
        assert_eq!(view.lookup(name).unwrap().ino, *ino);
    }
    let listing = bench.debugfs("ls -p /d");
    assert_eq!(
        listing.lines().filter(|line| line.starts_with('/') && !line.starts_with("/0/")).count(),
        model.len() + 2
    );
    // Without checksums, debugfs still looks for them and complains.
    let has_checksums = bench.volume.checksums().seed().is_some();
    if has_checksums && body.disk.flags.contains(InodeFlags::INDEX) {
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

/// `n` different names, long enough to fill blocks fast.
fn long(n: usize) -> Vec<u8> {
    format!("{n:-<240}").into_bytes()
}

#[test]
fn a_full_volume_refuses_names_and_stays_whole() {
    for (options, indexed) in [
        (block(1024).reserved_percent(0.0), true),
        (features("^dir_index").block_size(BlockSize::from_bytes(1024).unwrap()), false),
        (features("inline_data").block_size(BlockSize::from_bytes(1024).unwrap()), true),
    ] {
        let bench = Bench::made(2, options.features("^has_journal").unwrap());
        let (dir, mut body) = bench.mkdir("d", InodeFlags::empty());
        let target = bench.file(dir, 1);
        let mut count = 0;
        let mut refused = 0;
        while refused < 3 {
            let name = long(count + refused * 100_000);
            let done = bench.with(|volume, handle| {
                volume.dir_mut(&mut body).insert(handle, &name, target, EntryKind::Regular)
            });
            match done {
                Ok(()) => count += 1,
                Err(Error::NoSpace) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(count > 100, "{count}");
        assert_eq!(body.disk.flags.contains(InodeFlags::INDEX), indexed);
        bench.set_links(target, count as u16);
        bench.store(&mut body);
        bench.judge();
        assert_eq!(bench.names(&body).len(), count);
    }
}

#[test]
fn an_index_grows_to_two_levels_and_with_large_dir_to_three() {
    let small = BlockSize::from_bytes(1024).unwrap();
    let count = 36_000;
    let bench = Bench::made(256, features("large_dir").block_size(small));
    let (dir, mut body) = bench.mkdir("d", InodeFlags::empty());
    let target = bench.file(dir, count as u16);
    let mut depth = 0;
    for n in 0..count {
        bench
            .with(|volume, handle| {
                volume.dir_mut(&mut body).insert(handle, &long(n), target, EntryKind::Regular)
            })
            .unwrap();
        if n % 1000 == 0 && n > 0 {
            let view = bench.volume.file(&body).dir().unwrap();
            let probe = view.probe(|_| Ok(Default::default())).unwrap();
            depth = depth.max(probe.info.levels);
        }
    }
    assert_eq!(depth, 2, "36,000 names of 240 bytes need a third level");
    bench.store(&mut body);
    bench.judge();
    let view = bench.volume.file(&body).dir().unwrap();
    for n in (0..count).step_by(97) {
        assert_eq!(view.lookup(&long(n)).unwrap().ino, target);
    }
    assert!(!bench.debugfs("htree_dump /d").contains("orrupt"));
}

/// Names of 240 bytes that all have the same legacy hash. The next-to-last byte is tried, and the
/// last one computed: `hash = before2 + (before1 ^ last * K)`.
fn colliding(count: usize) -> Vec<Vec<u8>> {
    const K: u32 = 7_152_373;
    let step = |(h1, h0): (u32, u32), byte: u8| {
        let h = h1.wrapping_add(h0 ^ u32::from(byte).wrapping_mul(K));
        (h0, if h >> 31 == 1 { h.wrapping_sub(0x7FFF_FFFF) } else { h })
    };
    // Newton's iteration for 1/K modulo 2^32.
    let inverse = (0..5).fold(K, |x, _| x.wrapping_mul(2u32.wrapping_sub(K.wrapping_mul(x))));
    let letters = || b'0'..=b'z';
    let start = [b'-'; 234].into_iter().fold((0x37AB_E8F9, 0x12A3_FE2D), step);
    let target = 0x1234_5678_u32;
    let mut names = Vec::new();
    for n in 0_u32.. {
        let middle: [u8; 4] = std::array::from_fn(|i| b'0' + (n / 74_u32.pow(i as u32) % 74) as u8);
        let before2 = middle.into_iter().fold(start, step);
        for byte in letters() {
            let (h1, h0) = step(before2, byte);
            for wanted in [target, target + 0x7FFF_FFFF] {
                let last = (h0 ^ wanted.wrapping_sub(h1)).wrapping_mul(inverse);
                if !letters().contains(&(last.min(255) as u8))
                    || step((h1, h0), last as u8).1 != target
                {
                    continue;
                }
                names.push([&[b'-'; 234][..], &middle, &[byte, last as u8]].concat());
                if names.len() == count {
                    return names;
                }
            }
        }
    }
    unreachable!("u32 has enough prefixes")
}

#[test]
fn names_of_one_hash_fill_several_leaves() {
    let collisions = colliding(9);
    let mut names: Vec<Vec<u8>> = (0..300).map(long).collect();
    names.splice(150..150, collisions.iter().cloned());
    for packed in [false, true] {
        let mut bench = Bench::made(64, block(1024));
        bench.volume.context().superblock().write().def_hash_version = 0;
        bench.reopen();
        let (dir, mut body) = bench.mkdir("d", InodeFlags::empty());
        let target = bench.file(dir, names.len() as u16);
        bench
            .with(|volume, handle| {
                if packed {
                    let entries: Vec<_> = names
                        .iter()
                        .map(|name| PackEntry { name, ino: target, kind: EntryKind::Regular })
                        .collect();
                    return volume.dir_mut(&mut body).pack(handle, Ino::ROOT, &entries);
                }
                for name in &names {
                    volume.dir_mut(&mut body).insert(handle, name, target, EntryKind::Regular)?;
                }
                Ok(())
            })
            .unwrap();
        bench.store(&mut body);
        bench.judge();
        let mut leaves = std::collections::BTreeSet::new();
        let view = bench.volume.file(&body).dir().unwrap();
        for name in &names {
            let found = view.lookup(name).unwrap();
            if let crate::tree::dir::Place::Block { logical, .. } = found.place
                && collisions.contains(name)
            {
                leaves.insert(logical);
            }
        }
        assert!(leaves.len() >= 3, "nine names of one hash need more than two leaves");
        // An insert finds a name in the third leaf of its hash, and the name can be removed.
        for name in &collisions {
            let kind = EntryKind::Regular;
            let again = bench.with(|v, h| v.dir_mut(&mut body).insert(h, name, target, kind));
            assert!(matches!(again, Err(Error::Exists)));
            bench.with(|v, h| v.dir_mut(&mut body).remove(h, name)).unwrap();
        }
        bench.set_links(target, (names.len() - collisions.len()) as u16);
        bench.judge();
    }
}

#[test]
fn dotdot_is_changed_in_every_form_of_directory() {
    for options in [MkfsOptions::new(), features("inline_data"), features("^metadata_csum")] {
        let bench = Bench::made(64, options);
        for count in [0, 3, 300] {
            let (a, mut in_a) = bench.mkdir(&format!("a{count}"), InodeFlags::empty());
            let (b, mut in_b) = bench.mkdir(&format!("b{count}"), InodeFlags::empty());
            let target = bench.file(a, count.max(1));
            bench
                .with(|volume, handle| {
                    for n in 0..count {
                        let kind = EntryKind::Regular;
                        let name = long(usize::from(n));
                        volume.dir_mut(&mut in_b).insert(handle, &name, target, kind)?;
                    }
                    // b moves from the root into a.
                    let mut root = volume.inodes().read(Ino::ROOT)?;
                    let name = format!("b{count}");
                    volume.dir_mut(&mut root).remove(handle, name.as_bytes())?;
                    root.drop_subdirectory();
                    root.store(volume, handle)?;
                    volume.dir_mut(&mut in_a).insert(handle, b"b", b, EntryKind::Directory)?;
                    in_a.add_subdirectory(volume)?;
                    in_a.store(volume, handle)?;
                    volume.dir_mut(&mut in_b).set_parent(handle, a)?;
                    in_b.store(volume, handle)?;
                    if count == 0 {
                        let mut body = volume.inodes().read(target)?;
                        volume.file_mut(&mut body).release_inode(handle)?;
                    }
                    Ok(())
                })
                .unwrap();
            let view = bench.volume.file(&in_b).dir().unwrap();
            assert_eq!(view.lookup(b"..").unwrap().ino, a);
        }
        bench.judge();
    }
}

#[test]
fn a_removed_directory_gives_everything_back() {
    for options in [block(1024), features("inline_data"), MkfsOptions::of_type("ext2").unwrap()] {
        let bench = Bench::made(64, options);
        // Blocks that the root itself gained are not counted.
        let free = |bench: &Bench| bench.volume.space().free_clusters();
        let before = free(&bench);
        let (dir, mut body) = bench.mkdir("d", InodeFlags::empty());
        let target = bench.file(dir, 1);
        bench
            .with(|volume, handle| {
                for n in 0..900 {
                    let kind = EntryKind::Regular;
                    volume.dir_mut(&mut body).insert(handle, &long(n), target, kind)?;
                }
                let mut file = volume.inodes().read(target)?;
                volume.file_mut(&mut file).release_inode(handle)?;
                let mut root = volume.inodes().read(Ino::ROOT)?;
                assert_eq!(volume.dir_mut(&mut root).remove(handle, b"d")?, dir);
                root.drop_subdirectory();
                root.store(volume, handle)?;
                volume.file_mut(&mut body).release_inode(handle)
            })
            .unwrap();
        bench.judge();
        assert_eq!(free(&bench), before);
    }
}

#[test]
fn invalid_names_are_refused() {
    let bench = Bench::made(64, MkfsOptions::new());
    let (_, mut body) = bench.mkdir("d", InodeFlags::empty());
    let mut put = |name: &[u8]| {
        bench.with(|v, h| v.dir_mut(&mut body).insert(h, name, Ino::ROOT, EntryKind::Directory))
    };
    for name in [&b""[..], b".", b"..", b"a/b", b"a\0b"] {
        assert!(matches!(put(name), Err(Error::Invalid(_))), "{name:?}");
    }
    assert!(matches!(put(&[b'x'; 256]), Err(Error::NameTooLong)));
    let gone = bench.with(|v, h| v.dir_mut(&mut body).remove(h, b".."));
    assert!(matches!(gone, Err(Error::Invalid(_))));
}

/// A caller that kept the number of a removed file finds the whiteout that has this number now: one
/// object, however often it looks.
#[test]
fn a_whiteout_is_found_once_by_a_stale_number() {
    let bench = Bench::made(16, MkfsOptions::new());
    let volume = &bench.volume;
    let root = volume.inodes().get(Ino::ROOT).unwrap();
    let regular = Content::Empty(FileKind::Regular);
    drop(volume.names().create(&root, b"a", regular, &NewFile::default()).unwrap());
    let gone = volume.names().create(&root, b"b", regular, &NewFile::default()).unwrap();
    let number = gone.ino;
    drop(gone);
    volume.names().unlink(&root, b"b").unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                let mut last: Option<(u32, Arc<Inode>)> = None;
                while !done.load(Ordering::Relaxed) {
                    let Ok(inode) = volume.inodes().get(number) else { continue };
                    let body = inode.read();
                    let (generation, links) = (body.disk.generation, body.disk.links);
                    drop(body);
                    match &last {
                        Some((before, first)) if *before == generation && links > 0 => {
                            assert!(Arc::ptr_eq(first, &inode), "two objects of one inode");
                        }
                        _ => last = Some((generation, inode)),
                    }
                }
            });
        }
        for n in 0..3000 {
            let (from, to) = if n % 2 == 0 { (b"a", b"c") } else { (b"c", b"a") };
            volume.names().rename(&root, from, &root, to, RenameFlags::WHITEOUT).unwrap();
            volume.names().unlink(&root, from).unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    bench.judge();
}
