//! The verbs that change a volume behave as the tools they are named after, and completely or not
//! at all.

use crate::common::{assert_clean, extant, fail, pattern, run, source_tree, succeed};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

/// A directory that holds `src`, and `a.img` built from it, with a journal and free space.
fn built() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    source_tree(&dir);
    succeed(dir.path(), &["build", "src", "-q", "-o", "a.img", "--size", "24M", "--owner", "7:8"]);
    dir
}

/// The output of `extant tree --json --hash`: a volume's whole content as text.
fn content(dir: &Path, image: &str) -> String {
    succeed(dir, &["tree", "--json", "--hash", image])
}

fn stat(dir: &Path, path: &str) -> String {
    succeed(dir, &["stat", "a.img", path])
}

/// A program that holds an `flock` on `file` until it is dropped.
struct Holder(std::process::Child);

impl Holder {
    /// `opening` is the shell's redirection, `<` or `<>`. `kind` is shared (`-s`) or exclusive
    /// (`-x`).
    fn of(file: &Path, opening: &str, kind: &str) -> Holder {
        let script = format!("exec 9{opening}\"$0\"; flock {kind} 9; echo held; exec sleep 60");
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &script]).arg(file).stdout(std::process::Stdio::piped());
        let mut child = shell.spawn().unwrap();
        let mut line = [0; 5];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
        Holder(child)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn a_lock_of_a_reader_keeps_no_one_out() {
    let dir = built();
    let (at, image) = (dir.path(), dir.path().join("a.img"));
    for kind in ["-s", "-x"] {
        let reader = Holder::of(&image, "<", kind);
        let (code, _, said) = run(at, &["mkdir", "a.img", &format!("/new{kind}")]);
        let expected = format!(
            "extant: a.img: process {} (sleep) has locked the image, but has it open for reading \
             only: continuing\n",
            reader.0.id()
        );
        assert_eq!((code, said.as_str()), (0, expected.as_str()), "a writer beside flock {kind}");
        let (code, _, said) = run(at, &["ls", "a.img", "/"]);
        let expected = if kind == "-x" { expected.as_str() } else { "" };
        assert_eq!((code, said.as_str()), (0, expected), "a reader beside flock {kind}");
    }
    let writer = Holder::of(&image, "<>", "-s");
    assert!(fail(at, 1, &["mkdir", "a.img", "/not"]).contains("in use by another program"));
    succeed(at, &["ls", "a.img", "/"]);
    drop(writer);
    assert_clean(&image);
}

#[test]
fn a_writer_that_passed_a_reader_s_lock_keeps_other_writers_out() {
    let dir = built();
    let (at, image) = (dir.path(), dir.path().join("a.img"));
    let reader = Holder::of(&image, "<", "-x");
    let first = extant::OpenOptions::new().write(true).open(&image).unwrap();
    let refused = |when: &str| {
        for verb in [&["mkdir", "a.img", "/not"][..], &["ls", "a.img", "/"]] {
            assert!(fail(at, 1, verb).contains("in use by another program"), "{when}");
        }
    };
    refused("while the reader holds its lock");
    drop(reader);
    refused("after the reader has gone");
    first.close().unwrap();
    succeed(at, &["mkdir", "a.img", "/now"]);
    assert_clean(&image);
}

#[test]
fn a_lock_of_a_process_that_cannot_be_examined_is_named() {
    use std::os::unix::process::CommandExt;
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var_os("CI").is_none(), "CI runs as root");
        return;
    }
    // In a directory that another user can reach.
    let dir = tempfile::Builder::new().prefix("extant-lock").tempdir_in("/tmp").unwrap();
    let image = dir.path().join("a.img");
    succeed(dir.path(), &["mkfs", "-q", "a.img", "8M"]);
    for path in [dir.path(), &image] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    }
    let program = dir.path().join("extant");
    fs::copy(assert_cmd::cargo::cargo_bin("extant"), &program).unwrap();
    let holder = fs::File::open(&image).unwrap();
    holder.lock().unwrap();
    let mut other = std::process::Command::new(&program);
    other.args(["mkdir", "a.img", "/x"]).current_dir(dir.path()).uid(65534).gid(65534);
    let output = other.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let name = fs::read_to_string("/proc/self/comm").unwrap();
    let expected = format!(
        "process {} ({}) has locked the image and may write to it",
        std::process::id(),
        name.trim_end()
    );
    assert!(output.status.code() == Some(1) && said.contains(&expected), "{said}");
    drop(holder);
    assert_clean(&image);
}

#[test]
fn a_reader_that_locks_bytes_as_well_is_named() {
    let dir = built();
    let (at, image) = (dir.path(), dir.path().join("a.img"));
    let reader = fs::File::open(&image).unwrap();
    reader.lock().unwrap();
    rustix::fs::fcntl_lock(&reader, rustix::fs::FlockOperation::NonBlockingLockShared).unwrap();
    let said = fail(at, 1, &["mkdir", "a.img", "/x"]);
    assert!(said.contains(&format!("process {} (", std::process::id())), "{said}");
    drop(reader);
    assert_clean(&image);
}

#[test]
fn put_copies_files_directories_and_standard_input() {
    let dir = built();
    let at = dir.path();
    fs::write(at.join("new"), pattern(1_500_000)).unwrap();
    fs::set_permissions(at.join("new"), fs::Permissions::from_mode(0o4755)).unwrap();
    succeed(at, &["put", "--owner", "7:8", "a.img", "new", "/etc/"]);
    assert_eq!(succeed(at, &["cat", "a.img", "/etc/new"]).len(), {
        String::from_utf8_lossy(&pattern(1_500_000)).len()
    });
    let text = stat(at, "/etc/new");
    assert!(text.contains("4755") && text.contains('7'), "{text}");

    // Overwriting keeps names, owner and mode.
    fs::write(at.join("host"), "other\n").unwrap();
    succeed(at, &["put", "a.img", "host", "/etc/hostname"]);
    assert_eq!(succeed(at, &["cat", "a.img", "/etc/alias"]), "other\n");

    let mut piped = extant();
    piped.current_dir(at).args(["put", "a.img", "-", "/piped"]).write_stdin("in");
    piped.unwrap();
    assert_eq!(succeed(at, &["cat", "a.img", "/piped"]), "in");

    succeed(at, &["put", "-r", "a.img", "src", "/copy"]);
    succeed(at, &["put", "-r", "a.img", "src/.", "/copy/inner"]);
    assert_eq!(succeed(at, &["cat", "a.img", "/copy/etc/hostname"]), "host\n");
    assert_eq!(succeed(at, &["cat", "a.img", "/copy/inner/link"]), "host\n");
    assert_clean(&at.join("a.img"));

    // A copied directory goes through a link to a directory, and does not replace a file.
    succeed(at, &["mkdir", "-p", "a.img", "/usr/lib"]);
    succeed(at, &["ln", "-s", "a.img", "usr/lib", "/lib"]);
    fs::create_dir_all(at.join("over/lib")).unwrap();
    fs::write(at.join("over/lib/new"), "n").unwrap();
    succeed(at, &["put", "-r", "a.img", "over/.", "/"]);
    assert_eq!(succeed(at, &["cat", "a.img", "/usr/lib/new"]), "n");
    fs::create_dir_all(at.join("wrong/piped")).unwrap();
    let why = fail(at, 1, &["put", "-r", "a.img", "wrong/.", "/"]);
    assert_eq!(why, "a.img: /piped: is not a directory: remove it first");
    assert_clean(&at.join("a.img"));

    let why = fail(at, 1, &["put", "a.img", "src", "/copy"]);
    assert_eq!(why, "src: a directory: use -r");
    let why = fail(at, 1, &["put", "a.img", "new", "host", "/etc/hostname"]);
    assert!(why.starts_with("a.img: /etc/hostname: not a directory"), "{why}");
}

#[test]
fn a_change_that_fails_changes_nothing() {
    let dir = built();
    let at = dir.path();
    let before = content(at, "a.img");
    let why = fail(at, 1, &["rm", "-r", "a.img", "/etc", "/none"]);
    assert_eq!(why, "a.img: /none: no such file or directory");
    let why = fail(at, 1, &["rm", "a.img", "/big", "/etc"]);
    assert_eq!(why, "a.img: /etc: a directory: use -r");
    fail(at, 1, &["mkdir", "a.img", "/one", "/etc"]);
    fail(at, 1, &["mv", "a.img", "/big", "/none/big"]);
    fail(at, 1, &["chown", "a.img", "nobody:nogroup", "/big"]);
    fail(at, 1, &["chmod", "a.img", "0644", "/big", "/none"]);
    fs::write(at.join("huge"), vec![1; 40 << 20]).unwrap();
    let why = fail(at, 1, &["put", "a.img", "huge", "/huge"]);
    assert!(why.contains("no space left on the volume"), "{why}");
    let long = "v".repeat(70_000);
    let why = fail(at, 1, &["xattr", "-n", "user.x", "-v", &long, "a.img", "/big"]);
    assert!(why.contains("/big: attribute user.x: "), "{why}");
    assert_eq!(content(at, "a.img"), before);
    assert_clean(&at.join("a.img"));
}

#[test]
fn names_are_made_moved_and_removed() {
    let dir = built();
    let at = dir.path();
    succeed(at, &["mkdir", "-p", "-m", "0700", "a.img", "/one/two/three"]);
    succeed(at, &["mkdir", "-p", "a.img", "/one/two"]);
    succeed(at, &["ln", "a.img", "/big", "/one/big"]);
    succeed(at, &["ln", "-s", "a.img", "../big", "/one/soft"]);
    succeed(at, &["ln", "-sf", "a.img", "two", "/one/soft"]);
    succeed(at, &["mv", "a.img", "/one/big", "/one/two/"]);
    succeed(at, &["mv", "a.img", "/etc/script", "/one/two/big"]);
    assert_eq!(succeed(at, &["cat", "a.img", "/one/soft/big"]), "#!/bin/sh\n");
    let why = fail(at, 1, &["mv", "-n", "a.img", "/one/two/big", "/big"]);
    assert_eq!(why, "a.img: /big: the name exists already");
    succeed(at, &["mv", "--exchange", "a.img", "/one/two/big", "/big"]);
    assert_eq!(succeed(at, &["cat", "a.img", "/big"]), "#!/bin/sh\n");
    succeed(at, &["rm", "-rf", "a.img", "/one", "/nothing"]);
    succeed(at, &["rm", "-d", "a.img", "/etc/empty"]);
    let names = succeed(at, &["ls", "a.img", "/"]);
    assert!(!names.contains("one"), "{names}");
    assert_clean(&at.join("a.img"));
}

#[test]
fn a_given_owner_wins_over_a_set_group_id_directory() {
    let dir = built();
    let at = dir.path();
    succeed(at, &["mkdir", "-m", "2775", "--owner", "1:50", "a.img", "/team"]);
    succeed(at, &["mkdir", "a.img", "/team/plain"]);
    succeed(at, &["mkdir", "-p", "--owner", "3:4", "a.img", "/team/plain/one/two"]);
    succeed(at, &["mkdir", "--owner", "3:4", "a.img", "/team/own"]);
    for (path, owner) in [
        ("/team/plain", (0, 50)),
        ("/team/plain/one", (3, 4)),
        ("/team/plain/one/two", (3, 4)),
        ("/team/own", (3, 4)),
    ] {
        let text = succeed(at, &["stat", "--json", "a.img", path]);
        let stat: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&stat["uid"], &stat["gid"]), (&owner.0.into(), &owner.1.into()), "{path}");
        assert_eq!(stat["mode"], "2755", "{path}");
    }
    assert_clean(&at.join("a.img"));
}

#[test]
fn owners_modes_and_attributes_change() {
    let dir = built();
    let at = dir.path();
    fs::write(at.join("passwd"), "root:x:0:0::/:\nweb:x:33:34::/:\n").unwrap();
    fs::write(at.join("group"), "adm:x:4:\n").unwrap();
    succeed(at, &["put", "a.img", "passwd", "group", "/etc"]);
    succeed(at, &["chown", "-R", "a.img", "web:adm", "/etc"]);
    let listed = succeed(at, &["tree", "--json", "a.img", "/etc"]);
    for line in listed.lines().filter(|line| !line.contains("/link\"")) {
        assert!(line.contains("\"uid\":33") && line.contains("\"gid\":4"), "{line}");
    }
    succeed(at, &["chown", "a.img", "web:", "/etc/hostname"]);
    assert!(stat(at, "/etc/hostname").contains("34"));
    succeed(at, &["chmod", "-R", "a.img", "u=rwX,go=", "/etc"]);
    let listed = succeed(at, &["ls", "-l", "a.img", "/etc"]);
    assert!(listed.contains("-rw-------") && listed.contains("drwx------"), "{listed}");

    succeed(at, &["xattr", "-n", "user.a", "-v", "0x00ff", "a.img", "/big"]);
    succeed(at, &["xattr", "-n", "user.b", "-v", "text", "a.img", "/big"]);
    let shown = succeed(at, &["xattr", "a.img", "/big"]);
    assert_eq!(shown, "# file: /big\nuser.a=0x00ff\nuser.b=\"text\"\n\n");
    succeed(at, &["xattr", "-x", "user.a", "a.img", "/big"]);
    let why = fail(at, 1, &["xattr", "-x", "user.a", "a.img", "/big"]);
    assert!(why.starts_with("a.img: /big: attribute user.a: "), "{why}");
    assert_clean(&at.join("a.img"));
}

/// An archive of `dir`'s content, as tar writes it.
fn archive(at: &Path, dir: &str, name: &str) {
    let mut builder = tar::Builder::new(fs::File::create(at.join(name)).unwrap());
    builder.follow_symlinks(false);
    builder.append_dir_all(".", at.join(dir)).unwrap();
    builder.finish().unwrap();
}

#[test]
fn an_archive_goes_over_what_is_there() {
    let dir = built();
    let at = dir.path();
    fs::create_dir_all(at.join("up/etc/new")).unwrap();
    fs::create_dir_all(at.join("up/opaque")).unwrap();
    fs::write(at.join("up/etc/hostname"), "over\n").unwrap();
    fs::write(at.join("up/etc/.wh.script"), "").unwrap();
    fs::write(at.join("up/big"), pattern(200_000)).unwrap();
    symlink("big", at.join("up/link")).unwrap();
    fs::hard_link(at.join("up/big"), at.join("up/etc/new/same")).unwrap();
    archive(at, "up", "up.tar");
    succeed(at, &["apply-tar", "a.img", "up.tar"]);
    assert_eq!(succeed(at, &["cat", "a.img", "/etc/hostname"]), "over\n");
    // The other name of the replaced file keeps the old content.
    assert_eq!(succeed(at, &["cat", "a.img", "/etc/alias"]), "host\n");
    fail(at, 1, &["stat", "a.img", "/etc/script"]);
    assert!(stat(at, "/etc/new/same").contains('2'));
    let why = fail(at, 1, &["apply-tar", "a.img", "src/big"]);
    assert!(why.starts_with("src/big"), "{why}");
    assert_clean(&at.join("a.img"));
}

#[test]
fn an_archive_may_link_to_what_only_the_volume_has() {
    let dir = built();
    let at = dir.path();
    let link = |builder: &mut tar::Builder<fs::File>, name: &str, target: &str| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Link);
        header.set_size(0);
        builder.append_link(&mut header, name, target).unwrap();
    };
    let mut builder = tar::Builder::new(fs::File::create(at.join("l.tar")).unwrap());
    link(&mut builder, "new/big", "./big");
    link(&mut builder, "new/again", "new/big");
    link(&mut builder, "link", "etc/script");
    let mut header = tar::Header::new_gnu();
    header.set_size(4);
    header.set_mode(0o600);
    builder.append_data(&mut header, "etc/hostname", &b"next"[..]).unwrap();
    builder.finish().unwrap();
    succeed(at, &["apply-tar", "a.img", "l.tar"]);
    assert!(succeed(at, &["ls", "-l", "a.img", "/big"]).contains(" 3 "));
    let same = |a: &str, b: &str| {
        let ino = |path: &str| {
            let text = succeed(at, &["stat", "--json", "a.img", path]);
            serde_json::from_str::<serde_json::Value>(&text).unwrap()["ino"].clone()
        };
        assert_eq!(ino(a), ino(b));
    };
    same("/big", "/new/big");
    same("/big", "/new/again");
    same("/etc/script", "/link");
    assert_eq!(succeed(at, &["cat", "a.img", "/etc/hostname"]), "next");
    assert_clean(&at.join("a.img"));

    let before = content(at, "a.img");
    let mut builder = tar::Builder::new(fs::File::create(at.join("n.tar")).unwrap());
    link(&mut builder, "x", "none");
    builder.finish().unwrap();
    let why = fail(at, 1, &["apply-tar", "a.img", "n.tar"]);
    let reported = "a.img: /none: no such file or directory: entry x is a hard link to this file \
                (from n.tar)";
    assert_eq!(why, reported);
    // `build` has no existing volume below it.
    let why = fail(at, 1, &["build", "n.tar", "-q", "-o", "b.img"]);
    assert!(why.starts_with("n.tar: entry x at byte 0: hard link to none"), "{why}");
    let mut builder = tar::Builder::new(fs::File::create(at.join("s.tar")).unwrap());
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Symlink);
    header.set_size(0);
    builder.append_link(&mut header, "far", "t".repeat(2000)).unwrap();
    builder.finish().unwrap();
    let why = fail(at, 1, &["build", "s.tar", "-q", "-b", "1024", "-o", "b.img"]);
    assert!(why == "far: name is too long (from s.tar)", "{why}");
    assert_eq!(content(at, "a.img"), before);
}

#[test]
fn put_of_a_sparse_file_reads_its_data_only() {
    let dir = built();
    let at = dir.path();
    let sparse = fs::File::create(at.join("sparse")).unwrap();
    sparse.set_len(2 << 40).unwrap();
    std::os::unix::fs::FileExt::write_at(&sparse, b"far", 1 << 40).unwrap();
    let started = std::time::Instant::now();
    succeed(at, &["put", "a.img", "sparse", "/sparse"]);
    assert!(started.elapsed() < Duration::from_secs(20), "two TiB were read");
    assert!(stat(at, "/sparse").contains(&(2u64 << 40).to_string()));
    // Overwrites a longer file; nothing of that remains.
    sparse.set_len(1 << 20).unwrap();
    std::os::unix::fs::FileExt::write_at(&sparse, b"near", 5).unwrap();
    succeed(at, &["put", "a.img", "sparse", "/sparse"]);
    assert_eq!(
        succeed(at, &["cat", "a.img", "/sparse"]).into_bytes(),
        fs::read(at.join("sparse")).unwrap()
    );
    assert_clean(&at.join("a.img"));
}

#[test]
fn a_volume_gets_another_size() {
    let dir = built();
    let at = dir.path();
    let before = content(at, "a.img");
    let image = at.join("a.img");
    succeed(at, &["resize", "a.img", "200M"]);
    assert_eq!(fs::metadata(&image).unwrap().len(), 200 << 20);
    assert_clean(&image);
    let reported = succeed(at, &["resize", "--print-minimum", "a.img"]);
    let json = succeed(at, &["resize", "--print-minimum", "--json", "a.img"]);
    assert!(json.contains(&format!("\"minimum_bytes\":{}", reported.trim())), "{json}");
    succeed(at, &["resize", "-q", "a.img", "min"]);
    assert!(fs::metadata(&image).unwrap().len() <= reported.trim().parse().unwrap());
    assert!(fs::metadata(&image).unwrap().len() < 16 << 20);
    assert_clean(&image);
    succeed(at, &["resize", "a.img", "+1M"]);
    assert_clean(&image);
    let same = |text: &str| {
        let lines = text.lines().map(|line| {
            // Inode numbers may differ.
            let parts = line.split(',').filter(|part| !part.contains("\"ino\""));
            parts.collect::<Vec<_>>().join(",")
        });
        lines.collect::<Vec<_>>()
    };
    assert_eq!(same(&content(at, "a.img")), same(&before));
    // Too small for its own metadata, for a group, or for its content: the message names a
    // sufficient size.
    let least = succeed(at, &["resize", "--print-minimum", "a.img"]);
    let least = least.trim();
    for size in ["0", "64K", "1M", "4M", "-1G"] {
        let why = fail(at, 1, &["resize", "a.img", size]);
        assert!(
            why.starts_with("a.img: too small for its content: ")
                && why.contains(&format!(" {least} bytes"))
                && why.contains("`extant resize IMG min`"),
            "{size}: {why}"
        );
        assert_clean(&image);
    }
    succeed(at, &["resize", "-q", "a.img", least]);
    assert_clean(&image);
}

#[test]
fn settings_change() {
    let dir = built();
    let at = dir.path();
    let uuid = "01020304-0506-4708-890a-0b0c0d0e0f10";
    let said = succeed(at, &["tune", "-L", "new label", "-U", uuid, "-O", "quota", "a.img"]);
    assert!(
        said.contains("'new label'") && said.contains(uuid) && said.contains(" quota"),
        "{said}"
    );
    assert_clean(&at.join("a.img"));
    succeed(at, &["tune", "-q", "-O", "^has_journal", "-m", "1", "-o", "acl,^user_xattr", "a.img"]);
    assert_clean(&at.join("a.img"));
    assert_eq!(succeed(at, &["cat", "a.img", "/etc/hostname"]), "host\n");
    let why = fail(at, 1, &["tune", "-O", "^extent", "a.img"]);
    assert!(why.contains("cannot be turned off"), "{why}");
    let why = fail(at, 2, &["tune", "a.img"]);
    assert!(why.starts_with("no change was requested"), "{why}");
    succeed(at, &["tune", "-q", "-j", "-c", "30", "-i", "2w", "-u", "root", "-g", "7", "a.img"]);
    let why = fail(at, 1, &["tune", "-J", "size=2", "a.img"]);
    assert!(why.contains("size of a journal cannot be changed"), "{why}");
    let (code, _, why) = run(at, &["tune", "-u", "no such user", "a.img"]);
    assert!(code == 2 && why.contains("/etc/passwd"), "{why}");
    let why = fail(at, 1, &["tune", "--clear-mmp", "a.img"]);
    assert!(why.contains("multiple mount protection"), "{why}");
    succeed(at, &["tune", "-q", "-O", "^has_journal", "a.img"]);
    succeed(at, &["tune", "-q", "-J", "size=4", "a.img"]);
    assert!(succeed(at, &["info", "a.img"]).contains("1024 blocks"));
    assert_clean(&at.join("a.img"));
}

#[test]
fn every_verb_names_the_way_to_a_journal_elsewhere() {
    let dir = built();
    let at = dir.path();
    succeed(at, &["mkfs", "-q", "--size", "8M", "-O", "^metadata_csum", "b.img"]);
    for args in [&["ls"][..], &["replay"], &["tune", "-L", "x"], &["info"]] {
        let (code, out, why) = run(at, &[args, &["b.img?journal=a.img"]].concat());
        let all = out + &why;
        assert!(code != 0 && all.contains("no external journal"), "{args:?}: {all}");
    }
    // The superblock's fields for the journal: none inside, a UUID, and recovery needed.
    let mut bytes = fs::read(at.join("b.img")).unwrap();
    bytes[1024 + 0xE0..][..4].fill(0);
    bytes[1024 + 0xD0..][..16].fill(7);
    fs::write(at.join("b.img"), &bytes).unwrap();
    let changes: [&[&str]; 3] =
        [&["tune", "-L", "x", "b.img"], &["resize", "b.img", "9M"], &["mkdir", "b.img", "/x"]];
    for args in changes {
        let why = fail(at, 1, args);
        assert!(why.contains("IMG?journal=DEVICE"), "{why}");
    }
    bytes[1024 + 0x60] |= 4;
    fs::write(at.join("b.img"), &bytes).unwrap();
    let others: [&[&str]; 4] =
        [&["ls", "b.img"], &["replay", "b.img"], &["check", "b.img"], &["info", "b.img"]];
    for args in changes.into_iter().chain(others) {
        let (_, out, why) = run(at, args);
        let all = out + &why;
        assert!(!all.contains("has no journal"), "{args:?}: {all}");
    }
    assert_eq!(fs::read(at.join("b.img")).unwrap(), bytes);
}

#[test]
fn killed_at_any_moment_a_change_is_whole_or_absent() {
    let dir = built();
    let at = dir.path();
    fs::create_dir(at.join("many")).unwrap();
    for n in 0..300 {
        fs::write(at.join(format!("many/{n}")), pattern(3000 + n)).unwrap();
    }
    succeed(at, &["resize", "-q", "a.img", "64M"]);
    let before = content(at, "a.img");
    fs::copy(at.join("a.img"), at.join("whole.img")).unwrap();
    let started = std::time::Instant::now();
    succeed(at, &["put", "-r", "whole.img", "many", "/many"]);
    let took = started.elapsed();
    let names = |text: &str| {
        let name = |line: &str| line.split("\"path\":").nth(1).map(|rest| rest.to_owned());
        text.lines().filter_map(name).count()
    };
    let after = names(&content(at, "whole.img"));
    let (mut whole, mut absent) = (0, 0);
    for n in 0..16u32 {
        fs::copy(at.join("a.img"), at.join("cut.img")).unwrap();
        let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin("extant"))
            .current_dir(at)
            .args(["put", "-r", "cut.img", "many", "/many"])
            .spawn()
            .unwrap();
        std::thread::sleep(took * n / 14 + Duration::from_millis(1));
        // It may have ended already.
        let _ = child.kill();
        child.wait().unwrap();
        succeed(at, &["replay", "-q", "cut.img"]);
        assert_clean(&at.join("cut.img"));
        let now = content(at, "cut.img");
        match now == before {
            true => absent += 1,
            false => {
                assert_eq!(names(&now), after, "part of it is there");
                whole += 1;
            }
        }
    }
    println!("{whole} whole, {absent} absent");
    let (code, _, _) = run(at, &["check", "cut.img"]);
    assert_eq!(code, 0);
}

/// A volume with the smallest log, and a directory of files that together change more blocks than
/// the log holds at once.
fn larger_than_the_log(at: &Path) {
    fs::create_dir(at.join("many")).unwrap();
    for n in 0..5000 {
        let dir = at.join(format!("many/{}", n % 40));
        if n < 40 {
            fs::create_dir(&dir).unwrap();
        }
        fs::write(dir.join(format!("{n} {}", "x".repeat(120))), "some").unwrap();
    }
    let args = ["-b", "1K", "-s", "48M", "-J", "size=1M", "-N", "8000", "-q", "small.img"];
    succeed(at, &[&["mkfs"], &args[..]].concat());
}

#[test]
fn a_change_larger_than_the_log_goes_in_steps() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    larger_than_the_log(at);
    let before = content(at, "small.img");
    let why = fail(at, 1, &["put", "-r", "small.img", "many", "/many"]);
    assert!(why.contains("the change is larger than the volume's journal: nothing was changed"));
    assert!(why.contains("--in-steps"), "{why}");
    assert_eq!(content(at, "small.img"), before);
    assert_clean(&at.join("small.img"));

    fs::copy(at.join("small.img"), at.join("whole.img")).unwrap();
    let started = std::time::Instant::now();
    succeed(at, &["put", "-r", "--in-steps", "whole.img", "many", "/many"]);
    let took = started.elapsed();
    assert_clean(&at.join("whole.img"));
    let lines = |image: &str| content(at, image).lines().count();
    let (none, all) = (lines("small.img"), lines("whole.img"));
    assert_eq!(all, none + 1 + 40 + 5000);

    // Between two steps the volume is consistent and contains a part of the change.
    let mut parts = 0;
    for n in 1..8u32 {
        fs::copy(at.join("small.img"), at.join("cut.img")).unwrap();
        let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin("extant"))
            .current_dir(at)
            .args(["put", "-r", "--in-steps", "cut.img", "many", "/many"])
            .spawn()
            .unwrap();
        std::thread::sleep(took * n / 8);
        // It may have ended already.
        let _ = child.kill();
        child.wait().unwrap();
        succeed(at, &["replay", "-q", "cut.img"]);
        assert_clean(&at.join("cut.img"));
        parts += u32::from((none + 1..all).contains(&lines("cut.img")));
    }
    assert!(parts > 0, "no kill fell between two steps");
}

/// Makes directories `d` and `d/e` in a volume, and in `d/e` the entry `f`, a second name of `d`.
/// `false` if debugfs is missing and not required.
fn make_cycle(image: &Path) -> bool {
    for request in ["mkdir d", "mkdir d/e", "link d d/e/f"] {
        let mut debugfs = std::process::Command::new("debugfs");
        match debugfs.args(["-w", "-R", request]).arg(image).output() {
            Ok(output) => assert!(output.status.success(), "{request}"),
            Err(_) if std::env::var_os("CI").is_none() => {
                eprintln!("no debugfs here");
                return false;
            }
            Err(error) => panic!("debugfs is needed in CI: {error}"),
        }
    }
    true
}

#[test]
fn modes_and_owners_of_directories_that_lead_in_circles_stay() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    succeed(path, &["mkfs", "a.img", "--size", "16M", "-q"]);
    if !make_cycle(&path.join("a.img")) {
        return;
    }
    let before = succeed(path, &["stat", "a.img", "/d", "/d/e"]);
    for verb in [["chmod", "-R", "a.img", "0700", "/d"], ["chown", "-R", "a.img", "7:8", "/d"]] {
        let (code, _, err) = crate::common::run_limited(path, 400 << 10, 64, &verb);
        assert_eq!(code, 1, "{verb:?}: {err}");
        assert!(
            err.contains("/d/e/f: corrupt: directory is reachable in more than one way"),
            "{err}"
        );
    }
    assert_eq!(succeed(path, &["stat", "a.img", "/d", "/d/e"]), before);
}

#[test]
fn modes_and_owners_of_a_deep_tree_cost_what_it_holds() {
    // With whole paths, the second half alone would need 450 million lookups.
    const LEVELS: usize = 30_000;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    crate::common::deep(path, LEVELS, "d");
    succeed(path, &["chmod", "-R", "--in-steps", "deep.img", "0711", "/"]);
    succeed(path, &["chown", "-R", "--in-steps", "deep.img", "7:8", "/"]);
    let fs = extant::OpenOptions::new().open(path.join("deep.img")).unwrap();
    let mut at = fs.root().unwrap();
    for _ in 0..LEVELS {
        at = at.lookup("d").unwrap();
        let found = at.metadata();
        assert_eq!((found.permissions(), found.uid(), found.gid()), (0o711, 7, 8));
    }
}

#[test]
fn a_whiteout_ends_where_a_damaged_directory_leads_in_circles() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    succeed(path, &["mkfs", "a.img", "--size", "16M", "-q"]);
    if !make_cycle(&path.join("a.img")) {
        return;
    }
    let before = fs::read(path.join("a.img")).unwrap();
    for (name, whiteout) in [("one.tar", ".wh.d"), ("all.tar", "d/.wh..wh..opq")] {
        let mut builder = tar::Builder::new(fs::File::create(path.join(name)).unwrap());
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(tar::EntryType::Regular);
        header.set_mode(0o644);
        header.set_size(0);
        builder.append_data(&mut header, whiteout, std::io::empty()).unwrap();
        builder.into_inner().unwrap();
        // Within this memory limit. An endless walk would use 120 MB a second.
        let (code, _, err) =
            crate::common::run_limited(path, 400 << 10, 64, &["apply-tar", "a.img", name]);
        assert_eq!(code, 1, "{whiteout}: {err}");
        assert!(err.contains("`extant check` lists all damage"), "{err}");
        assert!(fs::read(path.join("a.img")).unwrap() == before, "{whiteout} changed something");
    }
}

#[test]
fn directories_of_any_depth_are_made_and_a_journal_too_small_for_them_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    succeed(at, &["mkfs", "a.img", "64M", "-b", "1024", "-q", "--inodes", "40000"]);
    let deep = |levels: usize| "/d".repeat(levels);
    succeed(at, &["mkdir", "-p", "--owner", "3:4", "a.img", "/d/../e/../d/d"]);
    // Half of it exists, then all of it: existing directories are not looked up one level at a
    // time.
    let began = std::time::Instant::now();
    for levels in [1500, 3000] {
        succeed(at, &["mkdir", "-p", "--owner", "3:4", "a.img", &deep(levels)]);
    }
    assert!(began.elapsed().as_secs() < 60, "{:?}", began.elapsed());
    for path in [deep(1), deep(1501), deep(3000)] {
        let shown = succeed(at, &["stat", "--json", "a.img", &path]);
        assert!(shown.contains("\"gid\":4") || shown.contains("\"gid\": 4"), "{shown}");
    }
    let said = fail(at, 1, &["mkdir", "-p", "a.img", &deep(20_000).replace('d', "x")]);
    assert!(said.contains("larger than the volume's journal"), "{said}");
    assert_clean(&at.join("a.img"));
}

#[test]
fn an_archive_of_a_deep_tree_needs_no_deep_stack() {
    const LEVELS: usize = 5000;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    succeed(path, &["mkfs", "a.img", "--size", "32M", "-q", "-b", "1024", "--inodes", "6000"]);
    let mut builder = tar::Builder::new(fs::File::create(path.join("deep.tar")).unwrap());
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(tar::EntryType::Directory);
    header.set_mode(0o755);
    header.set_size(0);
    builder.append_data(&mut header, "d/".repeat(LEVELS), std::io::empty()).unwrap();
    builder.into_inner().unwrap();
    let program = assert_cmd::cargo::cargo_bin("extant");
    // A stack of 256 KiB: about 50 bytes for each level.
    let script = "ulimit -s 256; exec \"$0\" apply-tar --in-steps a.img deep.tar";
    let mut sh = std::process::Command::new("sh");
    let status = sh.current_dir(path).args(["-c", script]).arg(program).status();
    assert!(status.unwrap().success());
    assert_clean(&path.join("a.img"));
    let tree = succeed(path, &["tree", "a.img"]);
    assert!(tree.ends_with(&format!("\n{} directories, 0 files\n", LEVELS + 1)));
}

/// The flags as debugfs shows them.
fn flags(dir: &Path, path: &str) -> u32 {
    let shown = std::process::Command::new("debugfs")
        .args(["-R", &format!("stat {path}"), "a.img"])
        .current_dir(dir)
        .output()
        .unwrap();
    let text = String::from_utf8(shown.stdout).unwrap();
    let flags = text.split("Flags: 0x").nth(1).expect("debugfs shows flags");
    u32::from_str_radix(flags.split_whitespace().next().unwrap(), 16).unwrap()
}

#[test]
fn chattr_changes_flags_and_projects_as_linux_does() {
    let dir = built();
    let at = dir.path();
    succeed(at, &["tune", "-q", "-O", "project,quota", "a.img"]);
    succeed(at, &["chattr", "a.img", "+dA", "/big"]);
    assert_eq!(flags(at, "/big"), 0x8_00C0);
    succeed(at, &["chattr", "a.img", "-d", "+S", "big"]);
    assert_eq!(flags(at, "/big"), 0x8_0088);
    // The flags may be before the image, as for chattr.
    succeed(at, &["chattr", "=i", "a.img", "/big"]);
    assert_eq!(flags(at, "/big"), 0x8_0010);
    let why = fail(at, 1, &["chattr", "a.img", "+d", "/big"]);
    assert!(why.contains("/big: the file is immutable (chattr +i)"), "{why}");
    succeed(at, &["chattr", "a.img", "-i", "/big"]);
    succeed(at, &["chattr", "-R", "a.img", "+P", "-p", "7", "/etc"]);
    assert_eq!(flags(at, "/etc") & 0x2000_0000, 0x2000_0000);
    assert_eq!(flags(at, "/etc/hostname"), 0x8_0000, "a flag of directories");
    assert!(stat(at, "/etc/hostname").contains("Project: 7"));
    succeed(at, &["mkdir", "a.img", "/etc/new"]);
    assert!(stat(at, "/etc/new").contains("Project: 7"), "it is inherited");
    // The map becomes another one, and back.
    succeed(at, &["chattr", "a.img", "-e", "/etc/hostname"]);
    assert_eq!(flags(at, "/etc/hostname"), 0);
    succeed(at, &["chattr", "a.img", "+e", "/etc/hostname"]);
    for wrong in [&["+q", "/big"][..], &["/big"], &["+i"], &["-p", "x", "/big"], &["--no", "/big"]]
    {
        fail(at, 2, &[&["chattr", "a.img"], wrong].concat());
    }
    let before = content(at, "a.img");
    fail(at, 1, &["chattr", "-R", "a.img", "+F", "/etc"]);
    fail(at, 1, &["chattr", "a.img", "-v", "9", "/big"]);
    assert_eq!(content(at, "a.img"), before, "a change that fails changes nothing");
    assert_clean(&at.join("a.img"));
}

#[test]
fn quota_shows_usage_and_sets_limits_that_linux_tools_see() {
    let dir = built();
    let at = dir.path();
    let why = fail(at, 1, &["quota", "a.img"]);
    assert!(why.ends_with("extant tune -O quota,project adds it"), "{why}");
    succeed(at, &["tune", "-q", "-O", "project,quota", "a.img"]);
    succeed(at, &["chattr", "-R", "a.img", "-p", "9", "/etc"]);
    let shown = succeed(at, &["quota", "a.img"]);
    assert!(shown.contains("user 7: ") && shown.contains("project 9: "), "{shown}");
    let set = ["quota", "a.img", "-p", "9", "--space", "1M:2M", "--inodes", "100"];
    succeed(at, &set);
    succeed(at, &["quota", "a.img", "--user", "12345", "--space", "4096"]);
    assert_clean(&at.join("a.img"));
    let line = succeed(at, &["quota", "--json", "a.img", "-p", "9"]);
    let record: serde_json::Value = serde_json::from_str(&line).unwrap();
    let limits = ["bytes_soft", "bytes_hard", "inodes_soft", "inodes_hard"];
    assert_eq!(limits.map(|name| record[name].as_u64().unwrap()), [1 << 20, 2 << 20, 0, 100]);
    assert!(record["inodes"].as_u64().unwrap() > 1, "{line}");
    let listed = std::process::Command::new("debugfs")
        .args(["-R", "get_quota project 9", "a.img"])
        .current_dir(at)
        .output()
        .unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    // In KiB.
    assert!(listed.contains(" 1024 ") && listed.contains(" 2048 "), "{listed}");
    // An id without usage and limits needs no entry.
    succeed(at, &["quota", "a.img", "--user", "12345", "--space", "0"]);
    assert_eq!(succeed(at, &["quota", "a.img", "--user", "12345"]), "");
    fail(at, 2, &["quota", "a.img", "--space", "1G"]);
    assert_clean(&at.join("a.img"));
}
