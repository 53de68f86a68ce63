//! `extant undelete`: the list, and copies.

use crate::common::{built, run, succeed};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// An image in which `/etc` with its files was deleted.
fn deleted() -> tempfile::TempDir {
    let dir = built();
    let path = dir.path();
    // In images that were built, no transaction has the files yet.
    succeed(path, &["mkfs", "b.img", "--size", "64M"]);
    succeed(path, &["put", "-r", "b.img", "src", "/"]);
    succeed(path, &["rm", "-r", "b.img", "/src/etc"]);
    dir
}

fn assert_same_files(a: &Path, b: &Path) {
    for entry in fs::read_dir(a).unwrap().map(|entry| entry.unwrap().path()) {
        let other = b.join(entry.file_name().unwrap());
        let meta = fs::symlink_metadata(&entry).unwrap();
        let copied = fs::symlink_metadata(&other)
            .unwrap_or_else(|error| panic!("{}: {error}", other.display()));
        assert_eq!(meta.file_type(), copied.file_type(), "{}", other.display());
        if meta.is_dir() {
            assert_eq!(meta.mode(), copied.mode());
            assert_same_files(&entry, &other);
        } else if meta.is_file() {
            assert!(fs::read(&entry).unwrap() == fs::read(&other).unwrap());
            assert_eq!((meta.mode(), meta.mtime()), (copied.mode(), copied.mtime()));
        } else if meta.is_symlink() {
            assert_eq!(fs::read_link(&entry).unwrap(), fs::read_link(&other).unwrap());
        }
    }
}

#[test]
fn deleted_files_are_listed_and_copied() {
    let dir = deleted();
    let path = dir.path();
    let before = fs::read(path.join("b.img")).unwrap();
    let listed = succeed(path, &["undelete", "b.img"]);
    assert!(listed.contains("  /src/etc/script\n"), "{listed}");
    assert!(listed.lines().all(|line| !line.starts_with("gone")), "{listed}");
    assert!(listed.ends_with(" 0 partial, 0 gone: -o DIR copies them\n"), "{listed}");
    let copied = succeed(path, &["undelete", "b.img", "-o", "found"]);
    assert!(copied.ends_with(" 0 partial, 0 gone\n"), "{copied}");
    // One name of a hard link is copied, another may be.
    let name = |name: &str| path.join("found/src/etc").join(name);
    if !name("alias").exists() {
        fs::hard_link(name("hostname"), name("alias")).unwrap();
    } else if !name("hostname").exists() {
        fs::hard_link(name("alias"), name("hostname")).unwrap();
    }
    assert_same_files(&path.join("src/etc"), &path.join("found/src/etc"));
    assert!(fs::read(path.join("b.img")).unwrap() == before, "the image was changed");
}

#[test]
fn a_path_limits_what_is_found_and_json_says_where_it_is() {
    let dir = deleted();
    let path = dir.path();
    let listed = succeed(path, &["undelete", "b.img", "/src/etc/script"]);
    assert!(
        listed.ends_with("b.img: 1 whole, 0 partial, 0 gone: -o DIR copies them\n"),
        "{listed}"
    );
    let listed = succeed(path, &["undelete", "b.img", "/srv"]);
    assert_eq!(listed, "b.img: no deleted files were found there: without PATH, all are listed\n");
    let lines = succeed(path, &["undelete", "--json", "b.img", "-o", "found"]);
    for line in lines.lines() {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(row["state"], "whole", "{line}");
        if row["type"] == "file" {
            let copy = path.join("found").join(row["copied"].as_str().unwrap());
            assert_eq!(fs::metadata(copy).unwrap().len(), row["size"], "{line}");
        }
    }
    // A second copy replaces nothing.
    let (code, out, err) = run(path, &["undelete", "b.img", "-o", "found"]);
    assert_eq!(code, 0, "{out}{err}");
    let copies = walk(&path.join("found"));
    assert!(copies.iter().any(|name| name.contains('#')), "{copies:?}");
}

fn walk(dir: &Path) -> Vec<String> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap()) {
        all.push(entry.file_name().to_string_lossy().into_owned());
        if entry.file_type().unwrap().is_dir() {
            all.extend(walk(&entry.path()));
        }
    }
    all
}
