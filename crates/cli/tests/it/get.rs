//! `extant get`: into a directory, and as a tar.

use crate::common::{built, fail, pattern, run, run_limited, succeed};
use extant_testkit::e2fsprogs;
use extant_testkit::judge::{self, Judge};
use extant_testkit::loop_mount::LoopMount;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

/// Asserts that two trees have the same content, except for what only the volume has.
fn assert_same(a: &Path, b: &Path) {
    let mut names: Vec<_> =
        fs::read_dir(a).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    let mut others: Vec<_> =
        fs::read_dir(b).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    others.retain(|name| name != "lost+found");
    others.sort();
    assert_eq!(names, others, "{}", b.display());
    for name in names {
        let (a, b) = (a.join(&name), b.join(&name));
        let (meta, other) = (fs::symlink_metadata(&a).unwrap(), fs::symlink_metadata(&b).unwrap());
        assert_eq!(meta.mode(), other.mode(), "{}", b.display());
        assert_eq!((meta.mtime(), meta.mtime_nsec()), (other.mtime(), other.mtime_nsec()));
        if meta.is_dir() {
            assert_same(&a, &b);
        } else if meta.is_symlink() {
            assert_eq!(fs::read_link(a).unwrap(), fs::read_link(b).unwrap());
        } else {
            assert_eq!(meta.nlink(), other.nlink(), "{}", b.display());
            assert!(fs::read(a).unwrap() == fs::read(&b).unwrap(), "{}", b.display());
        }
    }
}

#[test]
fn a_tree_comes_out_as_it_went_in() {
    let dir = built();
    let path = dir.path();
    succeed(path, &["get", "--no-owner", "a.img", "/", "out"]);
    assert_same(&path.join("src"), &path.join("out"));
    let (alias, hostname) = ("out/etc/alias", "out/etc/hostname");
    let ino = |name: &str| fs::metadata(path.join(name)).unwrap().ino();
    assert_eq!(ino(alias), ino(hostname));
    let sparse = fs::metadata(path.join("out/sparse")).unwrap();
    assert!(sparse.blocks() < 1024, "{} sectors", sparse.blocks());
}

#[test]
fn things_go_where_cp_would_put_them() {
    let dir = built();
    let path = dir.path();
    succeed(path, &["get", "--no-owner", "a.img", "/big", "renamed"]);
    assert!(fs::read(path.join("renamed")).unwrap() == pattern(300_000));
    fs::create_dir(path.join("into")).unwrap();
    succeed(path, &["get", "--no-owner", "a.img", "/etc", "into"]);
    assert!(path.join("into/etc/script").exists());
    succeed(path, &["get", "--no-owner", "a.img", "etc/hostname", "into/"]);
    assert!(path.join("into/hostname").exists());
    succeed(path, &["get", "--no-owner", "a.img", "/link", "into"]);
    assert!(path.join("into/link").is_symlink());
    assert_eq!(succeed(path, &["get", "a.img", "/dir-link/hostname", "-"]), "host\n");
}

#[test]
fn what_is_there_is_kept_unless_forced() {
    let dir = built();
    let path = dir.path();
    fs::create_dir_all(path.join("out/etc")).unwrap();
    fs::write(path.join("out/etc/script"), "mine").unwrap();
    let (code, _, err) = run(path, &["get", "--no-owner", "a.img", "/", "out"]);
    assert_eq!(code, 1);
    assert_eq!(
        err,
        "extant: out/etc/script: cannot create the file: File exists: use --force to replace it\n"
    );
    assert_eq!(fs::read(path.join("out/etc/script")).unwrap(), b"mine");
    assert!(path.join("out/sparse").exists(), "the rest is copied");
    succeed(path, &["get", "--no-owner", "--force", "a.img", "/", "out"]);
    assert_eq!(fs::read(path.join("out/etc/script")).unwrap(), b"#!/bin/sh\n");
}

#[test]
fn nothing_outside_the_destination_is_written() {
    let dir = built();
    let path = dir.path();
    fs::create_dir_all(path.join("elsewhere")).unwrap();
    fs::create_dir_all(path.join("out")).unwrap();
    symlink("../elsewhere", path.join("out/etc")).unwrap();
    symlink("../elsewhere/new", path.join("out/big")).unwrap();
    for force in [&[][..], &["--force"]] {
        let args = [&["get", "--no-owner", "a.img", "/", "out"][..], force].concat();
        let (code, _, err) = run(path, &args);
        assert_eq!(code, 1, "{err}");
        assert_eq!(fs::read_dir(path.join("elsewhere")).unwrap().count(), 0, "{err}");
    }
    // With --force a symlink is replaced, not followed.
    assert!(path.join("out/big").symlink_metadata().unwrap().is_file());
}

#[test]
fn a_tar_holds_the_same() {
    let dir = built();
    let path = dir.path();
    succeed(path, &["get", "--tar", "a.img", "/", "all.tar"]);
    succeed(path, &["build", "all.tar", "-o", "b.img", "--free", "1M"]);
    crate::common::assert_clean(&path.join("b.img"));
    let tree = |image: &str| {
        let text = succeed(path, &["tree", "--json", "--hash", image]);
        let mut records: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        records.retain(|record| record["path"] != "/lost+found");
        for record in &mut records {
            for field in ["ino", "atime", "ctime", "crtime", "blocks", "generation"] {
                record.as_object_mut().unwrap().remove(field);
            }
        }
        records
    };
    assert_eq!(tree("a.img"), tree("b.img"));
    let line = fail(path, 1, &["get", "--tar", "a.img", "/", "all.tar"]);
    assert_eq!(line, "all.tar: cannot create the file: File exists: use --force to replace it");
}

#[test]
fn a_tar_of_a_part_begins_with_its_name() {
    let dir = built();
    let output = crate::common::extant()
        .current_dir(dir.path())
        .args(["get", "a.img", "/etc", "--tar", "-"])
        .output()
        .unwrap();
    assert!(output.status.success());
    let mut archive = tar::Archive::new(&output.stdout[..]);
    let mut names: Vec<String> = archive
        .entries()
        .unwrap()
        .map(|entry| entry.unwrap().path().unwrap().display().to_string())
        .collect();
    names.sort();
    assert_eq!(names, ["etc/", "etc/alias", "etc/empty/", "etc/hostname", "etc/script"]);
}

/// GNU tar's --acls reads the text, other readers the attribute.
#[test]
fn a_tar_says_access_control_lists_in_both_ways() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let lists = [
        ("SCHILY.acl.access", "user::rwx,user:1000:r--,group::r-x,mask::rwx,other::---"),
        ("SCHILY.acl.default", "user::rwx,group::r-x,group:7:-w-,mask::rwx,other::--x"),
    ];
    let mut archive = tar::Builder::new(fs::File::create(path.join("a.tar")).unwrap());
    archive.append_pax_extensions(lists.map(|(key, text)| (key, text.as_bytes()))).unwrap();
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(tar::EntryType::Directory);
    header.set_mode(0o770);
    header.set_size(0);
    archive.append_data(&mut header, "d/", &b""[..]).unwrap();
    archive.finish().unwrap();
    succeed(path, &["build", "a.tar", "-o", "a.img"]);
    crate::common::assert_clean(&path.join("a.img"));
    succeed(path, &["get", "a.img", "/d", "--tar", "b.tar"]);
    let mut back = tar::Archive::new(fs::File::open(path.join("b.tar")).unwrap());
    let mut entry = back.entries().unwrap().next().unwrap().unwrap();
    let records: Vec<(String, Vec<u8>)> = (entry.pax_extensions().unwrap().unwrap())
        .map(|record| record.unwrap())
        .map(|record| (record.key().unwrap().to_owned(), record.value_bytes().to_vec()))
        .collect();
    for (key, text) in lists {
        assert!(records.contains(&(key.into(), text.into())), "{records:?}");
    }
    assert!(records.iter().any(|(key, _)| key == "SCHILY.xattr.system.posix_acl_access"));
}

/// GNU tar writes `%` and `=` in an attribute's name as `%25` and `%3D`, and reads no other
/// escapes.
#[test]
fn names_of_attributes_go_through_tars_as_gnu_tar_has_them() {
    if !judge::require(&[Judge::Program("tar")]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let file = path.join("src/f");
    fs::create_dir(path.join("src")).unwrap();
    fs::write(&file, b"content").unwrap();
    let names: [&[u8]; 10] = [
        b"user.=",
        b"user.a=b",
        b"user.50%",
        b"user.%25",
        b"user.%253D",
        b"user.%3D",
        b"user.%3d",
        b"user.%41",
        b"user.a b\nc",
        b"user.\xff\xc3",
    ];
    let attributes = |path: &Path| -> BTreeMap<String, String> {
        let mut names = vec![0; 65536];
        let len = rustix::fs::listxattr(path, &mut names).unwrap();
        let names = names[..len].split(|&byte| byte == 0).filter(|name| !name.is_empty());
        let value = |name: &[u8]| {
            let mut value = vec![0; 256];
            let len = rustix::fs::getxattr(path, name, &mut value).unwrap();
            value[..len].escape_ascii().to_string()
        };
        names.map(|name| (name.escape_ascii().to_string(), value(name))).collect()
    };
    for name in names {
        match rustix::fs::setxattr(&file, name, name, rustix::fs::XattrFlags::empty()) {
            Err(rustix::io::Errno::OPNOTSUPP) => {
                return eprintln!("no attributes here: not judged");
            }
            set => set.unwrap(),
        }
    }
    let tar = |words: &[&str]| {
        let mut command = std::process::Command::new("tar");
        command.args(["--xattrs", "--xattrs-include=*"]).args(words);
        let done = command.current_dir(path).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success() && said.is_empty(), "tar {words:?}: {said}");
    };
    let all = attributes(&file);
    assert_eq!(all.len(), names.len());
    tar(&["--format=pax", "-C", "src", "-cf", "theirs.tar", "f"]);
    succeed(path, &["build", "theirs.tar", "-o", "a.img", "--free", "1M"]);
    succeed(path, &["get", "a.img", "/f", "out"]);
    assert_eq!(attributes(&path.join("out")), all);
    succeed(path, &["get", "--tar", "a.img", "/f", "ours.tar"]);
    fs::create_dir(path.join("back")).unwrap();
    tar(&["-C", "back", "-xf", "ours.tar"]);
    assert_eq!(attributes(&path.join("back/f")), all);
}

/// A link to an entry that is not in the archive creates no file.
#[test]
fn a_tar_has_no_links_to_what_it_does_not_hold() {
    if !judge::require(&[Judge::E2fsprogs, Judge::Program("tar")]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    crate::common::source_tree(&dir);
    let _socket = std::os::unix::net::UnixListener::bind(path.join("src/a-socket")).unwrap();
    fs::hard_link(path.join("src/a-socket"), path.join("src/b-socket")).unwrap();
    succeed(path, &["build", "src", "-o", "a.img", "--free", "1M"]);
    let image = path.join("a.img");
    // The magic number in the extent tree of hostname, which has the second name alias.
    e2fsprogs::debugfs_write(&image, "set_inode_field /etc/hostname block[0] 0").unwrap();
    let (code, _, said) = run(path, &["get", "--tar", "a.img", "/", "a.tar"]);
    assert_eq!(code, 1, "{said}");
    for name in ["/etc/alias", "/etc/hostname", "/a-socket", "/b-socket"] {
        assert!(said.contains(&format!("a.img: {name}: ")), "{said}");
    }
    fs::create_dir(path.join("out")).unwrap();
    let mut tar = std::process::Command::new("tar");
    let done = tar.args(["-xf", "a.tar", "-C", "out"]).current_dir(path).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(path.join("out/etc/script").exists());
    assert!(!path.join("out/etc/alias").exists() && !path.join("out/etc/hostname").exists());
}

/// Uses its own tmpfs, if a namespace may have one.
#[test]
fn a_full_disk_ends_it_with_one_line() {
    let dir = built();
    let script = r#"
        mkdir t && mount -t tmpfs -o size=128k tmpfs t || exit 77
        "$1" get --no-owner --no-xattrs a.img / t/out 2> said.txt; echo $? > status.txt
    "#;
    let output = std::process::Command::new("unshare")
        .current_dir(dir.path())
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"])
        .arg(assert_cmd::cargo::cargo_bin("extant"))
        .output();
    if !output.is_ok_and(|output| output.status.success()) {
        return eprintln!("no tmpfs of one's own here: not judged");
    }
    let text = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
    let said = text("said.txt");
    assert_eq!(text("status.txt"), "1\n", "{said}");
    assert_eq!(said, "extant: t/out/big: cannot write: No space left on device\n");
}

/// Uses XFS, which supports projects under every kernel, if it is available.
#[test]
fn projects_are_kept_where_the_destination_has_them() {
    if !judge::require(&[Judge::Root, Judge::Loop, Judge::E2fsprogs]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (path, image) = (dir.path(), dir.path().join("a.img"));
    let from = path.join("from");
    fs::create_dir_all(from.join("d")).unwrap();
    for name in ["one", "none", "d/two"] {
        fs::write(from.join(name), name).unwrap();
    }
    e2fsprogs::mke2fs(&image, 16 << 20, "-O project", Some(&from)).unwrap();
    for (name, project) in [("one", 7), ("d", 8), ("d/two", 4_000_000_000u32)] {
        let request = format!("set_inode_field /{name} projid {project}");
        e2fsprogs::debugfs_write(&image, &request).unwrap();
    }
    let script = r#"
        mkdir t && truncate -s 400M x.img && mkfs.xfs -q x.img && mount -o loop x.img t || exit 77
        "$1" get a.img / t/out 2> said.txt; echo $? >> said.txt
        "$1" get --no-owner a.img / t/bare 2> bare.txt; echo $? >> bare.txt
        cd t && lsattr -pd out/one out/none out/d out/d/two bare/one > ../projects.txt
    "#;
    let output = std::process::Command::new("unshare")
        .current_dir(path)
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(assert_cmd::cargo::cargo_bin("extant"))
        .output();
    if !output.is_ok_and(|output| output.status.success()) {
        return eprintln!("no XFS of one's own here: not judged");
    }
    let text = |name: &str| fs::read_to_string(path.join(name)).unwrap();
    assert_eq!(text("said.txt"), "0\n");
    let why = "this user cannot set them or the destination does not support them";
    assert_eq!(text("bare.txt"), format!("extant: skipped project ids (files: 3): {why}\n0\n"));
    let reported = text("projects.txt");
    let projects: Vec<&str> =
        reported.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(projects, ["7", "0", "8", "4000000000", "0"]);
}

fn inode_flags(path: &Path) -> u32 {
    let file = fs::File::open(path).unwrap();
    // Each volume decides by itself whether names are indexed and bytes are in the inode.
    let own = 0x1000 | 0x8_0000 | 0x1000_0000;
    rustix::fs::ioctl_getflags(&file).unwrap().bits() & !own
}

/// Links to an immutable file and names in an immutable directory are created before the flag is
/// set.
#[test]
fn inode_flags_are_kept_where_linux_takes_them() {
    if !judge::require(&[Judge::Root, Judge::Loop, Judge::E2fsprogs]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    for name in ["a.img", "b.img"] {
        e2fsprogs::mke2fs(&path.join(name), 16 << 20, "", None).unwrap();
    }
    let from = LoopMount::rw(&path.join("a.img"), "").unwrap();
    let at = from.path();
    let names = ["d", "d/still", "d/log", "sync", "other/again", "free"];
    fs::create_dir(at.join("d")).unwrap();
    fs::create_dir(at.join("other")).unwrap();
    for name in ["d/still", "d/log", "sync", "free"] {
        fs::write(at.join(name), name).unwrap();
    }
    fs::hard_link(at.join("d/still"), at.join("other/again")).unwrap();
    for (flags, name) in [("+id", "d/still"), ("+aA", "d/log"), ("+S", "sync"), ("+iDT", "d")] {
        let done = std::process::Command::new("chattr").arg(flags).arg(at.join(name)).status();
        assert!(done.unwrap().success(), "{flags} {name}");
    }
    let before = names.map(|name| inode_flags(&at.join(name)));
    from.unmount().unwrap();
    // Not every kernel mounts volumes with projects.
    e2fsprogs::tune2fs(&path.join("a.img"), &["-O", "project"]).unwrap();
    e2fsprogs::debugfs_write(&path.join("a.img"), "set_inode_field /free projid 7").unwrap();

    let to = LoopMount::rw(&path.join("b.img"), "").unwrap();
    let out = |dest: &str| to.path().join(dest);
    let get = |dest: &str, more: &[&str]| {
        let dest = out(dest);
        let args = [&["get", "a.img", "/", dest.to_str().unwrap()], more].concat();
        run(path, &args)
    };
    let reported = "extant: skipped project ids (files: 1): this user cannot set them or the destination \
         does not support them\n";
    assert_eq!(get("kept", &[]), (0, String::new(), reported.to_owned()));
    assert_eq!(names.map(|name| inode_flags(&out("kept").join(name))), before);
    let ino = |name: &str| fs::metadata(out("kept").join(name)).unwrap().ino();
    assert_eq!(ino("d/still"), ino("other/again"));
    assert!(
        fs::write(out("kept/d/still"), "x").is_err() && fs::write(out("kept/d/x"), "").is_err()
    );
    assert_eq!(get("bare", &["--no-flags"]), (0, String::new(), reported.to_owned()));
    assert_eq!(names.map(|name| inode_flags(&out("bare").join(name))), [0; 6]);
    // Alone, with a second name that is not in the copy.
    let only = out("alone");
    succeed(path, &["get", "a.img", "/other/again", only.to_str().unwrap()]);
    assert_eq!(inode_flags(&only), before[1]);
    to.unmount().unwrap();
    crate::common::assert_clean(&path.join("b.img"));
}

#[test]
fn inode_flags_that_cannot_be_kept_are_reported_once() {
    if !judge::require(&[Judge::E2fsprogs]) {
        return;
    }
    let dir = built();
    for (name, flags) in [("/big", "0x80010"), ("/sparse", "0x80020")] {
        let request = format!("set_inode_field {name} flags {flags}");
        e2fsprogs::debugfs_write(&dir.path().join("a.img"), &request).unwrap();
    }
    let output = std::process::Command::new("unshare")
        .current_dir(dir.path())
        .args(["--user", "--map-root-user"])
        .arg(assert_cmd::cargo::cargo_bin("extant"))
        .args(["get", "--no-owner", "--no-xattrs", "a.img", "/", "out"])
        .output();
    let Ok(output) = output else { return eprintln!("no user namespace here: not judged") };
    let said = String::from_utf8_lossy(&output.stderr);
    if said.starts_with("unshare: ") {
        return eprintln!("{said}: not judged");
    }
    let reported = "extant: skipped inode flags (files: 2): this user cannot set them or the destination \
         does not support them\n";
    assert_eq!((output.status.code(), &said[..]), (Some(0), reported));
    assert!(fs::read(dir.path().join("out/big")).unwrap() == pattern(300_000));
}

#[test]
fn a_deep_tree_comes_out_beyond_the_limit_of_descriptors() {
    const LEVELS: usize = 8000;
    let dir = tempfile::tempdir().unwrap();
    crate::common::deep(dir.path(), LEVELS, &"n".repeat(40));
    // 24 descriptors, and memory for a third of what all paths together need.
    let limited = |args: &[&str]| run_limited(dir.path(), 400 << 10, 24, args);
    assert_eq!(limited(&["get", "deep.img", "/", "out"]), (0, Vec::new(), String::new()));
    let mut find = std::process::Command::new("find");
    let depth = find.current_dir(dir.path()).args(["out", "-name", "end", "-printf", "%d"]);
    assert_eq!(depth.output().unwrap().stdout, (LEVELS + 1).to_string().as_bytes());
    // The function that removes a test's directory needs one descriptor for each level.
    let removed = std::process::Command::new("rm").arg("-rf").arg(dir.path().join("out")).status();
    assert!(removed.unwrap().success());
    let (code, _, err) = limited(&["get", "--tar", "deep.img", "/", "out.tar"]);
    assert_eq!(code, 1);
    assert!(err.len() < 500 && err.lines().count() == 1, "{err}");
    assert!(err.contains(" [...] ") && err.contains("its content is skipped"), "{err}");
    let tar = fs::File::open(dir.path().join("out.tar")).unwrap();
    let names = tar::Archive::new(tar).entries().unwrap().filter(|entry| entry.is_ok()).count();
    assert_eq!(names, (64 << 10) / 41 + 3);
}

/// `a.img` with a directory `d` that contains one name twice: a symlink that leads out of it, and a
/// directory with a file.
fn twice() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("src/d/bb")).unwrap();
    fs::write(dir.path().join("src/d/bb/file"), "inside").unwrap();
    fs::create_dir(dir.path().join("outside")).unwrap();
    symlink("../../outside", dir.path().join("src/d/aa")).unwrap();
    let args = ["build", "src", "-o", "a.img", "--free", "1M", "-O", "^metadata_csum,^dir_index"];
    succeed(dir.path(), &args);
    let mut image = fs::read(dir.path().join("a.img")).unwrap();
    // Two names of two bytes, each after its inode, the entry's length, the name's length and the
    // type.
    let at = image.windows(6).position(|bytes| bytes == b"\x02\x02bb\0\0").unwrap();
    image[at + 2..at + 4].copy_from_slice(b"aa");
    fs::write(dir.path().join("a.img"), image).unwrap();
    dir
}

#[test]
fn a_tar_writes_no_sparse_file_below_a_name_of_the_volume() {
    let dir = tempfile::tempdir().unwrap();
    let src = dir.path().join("src");
    fs::create_dir_all(src.join("GNUSparseFile.1")).unwrap();
    fs::write(src.join("GNUSparseFile.1/sparse"), "whole").unwrap();
    symlink("/elsewhere", src.join("GNUSparseFile.0")).unwrap();
    let sparse = fs::File::create(src.join("sparse")).unwrap();
    sparse.set_len(1 << 20).unwrap();
    (&sparse).write_all(b"start").unwrap();
    succeed(dir.path(), &["build", "src", "-o", "a.img", "--free", "1M"]);
    succeed(dir.path(), &["get", "--tar", "a.img", "/", "a.tar"]);
    // The names in the headers, as a reader finds them that does not know the format.
    let tar = fs::read(dir.path().join("a.tar")).unwrap();
    let mut names: Vec<String> = tar
        .chunks(512)
        .filter(|block| &block[257..262] == b"ustar" && block[156] != b'x')
        .map(|block| String::from_utf8_lossy(&block[..100]).trim_end_matches('\0').into())
        .collect();
    names.sort();
    let wanted = [
        "./",
        "GNUSparseFile.0",
        "GNUSparseFile.1/",
        "GNUSparseFile.1/sparse",
        "GNUSparseFile.2/sparse",
        "lost+found/",
    ];
    assert_eq!(names, wanted);
}

#[test]
fn a_name_that_a_directory_holds_twice_comes_out_once() {
    let dir = twice();
    let listed = succeed(dir.path(), &["ls", "a.img", "/d"]);
    assert_eq!(listed, "aa\naa\n");
    let (code, _, err) = run(dir.path(), &["get", "--tar", "a.img", "/", "a.tar"]);
    assert_eq!(code, 1);
    assert!(err.contains("/d/aa: skipped: its directory contains this name twice"), "{err}");
    let tar = fs::File::open(dir.path().join("a.tar")).unwrap();
    let mut archive = tar::Archive::new(tar);
    let names: Vec<String> = archive
        .entries()
        .unwrap()
        .map(|entry| entry.unwrap().path().unwrap().to_string_lossy().into_owned())
        .collect();
    assert_eq!(names, ["./", "d/", "d/aa", "lost+found/"]);
    for force in [&[][..], &["--force"]] {
        let (code, _, err) = run(dir.path(), &[&["get", "a.img", "/d", "out"], force].concat());
        assert_eq!(code, 1);
        assert!(err.contains("/d/aa: skipped: its directory contains this name twice"), "{err}");
        let names = fs::read_dir(dir.path().join("out")).unwrap().count();
        assert_eq!(names, 1);
        fs::remove_dir_all(dir.path().join("out")).unwrap();
    }
    assert_eq!(fs::read_dir(dir.path().join("outside")).unwrap().count(), 0);
}
