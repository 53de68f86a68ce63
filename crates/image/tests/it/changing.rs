//! Many files and any number of threads give one image. Sources that change during a build are
//! named in an error, or skipped with `keep_going`.

use extant::{Filesystem, Phase, Progress, check};
use extant_image::{BuildError, ImageBuilder, SourceOptions, SourceSpec, Tree};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

fn read(dir: &Path, keep_going: bool) -> Tree {
    let options = SourceOptions::new().owner(0, 0).keep_going(keep_going);
    Tree::read(&[SourceSpec::new(dir)], &options, &()).unwrap()
}

fn build(
    builder: &ImageBuilder,
    tree: &Tree,
    path: &Path,
    progress: &dyn Progress,
) -> Result<(), BuildError> {
    builder.build(tree, path, progress, &AtomicBool::new(false)).map(drop)
}

fn expect_clean(path: &Path) {
    let device = Arc::new(extant_blockdev::FileDevice::open(path).unwrap());
    let report = check::check_device(device, &check::Options::default(), &()).unwrap();
    assert!(report.clean, "{:?}", report.findings);
}

#[test]
fn one_to_eight_threads_make_the_same_image_of_thousands_of_files() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    for d in 0..27 {
        fs::create_dir_all(source.join(format!("dir{d}"))).unwrap();
        for n in 0..200usize {
            let bytes = vec![(n + d) as u8; n * n % 9001];
            fs::write(source.join(format!("dir{d}/file{n}")), bytes).unwrap();
        }
    }
    // Sparse, with data before and after the border of a copied chunk.
    for n in 0..6u64 {
        let file = fs::File::create(source.join(format!("sparse{n}"))).unwrap();
        for part in 0..5 {
            let bytes = vec![part as u8 + 1; 300_000 + 4096 * n as usize];
            file.write_all_at(&bytes, part * (3 << 20) + n * 8192).unwrap();
        }
        file.set_len((20 << 20) + n).unwrap();
    }
    fs::write(source.join("long"), vec![9; 13 << 20]).unwrap();
    let tree = read(&source, false);
    assert!(tree.node_count() > 5000);
    let first = dir.path().join("image1");
    build(&ImageBuilder::new().threads(1), &tree, &first, &()).unwrap();
    expect_clean(&first);
    let expected = fs::read(&first).unwrap();
    for threads in 2..=8 {
        let path = dir.path().join("image");
        // Several threads may read the sources, too.
        let options = SourceOptions::new().owner(0, 0).threads(threads);
        let tree = Tree::read(&[SourceSpec::new(&source)], &options, &()).unwrap();
        build(&ImageBuilder::new().threads(threads), &tree, &path, &()).unwrap();
        assert!(fs::read(&path).unwrap() == expected, "{threads} threads");
    }
}

/// Changes the sources when the copying begins.
struct AtCopy<F>(F);

impl<F: Fn() + Sync + Send> Progress for AtCopy<F> {
    fn begin(&self, phase: Phase, _total: u64) {
        if phase == Phase::BuildCopy {
            (self.0)();
        }
    }
}

const NAMES: [&str; 6] = ["gone", "grown", "kept", "linked", "replaced", "shrunk"];

fn six_files(dir: &Path) {
    fs::create_dir(dir).unwrap();
    for name in NAMES {
        fs::write(dir.join(name), vec![b'x'; 70_000]).unwrap();
    }
}

/// Changes a source in a named way.
fn change(dir: &Path, name: &str) {
    let path = dir.join(name);
    let open = || fs::File::options().write(true).open(&path).unwrap();
    match name {
        "gone" => fs::remove_file(&path).unwrap(),
        "grown" => open().write_all_at(b"more", 70_000).unwrap(),
        "shrunk" => open().set_len(5).unwrap(),
        "linked" => {
            fs::remove_file(&path).unwrap();
            std::os::unix::fs::symlink("kept", &path).unwrap();
        }
        "replaced" => {
            fs::write(dir.join("new"), vec![b'y'; 70_000]).unwrap();
            fs::rename(dir.join("new"), &path).unwrap();
        }
        _ => {}
    }
}

#[test]
fn a_source_that_changes_during_the_build_ends_it_by_name_and_leaves_no_image() {
    let dir = tempfile::tempdir().unwrap();
    for (name, says) in [
        ("gone", "vanished"),
        ("grown", "grew"),
        ("shrunk", "shrank"),
        ("linked", "cannot open"),
        ("replaced", "was replaced"),
    ] {
        let source = dir.path().join(format!("source-{name}"));
        six_files(&source);
        let tree = read(&source, false);
        let image = dir.path().join("image");
        let progress = AtCopy(|| change(&source, name));
        let error = build(&ImageBuilder::new(), &tree, &image, &progress).unwrap_err();
        assert!(matches!(error, BuildError::Source(_)), "{name}: {error:?}");
        let text = error.to_string();
        assert!(text.contains(&format!("/{name}")) && text.contains(says), "{name}: {text}");
        let left = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name());
        assert!(!left.into_iter().any(|n| !n.to_string_lossy().starts_with("source-")), "{name}");
    }
}

#[test]
fn with_keep_going_lost_sources_become_zeros_and_are_reported_once() {
    let dir = tempfile::tempdir().unwrap();
    for threads in [1, 4] {
        let source = dir.path().join(format!("source{threads}"));
        six_files(&source);
        let tree = read(&source, true);
        let image = dir.path().join("image");
        let progress = AtCopy(|| NAMES.iter().for_each(|name| change(&source, name)));
        build(&ImageBuilder::new().threads(threads), &tree, &image, &progress).unwrap();
        let problems = tree.take_problems();
        let named: Vec<_> =
            problems.iter().map(|p| p.path().unwrap().file_name().unwrap()).collect();
        assert_eq!(named, ["gone", "grown", "linked", "replaced", "shrunk"]);
        expect_clean(&image);
        let fs = Filesystem::open(&image).unwrap();
        assert_eq!(fs.read("/kept").unwrap(), vec![b'x'; 70_000]);
        for name in NAMES {
            let there = fs.read(Path::new("/").join(name)).unwrap();
            assert_eq!(there.len(), 70_000, "{name}");
            // Bytes that were read before the error may stay.
            assert!(there.iter().all(|&b| b == 0 || b == b'x'), "{name}");
        }
        assert!(fs.read("/gone").unwrap().iter().all(|&byte| byte == 0));
    }
}

#[test]
fn with_keep_going_a_listed_file_that_is_gone_before_the_build_is_zeros_too() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    six_files(&source);
    // Small enough for its inode: it is read while the volume is laid out.
    fs::write(source.join("tiny"), b"inline").unwrap();
    let tree = read(&source, true);
    for name in ["gone", "tiny"] {
        fs::remove_file(source.join(name)).unwrap();
    }
    let image = dir.path().join("image");
    let mkfs = extant::mkfs::MkfsOptions::new().features("inline_data").unwrap();
    build(&ImageBuilder::new().mkfs(mkfs), &tree, &image, &()).unwrap();
    let problems = tree.take_problems();
    assert_eq!(problems.len(), 2, "{problems:?}");
    expect_clean(&image);
    let fs = Filesystem::open(&image).unwrap();
    assert_eq!(fs.read("/tiny").unwrap(), [0; 6]);
    assert_eq!(fs.read("/gone").unwrap(), vec![0; 70_000]);
}
