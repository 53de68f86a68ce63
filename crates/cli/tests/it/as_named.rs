//! Verbs that are named after tools work like those tools, or report why not: chmod, chown, mv, ln,
//! rm.

use crate::common::{assert_clean, fail, pattern, succeed};
use std::fs;
use std::os::unix::fs::PermissionsExt;

const CAPABILITY: &str = "0x0100000200040000000000000000000000000000";

/// `a.img` with one file of each name.
fn with_files(names: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    succeed(at, &["mkfs", "-q", "a.img", "-s", "8M"]);
    for name in names {
        fs::write(at.join("file"), name).unwrap();
        succeed(at, &["put", "a.img", "file", name]);
    }
    dir
}

#[test]
fn chown_takes_capabilities_and_set_id_bits_away() {
    let dir = with_files(&["/f", "/kept"]);
    let at = dir.path();
    for path in ["/f", "/kept"] {
        let args = ["xattr", "-n", "security.capability", "-v", CAPABILITY, "a.img", path];
        succeed(at, &args);
        succeed(at, &["chmod", "a.img", "6755", path]);
    }
    succeed(at, &["mkdir", "-m", "2755", "a.img", "/d"]);
    succeed(at, &["chown", "-R", "a.img", "5:6", "/f", "/d"]);
    assert_eq!(succeed(at, &["xattr", "a.img", "/f"]), "");
    assert!(succeed(at, &["xattr", "a.img", "/kept"]).contains("security.capability"));
    let listed = succeed(at, &["ls", "-l", "a.img", "/"]);
    let line = |name: &str| listed.lines().find(|line| line.ends_with(name)).unwrap().to_owned();
    assert!(line(" f").starts_with("-rwxr-xr-x"), "{listed}");
    assert!(line(" kept").starts_with("-rwsr-sr-x"), "{listed}");
    assert!(line(" d").starts_with("drwxr-sr-x"), "{listed}");
    assert_clean(&at.join("a.img"));
}

#[test]
fn chmod_takes_all_of_chmods_language() {
    let dir = with_files(&["/f"]);
    let at = dir.path();
    let shown = |path: &str| {
        let listed = succeed(at, &["ls", "-l", "a.img", path]);
        listed.split(' ').next().unwrap().to_owned()
    };
    for (change, result) in [
        ("750", "-rwxr-x---"),
        ("u=g", "-r-xr-x---"),
        ("o=u", "-r-xr-xr-x"),
        ("g=u-x", "-r-xr--r-x"),
        ("u+rw-x", "-rw-r--r-x"),
        ("+-x", "-rw-r--r--"),
        ("a+X", "-rw-r--r--"),
        ("u+x,g=u,+X", "-rwxrwxr-x"),
        ("ug+s,+t", "-rwsrwsr-t"),
        ("a=", "----------"),
        ("+444", "-r--r--r--"),
    ] {
        succeed(at, &["chmod", "a.img", change, "/f"]);
        assert_eq!(shown("/f"), result, "{change}");
    }
    assert_clean(&at.join("a.img"));
}

#[test]
fn moving_one_name_of_a_file_to_another_leaves_the_other() {
    let dir = with_files(&["/a"]);
    let at = dir.path();
    succeed(at, &["mkdir", "a.img", "/d"]);
    succeed(at, &["ln", "a.img", "/a", "/d/b"]);
    let why = fail(at, 1, &["mv", "-n", "a.img", "/a", "/d/b"]);
    assert_eq!(why, "a.img: /d/b: the name exists already");
    let why = fail(at, 1, &["mv", "a.img", "/a", "/a"]);
    assert_eq!(why, "a.img: /a: the old and the new name are the same");
    let why = fail(at, 1, &["ln", "-f", "a.img", "/a", "/d/../a"]);
    assert_eq!(why, "a.img: /d/../a: the link and its target are the same file");
    succeed(at, &["ln", "-f", "a.img", "/a", "/d/b"]);
    succeed(at, &["mv", "--exchange", "a.img", "/a", "/d/b"]);
    succeed(at, &["mv", "a.img", "/a", "/d/b"]);
    fail(at, 1, &["stat", "a.img", "/a"]);
    assert_eq!(succeed(at, &["cat", "a.img", "/d/b"]), "/a");
    let why = fail(at, 1, &["mv", "--exchange", "a.img", "/d", "/none"]);
    assert_eq!(why, "a.img: /none: no such file or directory");
    let why = fail(at, 2, &["mv", "--exchange", "a.img", "/d", "/e", "/f"]);
    assert_eq!(why, "--exchange takes two names");
    assert_clean(&at.join("a.img"));
}

#[test]
fn names_that_cannot_go_are_refused_in_words() {
    let dir = with_files(&["/file"]);
    let at = dir.path();
    succeed(at, &["mkdir", "-p", "a.img", "/dd/sub"]);
    for (args, why) in [
        (&["rm", "-r", "a.img", "/dd/."][..], "a.img: /dd/.: '.' and '..' cannot be removed"),
        (
            &["rm", "-rf", "a.img", "/dd/sub/../"],
            "a.img: /dd/sub/../: '.' and '..' cannot be removed",
        ),
        (&["rm", "a.img", "/file/"], "a.img: /file/: not a directory"),
        (&["cat", "a.img", "/file/"], "a.img: /file/: not a directory"),
        (&["rm", "-r", "a.img", "/"], "a.img: /: the root directory cannot be removed"),
        (&["mv", "a.img", "/", "/dd"], "a.img: /: the root directory cannot be renamed"),
        (&["mv", "-T", "a.img", "/dd", "/"], "a.img: /: the root directory cannot be renamed"),
        (&["mv", "a.img", "/dd/..", "/x"], "a.img: /dd/..: '.' and '..' cannot be renamed"),
        (&["rm", "a.img", ""], "the path is empty: the volume's root is /"),
        (&["ls", "a.img", ""], "the path is empty: the volume's root is /"),
        (&["mkdir", "a.img", ""], "the path is empty: the volume's root is /"),
        (&["put", "a.img", "", "/a"], "an empty path does not name a file"),
        (
            &["ln", "a.img", "/dd", "/x"],
            "a.img: /dd: a directory cannot have hard links: make a symbolic link with -s",
        ),
    ] {
        // An error that does not depend on the volume is wrong usage.
        let status = if why.starts_with("a.img") { 1 } else { 2 };
        assert_eq!(fail(at, status, args), why, "{args:?}");
    }
    assert_eq!(succeed(at, &["cat", "a.img", "/file"]), "/file");
    succeed(at, &["stat", "a.img", "/dd/sub"]);
    assert_clean(&at.join("a.img"));
}

#[test]
fn a_value_too_large_is_no_want_of_space() {
    let dir = with_files(&["/f"]);
    let at = dir.path();
    let set = |len: usize| {
        let value = "v".repeat(len);
        fail(at, 1, &["xattr", "-n", "user.x", "-v", &value, "a.img", "/f"])
    };
    let why = set(70_000);
    assert_eq!(why, "a.img: /f: attribute user.x: an attribute value has at most 65536 bytes");
    let why = set(5000);
    assert_eq!(why, "a.img: /f: attribute user.x: the value has 5000 bytes, the maximum is 1024");
    let why = set(1020);
    assert!(why.contains("no space for the attribute: all attributes of a file share"), "{why}");
    assert_clean(&at.join("a.img"));
}

#[test]
fn a_new_file_keeps_its_group_in_a_directory_with_set_group_id() {
    let dir = with_files(&[]);
    let at = dir.path();
    succeed(at, &["mkdir", "-m", "2755", "--owner", "0:77", "a.img", "/d"]);
    fs::write(at.join("new"), pattern(10)).unwrap();
    fs::set_permissions(at.join("new"), fs::Permissions::from_mode(0o644)).unwrap();
    succeed(at, &["put", "--owner", "5:6", "a.img", "new", "/d/"]);
    let text = succeed(at, &["stat", "--json", "a.img", "/d/new"]);
    assert!(text.contains("\"gid\":6") || text.contains("\"gid\": 6"), "{text}");
    assert_clean(&at.join("a.img"));
}

#[test]
fn a_change_that_flags_forbid_is_refused_with_the_reason() {
    let dir = with_files(&["/fixed", "/log"]);
    let at = dir.path();
    // e2fsprogs sets the flags, because no verb here can.
    for (path, flags) in [("/fixed", "0x80010"), ("/log", "0x80020")] {
        let wish = format!("set_inode_field {path} flags {flags}");
        let done = std::process::Command::new("debugfs")
            .current_dir(at)
            .args(["-w", "-R", &wish, "a.img"])
            .output();
        if done.is_err() && std::env::var_os("CI").is_none() {
            eprintln!("no debugfs here: not judged");
            return;
        }
        assert!(done.unwrap().status.success());
    }
    for args in [&["rm", "a.img", "/fixed"][..], &["chmod", "a.img", "600", "/fixed"]] {
        let why = fail(at, 1, args);
        assert_eq!(why, "a.img: /fixed: the file is immutable (chattr +i) and cannot be changed");
    }
    let why = fail(at, 1, &["xattr", "-n", "user.a", "-v", "b", "a.img", "/fixed"]);
    assert!(why.contains("is immutable"), "{why}");
    let why = fail(at, 1, &["rm", "a.img", "/log"]);
    assert_eq!(why, "a.img: /log: the file is append-only (chattr +a): data can only be appended");
    assert_clean(&at.join("a.img"));
}

#[test]
fn a_link_is_named_after_its_target_without_slashes() {
    let dir = with_files(&["/file"]);
    let at = dir.path();
    succeed(at, &["mkdir", "a.img", "/d"]);
    succeed(at, &["ln", "-s", "a.img", "there/", "/d"]);
    assert!(succeed(at, &["stat", "a.img", "/d/there"]).contains("there/"));
    for (args, why) in [
        (&["ln", "-s", "a.img", "x", "/new/"][..], "a.img: /new/: not a directory"),
        (&["ln", "a.img", "/file", "/new/"], "a.img: /new/: not a directory"),
        (&["ln", "-s", "a.img", "", "/new"], "the target of a symbolic link cannot be empty"),
    ] {
        // An error that does not depend on the volume is wrong usage.
        let status = if why.starts_with("a.img") { 1 } else { 2 };
        assert_eq!(fail(at, status, args), why, "{args:?}");
    }
    assert_clean(&at.join("a.img"));
}

#[test]
fn an_owner_is_a_number_that_linux_takes_and_a_table_of_any_size_is_no_danger() {
    let dir = with_files(&["/file"]);
    let at = dir.path();
    succeed(at, &["mkdir", "a.img", "/etc"]);
    fs::File::create(at.join("huge")).unwrap().set_len(17 << 20).unwrap();
    succeed(at, &["put", "a.img", "huge", "/etc/passwd"]);
    for (args, why) in [
        (
            ["chown", "a.img", "bob", "/file"],
            "a.img: /etc/passwd: the file is too large, so names \
                                              cannot be looked up: use numbers",
        ),
        (
            ["chown", "a.img", "4294967295", "/file"],
            "'4294967295' is not an owner: the largest id is 4294967294",
        ),
        (
            ["chown", "a.img", ":99999999999", "/file"],
            "'99999999999' is not an owner: the largest id is 4294967294",
        ),
    ] {
        let status = if why.starts_with("a.img") { 1 } else { 2 };
        assert_eq!(fail(at, status, &args), why, "{args:?}");
    }
    succeed(at, &["chown", "a.img", "4294967294:7", "/file"]);
    assert!(succeed(at, &["ls", "-l", "a.img", "/"]).contains("4294967294 7"));
    assert_clean(&at.join("a.img"));
}
