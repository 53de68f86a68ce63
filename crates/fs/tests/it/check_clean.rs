//! Clean volumes that mke2fs makes with many options: the check finds nothing in them.

use extant::FileOptions;
use extant::check::{self, Options, Report};
use extant_testkit::e2fsprogs::{e2fsck, mke2fs};
use extant_testkit::require;
use extant_testkit::scratch::Scratch;
use std::path::Path;
use std::sync::Arc;

fn check(img: &Path) -> Report {
    let device = FileOptions::new().open(img).unwrap();
    check::check_device(Arc::new(device), &Options::default(), &()).unwrap()
}

/// A tree with something of each kind: long names, many names, links, holes, long targets.
fn fill(dir: &Path) {
    std::fs::create_dir_all(dir.join("a/b/c")).unwrap();
    std::fs::create_dir(dir.join("many")).unwrap();
    for n in 0..300 {
        let name = format!("many/a name that is long enough to need many blocks, number {n:04}");
        std::fs::write(dir.join(name), vec![b'x'; n * 37 % 900]).unwrap();
    }
    std::fs::write(dir.join("a/large"), vec![7; 3_000_000]).unwrap();
    std::fs::write(dir.join("a/empty"), b"").unwrap();
    std::fs::hard_link(dir.join("a/large"), dir.join("a/b/second")).unwrap();
    std::os::unix::fs::symlink("short", dir.join("a/b/c/short")).unwrap();
    std::os::unix::fs::symlink("l/".repeat(150), dir.join("a/b/c/long")).unwrap();
    let file = std::fs::File::create(dir.join("a/sparse")).unwrap();
    for n in 0..60 {
        std::os::unix::fs::FileExt::write_at(&file, b"data", n * 16384).unwrap();
    }
}

#[test]
fn nothing_is_found_in_a_clean_volume() {
    require!(E2fsprogs);
    let scratch = Scratch::new();
    let tree = scratch.file("tree");
    std::fs::create_dir(&tree).unwrap();
    fill(&tree);
    let table = [
        "-b 1024",
        "-b 2048",
        "-b 4096",
        "-b 8192",
        "-b 16384",
        "-b 65536",
        "-t ext2",
        "-t ext3",
        "-t ext2 -r 0",
        "-I 128",
        "-I 1024",
        "-O ^metadata_csum",
        "-O ^metadata_csum,uninit_bg",
        "-O ^64bit",
        "-O ^flex_bg",
        "-O ^has_journal",
        "-O ^extent,^64bit",
        "-O ^sparse_super",
        "-O sparse_super2",
        "-O meta_bg,^resize_inode",
        "-b 1024 -g 1024 -O meta_bg,^resize_inode",
        "-b 1024 -g 512 -O ^flex_bg",
        "-O bigalloc",
        "-b 1024 -O bigalloc -C 16384",
        "-O inline_data",
        "-O inline_data,^metadata_csum -I 512",
        "-O ea_inode",
        "-O quota",
        "-O quota,project",
        "-O orphan_file",
        "-O fast_commit",
        "-O mmp",
        "-O casefold",
        "-O encrypt",
        "-O verity",
        "-O large_dir",
        "-O metadata_csum_seed",
        "-E lazy_itable_init=1",
        "-E hash_alg=legacy",
        "-J size=4",
        "-N 5000 -m 20",
    ];
    let mut bad = Vec::new();
    for (n, options) in table.into_iter().enumerate() {
        for from in [None, Some(&*tree)] {
            let img = scratch.file(&format!("{n}.img"));
            if let Err(error) = mke2fs(&img, 64 << 20, options, from) {
                // Some block sizes and features need a newer mke2fs or another machine.
                println!("not made: {options}: {error}");
                continue;
            }
            // mke2fs leaves some volumes in a state to which e2fsck objects, too.
            let judged = e2fsck(&img, None);
            let report = check(&img);
            if judged.clean() && (!report.clean || report.exit_code() != 0) {
                bad.push(format!("{options}, filled {}: {:#?}", from.is_some(), report.findings));
            }
            std::fs::remove_file(&img).unwrap();
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn the_counts_agree_with_the_content() {
    require!(E2fsprogs);
    let scratch = Scratch::new();
    let tree = scratch.file("tree");
    std::fs::create_dir(&tree).unwrap();
    fill(&tree);
    let img = scratch.file("a.img");
    mke2fs(&img, 64 << 20, "-O ^has_journal,^resize_inode", Some(&tree)).unwrap();
    let stats = check(&img).stats;
    // Root, lost+found, a, b, c, many.
    assert_eq!((stats.directories, stats.symlinks, stats.special), (6, 2, 0));
    assert_eq!(stats.files, 303);
    assert_eq!(stats.names, 303 + 1 + 2 + 5);
}

#[test]
fn the_counted_files_are_those_that_were_made() {
    use extant::mkfs::{self, MkfsOptions};
    use extant::{Environment, MemoryDevice, NewFile, OpenOptions};
    for features in ["quota", "data_csum,quota", "ea_inode,^orphan_file"] {
        let device = Arc::new(MemoryDevice::new(64 << 20));
        let options = MkfsOptions::new().features(features).unwrap();
        mkfs::format(device.clone(), &options, &Environment::default()).unwrap();
        let fs = OpenOptions::new().write(true).open_device(device.clone()).unwrap();
        let file = fs.root().unwrap().create_file("f", &NewFile::default()).unwrap();
        if features.contains("ea_inode") {
            file.set_xattr("user.large", &[1; 30_000], Default::default()).unwrap();
        }
        drop(file);
        fs.close().unwrap();
        let report = check::check_device(device, &Options::default(), &()).unwrap();
        assert_eq!((report.findings.len(), report.stats.files), (0, 1), "{features}");
    }
}
