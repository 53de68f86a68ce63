//! Names created, linked, renamed and removed on volumes of many kinds, checked by e2fsck.

use extant::mkfs::{MkfsOptions, format};
use extant::{
    BlockSize, Environment, Error, FileDevice, FileKind, Filesystem, InodeFlags, NewFile, Node,
    OpenOptions, RenameFlags, SetAttributes, What,
};
use extant_ondisk::superblock::VolumeState;
use extant_testkit::e2fsprogs::{debugfs, debugfs_write, e2fsck, mke2fs};
use std::path::PathBuf;
use std::sync::Arc;

/// A volume in a scratch file.
struct Scratch {
    path: PathBuf,
    _dir: tempfile::TempDir,
}

impl Scratch {
    fn made(mib: u64, options: MkfsOptions) -> Scratch {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("img");
        let device = Arc::new(FileDevice::create(&path, mib << 20).unwrap());
        format(device, &options, &Environment::default()).unwrap();
        Scratch { path, _dir: dir }
    }

    fn open(&self) -> Filesystem {
        OpenOptions::new().write(true).open(&self.path).unwrap()
    }

    /// Runs `change` on the open volume, closes it, and runs e2fsck.
    fn with(&self, change: impl FnOnce(&Filesystem)) {
        let fs = self.open();
        change(&fs);
        fs.close().unwrap();
        self.judge();
    }

    fn judge(&self) {
        if let Err(report) = e2fsck(&self.path, None).expect_clean() {
            panic!("{report}");
        }
    }
}

fn features(names: &str) -> MkfsOptions {
    MkfsOptions::new().features(names).unwrap()
}

/// Without checksums, a leaf that has lost all its names looks like a node of the index.
#[test]
fn emptied_directory_leaves_are_reused() {
    let small = BlockSize::from_bytes(1024).unwrap();
    let scratch = Scratch::made(16, features("^metadata_csum,^has_journal").block_size(small));
    let name = |round: u32, n: u32| format!("d/round {round} of a name, number {n}");
    scratch.with(|fs| {
        fs.create_dir("d", &NewFile::directory()).unwrap();
    });
    for round in 0..3 {
        scratch.with(|fs| {
            for n in 0..300 {
                fs.create_file(name(round, n), &NewFile::default()).unwrap();
            }
            let dir = fs.metadata("d").unwrap();
            assert!(dir.flags().contains(InodeFlags::INDEX), "round {round}");
            assert!(!fs.superblock().state.contains(VolumeState::ERROR), "round {round}");
        });
        // In order, so that the free space of each leaf becomes one piece.
        scratch.with(|fs| (0..300).for_each(|n| fs.remove_file(name(round, n)).unwrap()));
    }
}

fn kinds() -> Vec<(&'static str, MkfsOptions)> {
    let small = |options: MkfsOptions| options.block_size(BlockSize::from_bytes(1024).unwrap());
    vec![
        ("modern", MkfsOptions::new()),
        ("1k", small(MkfsOptions::new())),
        ("ext2", MkfsOptions::of_type("ext2").unwrap()),
        ("ext3", MkfsOptions::of_type("ext3").unwrap()),
        ("inline", features("inline_data")),
        ("casefold", features("casefold")),
        ("no orphan file", features("^orphan_file")),
        ("no checksums", features("^metadata_csum")),
        ("no journal", features("^has_journal")),
    ]
}

fn names(dir: &Node) -> Vec<String> {
    let mut names: Vec<_> = dir
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_str().unwrap().to_string())
        .collect();
    names.sort();
    names
}

#[test]
fn every_kind_of_file_is_made_and_removed() {
    for (kind, options) in kinds() {
        eprintln!("{kind}");
        let scratch = Scratch::made(16, options);
        scratch.with(|fs| {
            let root = fs.root().unwrap();
            let new = NewFile { uid: 1000, gid: 100, ..NewFile::default() };
            let dir = root.create_dir("dir", &NewFile::directory()).unwrap();
            let file = dir.create_file("file", &new).unwrap();
            dir.symlink("file", "short", &new).unwrap();
            dir.symlink("x/".repeat(200), "long", &new).unwrap();
            dir.mknod("pipe", FileKind::Fifo, &new).unwrap();
            let rdev = Some(extant::DeviceNumber { major: 1, minor: 3 });
            dir.mknod("null", FileKind::CharDevice, &NewFile { device: rdev, ..new }).unwrap();
            dir.hard_link(&file, "again").unwrap();
            assert_eq!(file.metadata().nlink(), 2);
            assert_eq!(file.metadata().uid(), 1000);
            assert_eq!(dir.metadata().nlink(), 2);
            assert_eq!(root.metadata().nlink(), 4);
            assert_eq!(names(&dir), ["again", "file", "long", "null", "pipe", "short"]);
            assert_eq!(fs.read_link("/dir/long").unwrap().to_str(), Some(&*"x/".repeat(200)));
        });
        scratch.with(|fs| {
            let dir = fs.node("/dir").unwrap();
            assert!(matches!(fs.remove_dir("/dir"), Err(Error::NotEmpty)));
            for name in names(&dir) {
                dir.remove_file(name).unwrap();
            }
            fs.remove_dir("/dir").unwrap();
            assert!(matches!(dir.create_file("late", &NewFile::default()), Err(Error::NotFound)));
            assert_eq!(fs.root().unwrap().metadata().nlink(), 3);
        });
    }
}

#[test]
fn an_unlinked_file_lives_as_long_as_it_is_held() {
    for (kind, options) in kinds() {
        eprintln!("{kind}");
        let scratch = Scratch::made(16, options);
        scratch.with(|fs| {
            let free = fs.space();
            let root = fs.root().unwrap();
            let held: Vec<_> = (0..6)
                .map(|n| {
                    let node = root.create_file(format!("f{n}"), &NewFile::default()).unwrap();
                    root.remove_file(format!("f{n}")).unwrap();
                    node
                })
                .collect();
            assert_eq!(held[3].metadata().nlink(), 0);
            assert!(matches!(root.hard_link(&held[3], "back"), Err(Error::NotFound)));
            // From the middle, and from both ends.
            for n in [2, 0, 5, 3, 1, 4] {
                let node = held[n].clone();
                drop(node);
            }
            let mut held = held;
            for n in [2, 0, 3, 0, 1, 0] {
                held.remove(n);
            }
            assert_eq!(fs.space().free_inodes, free.free_inodes);
            let unnamed = root.tmpfile(&NewFile::default()).unwrap();
            root.hard_link(&unnamed, "named").unwrap();
            assert_eq!(unnamed.metadata().nlink(), 1);
            drop(root.tmpfile(&NewFile::default()).unwrap());
            assert_eq!(fs.space().free_inodes, free.free_inodes - 1);
        });
    }
}

#[test]
fn renames_move_replace_and_exchange() {
    for (kind, options) in kinds() {
        eprintln!("{kind}");
        let scratch = Scratch::made(16, options);
        scratch.with(|fs| {
            let root = fs.root().unwrap();
            let new = NewFile::default();
            let (a, b) = (
                root.create_dir("a", &NewFile::directory()).unwrap(),
                root.create_dir("b", &NewFile::directory()).unwrap(),
            );
            let sub = a.create_dir("sub", &NewFile::directory()).unwrap();
            let file = sub.create_file("file", &new).unwrap();
            a.rename("sub", &b, "moved", RenameFlags::REPLACE).unwrap();
            assert_eq!((a.metadata().nlink(), b.metadata().nlink()), (2, 3));
            assert_eq!(sub.lookup("..").unwrap().ino(), b.ino());
            let into_itself = root.rename("b", &sub, "b", RenameFlags::REPLACE);
            assert!(matches!(into_itself, Err(Error::Invalid(_))));
            let over_parent = b.rename("moved", &root, "b", RenameFlags::REPLACE);
            assert!(matches!(over_parent, Err(Error::NotEmpty)));
            root.create_file("other", &new).unwrap();
            root.rename("other", &b, "moved", RenameFlags::EXCHANGE).unwrap();
            assert_eq!((root.metadata().nlink(), b.metadata().nlink()), (6, 2));
            assert_eq!(fs.node("/other/file").unwrap().ino(), file.ino());
            let taken = sub.rename("file", &b, "moved", RenameFlags::NOREPLACE);
            assert!(matches!(taken, Err(Error::Exists)));
            sub.rename("file", &b, "moved", RenameFlags::WHITEOUT).unwrap();
            let whiteout = sub.lookup("file").unwrap().metadata();
            assert_eq!(whiteout.file_type(), FileKind::CharDevice);
            assert_eq!(fs.node("/b/moved").unwrap().ino(), file.ino());
        });
        scratch.with(|fs| {
            for name in ["a", "b", "other"] {
                fs.remove_dir_all(name).unwrap();
            }
            assert_eq!(names(&fs.root().unwrap()), ["lost+found"]);
        });
    }
}

/// Debug builds count the blocks of each handle: the splits at every level must stay within their
/// credits.
#[test]
fn a_directory_of_three_levels_grows_and_shrinks_within_the_credits_of_its_handles() {
    const NAMES: usize = 36_000;
    let small = BlockSize::from_bytes(1024).unwrap();
    let scratch = Scratch::made(64, features("large_dir").block_size(small));
    let name = |n: usize| format!("{n:-<240}");
    scratch.with(|fs| {
        let root = fs.root().unwrap();
        let dir = root.create_dir("d", &NewFile::directory()).unwrap();
        let file = root.create_file("f", &NewFile::default()).unwrap();
        for n in 0..NAMES {
            // Every way to a new name has its own credits.
            match n % 50 {
                0 => drop(dir.create_file(name(n), &NewFile::default()).unwrap()),
                1 => {
                    root.create_file("g", &NewFile::default()).unwrap();
                    root.rename("g", &dir, name(n), RenameFlags::NOREPLACE).unwrap();
                }
                _ => dir.hard_link(&file, name(n)).unwrap(),
            }
        }
    });
    let dump = extant_testkit::e2fsprogs::debugfs(&scratch.path, "htree_dump /d").unwrap();
    assert!(dump.contains("Indirect levels: 2"), "36,000 names of 240 bytes need a third level");
    scratch.with(|fs| {
        let dir = fs.node("/d").unwrap();
        (0..NAMES).for_each(|n| dir.remove_file(name(n)).unwrap());
        fs.remove_dir("/d").unwrap();
        assert_eq!(fs.metadata("/f").unwrap().nlink(), 1);
        assert_eq!(names(&fs.root().unwrap()), ["f", "lost+found"]);
    });
}

#[test]
fn a_file_has_65000_names_and_no_more() {
    let small = BlockSize::from_bytes(1024).unwrap();
    let scratch = Scratch::made(16, MkfsOptions::new().block_size(small));
    scratch.with(|fs| {
        let root = fs.root().unwrap();
        let file = root.create_file("f", &NewFile::default()).unwrap();
        let other = root.create_file("other", &NewFile::default()).unwrap();
        (1..65_000).for_each(|n| root.hard_link(&file, format!("{n}")).unwrap());
        let one_more = root.hard_link(&file, "one more");
        assert!(matches!(one_more, Err(Error::LinkLimit)), "{one_more:?}");
        assert_eq!(file.metadata().nlink(), 65_000);
        // Making a name point to another file frees a link.
        root.rename("other", &root, "1", RenameFlags::REPLACE).unwrap();
        root.hard_link(&file, "one more").unwrap();
        assert_eq!((file.metadata().nlink(), other.metadata().nlink()), (65_000, 1));
    });
}

#[test]
fn a_new_file_inherits_from_its_directory_as_in_linux() {
    let scratch = Scratch::made(16, features("project,quota"));
    scratch.with(|fs| {
        let dir = fs.create_dir("d", &NewFile::directory()).unwrap();
        let inherited = InodeFlags::PROJINHERIT | InodeFlags::NODUMP | InodeFlags::NOATIME;
        let own = InodeFlags::TOPDIR | InodeFlags::IMMUTABLE;
        let set = |changes: SetAttributes| dir.set_attributes(&changes).unwrap();
        let flags = dir.metadata().flags() | inherited | InodeFlags::DIRSYNC | InodeFlags::TOPDIR;
        set(SetAttributes { project: Some(9), gid: Some(6), ..Default::default() });
        set(SetAttributes { mode: Some(0o2775), flags: Some(flags), ..Default::default() });
        let new = NewFile { mode: 0o755, gid: 1, project: 4, ..NewFile::default() };
        let (file, below) =
            (dir.create_file("f", &new).unwrap(), dir.create_dir("d", &new).unwrap());
        for (node, mode, more) in [
            (&file, 0o755, InodeFlags::empty()),
            (&below, 0o2755, InodeFlags::PROJINHERIT | InodeFlags::DIRSYNC),
        ] {
            let known = node.metadata();
            let base = InodeFlags::NODUMP | InodeFlags::NOATIME | more;
            assert_eq!((known.permissions(), known.gid(), known.project()), (mode, 6, 9));
            assert_eq!(known.flags() & (inherited | own | InodeFlags::DIRSYNC), base);
        }
        // A file of another project is refused, and an immutable directory neither gains nor loses
        // names.
        let root = fs.root().unwrap();
        let other = root.create_file("other", &NewFile::default()).unwrap();
        assert!(matches!(dir.hard_link(&other, "l"), Err(Error::CrossProject)));
        let moved = root.rename("other", &dir, "f", RenameFlags::REPLACE);
        assert!(matches!(moved, Err(Error::CrossProject)));
        let fixed =
            SetAttributes { flags: Some(flags | InodeFlags::IMMUTABLE), ..Default::default() };
        set(fixed);
        assert!(matches!(dir.create_file("g", &new), Err(Error::NotPermitted)));
        assert!(matches!(dir.remove_file("f"), Err(Error::NotPermitted)));
        let out = dir.rename("f", &root, "f", RenameFlags::REPLACE);
        assert!(matches!(out, Err(Error::NotPermitted)));
        let appended = flags | InodeFlags::APPEND;
        set(SetAttributes { flags: Some(flags), ..Default::default() });
        set(SetAttributes { flags: Some(appended), ..Default::default() });
        dir.create_file("g", &new).unwrap();
        assert!(matches!(dir.remove_file("g"), Err(Error::NotPermitted)));
        let over = dir.rename("g", &dir, "f", RenameFlags::REPLACE);
        assert!(matches!(over, Err(Error::NotPermitted)));
    });
}

/// A volume that mke2fs made with `options`, in a scratch file.
fn by_mke2fs(mib: u64, options: &str) -> Scratch {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("img");
    mke2fs(&path, mib << 20, options, None).unwrap();
    Scratch { path, _dir: dir }
}

#[test]
fn a_cycle_of_directories_ends_the_removal_of_a_tree() {
    for (top, kept) in [("/d", "/kept/file"), ("/top/d", "/top/file")] {
        let scratch = by_mke2fs(16, "-t ext4");
        scratch.with(|fs| {
            fs.create_dir_all("/kept", &NewFile::directory()).unwrap();
            fs.create_dir_all(format!("{top}/e"), &NewFile::directory()).unwrap();
            fs.create_file(kept, &NewFile::default()).unwrap();
        });
        // A second name of the directory itself, and of one of its ancestors.
        let above = if top == "/d" { "/d" } else { "/top" };
        debugfs_write(&scratch.path, &format!("ln {above} {top}/e/f")).unwrap();
        let fs = scratch.open();
        match fs.remove_dir_all(top) {
            Err(Error::Corrupt { what: What::DirectoryLoop, .. }) => {}
            other => panic!("{top}: {other:?}"),
        }
        assert!(fs.exists(kept).unwrap(), "{top}: what lies elsewhere is gone");
    }
}

#[test]
fn directories_are_created_along_a_path_of_any_length() {
    let scratch = by_mke2fs(64, "-t ext4 -N 40000 -b 1024");
    scratch.with(|fs| {
        let deep = "d/".repeat(30_000);
        fs.create_dir_all(&deep, &NewFile::directory()).unwrap();
        assert!(fs.metadata(&deep).unwrap().is_dir());
        fs.create_dir_all(&deep, &NewFile::directory()).unwrap();
        fs.remove_dir_all("d").unwrap();
        assert!(!fs.exists("d").unwrap());
    });
}

#[test]
fn directories_are_created_through_symlinks_and_not_below_missing_targets() {
    let scratch = by_mke2fs(16, "-t ext4");
    scratch.with(|fs| {
        let dir = NewFile::directory();
        fs.create_dir_all("a/real", &dir).unwrap();
        fs.symlink("a/real", "to-real", &NewFile::default()).unwrap();
        fs.symlink("a/missing", "to-missing", &NewFile::default()).unwrap();
        fs.create_file("file", &NewFile::default()).unwrap();
        fs.create_dir_all("to-real/x/../y/./z", &dir).unwrap();
        for made in ["a/real/x", "a/real/y/z"] {
            assert!(fs.metadata(made).unwrap().is_dir(), "{made}");
        }
        for (path, errno) in [
            ("to-missing", Error::Exists),
            ("to-missing/b", Error::Exists),
            ("file", Error::Exists),
            ("file/b", Error::NotADirectory),
        ] {
            let error = fs.create_dir_all(path, &dir).unwrap_err();
            assert_eq!(error.errno(), errno.errno(), "{path}: {error}");
        }
        assert!(!fs.exists("a/missing").unwrap());
    });
}

/// Gives a file a translator, as the GNU Hurd does: a free block of its own, which the inode
/// counts. The inode then has `sectors`.
fn set_translator(image: &std::path::Path, file: &str, block: &str, sectors: u32) {
    debugfs_write(image, &format!("setb {block}")).unwrap();
    debugfs_write(image, &format!("sif {file} translator {block}")).unwrap();
    debugfs_write(image, &format!("sif {file} blocks {sectors}")).unwrap();
    // e2fsck fixes free counts and checksums; exit status 1 means that it repaired something.
    let fsck = std::process::Command::new("e2fsck").arg("-fy").arg(image).output().unwrap();
    assert!(fsck.status.code() <= Some(1), "{}", String::from_utf8_lossy(&fsck.stdout));
}

#[test]
fn volumes_of_the_hurd_keep_their_translators_and_get_no_version() {
    let scratch = by_mke2fs(16, "-t ext2 -o hurd -b 1024");
    scratch.with(|fs| {
        for name in ["a", "b"] {
            let file = fs.create_file(name, &NewFile::default()).unwrap().open().unwrap();
            file.write_all_at(&[7; 20_000], 0).unwrap();
            file.set_len(1000).unwrap();
        }
        fs.set_attributes("a", &SetAttributes { mode: Some(0o600), ..Default::default() }).unwrap();
    });
    let stat = |name: &str| debugfs(&scratch.path, &format!("stat {name}")).unwrap();
    assert!(stat("/a").contains("Translator: 0"), "{}", stat("/a"));
    let block = debugfs(&scratch.path, "ffb 1").unwrap();
    let block: String = block.chars().filter(char::is_ascii_digit).collect();
    set_translator(&scratch.path, "/a", &block, 4);
    scratch.with(|fs| {
        fs.set_attributes("a", &SetAttributes { mode: Some(0o640), ..Default::default() }).unwrap();
        let file = fs.node("a").unwrap().open().unwrap();
        file.write_all_at(&[8; 3000], 5000).unwrap();
    });
    let device = Arc::new(extant::FileOptions::new().open(&scratch.path).unwrap());
    let report = extant::check::check_device(device, &Default::default(), &()).unwrap();
    assert_eq!(report.exit_code(), 0, "{:?}", report.findings);
    assert!(stat("/a").contains(&format!("Translator: {block}")), "{}", stat("/a"));
    scratch.with(|fs| fs.remove_file("a").unwrap());
    let free = debugfs(&scratch.path, &format!("testb {block}")).unwrap();
    assert!(free.contains("not in use"), "{free}");
}

/// A fast commit records the whole inode. Blocks are not taken from it, and the translator is one.
#[test]
fn recovery_of_fast_commits_keeps_the_translators_of_the_hurd() {
    let scratch = by_mke2fs(16, "-t ext4 -o hurd -b 1024 -O fast_commit");
    scratch.with(|fs| {
        let file = fs.create_file("a", &NewFile::default()).unwrap().open().unwrap();
        file.write_all_at(b"old", 0).unwrap();
        // Later inodes are in other blocks of the table, so that no transaction contains that of a.
        for n in 0..20 {
            fs.create_file(format!("other{n}"), &NewFile::default()).unwrap();
        }
    });
    // Volumes without extents have no fast commits, and e2fsck knows no translator of a file with
    // extents: it cannot judge this volume.
    debugfs_write(&scratch.path, "sif /a translator 15000").unwrap();
    let fs = scratch.open();
    fs.create_file("last", &NewFile::default()).unwrap();
    fs.sync().unwrap();
    fs.set_attributes("a", &SetAttributes { mode: Some(0o640), ..Default::default() }).unwrap();
    let file = fs.node("a").unwrap().open().unwrap();
    file.write_all_at(b"new", 0).unwrap();
    file.sync_all().unwrap();
    assert_eq!(fs.stats().journal.unwrap().fast_commits, 1);
    let crashed = scratch.path.with_extension("crashed");
    let recovered = |requests: &[&str]| {
        std::fs::copy(&scratch.path, &crashed).unwrap();
        for request in requests {
            debugfs_write(&crashed, request).unwrap();
        }
        let fs = OpenOptions::new().write(true).open(&crashed).unwrap();
        assert_eq!(fs.read("a").unwrap(), b"new");
        fs.close().unwrap();
        debugfs(&crashed, "stat /a").unwrap()
    };
    let stat = recovered(&[]);
    assert!(stat.contains("Translator: 15000") && stat.contains("0640"), "{stat}");
    // The inode in the table decides, as for its other blocks: the bitmap belongs to it.
    let stat = recovered(&["sif /a translator 0"]);
    assert!(stat.contains("Translator: 0") && stat.contains("0640"), "{stat}");
}

#[test]
fn a_translator_leaves_the_part_of_a_volume_that_a_shrink_cuts_off() {
    let scratch = by_mke2fs(16, "-t ext2 -o hurd -b 1024");
    scratch.with(|fs| drop(fs.create_file("a", &NewFile::default()).unwrap()));
    set_translator(&scratch.path, "/a", "15000", 2);
    let content = |block: u64| {
        let mut bytes = [0; 1024];
        let image = std::fs::File::open(&scratch.path).unwrap();
        std::os::unix::fs::FileExt::read_exact_at(&image, &mut bytes, block * 1024).unwrap();
        bytes
    };
    let image = std::fs::OpenOptions::new().write(true).open(&scratch.path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&image, b"/hurd/magic", 15000 * 1024).unwrap();
    let before = content(15000);
    drop(image);
    extant::resize::resize(&scratch.path, extant::resize::Size::Bytes(10 << 20), &()).unwrap();
    let stat = debugfs(&scratch.path, "stat /a").unwrap();
    let (_, after) = stat.split_once("Translator: ").unwrap();
    let block: u64 = after.split_whitespace().next().unwrap().parse().unwrap();
    assert!((1..10240).contains(&block), "{stat}");
    assert_eq!(content(block), before);
    e2fsck(&scratch.path, None).expect_clean().unwrap();
}

/// The names from `place` on in an opening of their own, `step` at a time, each with the place
/// after it.
fn from_place(dir: &Node, place: u64, step: usize) -> Vec<(String, u64)> {
    let (mut all, mut place) = (Vec::new(), place);
    loop {
        let mut places = dir.dir_cursor().unwrap();
        places.seek(place);
        let before = all.len();
        while all.len() - before < step
            && let Some(next) = places.peek()
        {
            let (entry, after) = next.unwrap();
            all.push((entry.file_name().to_string_lossy().into_owned(), after));
            places.advance();
        }
        let Some((_, after)) = all.get(before..).and_then(<[_]>::last) else { return all };
        place = *after;
    }
}

#[test]
fn a_directory_offset_is_valid_in_every_opening_and_after_any_change() {
    let legacy = || features("^metadata_csum");
    let mut all = kinds();
    all.push(("no index", features("^dir_index")));
    all.push(("legacy hash", legacy()));
    for (kind, options) in all {
        let scratch = Scratch::made(16, options);
        if kind == "legacy hash" {
            debugfs_write(&scratch.path, "ssv def_hash_version legacy").unwrap();
        }
        scratch.with(|fs| {
            for count in [0, 3, 40, 1500] {
                let dir = fs.root().unwrap().create_dir(format!("d{count}"), &NewFile::directory());
                let dir = dir.unwrap();
                let file = fs.root().unwrap().create_file(format!("f{count}"), &NewFile::default());
                // Many names of one file, because there are few inodes.
                let file = file.unwrap();
                let make = |from: usize, to: usize, what: &str| {
                    for n in from..to {
                        dir.hard_link(&file, format!("{what} {n}")).unwrap();
                    }
                };
                make(0, count, "stay");
                make(0, count, "go");
                let order = from_place(&dir, 0, usize::MAX);
                let mut listed: Vec<_> = order.iter().map(|(name, _)| name.clone()).collect();
                listed.sort();
                assert_eq!(listed, names(&dir), "{kind} {count}");
                assert_eq!(from_place(&dir, 0, 7), order, "{kind} {count}");
                for at in (0..order.len()).step_by(1 + order.len() / 50) {
                    let rest = from_place(&dir, order[at].1, usize::MAX);
                    assert_eq!(rest, order[at + 1..], "{kind} {count}: after name {at}");
                }
                // One opening, during which names are added and removed.
                let mut places = dir.dir_cursor().unwrap();
                let (mut given, mut place, mut round) = (Vec::new(), 0, 0);
                loop {
                    places.seek(place);
                    for _ in 0..10 {
                        let Some(next) = places.peek() else { break };
                        let (entry, after) = next.unwrap();
                        given.push(entry.file_name().to_string_lossy().into_owned());
                        place = after;
                        places.advance();
                    }
                    if places.peek().is_none() {
                        break;
                    }
                    for n in (round * 10..round * 10 + 10).filter(|n| *n < count) {
                        dir.remove_file(format!("go {n}")).unwrap();
                        make(n, n + 1, "come");
                    }
                    round += 1;
                }
                let stayed = given.iter().filter(|name| name.starts_with("stay")).count();
                assert_eq!(stayed, count, "{kind}");
                given.sort();
                let before = given.len();
                given.dedup();
                assert_eq!(given.len(), before, "{kind} {count}: a name comes twice");
                // The names that existed at first still have their places.
                let now = from_place(&dir, 0, usize::MAX);
                let old = |list: &[(String, u64)]| -> Vec<(String, u64)> {
                    list.iter().filter(|(name, _)| name.starts_with("stay")).cloned().collect()
                };
                assert_eq!(old(&now), old(&order), "{kind} {count}");
            }
        });
    }
}
