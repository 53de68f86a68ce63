//! The quota of images' owners, and attributes that are too long for an inode, checked by e2fsck.

use extant::mkfs::MkfsOptions;
use extant::{Filesystem, check};
use extant_base::BlockSize;
use extant_image::{BuildError, ImageBuilder, ImageSize, SourceOptions, SourceSpec, Tree};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// An attribute: its name after "user.", and the length of its value.
type Attribute<'a> = (&'a str, usize);

fn value(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|n| b'a' + ((n * 7 + seed) % 26) as u8).collect()
}

fn add(
    tar: &mut tar::Builder<Vec<u8>>,
    path: &str,
    owner: (u64, u64),
    size: usize,
    xattrs: &[Attribute<'_>],
) {
    let mut pax = Vec::new();
    for (name, len) in xattrs {
        let mut record = format!(" SCHILY.xattr.user.{name}=").into_bytes();
        record.extend(value(*len, 0));
        record.push(b'\n');
        let mut total = record.len();
        while total != record.len() + total.to_string().len() {
            total = record.len() + total.to_string().len();
        }
        pax.extend(total.to_string().into_bytes());
        pax.extend(record);
    }
    if !pax.is_empty() {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(tar::EntryType::XHeader);
        header.set_size(pax.len() as u64);
        tar.append_data(&mut header, "pax", &pax[..]).unwrap();
    }
    let mut header = tar::Header::new_gnu();
    let directory = path.ends_with('/');
    header.set_entry_type(match directory {
        true => tar::EntryType::Directory,
        false => tar::EntryType::Regular,
    });
    header.set_mode(if directory { 0o755 } else { 0o644 });
    header.set_uid(owner.0);
    header.set_gid(owner.1);
    header.set_mtime(1_700_000_000);
    header.set_size(if directory { 0 } else { size as u64 });
    tar.append_data(&mut header, path, &value(if directory { 0 } else { size }, 1)[..]).unwrap();
}

fn tree(dir: &Path, fill: impl FnOnce(&mut tar::Builder<Vec<u8>>)) -> Tree {
    let mut tar = tar::Builder::new(Vec::new());
    fill(&mut tar);
    let path = dir.join("source.tar");
    std::fs::write(&path, tar.into_inner().unwrap()).unwrap();
    Tree::read(&[SourceSpec::new(path)], &SourceOptions::new(), &()).unwrap()
}

/// Builds and checks an image; returns its path.
fn build(
    dir: &Path,
    tree: &Tree,
    features: &str,
    block: u32,
    size: ImageSize,
) -> Result<std::path::PathBuf, BuildError> {
    let path = dir.join("image");
    let mut mkfs = MkfsOptions::new().features(features).unwrap().reserved_percent(0.0);
    if features.contains("bigalloc") {
        mkfs = mkfs.cluster_bytes(block * 8);
    }
    let builder =
        ImageBuilder::new().mkfs(mkfs).block_size(BlockSize::from_bytes(block).unwrap()).size(size);
    builder.build(tree, &path, &(), &AtomicBool::new(false))?;
    let device = Arc::new(extant_blockdev::FileDevice::open(&path).unwrap());
    let report = check::check_device(device, &check::Options::default(), &()).unwrap();
    assert!(report.clean, "{features} {block}: {:?}", report.findings);
    match Command::new("e2fsck").arg("-fn").arg(&path).output() {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            let text = format!("{text}{}", String::from_utf8_lossy(&output.stderr));
            assert!(output.status.success(), "{features} {block}: {text}");
            assert!(!text.contains("QUOTA WARNING"), "{features} {block}: {text}");
        }
        Err(error) => assert!(std::env::var_os("CI").is_none(), "e2fsck is needed in CI: {error}"),
    }
    Ok(path)
}

const AUTO: ImageSize = ImageSize::Auto { free: 0 };

#[test]
fn quota_files_say_what_each_owner_uses() {
    let dir = tempfile::tempdir().unwrap();
    let many = tree(dir.path(), |tar| {
        add(tar, "./", (3, 4), 0, &[]);
        for n in 0..400usize {
            // Every byte of an id's path through the quota tree takes more than one value.
            let owner = (n as u64 % 150 * 40_503, n as u64 % 7 * 16_777_259);
            let xattrs: &[Attribute<'_>] = if n % 5 == 0 { &[("note", 300)] } else { &[] };
            add(tar, &format!("file{n}"), owner, n * 97 % 9000, xattrs);
        }
        add(tar, "dir/", (5, 5), 0, &[]);
        add(tar, "dir/in", (6, 6), 5_000_000, &[]);
    });
    for (features, block) in [
        ("quota", 4096),
        ("quota", 1024),
        ("quota,project", 1024),
        ("quota,project,inline_data", 4096),
        ("quota,bigalloc", 4096),
        ("quota,^extent,^64bit", 1024),
        ("quota,project,orphan_file", 65_536),
    ] {
        let size = ImageSize::Auto { free: 1 << 20 };
        build(dir.path(), &many, features, block, size).unwrap();
        build(dir.path(), &many, features, block, AUTO).unwrap();
    }
}

#[test]
fn a_lost_and_found_of_the_sources_own_is_counted_once() {
    let dir = tempfile::tempdir().unwrap();
    let own = tree(dir.path(), |tar| {
        add(tar, "lost+found/", (9, 9), 0, &[]);
        add(tar, "lost+found/kept", (8, 8), 10_000, &[]);
    });
    build(dir.path(), &own, "quota,project", 4096, AUTO).unwrap();
}

#[test]
fn long_values_get_inodes_of_their_own_which_are_counted_in_size_and_quota() {
    let dir = tempfile::tempdir().unwrap();
    let long = tree(dir.path(), |tar| {
        for n in 0..50 {
            let own = 5000 + n * 731;
            let xattrs = [("shared", 9000), ("own", own), ("short", 20), ("block", 900)];
            add(tar, &format!("file{n}"), (n as u64, 1), n * 1000, &xattrs);
        }
    });
    for (features, block) in
        [("ea_inode", 4096), ("ea_inode", 1024), ("ea_inode,quota", 4096), ("ea_inode,quota", 1024)]
    {
        let path = build(dir.path(), &long, features, block, AUTO).unwrap();
        let fs = Filesystem::open(&path).unwrap();
        for n in [0, 7, 49] {
            let file = format!("/file{n}");
            let read = |name: &str| fs.xattr(&file, name).unwrap();
            assert!(read("user.shared") == value(9000, 0));
            assert!(read("user.own") == value(5000 + n * 731, 0));
            assert!(read("user.block") == value(900, 0));
        }
        drop(fs);
        build(dir.path(), &long, features, block, ImageSize::Bytes(64 << 20)).unwrap();
    }
}

#[test]
fn a_value_that_no_such_volume_holds_is_named_and_not_tried_again_and_again() {
    let dir = tempfile::tempdir().unwrap();
    let long = tree(dir.path(), |tar| add(tar, "the/file", (1, 1), 10, &[("long", 9000)]));
    for size in [AUTO, ImageSize::Bytes(32 << 20)] {
        match build(dir.path(), &long, "", 4096, size) {
            Err(error @ BuildError::Entry { .. }) => {
                let text = error.to_string();
                assert!(text.contains("the/file") && text.contains("ea_inode"), "{text}");
            }
            other => panic!("{other:?}"),
        }
    }
}
