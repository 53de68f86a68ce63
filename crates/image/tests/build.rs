//! Images built from a small tree of every kind of entry, judged by `e2fsck -fn`.

use extant::Filesystem;
use extant::mkfs::MkfsOptions;
use extant_base::BlockSize;
use extant_image::{BuildError, ImageBuilder, ImageSize, Quiet, SourceOptions, SourceSpec, Tree};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;

/// A tree with empty, small, large, sparse and linked files, long symlinks and many names.
fn tree(dir: &Path) -> Tree {
    fs::create_dir_all(dir.join("deep/er/and/deeper")).unwrap();
    fs::write(dir.join("empty"), b"").unwrap();
    fs::write(dir.join("small"), b"seven b").unwrap();
    fs::write(dir.join("large"), vec![7; 3_000_001]).unwrap();
    fs::hard_link(dir.join("small"), dir.join("deep/linked")).unwrap();
    symlink("small", dir.join("short-link")).unwrap();
    symlink("x/".repeat(120), dir.join("long-link")).unwrap();
    fs::create_dir(dir.join("many")).unwrap();
    for n in 0..700 {
        fs::write(dir.join(format!("many/a rather long name, number {n}")), [n as u8]).unwrap();
    }
    let sparse = fs::File::create(dir.join("sparse")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"end", 9 << 20).unwrap();
    fs::set_permissions(dir.join("small"), fs::Permissions::from_mode(0o4751)).unwrap();
    let options = SourceOptions::new().owner(70_000, 80_000);
    Tree::read(&[SourceSpec::new(dir)], &options, &Quiet).unwrap()
}

fn build(builder: &ImageBuilder, tree: &Tree, path: &Path) -> Result<u64, BuildError> {
    Ok(builder.build(tree, path, &Quiet, &AtomicBool::new(false))?.bytes)
}

/// What `e2fsck -fn` says, if it is not silent.
fn e2fsck(path: &Path) -> Option<String> {
    match Command::new("e2fsck").arg("-fn").arg(path).output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stdout).into_owned()),
        Err(_) if std::env::var_os("CI").is_none() => None,
        Err(error) => panic!("e2fsck is needed in CI: {error}"),
    }
}

#[test]
fn every_kind_of_volume_takes_the_tree_and_is_exactly_full() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    let tree = tree(&source);
    let features = |wish: &str| MkfsOptions::new().features(wish).unwrap();
    let kinds: Vec<(&str, u32, MkfsOptions)> = vec![
        ("default", 4096, MkfsOptions::new()),
        ("1k", 1024, MkfsOptions::new()),
        ("2k", 2048, MkfsOptions::new()),
        ("16k", 16_384, MkfsOptions::new()),
        ("64k", 65_536, MkfsOptions::new()),
        ("ext2", 1024, MkfsOptions::of_type("ext2").unwrap()),
        ("ext3", 4096, MkfsOptions::of_type("ext3").unwrap()),
        ("nojournal", 4096, features("^has_journal")),
        ("inline", 4096, features("inline_data")),
        ("bigalloc", 4096, features("bigalloc").cluster_bytes(16_384)),
        ("nocsum", 1024, features("^metadata_csum")),
        ("gdtcsum", 4096, features("uninit_bg,^64bit")),
        ("noflexbg", 1024, features("^flex_bg")),
        ("orphanfile-seed", 4096, features("orphan_file,metadata_csum_seed")),
        ("nodirindex", 4096, features("^dir_index")),
    ];
    let mut bad = String::new();
    for (name, block, mkfs) in kinds {
        let path = dir.path().join(name);
        let block = BlockSize::from_bytes(block).unwrap();
        let builder = ImageBuilder::new().mkfs(mkfs.reserved_percent(0.0)).block_size(block);
        match builder.build(&tree, &path, &Quiet, &AtomicBool::new(false)) {
            Err(error) => bad += &format!("{name}: {error}\n"),
            Ok(built) => {
                if let Some(text) = e2fsck(&path) {
                    bad += &format!("{name}: {text}\n");
                }
                if built.free_bytes >= 32 * built.block_bytes as u64 {
                    bad += &format!("{name}: {} bytes are left free\n", built.free_bytes);
                }
                let fs = Filesystem::open(&path).unwrap();
                if fs.read("/large").unwrap() != fs::read(source.join("large")).unwrap()
                    || fs.read("/sparse").unwrap() != fs::read(source.join("sparse")).unwrap()
                    || fs.read_dir("/many").unwrap().count() < 700
                {
                    bad += &format!("{name}: content differs\n");
                }
            }
        }
        let _ = fs::remove_file(&path);
    }
    assert!(bad.is_empty(), "{bad}");
}

#[test]
fn two_builds_are_the_same_to_the_byte_whatever_the_threads() {
    let dir = tempfile::tempdir().unwrap();
    let tree = tree(&dir.path().join("source"));
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    build(&ImageBuilder::new().threads(1), &tree, &one).unwrap();
    build(&ImageBuilder::new().threads(5), &tree, &two).unwrap();
    assert!(fs::read(one).unwrap() == fs::read(two).unwrap());
}

#[test]
fn a_size_that_is_too_small_says_what_is_needed_and_that_is_enough() {
    let dir = tempfile::tempdir().unwrap();
    let tree = tree(&dir.path().join("source"));
    let path = dir.path().join("image");
    let small = ImageBuilder::new().size(ImageSize::Bytes(2 << 20));
    let need = match build(&small, &tree, &path) {
        Err(BuildError::TooSmall { need, given }) => {
            assert_eq!(given, 2 << 20);
            need
        }
        other => panic!("{other:?}"),
    };
    assert!(!path.exists());
    build(&ImageBuilder::new().size(ImageSize::Bytes(need)), &tree, &path).unwrap();
    assert_eq!(e2fsck(&path), None);
    let less = ImageBuilder::new().size(ImageSize::Bytes(need - 4096));
    assert!(matches!(build(&less, &tree, &path), Err(BuildError::TooSmall { .. })));
}

#[test]
fn room_that_is_asked_for_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let tree = tree(&dir.path().join("source"));
    let path = dir.path().join("image");
    let builder = ImageBuilder::new().size(ImageSize::Auto { free: 20 << 20 });
    let built = builder.build(&tree, &path, &Quiet, &AtomicBool::new(false)).unwrap();
    assert!((20 << 20..21 << 20).contains(&built.free_bytes), "{}", built.free_bytes);
    assert_eq!(e2fsck(&path), None);
}

#[test]
fn a_build_that_is_stopped_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let tree = tree(&dir.path().join("source"));
    let path = dir.path().join("image");
    let stopped = ImageBuilder::new().build(&tree, &path, &Quiet, &AtomicBool::new(true));
    assert!(matches!(stopped, Err(BuildError::Stopped)));
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["source"]);
}
