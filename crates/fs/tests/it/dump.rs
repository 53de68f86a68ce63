//! Copies of metadata: they open wherever the volume does, and hold no content and, if scrambled,
//! no names.

use crate::hostile::{damage, used_chunks};
use extant::dump::{self, Options, Report};
use extant::{
    BlockDevice, FileDevice, FileOptions, Filesystem, MemoryDevice, NewFile, OpenOptions,
};
use extant_testkit::e2fsprogs::{debugfs, dumpe2fs, e2fsck, mke2fs};
use extant_testkit::rng::Rng;
use extant_testkit::scratch::Scratch;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// Content of every file, which no copy may have.
const CONTENT: &str = "CONTENT OF A FILE, ";
/// A part of every name and target, which no scrambled copy may have.
const NAME: &str = "VISIBLE";

const KINDS: [&str; 8] = [
    "-t ext4 -b 4096",
    "-t ext2 -b 1024 -I 128",
    "-t ext4 -b 1024 -O inline_data",
    "-t ext4 -b 1024 -O bigalloc -C 16384",
    "-t ext4 -b 1024 -O ea_inode,casefold -E encoding=utf8",
    "-t ext4 -b 4096 -O quota,project,orphan_file,mmp",
    "-t ext4 -b 1024 -O fast_commit,large_dir -E hash_alg=tea",
    "-t ext4 -b 1024 -O ^flex_bg,meta_bg,^resize_inode -g 1024",
];

fn make_tree(root: &Path) {
    let dir = root.join(format!("{NAME} directory"));
    std::fs::create_dir_all(dir.join("a/b/c")).unwrap();
    for n in 0..500 {
        let name = format!("{NAME} name {n}{}", "x".repeat(n % 50));
        let content = CONTENT.repeat(if n % 100 == 0 { 600 } else { n % 8 });
        std::fs::write(dir.join(name), content).unwrap();
    }
    for n in 0..20 {
        std::fs::write(dir.join(format!("a/{n}")), CONTENT).unwrap();
    }
    let sparse = std::fs::File::create(dir.join("a/sparse")).unwrap();
    for n in 0..30 {
        std::os::unix::fs::FileExt::write_at(&sparse, CONTENT.as_bytes(), n * 131_072).unwrap();
    }
    std::os::unix::fs::symlink(format!("{NAME}/target"), dir.join("a/b/short")).unwrap();
    std::os::unix::fs::symlink(format!("{NAME}/").repeat(80), dir.join("a/b/long")).unwrap();
}

/// A volume with the tree, and then changed by extant, so that its journal has copies.
fn volume(scratch: &Scratch, options: &str) -> PathBuf {
    let tree = scratch.file("tree");
    if !tree.exists() {
        make_tree(&tree);
    }
    let image = scratch.file("volume.img");
    let _ = std::fs::remove_file(&image);
    let label = format!("-L {NAME} {options}");
    mke2fs(&image, 48 << 20, &label, Some(&tree)).unwrap();
    // mke2fs does not count what it copies into quota files.
    let _ = Command::new("e2fsck").arg("-fy").arg(&image).output().unwrap();
    let fs = OpenOptions::new().write(true).open(&image).unwrap();
    for n in 0..40 {
        let path = format!("/{NAME} directory/later {n}");
        fs.write(&path, CONTENT.repeat(n * 40)).unwrap();
        fs.set_xattr(&path, "user.attribute", &[7; 300], extant::XattrMode::Any).unwrap();
    }
    fs.remove_file(format!("/{NAME} directory/later 7")).unwrap();
    fs.close().unwrap();
    image
}

fn dumped(image: &Path, output: &Path, scramble: bool) -> Report {
    let _ = std::fs::remove_file(output);
    let device = Arc::new(FileOptions::new().open(image).unwrap());
    let size = dump::size_of(&*device).unwrap();
    let made = FileDevice::create(output, size).unwrap();
    let options = Options { scramble: scramble.then_some(11), ..Options::default() };
    dump::dump_device(device, &made, &options, &()).unwrap()
}

fn errors(image: &Path) -> Vec<String> {
    let device = Arc::new(FileOptions::new().open(image).unwrap());
    let options = extant::check::Options::default();
    let report = extant::check::check_device(device, &options, &()).unwrap();
    let errors = report.findings.iter();
    let errors = errors.filter(|finding| finding.severity == extant::check::Severity::Error);
    errors.map(|finding| format!("{finding}")).collect()
}

/// Whether one block has the text.
fn has(bytes: &[u8], text: &str) -> bool {
    let used = bytes.chunks(1024).filter(|block| block.iter().any(|byte| *byte != 0));
    let found = |block: &[u8]| block.windows(text.len()).any(|part| part == text.as_bytes());
    used.into_iter().any(found)
}

/// What both kinds of copies have in common: every tool opens them, and finds nothing.
fn expect_whole(kind: &str, image: &Path) {
    assert_eq!(errors(image), Vec::<String>::new(), "{kind}");
    let judged = e2fsck(image, None);
    assert!(judged.clean(), "{kind}: {judged:?}");
    dumpe2fs(image).unwrap();
    debugfs(image, "ls -l /").unwrap();
    let fs = Filesystem::open(image).unwrap();
    let entries: Vec<_> = fs.walk("/").map(|entry| entry.unwrap().metadata().unwrap()).collect();
    let count = entries.len();
    assert!(count > 500, "{kind}: {count}");
    let survey = fs.survey(&extant::survey::Options::default(), &()).unwrap();
    assert_eq!(survey.problems_count, 0, "{kind}: {:?}", survey.problems);
    let bytes = std::fs::read(image).unwrap();
    assert!(!has(&bytes, CONTENT), "{kind}: content of files is in the copy");
}

/// Blocks in which the copy of e2image may have more: unused parts of inode tables, and the log.
fn may_lack(image: &Path) -> BTreeSet<u64> {
    let mut blocks = BTreeSet::new();
    for line in dumpe2fs(image).unwrap().lines().filter(|line| line.contains("Inode table at")) {
        let range = line.split("Inode table at ").nth(1).unwrap();
        let range = range.split([' ', ',']).next().unwrap();
        let (first, last) = range.split_once('-').unwrap();
        blocks.extend(first.parse::<u64>().unwrap()..=last.parse().unwrap());
    }
    let log = debugfs(image, "blocks <8>").unwrap();
    blocks.extend(log.split_whitespace().map(|block| block.parse::<u64>().unwrap()));
    blocks
}

#[test]
fn copies_open_everywhere_and_have_the_blocks_of_e2image_but_no_names_if_scrambled() {
    extant_testkit::require!(E2fsprogs);
    let scratch = Scratch::new();
    let (output, rival) = (scratch.file("meta.img"), scratch.file("rival.img"));
    for kind in KINDS {
        let image = volume(&scratch, kind);
        let report = dumped(&image, &output, false);
        assert_eq!((report.unreadable, report.left_out), (0, 0), "{kind}: {report:?}");
        expect_whole(kind, &output);
        let (own, original) = (std::fs::read(&output).unwrap(), std::fs::read(&image).unwrap());
        let has_inline = kind.contains("inline_data");
        assert_eq!(report.inline_files > 0, has_inline, "{kind}: {report:?}");
        let made = Command::new("e2image").arg("-r").args([&image, &rival]).output().unwrap();
        assert!(made.status.success(), "{kind}: {made:?}");
        let theirs = std::fs::read(&rival).unwrap();
        let may_lack = may_lack(&image);
        let size = report.block_bytes as usize;
        for (nr, (own, theirs)) in own.chunks(size).zip(theirs.chunks(size)).enumerate() {
            let is_zero = own.iter().all(|byte| *byte == 0);
            let here = &original[nr * size..(nr + 1) * size];
            let is_there = if is_zero { theirs == own } else { here == own || has_inline };
            let is_there = is_there || is_zero && may_lack.contains(&(nr as u64));
            assert!(is_there, "{kind}: block {nr}, all zeros in the copy: {is_zero}");
        }
        std::fs::remove_file(&rival).unwrap();
        expect_scrambled(kind, &image, &output);
    }
}

fn lengths(image: &Path) -> Vec<(extant::Ino, usize, extant::FileKind)> {
    let fs = Filesystem::open(image).unwrap();
    let entries = fs.walk("/").map(|entry| entry.unwrap());
    let length =
        |entry: extant::WalkEntry| (entry.ino(), entry.path().as_os_str().len(), entry.file_type());
    let mut all: Vec<_> = entries.map(length).collect();
    all.sort_unstable_by_key(|(ino, len, _)| (*ino, *len));
    all
}

/// A scrambled copy has no names and no new damage.
fn expect_scrambled(kind: &str, image: &Path, output: &Path) {
    let report = dumped(image, output, true);
    expect_whole(kind, output);
    assert!(report.names > 500 && report.names_kept <= 16, "{kind}: {report:?}");
    assert!(!has(&std::fs::read(output).unwrap(), NAME), "{kind}: a name is in the copy");
    assert!(lengths(image) == lengths(output), "{kind}: names have other lengths");
}

/// A volume that was not unmounted: its journal has files that its blocks do not have.
#[test]
fn copies_of_crashed_volumes_recover_as_the_volume_does() {
    extant_testkit::require!(E2fsprogs);
    for (kind, data) in [("-b 1024", "ordered"), ("-b 1024 -O fast_commit", "ordered")] {
        let device = Arc::new(MemoryDevice::new(64 << 20));
        let scratch = Scratch::new();
        let image = scratch.file("volume.img");
        mke2fs(&image, 64 << 20, kind, None).unwrap();
        device.write_at(extant::ByteOffset(0), &std::fs::read(&image).unwrap()).unwrap();
        let open = || {
            let shared: Arc<dyn BlockDevice> = Arc::clone(&device) as Arc<dyn BlockDevice>;
            OpenOptions::new().write(true).open_device(shared).unwrap()
        };
        let fs = open();
        fs.create_dir("/dir", &NewFile::directory()).unwrap();
        fs.write("/dir/orphan", "").unwrap();
        let orphan = fs.open_file("/dir/orphan").unwrap();
        for n in 0..40 {
            orphan.write_at(CONTENT.as_bytes(), n << 16).unwrap();
        }
        drop(orphan);
        fs.close().unwrap();
        let fs = open();
        // Recovery removes it, and needs the node of its map for that.
        let orphan = fs.open_file("/dir/orphan").unwrap();
        fs.remove_file("/dir/orphan").unwrap();
        for n in 0..200 {
            fs.write(format!("/dir/{NAME}{n}"), CONTENT.repeat(n)).unwrap();
        }
        fs.sync().unwrap();
        let mut bytes = vec![0; 64 << 20];
        device.read_at(extant::ByteOffset(0), &mut bytes).unwrap();
        std::fs::write(&image, &bytes).unwrap();
        drop((orphan, fs));
        for scramble in [false, true] {
            let output = scratch.file("meta.img");
            let report = dumped(&image, &output, scramble);
            assert_eq!(report.recovered, scramble, "{data}: {report:?}");
            let bytes = std::fs::read(&output).unwrap();
            assert!(!has(&bytes, CONTENT), "{kind}: content");
            assert!(!scramble || !has(&bytes, NAME), "{kind}: names");
            assert_eq!(errors(&output), Vec::<String>::new(), "{kind}");
            let fs = Filesystem::open(&output).unwrap();
            assert_eq!(fs.walk("/").count(), 203, "{kind}");
            drop(fs);
            let fsck = Command::new("e2fsck").args(["-fy"]).arg(&output).output().unwrap();
            assert!(fsck.status.code().is_some_and(|code| code <= 1), "{kind}: {fsck:?}");
            assert!(e2fsck(&output, None).clean());
        }
    }
}

#[test]
fn damaged_volumes_are_copied_and_keep_their_damage() {
    extant_testkit::require!(E2fsprogs);
    let scratch = Scratch::new();
    let tree = scratch.file("tree");
    make_tree(&tree);
    let rounds = std::env::var("EXTANT_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(12);
    for kind in ["-b 1024 -O ^resize_inode", "-b 1024 -O ^metadata_csum", "-b 1024 -O inline_data"]
    {
        let image = scratch.file("image");
        mke2fs(&image, 24 << 20, kind, Some(&tree)).unwrap();
        let clean = std::fs::read(&image).unwrap();
        let used = used_chunks(&clean);
        for seed in 0..rounds {
            let mut bytes = clean.clone();
            damage(&mut bytes, &used, &mut Rng::new(seed));
            std::fs::write(&image, &bytes).unwrap();
            let device = Arc::new(MemoryDevice::from_bytes(&bytes));
            let Ok(size) = dump::size_of(&*device) else { continue };
            let output = MemoryDevice::new(size);
            let options = Options { scramble: (seed % 2 == 1).then_some(3), threads: 2 };
            dump::dump_device(device, &output, &options, &()).unwrap();
            let copy = scratch.file("copy");
            let mut bytes = vec![0; size as usize];
            output.read_at(extant::ByteOffset(0), &mut bytes).unwrap();
            std::fs::write(&copy, &bytes).unwrap();
            assert!(!has(&bytes, CONTENT), "{kind}, seed {seed}: content");
            let names = has(&bytes, NAME);
            assert!(seed % 2 == 0 || !names, "{kind}, seed {seed}: names");
            if seed % 2 == 0 && !kind.contains("inline") {
                assert_eq!(errors(&image), errors(&copy), "{kind}, seed {seed}");
            }
        }
    }
}
