//! Deleted files are found, with their names, attributes and content, after deletions by extant
//! and by Linux.

mod as_of;
mod attributes;
mod names;

use crate::hostile::{damage, used_chunks};
use extant::undelete::{AsOf, Options, PastFile, PastFiles, State};
use extant::{Filesystem, NewFile, OpenOptions, SetAttributes};
use extant_testkit::e2fsprogs::{e2fsck, mke2fs};
use extant_testkit::loop_mount::LoopMount;
use extant_testkit::rng::Rng;
use extant_testkit::scratch::Scratch;
use std::collections::BTreeMap;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Volumes of every kind that leaves something else behind.
const KINDS: [&str; 6] = [
    "-t ext4 -b 4096",
    "-t ext4 -b 1024 -O ^metadata_csum",
    "-t ext4 -b 1024 -O ^64bit,^dir_index",
    "-t ext3 -b 1024",
    "-t ext4 -O inline_data -I 256",
    "-t ext4 -O bigalloc -C 16384",
];

/// Content of files by path.
type Tree = BTreeMap<PathBuf, Vec<u8>>;

fn tree(files: usize) -> Tree {
    let mut rng = Rng::new(7);
    (0..files)
        .map(|n| {
            let len = match n % 10 {
                0 => rng.below(90_000),
                1 => rng.below(60),
                _ => rng.below(6_000),
            };
            let content = (0..len).map(|_| rng.below(256) as u8).collect();
            (PathBuf::from(format!("/old/dir {}/file {n}", n % 7)), content)
        })
        .collect()
}

fn find<'a>(files: &'a PastFiles, path: &str) -> &'a PastFile {
    let has_it = |file: &&PastFile| file.paths().iter().any(|found| found == Path::new(path));
    files.files().iter().find(has_it).unwrap_or_else(|| panic!("{path}: {:?}", files.files()))
}

fn set_mode(fs: &Filesystem, path: &str, mode: u16) {
    let mode = SetAttributes { mode: Some(mode), ..Default::default() };
    fs.open_file(path).unwrap().set_attributes(&mode).unwrap();
}

fn content_of(deleted: &PastFiles, file: &PastFile) -> Vec<u8> {
    let mut bytes = vec![0; file.metadata().len() as usize + 10];
    let len = deleted.read_at(file, &mut bytes, 0).unwrap();
    bytes.truncate(len);
    bytes
}

/// How many files of `tree` are found whole, with the right content. A file that is called whole
/// and is not the original fails the test.
fn found(image: &Path, tree: &Tree) -> usize {
    let before = std::fs::read(image).unwrap();
    let fs = Filesystem::open(image).unwrap();
    let deleted = fs.deleted_files(&Options::default(), &()).unwrap();
    let mut count = 0;
    for file in deleted.files().iter().filter(|file| file.metadata().is_file()) {
        let Some(path) = file.path() else { continue };
        let Some(content) = tree.get(path) else { continue };
        if file.state() == State::Whole && file.size_is_known() {
            assert!(content_of(&deleted, file) == *content, "{}", path.display());
            assert!(file.deleted_at().is_some_and(|at| at > 1_000_000_000));
            count += 1;
        }
    }
    drop((deleted, fs));
    assert!(std::fs::read(image).unwrap() == before, "the search has written");
    count
}

fn write(fs: &Filesystem, tree: &Tree) {
    for dir in tree.keys().filter_map(|path| path.parent()) {
        fs.create_dir_all(dir, &NewFile::directory()).unwrap();
    }
    for (path, content) in tree {
        fs.write(path, content).unwrap();
    }
}

#[test]
fn a_removed_tree_is_found_after_extant_deleted_it() {
    extant_testkit::require!(E2fsprogs);
    for kind in KINDS {
        let scratch = Scratch::new();
        let image = scratch.file("image");
        mke2fs(&image, 64 << 20, kind, None).unwrap();
        let tree = tree(400);
        let open = || OpenOptions::new().write(true).open(&image).unwrap();
        let fs = open();
        write(&fs, &tree);
        fs.close().unwrap();
        let fs = open();
        fs.remove_dir_all("/old").unwrap();
        fs.close().unwrap();
        e2fsck(&image, None).expect_clean().unwrap();
        assert_eq!(found(&image, &tree), tree.len(), "{kind}");
    }
}

#[test]
fn a_removed_tree_is_found_after_linux_deleted_it() {
    extant_testkit::require!(Root, Loop, E2fsprogs);
    for kind in KINDS {
        let scratch = Scratch::new();
        let image = scratch.file("image");
        mke2fs(&image, 64 << 20, kind, None).unwrap();
        let tree = tree(400);
        let mount = LoopMount::rw(&image, "").unwrap();
        for (path, content) in &tree {
            let path = mount.path().join(path.strip_prefix("/").unwrap());
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        mount.unmount().unwrap();
        let mount = LoopMount::rw(&image, "").unwrap();
        std::fs::remove_dir_all(mount.path().join("old")).unwrap();
        mount.unmount().unwrap();
        assert_eq!(found(&image, &tree), tree.len(), "{kind}");
    }
}

/// Clears the first descriptor of the log.
fn clear_first_descriptor(image: &Path, block: usize) {
    let mut bytes = std::fs::read(image).unwrap();
    let magic = [0xC0, 0x3B, 0x39, 0x98, 0, 0, 0];
    let has_type = |block: &[u8], kind: u8| block.starts_with(&magic) && block[7] == kind;
    let mut blocks = bytes.chunks_exact_mut(block).skip_while(|block| !has_type(block, 4));
    let first = blocks.nth(1).unwrap();
    assert!(has_type(first, 1), "the log starts with a descriptor");
    first.fill(0);
    std::fs::write(image, &bytes).unwrap();
}

/// As if the transaction that made the files was written over from its start.
#[test]
fn files_are_found_in_copies_whose_descriptor_was_written_over() {
    extant_testkit::require!(E2fsprogs);
    let scratch = Scratch::new();
    let image = scratch.file("image");
    mke2fs(&image, 64 << 20, "-t ext4 -b 4096", None).unwrap();
    let tree = tree(300);
    let open = || OpenOptions::new().write(true).commit_interval(None).open(&image).unwrap();
    let fs = open();
    write(&fs, &tree);
    fs.close().unwrap();
    let fs = open();
    fs.remove_dir_all("/old").unwrap();
    fs.close().unwrap();
    clear_first_descriptor(&image, 4096);
    assert_eq!(found(&image, &tree), tree.len());
}

/// A file of `extents` pieces of one block of 4 KiB, with holes between them.
fn write_pieces(path: &Path, extents: u64) -> Vec<u8> {
    let file = std::fs::File::create(path).unwrap();
    let mut content = vec![0; (extents as usize * 2 - 1) * 4096];
    for n in 0..extents {
        let piece = vec![n as u8 | 1; 4096];
        file.write_all_at(&piece, n * 8192).unwrap();
        content[n as usize * 8192..][..4096].copy_from_slice(&piece);
    }
    content
}

#[test]
fn a_file_of_many_extents_is_found_after_the_log_was_written_over() {
    extant_testkit::require!(Root, Loop, E2fsprogs);
    let scratch = Scratch::new();
    let image = scratch.file("image");
    mke2fs(&image, 256 << 20, "-t ext4 -b 4096 -J size=4", None).unwrap();
    let mount = LoopMount::rw(&image, "").unwrap();
    for n in 0..3000 {
        std::fs::write(mount.path().join(format!("{n}")), "").unwrap();
    }
    let contents = [10, 400, 2000].map(|extents| {
        let path = mount.path().join(format!("pieces {extents}"));
        write_pieces(&path, extents)
    });
    mount.unmount().unwrap();
    let mount = LoopMount::rw(&image, "").unwrap();
    for extents in [10, 400, 2000] {
        std::fs::remove_file(mount.path().join(format!("pieces {extents}"))).unwrap();
    }
    // About 200 blocks each time, and the log has 1024.
    for mode in 0..10 {
        for n in 0..3000 {
            let path = mount.path().join(format!("{n}"));
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o600 + mode)).unwrap();
        }
        rustix::fs::syncfs(std::fs::File::open(mount.path()).unwrap()).unwrap();
    }
    mount.unmount().unwrap();
    let fs = Filesystem::open(&image).unwrap();
    let deleted = fs.deleted_files(&Options::default(), &()).unwrap();
    let mut found = 0;
    for file in deleted.files().iter().filter(|file| file.state() == State::Whole) {
        let content = content_of(&deleted, file);
        found += usize::from(contents.contains(&content));
    }
    assert_eq!(found, 3, "{:?}", deleted.files());
}

#[test]
fn blocks_in_use_by_others_are_not_shown() {
    extant_testkit::require!(E2fsprogs);
    let scratch = Scratch::new();
    let image = scratch.file("image");
    mke2fs(&image, 16 << 20, "-t ext4 -b 1024", None).unwrap();
    let fs = OpenOptions::new().write(true).open(&image).unwrap();
    let old = vec![7; 6 << 20];
    fs.write("/old", &old).unwrap();
    fs.sync().unwrap();
    fs.remove_file("/old").unwrap();
    fs.sync().unwrap();
    // Fills the volume but for a part of what was free.
    fs.write("/new", vec![9; 8 << 20]).unwrap();
    fs.close().unwrap();
    let fs = Filesystem::open(&image).unwrap();
    let deleted = fs.deleted_files(&Options::default(), &()).unwrap();
    let old = deleted.files().iter().find(|file| file.path() == Some(Path::new("/old"))).unwrap();
    let State::Partial { free_blocks, reused_blocks, map_damaged } = old.state() else {
        panic!("{old:?}")
    };
    assert_eq!(free_blocks + reused_blocks, 6 << 10);
    assert!(!map_damaged && free_blocks > 0 && reused_blocks > 0);
    let lost = old.lost_ranges();
    assert_eq!(lost.iter().map(|(_, len)| len).sum::<u64>(), reused_blocks << 10);
    assert!(lost.windows(2).all(|two| two[0].0 + two[0].1 < two[1].0), "{lost:?}");
    let content = content_of(&deleted, old);
    for (at, len) in lost {
        assert!(content[*at as usize..][..*len as usize].iter().all(|byte| *byte == 0));
    }
    assert_eq!(content.iter().filter(|byte| **byte == 7).count() as u64, free_blocks << 10);
    assert!(content.iter().all(|byte| [0, 7].contains(byte)), "another file's bytes");
}

#[test]
fn damaged_volumes_are_searched_without_harm() {
    extant_testkit::require!(E2fsprogs);
    let scratch = Scratch::new();
    for (name, kind) in
        ["-b 1024 -O ^metadata_csum", "-t ext3 -b 1024", "-b 1024"].iter().enumerate()
    {
        let image = scratch.file("image");
        mke2fs(&image, 8 << 20, kind, None).unwrap();
        let fs = OpenOptions::new().write(true).open(&image).unwrap();
        write(&fs, &tree(150));
        fs.sync().unwrap();
        fs.remove_dir_all("/old/dir 1").unwrap();
        fs.remove_dir_all("/old/dir 2").unwrap();
        fs.close().unwrap();
        let bytes = std::fs::read(&image).unwrap();
        let used = used_chunks(&bytes);
        for seed in 0..150 {
            let mut bytes = bytes.clone();
            damage(&mut bytes, &used, &mut Rng::new(seed));
            let device = std::sync::Arc::new(extant::MemoryDevice::from_bytes(&bytes));
            let Ok(fs) = OpenOptions::new().open_device(device) else { continue };
            let Ok(deleted) = fs.deleted_files(&Options::default(), &()) else { continue };
            for file in deleted.files() {
                let mut bytes = vec![0; 10_000];
                let _ = deleted.read_at(file, &mut bytes, file.metadata().len() / 2);
                let _ = deleted.read_link(file);
            }
            assert!(deleted.files().len() < 10_000, "{name}, seed {seed}");
            let time = deleted.files().iter().find_map(PastFile::deleted_at).unwrap_or(u64::MAX);
            let Ok(AsOf::Tree(tree)) = fs.files_as_of(time, &Options::default(), &()) else {
                continue;
            };
            for file in tree.files().files() {
                let _ = tree.files().read_at(file, &mut [0; 10_000], 0);
            }
            assert!(tree.files().files().len() < 10_000, "{name}, seed {seed}");
        }
    }
}
