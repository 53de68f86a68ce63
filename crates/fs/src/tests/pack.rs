//! Whole directories built in one call.

use super::{Bench, features};
use crate::offline::mkfs::MkfsOptions;
use crate::tree::dir::pack::PackEntry;
use extant_base::{BlockSize, Error, Ino};
use extant_ondisk::dirent::EntryKind;
use extant_ondisk::inode::InodeFlags;

fn names(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|n| format!("file-{n}-{}", "x".repeat(n % 23)).into_bytes()).collect()
}

fn pack(bench: &Bench, count: usize) -> (Ino, crate::state::inode::Body) {
    let (dir, mut body) = bench.mkdir(&format!("d{count}"), InodeFlags::empty());
    let names = names(count);
    let mut files = Vec::new();
    for n in 0..count.div_ceil(60_000) {
        files.push(bench.file(dir, (count - n * 60_000).min(60_000) as u16));
    }
    let entries: Vec<PackEntry<'_>> = names
        .iter()
        .enumerate()
        .map(|(n, name)| PackEntry { name, ino: files[n / 60_000], kind: EntryKind::Regular })
        .collect();
    bench
        .with(|volume, handle| {
            volume.dir_mut(&mut body).pack(handle, Ino::ROOT, &entries)?;
            body.store(volume, handle)
        })
        .unwrap();
    (dir, body)
}

fn check(bench: &Bench, counts: &[usize]) {
    for &count in counts {
        let (_, body) = pack(bench, count);
        let mut expected = names(count);
        expected.sort();
        let found: Vec<_> = bench.names(&body).into_iter().map(|(name, _)| name).collect();
        assert_eq!(found, expected);
        let view = bench.volume.file(&body).dir().unwrap();
        for name in expected.iter().step_by(1 + count / 500) {
            view.lookup(name).unwrap();
        }
        assert!(view.find(b"no such name").unwrap().is_none());
    }
    bench.judge();
}

fn block(bytes: u32) -> BlockSize {
    BlockSize::from_bytes(bytes).unwrap()
}

#[test]
fn directories_of_every_size_are_clean() {
    check(
        &Bench::made(64, MkfsOptions::new().block_size(block(1024))),
        &[0, 1, 5, 40, 60, 500, 9000],
    );
    check(&Bench::made(64, MkfsOptions::new().block_size(block(4096))), &[0, 1, 50, 200, 3000]);
    check(&Bench::made(64, features("inline_data")), &[0, 1, 2, 3, 4, 5, 6, 7, 100]);
    check(&Bench::made(64, features("^metadata_csum,^dir_index")), &[0, 1, 500]);
    check(&Bench::made(256, MkfsOptions::new().block_size(block(65536))), &[1, 3000, 10_000]);
    check(&Bench::made(64, MkfsOptions::of_type("ext2").unwrap()), &[0, 3, 1000]);
}

#[test]
fn many_names_need_two_levels_and_are_clean() {
    check(&Bench::made(128, MkfsOptions::new().block_size(block(1024))), &[60_000]);
    check(&Bench::made(128, MkfsOptions::new().block_size(block(4096))), &[100_000]);
}

#[test]
fn the_order_does_not_matter_and_a_repeated_name_is_refused() {
    let bench = Bench::made(64, MkfsOptions::new());
    let names = names(700);
    let ino = bench.file(Ino::ROOT, 1);
    let mut entries: Vec<PackEntry<'_>> =
        names.iter().map(|name| PackEntry { name, ino, kind: EntryKind::Regular }).collect();
    let (_, mut body) = bench.mkdir("d", InodeFlags::empty());
    let mut contents = Vec::new();
    for _ in 0..2 {
        bench
            .with(|volume, handle| volume.dir_mut(&mut body).pack(handle, Ino::ROOT, &entries))
            .unwrap();
        let mut content = vec![0; body.disk.size as usize];
        bench.volume.journal().sync().unwrap();
        bench.volume.file(&body).read_raw(0, &mut content).unwrap();
        contents.push(content);
        entries.reverse();
    }
    assert!(contents[0] == contents[1]);
    entries.push(entries[3]);
    let again =
        bench.with(|volume, handle| volume.dir_mut(&mut body).pack(handle, Ino::ROOT, &entries));
    assert!(matches!(again, Err(Error::Exists)));
}

#[test]
fn a_third_level_is_packed_with_large_dir_only() {
    let count = 62_000;
    let names: Vec<Vec<u8>> = (0..count).map(|n| format!("{n:->240}").into_bytes()).collect();
    for (large_dir, fits) in [("large_dir", true), ("^large_dir", false)] {
        let bench = Bench::made(128, features(large_dir).block_size(block(1024)));
        let (dir, mut body) = bench.mkdir("d", InodeFlags::empty());
        let ino = bench.file(dir, count);
        let entries: Vec<PackEntry<'_>> =
            names.iter().map(|name| PackEntry { name, ino, kind: EntryKind::Regular }).collect();
        let packed = bench
            .with(|volume, handle| volume.dir_mut(&mut body).pack(handle, Ino::ROOT, &entries));
        if !fits {
            assert!(matches!(packed, Err(Error::NoSpace)));
            continue;
        }
        packed.unwrap();
        bench.store(&mut body);
        bench.judge();
        let view = bench.volume.file(&body).dir().unwrap();
        let probe = view.probe(|_| Ok(Default::default())).unwrap();
        assert_eq!(probe.info.levels, 2);
        for name in names.iter().step_by(101) {
            assert_eq!(view.lookup(name).unwrap().ino, ino);
        }
    }
}

#[test]
fn casefolded_names_are_packed_and_repeated_ones_refused() {
    let bench = Bench::made(64, features("casefold").block_size(block(1024)));
    let (dir, mut body) = bench.mkdir("d", InodeFlags::CASEFOLD);
    let mut names: Vec<Vec<u8>> =
        (0..500).map(|n| format!("File-\u{c4}{n}").into_bytes()).collect();
    let ino = bench.file(dir, 500);
    for (last, fits) in [(None, true), (Some("fILE-\u{e4}7"), false)] {
        names.extend(last.map(|name| name.as_bytes().to_vec()));
        let entries: Vec<PackEntry<'_>> =
            names.iter().map(|name| PackEntry { name, ino, kind: EntryKind::Regular }).collect();
        let packed = bench
            .with(|volume, handle| volume.dir_mut(&mut body).pack(handle, Ino::ROOT, &entries));
        assert_eq!(packed.is_ok(), fits);
    }
    bench.store(&mut body);
    bench.judge();
    let view = bench.volume.file(&body).dir().unwrap();
    assert_eq!(view.lookup("fILE-\u{e4}7".as_bytes()).unwrap().ino, ino);
}

#[test]
fn many_subdirectories_count_as_one_link_where_the_volume_allows() {
    let bench = Bench::made(64, MkfsOptions::new());
    let old = Bench::made(64, features("^dir_nlink"));
    for (volume, indexed, subdirectories, links) in [
        (&bench.volume, false, 0, Some(2)),
        (&bench.volume, false, 64_998, Some(65_000)),
        (&bench.volume, false, 64_999, None),
        (&bench.volume, true, 64_999, Some(1)),
        (&bench.volume, true, 5_000_000, Some(1)),
        (&old.volume, true, 64_999, None),
    ] {
        assert_eq!(volume.inodes().directory_links(indexed, subdirectories).ok(), links);
    }
}
