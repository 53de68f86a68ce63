//! Sizes of images are exact: the computed size holds the tree, and one block less does not.

use extant::mkfs::MkfsOptions;
use extant_base::BlockSize;
use extant_image::{BuildError, ImageBuilder, ImageSize, SourceOptions, SourceSpec, Tree};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;

fn read(dir: &Path) -> Tree {
    Tree::read(&[SourceSpec::new(dir)], &SourceOptions::new(), &()).unwrap()
}

/// A long file of three pieces.
fn sparse(dir: &Path) -> Tree {
    let file = fs::File::create(dir.join("sparse")).unwrap();
    file.set_len(40 << 30).unwrap();
    for at in [0, 17 << 30, (40 << 30) - 5000] {
        file.write_all_at(b"data", at).unwrap();
    }
    read(dir)
}

fn small_files(dir: &Path) -> Tree {
    for n in 0..100 {
        fs::create_dir(dir.join(format!("{n}"))).unwrap();
        for m in 0..60 {
            fs::write(dir.join(format!("{n}/{m}")), vec![1; n * m]).unwrap();
        }
    }
    read(dir)
}

/// Only names: all of them belong to one file.
fn names(dir: &Path) -> Tree {
    fs::write(dir.join("first"), b"x").unwrap();
    for n in 0..20_000 {
        fs::hard_link(dir.join("first"), dir.join(format!("one of very many names, {n}"))).unwrap();
    }
    read(dir)
}

/// Only inodes.
fn empty_files(dir: &Path) -> Tree {
    for n in 0..9_000 {
        fs::write(dir.join(format!("{n}")), b"").unwrap();
    }
    read(dir)
}

fn nothing(dir: &Path) -> Tree {
    read(dir)
}

fn e2fsck(path: &Path) -> Option<String> {
    match Command::new("e2fsck").arg("-fn").arg(path).output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stdout).into_owned()),
        Err(_) if std::env::var_os("CI").is_none() => None,
        Err(error) => panic!("e2fsck is needed in CI: {error}"),
    }
}

#[test]
fn the_size_is_the_least_that_holds_the_tree() {
    let features = |features: &str| MkfsOptions::new().features(features).unwrap();
    let volumes: [(&str, u64, MkfsOptions); 5] = [
        ("1k", 1024, MkfsOptions::new()),
        ("4k", 4096, MkfsOptions::new()),
        ("64k", 65_536, MkfsOptions::new()),
        ("ext3", 1024, MkfsOptions::of_type("ext3").unwrap()),
        ("bigalloc", 4096, features("bigalloc").cluster_bytes(65_536)),
    ];
    type Make = fn(&Path) -> Tree;
    let trees: [(&str, Make); 5] = [
        ("sparse", sparse),
        ("small files", small_files),
        ("names", names),
        ("empty files", empty_files),
        ("nothing", nothing),
    ];
    let mut bad = String::new();
    for (tree_name, tree) in trees {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("source");
        fs::create_dir(&source).unwrap();
        let tree = tree(&source);
        for (volume, block, mkfs) in &volumes {
            if (*volume, tree_name) == ("ext3", "sparse") {
                continue; // a block map of 1 KiB blocks ends at 16 GiB
            }
            let path = dir.path().join("image");
            let size = BlockSize::from_bytes(*block as u32).unwrap();
            let builder = ImageBuilder::new()
                .mkfs(mkfs.clone().reserved_percent(0.0))
                .block_size(size)
                .inodes(1);
            let run = |size| {
                let stop = AtomicBool::new(false);
                builder.clone().size(size).build(&tree, &path, &(), &stop)
            };
            let bytes = match run(ImageSize::Auto { free: 0 }) {
                Ok(built) => built.bytes,
                Err(error) => {
                    bad += &format!("{tree_name} on {volume}: {error}\n");
                    continue;
                }
            };
            if let Some(text) = e2fsck(&path) {
                bad += &format!("{tree_name} on {volume}: {text}\n");
            }
            // The sizes directly below do not hold the tree, and each error names the needed size.
            for less in [1, 2, 7, 16] {
                let Some(given) = bytes.checked_sub(less * block) else { continue };
                match run(ImageSize::Bytes(given)) {
                    Err(BuildError::TooSmall { need, .. }) if need == bytes => {}
                    other => {
                        bad += &format!("{tree_name} on {volume}: {bytes} - {less}: {other:?}\n");
                    }
                }
            }
        }
    }
    assert!(bad.is_empty(), "{bad}");
}
