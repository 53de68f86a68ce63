//! Images built from a small tree with every kind of entry, checked by `e2fsck -fn`.

use extant::mkfs::MkfsOptions;
use extant::{Filesystem, Phase, Progress, check};
use extant_base::BlockSize;
use extant_image::{BuildError, ImageBuilder, ImageSize, SourceOptions, SourceSpec, Tree};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

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
    Tree::read(&[SourceSpec::new(dir)], &options, &()).unwrap()
}

fn build(builder: &ImageBuilder, tree: &Tree, path: &Path) -> Result<u64, BuildError> {
    Ok(builder.build(tree, path, &(), &AtomicBool::new(false))?.bytes)
}

/// The output of `e2fsck -fn`, if there is any.
fn e2fsck(path: &Path) -> Option<String> {
    match Command::new("e2fsck").arg("-fn").arg(path).output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stdout).into_owned()),
        Err(_) if std::env::var_os("CI").is_none() => None,
        Err(error) => panic!("e2fsck is needed in CI: {error}"),
    }
}

/// The findings of `extant check`, if there are any.
fn extant_check(path: &Path) -> Option<String> {
    let device = Arc::new(extant_blockdev::FileDevice::open(path).unwrap());
    let report = check::check_device(device, &check::Options::default(), &()).unwrap();
    (!report.clean).then(|| format!("{:?}", report.findings))
}

/// Compares every name below `source` with the image: kind, bytes, targets, links, owner, mode.
fn same(image: &Path, source: &Path) -> Result<(), String> {
    let fs = Filesystem::open(image).map_err(|error| error.to_string())?;
    let mut left = vec![source.to_owned()];
    let mut names = 0;
    while let Some(path) = left.pop() {
        let inside = Path::new("/").join(path.strip_prefix(source).unwrap());
        let wrong = |what: &str| format!("{} differs: {what}", inside.display());
        let there = fs.symlink_metadata(&inside).map_err(|error| wrong(&error.to_string()))?;
        let meta = fs::symlink_metadata(&path).unwrap();
        names += 1;
        if u32::from(there.permissions()) != meta.mode() & 0o7777 {
            return Err(wrong("mode"));
        }
        if (there.uid(), there.gid()) != (70_000, 80_000) {
            return Err(wrong("owner"));
        }
        if meta.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if meta.is_symlink() {
            if fs.read_link(&inside).ok() != fs::read_link(&path).ok() {
                return Err(wrong("target"));
            }
        } else {
            if u64::from(there.nlink()) != meta.nlink() {
                return Err(wrong("links"));
            }
            if fs.read(&inside).ok() != fs::read(&path).ok() {
                return Err(wrong("bytes"));
            }
        }
    }
    let listed = fs.walk("/").filter(|entry| entry.is_ok()).count();
    // The walk may or may not return the root; lost+found is the volume's.
    match (names..=names + 1).contains(&listed) {
        true => Ok(()),
        false => Err(format!("{listed} names, {names} expected")),
    }
}

#[test]
fn every_kind_of_volume_takes_the_tree_and_is_exactly_full() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    let tree = tree(&source);
    let features = |features: &str| MkfsOptions::new().features(features).unwrap();
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
        ("8k", 8192, MkfsOptions::new()),
        ("32k", 32_768, MkfsOptions::new()),
        ("inode128", 4096, features("").inode_size(128)),
        ("inode1024", 4096, features("").inode_size(1024)),
        ("noextent", 4096, features("^extent,^64bit")),
        ("noextent-1k", 1024, features("^extent,^64bit")),
        ("no64bit", 4096, features("^64bit")),
        ("inline-1k", 1024, features("inline_data")),
        ("inline-inode1024", 4096, features("inline_data").inode_size(1024)),
        ("bigalloc-64k", 1024, features("bigalloc").cluster_bytes(65_536)),
        ("bigalloc-inline", 4096, features("bigalloc,inline_data").cluster_bytes(32_768)),
        ("casefold", 4096, features("casefold")),
        ("casefold-inline", 4096, features("casefold,inline_data")),
        ("eainode", 4096, features("ea_inode")),
        ("largedir", 1024, features("large_dir")),
        ("project", 4096, features("project")),
        ("quota", 4096, features("quota")),
        ("quota-project", 1024, features("quota,project")),
        ("mmp", 4096, features("mmp")),
        ("fastcommit", 4096, features("fast_commit")),
        ("verity", 4096, features("verity")),
        ("encrypt", 4096, features("encrypt")),
        ("stable", 4096, features("stable_inodes")),
        ("metabg", 1024, features("meta_bg,^resize_inode")),
        ("noresize", 4096, features("^resize_inode")),
        ("sparse2", 1024, features("sparse_super2,^resize_inode")),
        ("sparse2-one", 1024, features("sparse_super2,^resize_inode").backups(1)),
        ("sparse2-none", 1024, features("sparse_super2,^resize_inode").backups(0)),
        ("nosparse", 1024, features("^sparse_super,^resize_inode")),
        ("nofiletype", 4096, features("^filetype")),
        ("noextattr", 4096, features("^ext_attr")),
        ("nohuge", 4096, features("^huge_file,^dir_nlink,^extra_isize")),
        ("nolargefile", 4096, features("^large_file")),
        ("smallgroups", 1024, features("").blocks_per_group(1024)),
        (
            "all",
            4096,
            features("inline_data,ea_inode,large_dir,casefold,metadata_csum_seed,orphan_file")
                .features("quota,project,mmp,fast_commit,verity,encrypt,stable_inodes")
                .unwrap(),
        ),
        (
            "all-bigalloc",
            1024,
            features("bigalloc,inline_data,ea_inode,large_dir,casefold,metadata_csum_seed")
                .features("orphan_file,quota,project,mmp,fast_commit,sparse_super2,^resize_inode")
                .unwrap()
                .cluster_bytes(16_384),
        ),
    ];
    let mut bad = String::new();
    for (name, block, mkfs) in kinds {
        let path = dir.path().join(name);
        let block = BlockSize::from_bytes(block).unwrap();
        let builder = ImageBuilder::new().mkfs(mkfs.reserved_percent(0.0)).block_size(block);
        match builder.build(&tree, &path, &(), &AtomicBool::new(false)) {
            Err(error) => bad += &format!("{name}: {error}\n"),
            Ok(built) => {
                if let Some(text) = e2fsck(&path) {
                    bad += &format!("{name}: {text}\n");
                }
                if built.free_bytes >= 32 * built.block_bytes as u64 {
                    bad += &format!("{name}: {} bytes are left free\n", built.free_bytes);
                }
                if let Err(text) = same(&path, &source) {
                    bad += &format!("{name}: {text}\n");
                }
                if let Some(text) = extant_check(&path) {
                    bad += &format!("{name}: extant check: {text}\n");
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
fn times_after_the_epoch_asked_for_leave_no_trace() {
    let dir = tempfile::tempdir().unwrap();
    let images = [3_000_000_000, 3_000_000_007].map(|sec| {
        let source = dir.path().join(format!("source-{sec}"));
        fs::create_dir_all(source.join("dir")).unwrap();
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(sec);
        for name in ["dir", "."] {
            fs::File::open(source.join(name)).unwrap().set_modified(time).unwrap();
        }
        let tree = Tree::read(&[SourceSpec::new(&source)], &SourceOptions::new(), &()).unwrap();
        let path = dir.path().join(format!("image-{sec}"));
        build(&ImageBuilder::new().source_date_epoch(1000), &tree, &path).unwrap();
        fs::read(path).unwrap()
    });
    assert!(images[0] == images[1]);
}

#[test]
fn the_size_in_the_error_for_a_small_image_is_sufficient() {
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
fn requested_free_space_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let tree = tree(&dir.path().join("source"));
    let path = dir.path().join("image");
    let builder = ImageBuilder::new().size(ImageSize::Auto { free: 20 << 20 });
    let built = builder.build(&tree, &path, &(), &AtomicBool::new(false)).unwrap();
    assert!((20 << 20..21 << 20).contains(&built.free_bytes), "{}", built.free_bytes);
    assert_eq!(e2fsck(&path), None);
}

/// Counts how often a build lays the tree out.
#[derive(Default)]
struct Layouts(AtomicU64);

impl Progress for Layouts {
    fn begin(&self, phase: Phase, _: u64) {
        if phase == Phase::BuildLayout {
            self.0.fetch_add(1, Relaxed);
        }
    }
}

#[test]
fn the_smallest_size_is_known_before_the_tree_is_laid_out() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    tree(&source);
    for n in 0..3000 {
        symlink("x".repeat(n % 200 + 1), source.join(format!("deep/number {n}"))).unwrap();
    }
    let path = dir.path().join("image");
    let options = SourceOptions::new().owner(70_000, 80_000);
    let tree = Tree::read(&[SourceSpec::new(&source)], &options, &()).unwrap();
    let mkfs = MkfsOptions::new().reserved_percent(0.0);
    for builder in [
        ImageBuilder::new(),
        ImageBuilder::new().block_size(BlockSize::from_bytes(1024).unwrap()),
        ImageBuilder::new().mkfs(mkfs.clone().features("^dir_index").unwrap()),
        ImageBuilder::new().mkfs(mkfs.features("orphan_file,casefold").unwrap()),
    ] {
        let progress = Layouts::default();
        builder.build(&tree, &path, &progress, &AtomicBool::new(false)).unwrap();
        assert_eq!(progress.0.into_inner(), 1, "{builder:?}");
        assert_eq!(e2fsck(&path), None);
        assert_eq!(same(&path, &source), Ok(()));
    }
}

#[test]
fn a_file_with_more_extents_than_expected_costs_another_layout() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    // Metadata of each group interrupts the file: 8 extents, where 4 fit the inode.
    let content: Vec<u8> = (0..59 << 20).map(|n: u32| (n >> 10) as u8 | 1).collect();
    fs::write(source.join("dense"), content).unwrap();
    let options = SourceOptions::new().owner(70_000, 80_000);
    let tree = Tree::read(&[SourceSpec::new(&source)], &options, &()).unwrap();
    let path = dir.path().join("image");
    let mkfs = MkfsOptions::new().reserved_percent(0.0).features("^flex_bg").unwrap();
    let builder = ImageBuilder::new().mkfs(mkfs).block_size(BlockSize::from_bytes(1024).unwrap());
    let progress = Layouts::default();
    let built = builder.build(&tree, &path, &progress, &AtomicBool::new(false)).unwrap();
    let layouts = progress.0.into_inner();
    assert!((2..=4).contains(&layouts), "{layouts}");
    assert!(built.free_bytes < 32 << 10, "{} bytes are left free", built.free_bytes);
    assert_eq!(e2fsck(&path), None);
    assert_eq!(same(&path, &source), Ok(()));
}

#[test]
fn a_build_that_is_stopped_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let tree = tree(&dir.path().join("source"));
    let path = dir.path().join("image");
    let stopped = ImageBuilder::new().build(&tree, &path, &(), &AtomicBool::new(true));
    assert!(matches!(stopped, Err(BuildError::Stopped)));
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["source"]);
}
