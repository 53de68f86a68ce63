//! Calls on files and their attributes through the library's door: what they answer and refuse, and
//! what Linux makes of the volume afterwards.

use extant::{
    DataMode, Error, FallocateMode, FileKind, Filesystem, InodeFlags, NewFile, OpenOptions,
    SetAttributes, Timestamp, XattrMode,
};
use extant_testkit::e2fsprogs;
use extant_testkit::judge::{self, Judge};
use extant_testkit::loop_mount::LoopMount;
use std::io::{IoSlice, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A volume in a scratch file.
struct Image {
    path: PathBuf,
    _dir: tempfile::TempDir,
}

impl Image {
    fn mke2fs(mib: u64, options: &str) -> Image {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("img");
        e2fsprogs::mke2fs(&path, mib << 20, options, None).unwrap();
        Image { path, _dir: dir }
    }

    fn open(&self) -> Filesystem {
        OpenOptions::new().write(true).open(&self.path).unwrap()
    }

    #[track_caller]
    fn judge(&self) {
        e2fsprogs::e2fsck(&self.path, None).expect_clean().unwrap();
    }

    fn debugfs(&self, request: &str) -> String {
        e2fsprogs::debugfs(&self.path, request).unwrap()
    }
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|n| (n as u64 * 31 + n as u64 / 253) as u8 ^ seed).collect()
}

fn new_file(fs: &Filesystem, name: &str) -> extant::File {
    fs.root().unwrap().create(name, &NewFile::default()).unwrap().open().unwrap()
}

#[test]
fn a_file_is_written_as_the_standard_library_writes() {
    let image = Image::mke2fs(16, "");
    let fs = image.open();
    let mut file = new_file(&fs, "f");
    file.write_all(b"hello ").unwrap();
    assert_eq!(file.write_vectored(&[IoSlice::new(b"wor"), IoSlice::new(b"ld")]).unwrap(), 5);
    file.seek(SeekFrom::Start(6)).unwrap();
    file.write_all(b"W").unwrap();
    assert_eq!(file.append(b"!").unwrap(), 1);
    file.rewind().unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "hello World!");
    drop(file);
    for text in ["a longer text than the next", "short"] {
        fs.write("/whole", text).unwrap();
        assert_eq!(fs.read_to_string("/whole").unwrap(), text);
    }
    assert!(matches!(fs.write("/lost+found", "x"), Err(Error::IsADirectory)));
    fs.close().unwrap();
    image.judge();
}

#[test]
fn sizes_end_where_the_format_ends() {
    for (options, most) in [
        ("-b 4096", u64::from(u32::MAX) << 12),
        ("-b 1024", u64::from(u32::MAX) << 10),
        ("-b 1024 -O ^extents,^64bit", (12 + 256 + 256 * 256 + 256 * 256 * 256) << 10),
        ("-b 4096 -O ^huge_file", (u64::from(u32::MAX) << 9) / 4096 * 4096),
    ] {
        let image = Image::mke2fs(16, options);
        let fs = image.open();
        let file = new_file(&fs, "f");
        assert!(matches!(file.set_len(most + 1), Err(Error::FileTooLarge)), "{options}");
        assert!(matches!(file.write_at(most, b"x"), Err(Error::FileTooLarge)));
        assert_eq!(file.write_at(most - 2, b"last").unwrap(), 2, "{options}");
        assert_eq!(file.metadata().len(), most);
        let mut tail = [0; 4];
        assert_eq!(file.read_at(most - 3, &mut tail).unwrap(), 3);
        assert_eq!(&tail[..3], b"\0la");
        assert_eq!(file.seek_data(0).unwrap().map(|at| at >= most - 4096), Some(true));
        drop(file);
        fs.close().unwrap();
        image.judge();
    }
}

#[test]
fn flags_protect_content() {
    let image = Image::mke2fs(16, "");
    let fs = image.open();
    let file = new_file(&fs, "f");
    file.write_all_at(0, b"kept").unwrap();
    let flags = file.metadata().flags();
    let set = |flags| SetAttributes { flags: Some(flags), ..Default::default() };
    file.set_attributes(&set(flags | InodeFlags::APPEND)).unwrap();
    assert!(matches!(file.write_at(0, b"x"), Err(Error::NotPermitted)));
    assert!(matches!(file.set_len(0), Err(Error::NotPermitted)));
    assert!(matches!(file.allocate(FallocateMode::PunchHole, 0, 4096), Err(Error::NotPermitted)));
    file.append(b" and more").unwrap();
    file.allocate(FallocateMode::KeepSize, 0, 8192).unwrap();
    file.set_attributes(&set(flags | InodeFlags::IMMUTABLE)).unwrap();
    assert!(matches!(file.append(b"x"), Err(Error::NotPermitted)));
    let mode = SetAttributes { mode: Some(0o600), ..Default::default() };
    assert!(matches!(file.set_attributes(&mode), Err(Error::NotPermitted)));
    assert!(matches!(fs.set_xattr("f", "user.a", b"1", XattrMode::Any), Err(Error::NotPermitted)));
    file.set_attributes(&set(flags)).unwrap();
    assert_eq!(fs.read("f").unwrap(), b"kept and more");
    // Neither the map's kind nor what only the engine sets can be asked for.
    let wrong = [flags ^ InodeFlags::EXTENTS, flags | InodeFlags::HUGE_FILE];
    for wrong in wrong {
        assert!(matches!(file.set_attributes(&set(wrong)), Err(Error::NotSupported(_))));
    }
    // A file has no flags of directories; the others that can be set are.
    let many = InodeFlags::NODUMP | InodeFlags::NOATIME | InodeFlags::TOPDIR;
    file.set_attributes(&set(flags | many)).unwrap();
    let now = file.metadata().flags();
    assert_eq!(now, flags | InodeFlags::NODUMP | InodeFlags::NOATIME);
    drop(file);
    fs.close().unwrap();
    image.judge();
}

#[test]
fn attributes_are_those_of_the_system_calls() {
    let image = Image::mke2fs(16, "-O project,quota -E quotatype=usrquota:grpquota:prjquota");
    let fs = image.open();
    let file = new_file(&fs, "f");
    file.write_all_at(0, &[7; 5000]).unwrap();
    let times = [-1, 0, 1 << 31, (1 << 33) + 5, (3 << 32) + 1];
    for sec in times {
        let time = Timestamp { sec, nsec: 123_456_789 };
        let wish = SetAttributes { atime: Some(time), mtime: Some(time), ..Default::default() };
        file.set_attributes(&wish).unwrap();
        assert_eq!(file.metadata().modified(), time);
    }
    let wish = SetAttributes { mode: Some(0o6755), ..Default::default() };
    file.set_attributes(&wish).unwrap();
    let wish = SetAttributes { uid: Some(70_000), gid: Some(5), ..Default::default() };
    file.set_attributes(&wish).unwrap();
    // Changing hands takes the set-id bits away.
    assert_eq!(file.metadata().permissions(), 0o755);
    let wish = SetAttributes { projid: Some(9), size: Some(100), ..Default::default() };
    file.set_attributes(&wish).unwrap();
    let metadata = file.metadata();
    assert_eq!((metadata.uid(), metadata.gid(), metadata.project()), (70_000, 5, 9));
    assert_eq!(metadata.len(), 100);
    let wish = SetAttributes { mode: Some(0o700), ..Default::default() };
    fs.root().unwrap().symlink("link", "f", &NewFile::default()).unwrap();
    assert!(matches!(fs.set_symlink_attributes("link", &wish), Err(Error::NotSupported(_))));
    drop(file);
    fs.close().unwrap();
    image.judge();
    let text = image.debugfs("stat f");
    assert!(text.contains("Project:     9") && text.contains("User: 70000"), "{text}");
}

#[test]
fn a_volume_without_projects_refuses_them() {
    let image = Image::mke2fs(16, "-O ^project -I 128");
    let fs = image.open();
    let file = new_file(&fs, "f");
    let wish = |projid| SetAttributes { projid: Some(projid), ..Default::default() };
    assert!(matches!(file.set_attributes(&wish(1)), Err(Error::NotSupported(_))));
    file.set_attributes(&wish(0)).unwrap();
    let late = Timestamp { sec: 1 << 33, nsec: 5 };
    file.set_attributes(&SetAttributes { mtime: Some(late), ..Default::default() }).unwrap();
    drop(file);
    fs.close().unwrap();
    image.judge();
    // Without room for it a time ends in 2038.
    let fs = image.open();
    assert_eq!(fs.metadata("f").unwrap().modified(), Timestamp::MAX_WITHOUT_EXTRA);
}

#[test]
fn attribute_calls_give_the_errors_of_the_system_calls() {
    let image = Image::mke2fs(16, "");
    let fs = image.open();
    drop(new_file(&fs, "f"));
    fs.root().unwrap().symlink("l", "f", &NewFile::default()).unwrap();
    fs.root().unwrap().mknod("p", FileKind::Fifo, &NewFile::default()).unwrap();
    let long = format!("user.{}", "n".repeat(251));
    let big = vec![0; 65537];
    // Path, name, value, mode, errno.
    let table: [(&str, &str, &[u8], XattrMode, i32); 14] = [
        ("f", "user.a", b"1", XattrMode::Replace, 61),
        ("f", "user.a", b"1", XattrMode::Create, 0),
        ("f", "user.a", b"2", XattrMode::Create, 17),
        ("f", "user.a", b"3", XattrMode::Replace, 0),
        ("f", "", b"1", XattrMode::Any, 34),
        ("f", &long, b"1", XattrMode::Any, 34),
        ("f", "user.big", &big, XattrMode::Any, 7),
        ("f", "user.big", &big[..65536], XattrMode::Any, 28),
        ("f", "user.", b"1", XattrMode::Any, 22),
        ("f", "system.data", b"1", XattrMode::Any, 95),
        ("f", "nothing.known", b"1", XattrMode::Any, 95),
        ("l", "user.a", b"1", XattrMode::Any, 1),
        ("p", "user.a", b"1", XattrMode::Any, 1),
        ("p", "trusted.a", b"1", XattrMode::Any, 0),
    ];
    for (path, name, value, mode, errno) in table {
        let got = fs.set_xattr(path, name, value, mode).map_or_else(|e| e.errno(), |()| 0);
        assert_eq!(got, errno, "{path} {name} {mode:?}");
    }
    assert!(matches!(fs.remove_xattr("f", "user.none"), Err(Error::NoAttribute)));
    assert_eq!(fs.xattr("f", "user.a").unwrap(), b"3");
    fs.remove_xattr("f", "user.a").unwrap();
    assert!(fs.xattrs("f").unwrap().is_empty());
    fs.close().unwrap();
    image.judge();
}

/// An access list as system calls carry it: owner rwx, user 7 r, group r-x, mask, other.
fn access_list(mask: u16) -> Vec<u8> {
    let mut list = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in
        [(1, 7, u32::MAX), (2, 4, 7), (4, 5, u32::MAX), (16, mask, u32::MAX), (32, 1, u32::MAX)]
    {
        list.extend([u16::to_le_bytes(tag), u16::to_le_bytes(perm)].concat());
        list.extend(id.to_le_bytes());
    }
    list
}

#[test]
fn an_access_list_and_the_mode_stay_in_step() {
    let image = Image::mke2fs(16, "");
    let fs = image.open();
    let file = new_file(&fs, "f");
    let name = "system.posix_acl_access";
    fs.set_xattr("f", name, &access_list(6), XattrMode::Any).unwrap();
    assert_eq!(file.metadata().permissions(), 0o761);
    file.set_attributes(&SetAttributes { mode: Some(0o740), ..Default::default() }).unwrap();
    let list = fs.xattr("f", name).unwrap();
    assert_eq!(list[30], 4, "the mask follows the group's bits");
    assert_eq!(file.metadata().permissions(), 0o740);
    fs.remove_xattr("f", name).unwrap();
    fs.remove_xattr("f", name).unwrap(); // as Linux: nothing to do
    let default = "system.posix_acl_default";
    let refused = fs.set_xattr("f", default, &access_list(6), XattrMode::Any).unwrap_err();
    assert_eq!(refused.errno(), 13, "{refused}");
    drop(file);
    fs.close().unwrap();
    image.judge();
}

#[test]
fn writing_takes_capabilities_away() {
    let image = Image::mke2fs(16, "");
    let fs = image.open();
    let file = new_file(&fs, "f");
    file.write_all_at(0, b"program").unwrap();
    let capability = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    for change in 0..3 {
        fs.set_xattr("f", "security.capability", &capability, XattrMode::Create).unwrap();
        match change {
            0 => file.write_all_at(0, b"P").unwrap(),
            1 => file.set_len(3).unwrap(),
            _ => file.allocate(FallocateMode::Allocate, 0, 9000).unwrap(),
        }
        assert!(fs.xattrs("f").unwrap().is_empty(), "change {change}");
    }
    drop(file);
    fs.close().unwrap();
    image.judge();
}

/// Gives a file so many extents of one block, with holes between.
fn fragmented(file: &extant::File, block: u64, extents: u64) {
    for n in (0..extents).rev() {
        file.write_all_at(n * 2 * block, &[n as u8 | 1; 64]).unwrap();
    }
}

/// Extents of a file, as debugfs counts them.
fn extents(image: &Image, name: &str) -> usize {
    let listed = image.debugfs(&format!("dump_extents -l -n {name}"));
    listed.lines().filter(|line| line.contains(" - ") && line.contains('/')).count()
}

/// As Linux does: what an insert cut in two, the collapse of the hole joins again.
#[test]
fn extents_that_meet_after_a_collapse_are_one() {
    let image = Image::mke2fs(16, "-b 1024");
    let (bytes, pieces) = (pattern(120 << 10, 3), 30u64);
    let change = |calls: &dyn Fn(&extant::File)| {
        let fs = image.open();
        calls(&fs.open_file("f").unwrap());
        fs.close().unwrap();
        extents(&image, "f")
    };
    drop(new_file(&image.open(), "f"));
    let at_first = change(&|file| file.write_all_at(0, &bytes).unwrap());
    let cut = change(&|file| {
        for n in 1..pieces {
            // The pieces before this one have moved by as many blocks.
            file.allocate(FallocateMode::Insert, (n * 4 + n - 1) << 10, 1 << 10).unwrap();
        }
    });
    assert!(cut >= pieces as usize, "{cut}");
    let joined = change(&|file| {
        for n in (1..pieces).rev() {
            file.allocate(FallocateMode::Collapse, (n * 5 - 1) << 10, 1 << 10).unwrap();
        }
    });
    assert_eq!(joined, at_first);
    assert_eq!(image.open().read("f").unwrap(), bytes);
    image.judge();
}

/// `chattr +e` and `-e`: the same bytes behind the other kind of map, where it can have them.
#[test]
fn a_file_gets_the_other_kind_of_map() {
    let image = Image::mke2fs(24, "-b 1024 -O ^64bit,^extent,quota");
    let fs = image.open();
    let body = pattern(700_000, 9);
    for name in ["large", "small", "sparse", "many"] {
        let file = new_file(&fs, name);
        match name {
            "large" => file.write_all_at(0, &body).unwrap(),
            "small" => file.write_all_at(3000, &body[..5000]).unwrap(),
            "sparse" => (0..9).for_each(|n| file.write_all_at(n << (n + 9), &body[..900]).unwrap()),
            _ => (0..300).for_each(|n| file.write_all_at(n * 3000, &body[..1000]).unwrap()),
        }
    }
    let set = |fs: &Filesystem, name: &str, flags| {
        let flags = Some(flags);
        fs.set_attributes(name, &SetAttributes { flags, ..Default::default() })
    };
    assert_eq!(set(&fs, "large", InodeFlags::EXTENTS).unwrap_err().errno(), 22);
    fs.close().unwrap();
    e2fsprogs::tune2fs(&image.path, &["-O", "extent"]).unwrap();
    let fs = image.open();
    let names = ["large", "small", "sparse", "many"];
    let before = names.map(|name| fs.read(name).unwrap());
    names.iter().for_each(|name| set(&fs, name, InodeFlags::EXTENTS).unwrap());
    set(&fs, "/lost+found", InodeFlags::EXTENTS).unwrap();
    assert!(names.map(|name| fs.read(name).unwrap()) == before);
    fs.close().unwrap();
    image.judge();
    let fs = image.open();
    for name in ["large", "sparse", "many"] {
        assert_eq!(set(&fs, name, InodeFlags::empty()).unwrap_err().errno(), 95, "{name}");
    }
    set(&fs, "small", InodeFlags::empty()).unwrap();
    assert!(names.map(|name| fs.read(name).unwrap()) == before);
    fs.open_file("small").unwrap().write_all_at(0, &body[..100_000]).unwrap();
    names.iter().for_each(|name| fs.remove_file(name).unwrap());
    fs.close().unwrap();
    image.judge();
}

#[test]
fn long_changes_fit_a_small_journal() {
    for options in ["-b 1024 -J size=1", "-b 1024 -J size=1 -O ^extents,^64bit"] {
        let image = Image::mke2fs(32, options);
        let fs = image.open();
        let file = new_file(&fs, "f");
        fragmented(&file, 1024, 3000);
        let size = file.metadata().len();
        file.allocate(FallocateMode::PunchHole, 1024 * 1024, size).unwrap();
        let extents = !options.contains("^extents");
        if extents {
            file.allocate(FallocateMode::Insert, 1024, 1024).unwrap();
            file.allocate(FallocateMode::Collapse, 1024, 1024).unwrap();
            file.allocate(FallocateMode::ZeroRange, 0, size).unwrap();
            file.allocate(FallocateMode::Allocate, 0, size * 2).unwrap();
        }
        fragmented(&file, 1024, 3000);
        file.set_len(10).unwrap();
        assert_eq!(fs.read("f").unwrap()[..10], [1; 10]);
        fragmented(&file, 1024, 3000);
        fs.root().unwrap().unlink("f").unwrap();
        let used = fs.space();
        drop(file);
        assert!(fs.space().free > used.free + 2900);
        fs.close().unwrap();
        image.judge();
    }
}

#[test]
fn bytes_through_the_journal_come_back() {
    let image = Image::mke2fs(24, "-b 1024 -J size=1");
    let mut options = OpenOptions::new();
    options.write(true).data_mode(DataMode::Journal);
    let fs = options.open(&image.path).unwrap();
    let file = new_file(&fs, "f");
    let bytes = pattern(700_000, 3);
    file.write_all_at(0, &bytes).unwrap();
    // A block that looks like the log's own is escaped there.
    file.write_all_at(2048, &[0xC0, 0x3B, 0x39, 0x98]).unwrap();
    file.sync_all().unwrap();
    drop(file);
    fs.close().unwrap();
    image.judge();
    let fs = image.open();
    let mut expected = bytes;
    expected[2048..2052].copy_from_slice(&[0xC0, 0x3B, 0x39, 0x98]);
    assert_eq!(fs.read("f").unwrap(), expected);
    // By its flag, there and back.
    let file = fs.open_file("f").unwrap();
    let flags = file.metadata().flags();
    let set = |flags| SetAttributes { flags: Some(flags), ..Default::default() };
    file.set_attributes(&set(flags | InodeFlags::JOURNAL_DATA)).unwrap();
    file.write_all_at(100, &pattern(300_000, 9)).unwrap();
    expected[100..300_100].copy_from_slice(&pattern(300_000, 9));
    assert_eq!(fs.read("f").unwrap(), expected);
    file.set_attributes(&set(flags)).unwrap();
    file.write_all_at(5000, &pattern(9000, 1)).unwrap();
    expected[5000..14_000].copy_from_slice(&pattern(9000, 1));
    file.set_attributes(&set(flags | InodeFlags::JOURNAL_DATA)).unwrap();
    file.append(b"end").unwrap();
    expected.extend(b"end");
    assert_eq!(fs.read("f").unwrap(), expected);
    file.set_len(1000).unwrap();
    fs.root().unwrap().unlink("f").unwrap();
    drop(file);
    fs.close().unwrap();
    image.judge();
}

#[test]
fn linux_reads_what_is_written_here_and_the_reverse() {
    if !judge::require(&[Judge::Root, Judge::Loop, Judge::E2fsprogs]) {
        return;
    }
    for options in ["-b 4096", "-b 1024 -O ^extents,^64bit", "-b 1024 -O inline_data -I 512"] {
        let image = Image::mke2fs(48, options);
        let (a, b) = (pattern(3_000_000, 5), pattern(100, 6));
        let mount = LoopMount::rw(&image.path, "").unwrap();
        std::fs::write(mount.path().join("theirs"), &a).unwrap();
        std::fs::write(mount.path().join("small"), &b).unwrap();
        mount.unmount().unwrap();

        let fs = image.open();
        let theirs = fs.open_file("theirs").unwrap();
        theirs.write_all_at(1_000_001, &b).unwrap();
        theirs.allocate(FallocateMode::PunchHole, 500_000, 70_001).unwrap();
        theirs.set_len(2_500_000).unwrap();
        theirs.append(&a[..123_456]).unwrap();
        fs.open_file("small").unwrap().append(&b).unwrap();
        let ours = new_file(&fs, "ours");
        ours.write_all_at(5_000_000, &a).unwrap();
        fs.set_xattr("ours", "user.name", &[1; 300], XattrMode::Any).unwrap();
        drop((theirs, ours));
        fs.close().unwrap();
        image.judge();

        let mut expected = a.clone();
        expected[1_000_001..1_000_101].copy_from_slice(&b);
        expected[500_000..570_001].fill(0);
        expected.truncate(2_500_000);
        expected.extend(&a[..123_456]);
        let mount = LoopMount::rw(&image.path, "").unwrap();
        assert!(std::fs::read(mount.path().join("theirs")).unwrap() == expected, "{options}");
        assert_eq!(std::fs::read(mount.path().join("small")).unwrap(), [&b[..], &b].concat());
        let path = mount.path().join("ours");
        let ours = std::fs::File::options().read(true).write(true).open(path).unwrap();
        let mut back = vec![1; 8_000_000];
        ours.read_exact_at(&mut back, 0).unwrap();
        assert!(back[..5_000_000].iter().all(|byte| *byte == 0) && back[5_000_000..] == a);
        // Linux goes on where we stopped.
        ours.write_all_at(&b, 4_999_990).unwrap();
        drop(ours);
        mount.unmount().unwrap();
        image.judge();
        let fs = image.open();
        let mut back = [0; 100];
        fs.open_file("ours").unwrap().read_at(4_999_990, &mut back).unwrap();
        assert_eq!(back[..], b[..]);
        fs.close().unwrap();
    }
}

/// Overwrites a block of the volume's file.
fn spoil(path: &Path, block_size: u64, block: u64, byte: u64, with: &[u8]) {
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.write_all_at(with, block * block_size + byte).unwrap();
}

#[test]
fn a_damaged_map_gives_errors_and_leaves_the_rest_usable() {
    for options in ["-b 1024 -O ^metadata_csum", "-b 1024", "-b 1024 -O ^extents,^64bit"] {
        let image = Image::mke2fs(16, options);
        let fs = image.open();
        let file = new_file(&fs, "bad");
        fragmented(&file, 1024, 300);
        let good = new_file(&fs, "good");
        good.write_all_at(0, &pattern(50_000, 1)).unwrap();
        drop((file, good));
        fs.close().unwrap();
        let kind = if options.contains("^extents") { "IND" } else { "ETB" };
        let text = image.debugfs("stat bad");
        let node = text.split(kind).nth(1).expect("a block of the map");
        let node = node.split("):").nth(1).unwrap();
        let node: String = node.chars().take_while(char::is_ascii_digit).collect();
        let node: u64 = node.parse().unwrap();
        spoil(&image.path, 1024, node, 12, &[0xFF; 200]);

        let fs = image.open();
        let bad = fs.open_file("bad").unwrap();
        let corrupt = |done: Result<(), Error>, what: &str| match done {
            Err(error @ Error::Corrupt { .. }) => {
                let text = error.to_string();
                assert!(text.contains(&format!("ino {}", bad.ino().get())), "{what}: {text}");
            }
            other => panic!("{what}: {other:?}"),
        };
        corrupt(bad.write_all_at(20 * 1024, &[1; 2000]), "write");
        corrupt(bad.allocate(FallocateMode::PunchHole, 14 * 1024, 90_000), "punch");
        corrupt(bad.set_len(15_000), "truncate");
        if kind == "ETB" {
            corrupt(bad.allocate(FallocateMode::Collapse, 14 * 1024, 2048), "collapse");
            corrupt(bad.allocate(FallocateMode::Insert, 1024, 2048), "insert");
            corrupt(bad.allocate(FallocateMode::ZeroRange, 14 * 1024, 90_000), "zero");
        }
        drop(bad);
        let good = fs.open_file("good").unwrap();
        good.write_all_at(60_000, b"still").unwrap();
        assert_eq!(fs.read("good").unwrap()[60_000..], *b"still");
        assert_eq!(fs.read("good").unwrap()[..50_000], pattern(50_000, 1));
    }
}

#[test]
fn threads_share_a_file() {
    let image = Image::mke2fs(32, "-b 4096");
    let fs = image.open();
    let lanes = new_file(&fs, "lanes");
    lanes.write_all_at(0, &[0; 400 * 300]).unwrap();
    let log = new_file(&fs, "log");
    let cut = new_file(&fs, "cut");
    std::thread::scope(|scope| {
        for lane in 0..4u8 {
            let (lanes, log, cut) = (&lanes, &log, &cut);
            scope.spawn(move || {
                for n in 0..300u64 {
                    let at = n * 400 + u64::from(lane) * 100;
                    lanes.write_all_at(at, &[lane + 1; 100]).unwrap();
                    assert_eq!(log.append(&[lane + b'a'; 50]).unwrap(), 50);
                    match lane {
                        0 => cut.set_len(n % 7 * 5000).unwrap(),
                        1 => cut.allocate(FallocateMode::PunchHole, n * 100, 9000).unwrap(),
                        _ => drop(cut.write_at(n * 77, &[9; 700]).unwrap()),
                    }
                    if n % 50 == 0 {
                        lanes.sync_data().unwrap();
                    }
                }
            });
        }
    });
    let bytes = fs.read("lanes").unwrap();
    assert!(bytes.iter().enumerate().all(|(n, byte)| usize::from(*byte) == n % 400 / 100 + 1));
    let bytes = fs.read("log").unwrap();
    assert_eq!(bytes.len(), 4 * 300 * 50);
    assert!(bytes.chunks(50).all(|record| record.iter().all(|byte| *byte == record[0])));
    drop((lanes, log, cut));
    fs.close().unwrap();
    image.judge();
}

#[test]
fn large_attributes_come_and_go_with_a_small_journal() {
    for options in ["-b 1024 -J size=1 -O ea_inode", "-b 4096 -O ea_inode,quota"] {
        let image = Image::mke2fs(48, options);
        let fs = image.open();
        let used = fs.space().free;
        let file = new_file(&fs, "f");
        let twin = new_file(&fs, "twin");
        let value = |n: u8, len: usize| pattern(len, n);
        for n in 0..30 {
            let name = format!("user.n{n}");
            for path in ["f", "twin"] {
                fs.set_xattr(path, &name, &value(n, 65536), XattrMode::Create).unwrap();
            }
            fs.set_xattr("f", &name, &value(n, 50_000), XattrMode::Replace).unwrap();
        }
        for n in 0..30 {
            assert_eq!(fs.xattr("f", format!("user.n{n}")).unwrap(), value(n, 50_000));
            assert_eq!(fs.xattr("twin", format!("user.n{n}")).unwrap(), value(n, 65536));
        }
        fs.remove_xattr("twin", "user.n3").unwrap();
        let fs = {
            drop((file, twin));
            fs.close().unwrap();
            image.judge();
            image.open()
        };
        fs.remove_file("f").unwrap();
        fs.remove_file("twin").unwrap();
        fs.sync().unwrap();
        assert!(fs.space().free + 8 >= used, "{options}: {} of {used}", fs.space().free);
        fs.close().unwrap();
        image.judge();
    }
}
