//! `extant undelete`: the list, and copies.

use crate::common::{built, run, succeed};
use extant_testkit::loop_mount::LoopMount;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

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
    let ino =
        |name: &str| fs::symlink_metadata(path.join("found/src/etc").join(name)).unwrap().ino();
    assert_eq!(ino("alias"), ino("hostname"), "hard links stay hard links");
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

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

#[test]
fn the_tree_as_of_a_time_is_listed_and_copied() {
    let dir = built();
    let path = dir.path();
    succeed(path, &["mkfs", "b.img", "--size", "64M"]);
    succeed(path, &["put", "-r", "b.img", "src", "/"]);
    let then = now();
    std::thread::sleep(Duration::from_millis(1100));
    succeed(path, &["rm", "-r", "b.img", "/src/etc"]);
    let as_of = format!("@{then}");
    let listed = succeed(path, &["undelete", "--list", "--as-of", &as_of, "b.img", "/src"]);
    let line = |name: &str| {
        let end = format!("  /src/{name}");
        listed.lines().find(|line| line.ends_with(&end)).unwrap_or_else(|| panic!("{listed}"))
    };
    assert!(line("etc/script").starts_with("whole    deleted  "), "{listed}");
    assert!(!listed.contains("not certain") && !listed.contains("missing or newer"), "{listed}");
    assert!(listed.contains("b.img: as of the commit at "), "{listed}");
    succeed(path, &["undelete", "--as-of", &as_of, "b.img", "-o", "found"]);
    assert_same_files(&path.join("src"), &path.join("found/src"));
    assert_eq!(walk(&path.join("src")).len(), walk(&path.join("found/src")).len());

    let rows = succeed(path, &["undelete", "--as-of", &as_of, "--json", "b.img"]);
    let rows: Vec<serde_json::Value> =
        rows.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (last, rows) = rows.split_last().unwrap();
    assert!(last["as_of"].as_u64().unwrap() <= then, "{last}");
    assert_eq!(last["incomplete"], serde_json::json!([]));
    let row = rows.iter().find(|row| row["path"] == "/src/etc/script").unwrap();
    let state = (&row["state"], &row["is_deleted"], &row["changed"], &row["certain"]);
    assert_eq!(state, (&"whole".into(), &true.into(), &false.into(), &true.into()));

    let (code, _, err) = run(path, &["undelete", "--as-of", "@5", "b.img"]);
    let message = "the journal does not go back to 1970-01-01 00:00:05 UTC: name a time from ";
    assert!(code == 1 && err.contains(message), "{err}");
    let (code, _, err) = run(path, &["undelete", "--as-of", "yesterday", "b.img"]);
    assert!(code == 2 && err.contains("'yesterday' is not a time"), "{err}");
    let (code, _, _) = run(path, &["undelete", "--list", "b.img", "-o", "found"]);
    assert_eq!(code, 2);
}

#[test]
fn nothing_is_written_to_the_volume_from_which_files_are_copied() {
    extant_testkit::require!(Root, Loop);
    let dir = deleted();
    let path = dir.path();
    let mount = LoopMount::rw(&path.join("b.img"), "").unwrap();
    let out = mount.path().join("new/found");
    let out = out.to_str().unwrap();
    let device = fs::metadata(mount.path()).unwrap().dev();
    let device = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let device = fs::canonicalize(Path::new("/sys/dev/block").join(device)).unwrap();
    let device = Path::new("/dev").join(device.file_name().unwrap());
    let device = device.to_str().unwrap();
    for image in ["b.img", device] {
        let (code, _, err) = run(path, &["undelete", image, "-o", out]);
        assert!(code == 1 && err.contains("on the volume from which files are copied"), "{err}");
    }
    assert!(!mount.path().join("new").exists());
    // A directory beside the image is another place.
    succeed(path, &["undelete", "b.img", "-o", "found"]);
    mount.unmount().unwrap();
}
