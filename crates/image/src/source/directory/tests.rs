//! Real directories, made in a temporary place or already present on the machine.

use crate::entry::{Kind, NodeId, Time};
use crate::error::SourceError;
use crate::exclude::Excludes;
use crate::owner::{ModeChange, Ownership};
use crate::source::{SourceOptions, SourceSpec};
use crate::tree::Tree;
use rustix::fs::{AtFlags, CWD, FileType, Mode, XattrFlags, lsetxattr, mknodat};
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;

fn read(path: &Path, options: &SourceOptions) -> Result<Tree, SourceError> {
    Tree::read(&[SourceSpec::new(path)], options, &())
}

fn find(tree: &Tree, path: &str) -> NodeId {
    tree.find(path.as_bytes()).unwrap_or_else(|| panic!("{path} is in the tree"))
}

#[test]
fn everything_of_a_directory_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir_all(at("a/b/c")).unwrap();
    fs::write(at("a/file"), b"hello").unwrap();
    fs::hard_link(at("a/file"), at("a/b/other")).unwrap();
    fs::hard_link(at("a/file"), at("zz")).unwrap();
    symlink("a/file", at("link")).unwrap();
    let fifo = FileType::Fifo;
    mknodat(CWD, at("fifo"), fifo, Mode::RUSR, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    fs::set_permissions(at("a"), fs::Permissions::from_mode(0o1777)).unwrap();
    let sparse = fs::File::create(at("sparse")).unwrap();
    sparse.write_all_at(b"x", 1 << 20).unwrap();
    sparse.set_len(3 << 20).unwrap();
    fs::File::create(at("hole")).unwrap().set_len(1 << 40).unwrap();
    let tree = read(dir.path(), &SourceOptions::new()).unwrap();
    let names: Vec<&[u8]> = tree.children(NodeId::ROOT).map(|(name, _)| name).collect();
    assert_eq!(names, [&b"a"[..], b"fifo", b"hole", b"link", b"socket", b"sparse", b"zz"]);
    assert_eq!(find(&tree, "a/file"), find(&tree, "a/b/other"));
    assert_eq!(tree.node(find(&tree, "zz")).links(), 3);
    assert_eq!(tree.node(find(&tree, "a")).meta.mode, 0o1777);
    assert_eq!(tree.target(find(&tree, "link")), b"a/file");
    assert_eq!(tree.node(find(&tree, "fifo")).kind, Kind::Fifo);
    assert_eq!(tree.node(find(&tree, "socket")).kind, Kind::Socket);
    let mut reader = tree.reader();
    assert_eq!(reader.read(find(&tree, "zz")).unwrap(), b"hello");
    let bytes = reader.read(find(&tree, "sparse")).unwrap();
    assert!(bytes.len() == 3 << 20 && bytes[1 << 20] == b'x');
    assert_eq!(bytes.iter().map(|&b| u32::from(b)).sum::<u32>(), u32::from(b'x'));
    // Where the filesystem reports holes, they stay holes.
    assert!(tree.data_bytes() < 1 << 30);
    assert_eq!(tree.node(find(&tree, "hole")).kind.size(), 1 << 40);
    let mut end = [1; 8];
    assert_eq!(reader.read_at(find(&tree, "hole"), (1 << 40) - 3, &mut end).unwrap(), 3);
    assert_eq!(end, [0, 0, 0, 1, 1, 1, 1, 1]);
}

#[test]
fn attributes_are_read_and_shared() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a", "b", "c"] {
        let path = dir.path().join(name);
        fs::write(&path, b"x").unwrap();
        let value: &[u8] = if name == "c" { b"other" } else { b"same" };
        if lsetxattr(&path, "user.test", value, XattrFlags::empty()).is_err() {
            // A filesystem without user attributes has nothing to read.
            return;
        }
    }
    let tree = read(dir.path(), &SourceOptions::new()).unwrap();
    let node = |name| tree.node(find(&tree, name));
    assert!(node("a").same_xattrs(node("b")) && !node("a").same_xattrs(node("c")));
    assert_eq!(&*tree.xattrs(find(&tree, "c"))[0].value, b"other");
    let xattr = &tree.xattrs(find(&tree, "a"))[0];
    assert_eq!((&*xattr.name, &*xattr.value), (&b"user.test"[..], &b"same"[..]));
}

#[test]
fn the_tree_does_not_depend_on_the_number_of_threads() {
    let real = Path::new("/usr/share");
    let one = read(real, &SourceOptions::new().threads(1)).unwrap();
    let many = read(real, &SourceOptions::new().threads(7)).unwrap();
    assert_eq!(one.digest(), many.digest());
    assert!(one.name_count() > 100);
    for (a, b) in one.nodes().iter().zip(many.nodes()) {
        assert_eq!((a.meta, a.links(), a.parent()), (b.meta, b.links(), b.parent()));
    }
}

#[test]
fn a_file_that_changes_after_the_listing_is_named() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["gone", "grown", "shrunk", "touched", "replaced", "linked", "good"] {
        fs::write(dir.path().join(name), b"12345").unwrap();
    }
    let read_with = |keep_going| {
        let options = SourceOptions::new().keep_going(keep_going);
        read(dir.path(), &options).unwrap()
    };
    let (strict, lax) = (read_with(false), read_with(true));
    let at = |name: &str| dir.path().join(name);
    fs::remove_file(at("gone")).unwrap();
    fs::write(at("grown"), b"1234567").unwrap();
    fs::write(at("shrunk"), b"1").unwrap();
    let old = fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH);
    fs::File::options().write(true).open(at("touched")).unwrap().set_times(old).unwrap();
    fs::write(at("new"), b"12345").unwrap();
    fs::rename(at("new"), at("replaced")).unwrap();
    fs::remove_file(at("linked")).unwrap();
    symlink("good", at("linked")).unwrap();
    for (name, message) in [
        ("gone", "gone vanished while"),
        ("grown", "grown grew while"),
        ("shrunk", "shrunk shrank while"),
        ("touched", "touched changed while"),
        ("replaced", "replaced was replaced while"),
        ("linked", "cannot open"),
    ] {
        let error = strict.reader().read(find(&strict, name)).unwrap_err().to_string();
        assert!(error.contains(message), "{name}: {error}");
        assert_eq!(lax.reader().read(find(&lax, name)).unwrap(), [0; 5]);
        assert_eq!(lax.reader().read(find(&lax, name)).unwrap(), [0; 5]);
    }
    assert_eq!(strict.reader().read(find(&strict, "good")).unwrap(), b"12345");
    let problems = lax.take_problems();
    assert_eq!(problems.len(), 6);
    assert!(problems[0].path().unwrap().ends_with("gone"));
}

#[test]
fn what_cannot_be_opened_is_named_or_gone_past() {
    let error = read("/nowhere/at/all".as_ref(), &SourceOptions::new()).unwrap_err();
    assert!(error.to_string().starts_with("cannot open /nowhere/at/all: No such file"));
    if rustix::process::geteuid().is_root() {
        // The superuser may read everything.
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let locked = dir.path().join("locked");
    fs::create_dir(&locked).unwrap();
    fs::write(dir.path().join("secret"), b"x").unwrap();
    let none = fs::Permissions::from_mode(0o000);
    fs::set_permissions(&locked, none.clone()).unwrap();
    fs::set_permissions(dir.path().join("secret"), none).unwrap();
    let error = read(dir.path(), &SourceOptions::new()).unwrap_err().to_string();
    assert!(error.contains("locked") || error.contains("secret"), "{error}");
    let tree = read(dir.path(), &SourceOptions::new().keep_going(true)).unwrap();
    assert_eq!(tree.take_problems().len(), 2);
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn owners_modes_and_excludes_follow_the_options() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir_all(at("etc/deep")).unwrap();
    fs::create_dir_all(at("cache/x")).unwrap();
    for name in ["etc/shadow", "etc/passwd", "etc/deep/f", "cache/x/y", "a.o"] {
        fs::write(at(name), b"").unwrap();
    }
    symlink("x", at("link")).unwrap();
    let mut excludes = Excludes::new();
    excludes.add("cache/").unwrap();
    excludes.add("*.o").unwrap();
    let rules = b"/ 1 1\n/etc/** 5 6 -\n/etc/shadow 0 42 0640\n/etc/deep/ - 9 u=rx,go=\n";
    let options = SourceOptions::new()
        .owner(3, 4)
        .mode(ModeChange::parse("D0755,F0644").unwrap())
        .ownership(Ownership::parse(rules, Path::new("owners")).unwrap())
        .excludes(excludes);
    let tree = read(dir.path(), &options).unwrap();
    let meta = |path: &str| {
        let meta = tree.node(find(&tree, path)).meta;
        (meta.uid, meta.gid, meta.mode)
    };
    assert!(tree.find(b"cache").is_none() && tree.find(b"a.o").is_none());
    assert_eq!(meta(""), (1, 1, 0o755));
    assert_eq!(meta("etc"), (3, 4, 0o755));
    assert_eq!(meta("etc/passwd"), (5, 6, 0o644));
    assert_eq!(meta("etc/shadow"), (0, 42, 0o640));
    assert_eq!(meta("etc/deep"), (5, 9, 0o500));
    assert_eq!(meta("etc/deep/f"), (5, 6, 0o644));
    assert_eq!(meta("link"), (3, 4, 0o777));
}

#[test]
fn later_sources_go_over_earlier_ones() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let put = |dir: &tempfile::TempDir, name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    put(&one, "both/a", "1");
    put(&one, "both/b", "1");
    put(&one, "file", "1");
    put(&one, "dir/x", "1");
    fs::hard_link(one.path().join("both/a"), one.path().join("linked")).unwrap();
    put(&two, "both/b", "2");
    put(&two, "both/c", "2");
    put(&two, "file/now-dir", "2");
    put(&two, "dir", "2");
    fs::set_permissions(two.path().join("both"), fs::Permissions::from_mode(0o711)).unwrap();
    let tar = tempfile::NamedTempFile::new().unwrap();
    let hand = crate::source::tar::tests::TarBuilder::default().file("both/c", b"33").end();
    fs::write(tar.path(), hand).unwrap();
    let sources = [one.path(), two.path(), tar.path()].map(SourceSpec::from);
    let tree = Tree::read(&sources, &SourceOptions::new(), &()).unwrap();
    let read =
        |path: &str| String::from_utf8(tree.reader().read(find(&tree, path)).unwrap()).unwrap();
    let got = ["both/a", "linked", "both/b", "both/c", "file/now-dir", "dir"].map(read);
    assert_eq!(got, ["1", "1", "2", "33", "2", "2"]);
    assert_eq!(find(&tree, "both/a"), find(&tree, "linked"));
    assert!(tree.find(b"dir/x").is_none());
    // The tar has no entry for it, so the directory's metadata stays.
    assert_eq!(tree.node(find(&tree, "both")).meta.mode, 0o711);
}

#[test]
fn a_listed_file_can_be_left_out_by_its_inode() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("image"), b"x").unwrap();
    let flags = rustix::fs::StatxFlags::BASIC_STATS;
    let stat = rustix::fs::statx(CWD, dir.path().join("image"), AtFlags::empty(), flags).unwrap();
    let device = (stat.stx_dev_major, stat.stx_dev_minor);
    let options = SourceOptions::new().skip_inode(device, stat.stx_ino);
    let tree = read(dir.path(), &options).unwrap();
    assert_eq!(tree.name_count(), 0);
    assert!(tree.node(NodeId::ROOT).meta.mtime > Time::default());
}

#[test]
fn blocks_of_zeros_of_long_files_become_holes() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    // Data, blocks of zeros, data that ends within a block; zeros alone; none; too short.
    let mixed = [&[1; 4096][..], &[0; 64 << 10], &[0, 0, 2]].concat();
    for (name, bytes) in [
        ("mixed", &mixed[..]),
        ("zeros", &[0; 70_000]),
        ("data", &[3; 70_000]),
        ("short", &[0; (64 << 10) - 1]),
    ] {
        fs::write(at(name), bytes).unwrap();
    }
    let tar = tempfile::NamedTempFile::new().unwrap();
    let hand = crate::source::tar::tests::TarBuilder::default().file("packed", &mixed).end();
    fs::write(tar.path(), hand).unwrap();
    let sources = [dir.path(), tar.path()].map(SourceSpec::from);
    let options = SourceOptions::new();
    let plain = Tree::read(&sources, &options, &()).unwrap();
    let tree = Tree::read(&sources, &options.zeros_are_holes(4096), &()).unwrap();
    let ranges = |name| -> Vec<(u64, u64)> { tree.data_map(find(&tree, name)).ranges().collect() };
    for name in ["mixed", "packed"] {
        assert_eq!(ranges(name), [(0, 4096), (69_632, 3)]);
    }
    assert_eq!(ranges("zeros"), []);
    assert!(tree.data_map(find(&tree, "data")).is_dense());
    assert!(tree.data_map(find(&tree, "short")).is_dense());
    for name in ["mixed", "packed", "zeros", "data", "short"] {
        let read = |tree: &Tree| tree.reader().read(find(tree, name)).unwrap();
        assert_eq!(read(&tree), read(&plain), "{name}");
    }
    assert_eq!(plain.data_map(find(&plain, "mixed")).data_bytes(), mixed.len() as u64);
}
