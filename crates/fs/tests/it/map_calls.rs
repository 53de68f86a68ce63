//! Calls that change where a file's bytes are: ranges collapsed, inserted and merged again, the
//! other kind of map, a small journal, a damaged map.

use crate::common::{Image, new_file, pattern};
use extant::{Error, FallocateMode, Filesystem, InodeFlags, SetAttributes};
use extant_testkit::e2fsprogs;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Gives a file this many extents of one block, with holes between them.
fn fragmented(file: &extant::File, block: u64, extents: u64) {
    for n in (0..extents).rev() {
        file.write_all_at(&[n as u8 | 1; 64], n * 2 * block).unwrap();
    }
}

/// The number of extents of a file, as debugfs counts them.
fn extents(image: &Image, name: &str) -> usize {
    let listed = image.debugfs(&format!("dump_extents -l -n {name}"));
    listed.lines().filter(|line| line.contains(" - ") && line.contains('/')).count()
}

/// As in Linux: collapsing an inserted hole merges the extents that the insert split.
#[test]
fn extents_that_meet_after_a_collapse_are_one() {
    let image = Image::mke2fs(16, "-b 1024");
    let (bytes, pieces) = (pattern(120 << 10, 3), 30u64);
    let change = |calls: &dyn Fn(&extant::File)| {
        let fs = image.open();
        calls(&fs.open_file("f").unwrap());
        fs.close().unwrap();
        extents(&image, "f")
    };
    drop(new_file(&image.open(), "f"));
    let at_first = change(&|file| file.write_all_at(&bytes, 0).unwrap());
    let cut = change(&|file| {
        for n in 1..pieces {
            // The pieces before this one have moved by as many blocks.
            file.allocate(FallocateMode::Insert, (n * 4 + n - 1) << 10, 1 << 10).unwrap();
        }
    });
    assert!(cut >= pieces as usize, "{cut}");
    let joined = change(&|file| {
        for n in (1..pieces).rev() {
            file.allocate(FallocateMode::Collapse, (n * 5 - 1) << 10, 1 << 10).unwrap();
        }
    });
    assert_eq!(joined, at_first);
    assert_eq!(image.open().read("f").unwrap(), bytes);
    image.judge();
}

/// `chattr +e` and `-e`: the same bytes with the other kind of map, if the map can hold them.
#[test]
fn a_file_gets_the_other_kind_of_map() {
    let image = Image::mke2fs(24, "-b 1024 -O ^64bit,^extent,quota");
    let fs = image.open();
    let body = pattern(700_000, 9);
    for name in ["large", "small", "sparse", "many"] {
        let file = new_file(&fs, name);
        match name {
            "large" => file.write_all_at(&body, 0).unwrap(),
            "small" => file.write_all_at(&body[..5000], 3000).unwrap(),
            "sparse" => (0..9).for_each(|n| file.write_all_at(&body[..900], n << (n + 9)).unwrap()),
            _ => (0..300).for_each(|n| file.write_all_at(&body[..1000], n * 3000).unwrap()),
        }
    }
    let set = |fs: &Filesystem, name: &str, flags| {
        let flags = Some(flags);
        fs.set_attributes(name, &SetAttributes { flags, ..Default::default() })
    };
    assert_eq!(set(&fs, "large", InodeFlags::EXTENTS).unwrap_err().errno(), 22);
    fs.close().unwrap();
    e2fsprogs::tune2fs(&image.path, &["-O", "extent"]).unwrap();
    let fs = image.open();
    let names = ["large", "small", "sparse", "many"];
    let before = names.map(|name| fs.read(name).unwrap());
    names.iter().for_each(|name| set(&fs, name, InodeFlags::EXTENTS).unwrap());
    set(&fs, "/lost+found", InodeFlags::EXTENTS).unwrap();
    assert!(names.map(|name| fs.read(name).unwrap()) == before);
    fs.close().unwrap();
    image.judge();
    let fs = image.open();
    for name in ["large", "sparse", "many"] {
        assert_eq!(set(&fs, name, InodeFlags::empty()).unwrap_err().errno(), 95, "{name}");
    }
    set(&fs, "small", InodeFlags::empty()).unwrap();
    assert!(names.map(|name| fs.read(name).unwrap()) == before);
    fs.open_file("small").unwrap().write_all_at(&body[..100_000], 0).unwrap();
    names.iter().for_each(|name| fs.remove_file(name).unwrap());
    fs.close().unwrap();
    image.judge();
}

#[test]
fn long_changes_fit_a_small_journal() {
    for options in ["-b 1024 -J size=1", "-b 1024 -J size=1 -O ^extents,^64bit"] {
        let image = Image::mke2fs(32, options);
        let fs = image.open();
        let file = new_file(&fs, "f");
        fragmented(&file, 1024, 3000);
        let size = file.metadata().len();
        file.allocate(FallocateMode::PunchHole, 1024 * 1024, size).unwrap();
        let extents = !options.contains("^extents");
        if extents {
            file.allocate(FallocateMode::Insert, 1024, 1024).unwrap();
            file.allocate(FallocateMode::Collapse, 1024, 1024).unwrap();
            file.allocate(FallocateMode::ZeroRange, 0, size).unwrap();
            file.allocate(FallocateMode::Allocate, 0, size * 2).unwrap();
        }
        fragmented(&file, 1024, 3000);
        file.set_len(10).unwrap();
        assert_eq!(fs.read("f").unwrap()[..10], [1; 10]);
        fragmented(&file, 1024, 3000);
        fs.root().unwrap().remove_file("f").unwrap();
        let used = fs.space();
        drop(file);
        assert!(fs.space().free > used.free + 2900);
        fs.close().unwrap();
        image.judge();
    }
}

/// Overwrites a block of the volume's file.
fn spoil(path: &Path, block_size: u64, block: u64, byte: u64, with: &[u8]) {
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.write_all_at(with, block * block_size + byte).unwrap();
}

#[test]
fn a_damaged_map_gives_errors_and_leaves_the_rest_usable() {
    for options in ["-b 1024 -O ^metadata_csum", "-b 1024", "-b 1024 -O ^extents,^64bit"] {
        let image = Image::mke2fs(16, options);
        let fs = image.open();
        let file = new_file(&fs, "bad");
        fragmented(&file, 1024, 300);
        let good = new_file(&fs, "good");
        good.write_all_at(&pattern(50_000, 1), 0).unwrap();
        drop((file, good));
        fs.close().unwrap();
        let kind = if options.contains("^extents") { "IND" } else { "ETB" };
        let text = image.debugfs("stat bad");
        let node = text.split(kind).nth(1).expect("a block of the map");
        let node = node.split("):").nth(1).unwrap();
        let node: String = node.chars().take_while(char::is_ascii_digit).collect();
        let node: u64 = node.parse().unwrap();
        spoil(&image.path, 1024, node, 12, &[0xFF; 200]);

        let fs = image.open();
        let bad = fs.open_file("bad").unwrap();
        let corrupt = |done: Result<(), Error>, what: &str| match done {
            Err(error @ Error::Corrupt { .. }) => {
                let text = error.to_string();
                assert!(text.contains(&format!("ino {}", bad.ino().get())), "{what}: {text}");
            }
            other => panic!("{what}: {other:?}"),
        };
        corrupt(bad.write_all_at(&[1; 2000], 20 * 1024), "write");
        corrupt(bad.allocate(FallocateMode::PunchHole, 14 * 1024, 90_000), "punch");
        corrupt(bad.set_len(15_000), "truncate");
        if kind == "ETB" {
            corrupt(bad.allocate(FallocateMode::Collapse, 14 * 1024, 2048), "collapse");
            corrupt(bad.allocate(FallocateMode::Insert, 1024, 2048), "insert");
            corrupt(bad.allocate(FallocateMode::ZeroRange, 14 * 1024, 90_000), "zero");
        }
        drop(bad);
        let good = fs.open_file("good").unwrap();
        good.write_all_at(b"still", 60_000).unwrap();
        assert_eq!(fs.read("good").unwrap()[60_000..], *b"still");
        assert_eq!(fs.read("good").unwrap()[..50_000], pattern(50_000, 1));
    }
}
