//! Calls on files through the library's API: results and errors, and what Linux then reads on the
//! volume.

use crate::common::{Image, new_file, pattern};
use extant::{DataMode, Error, FallocateMode, InodeFlags, OpenOptions, SetAttributes, XattrMode};
use extant_testkit::judge::{self, Judge};
use extant_testkit::loop_mount::LoopMount;
use std::io::{IoSlice, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

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
fn a_file_is_copied_as_the_standard_library_copies() {
    let image = Image::mke2fs(16, "");
    let fs = image.open();
    let file = new_file(&fs, "from");
    let bytes = pattern((1 << 20) + 12_345, 1);
    file.write_all_at(&bytes, 0).unwrap();
    file.write_all_at(b"end", 3 << 20).unwrap();
    file.set_len(5 << 20).unwrap();
    let mode = Some(0o4750);
    file.set_attributes(&SetAttributes { mode, ..Default::default() }).unwrap();
    fs.write("/there", vec![7; 6 << 20]).unwrap();
    for to in ["/new", "/there"] {
        assert_eq!(fs.copy("/from", to).unwrap(), 5 << 20, "{to}");
        assert_eq!(fs.read(to).unwrap(), fs.read("/from").unwrap(), "{to}");
        let copy = fs.metadata(to).unwrap();
        assert_eq!(copy.permissions(), 0o4750, "{to}");
        assert!(copy.file_type().is_file() && copy.ino() != file.ino(), "{to}");
        // Holes stay holes.
        let allocated = fs.open_file(to).unwrap().extents().unwrap();
        let allocated: u64 = allocated.iter().map(|extent| extent.len).sum();
        assert!(allocated < 2 << 20, "{to} has {allocated} bytes");
    }
    assert!(matches!(fs.copy("/from", "/from"), Err(Error::Invalid(_))));
    assert_eq!(file.metadata().len(), 5 << 20);
    assert!(matches!(fs.copy("/no", "/new"), Err(Error::NotFound)));
    assert!(matches!(fs.copy("/lost+found", "/new"), Err(Error::IsADirectory)));
    assert!(matches!(fs.copy("/from", "/lost+found"), Err(Error::IsADirectory)));

    // The output for a program that prints its values.
    let shown = format!("{:?}", fs.walk("/").last().unwrap().unwrap());
    assert!(shown.starts_with("WalkEntry { path: \"/") && shown.contains("file_type: "), "{shown}");
    let shown = format!("{file:?}");
    assert_eq!(shown, format!("File {{ ino: {:?}, cursor: 0, .. }}", file.ino()));
    assert!(format!("{fs:?}").starts_with("Filesystem { uuid: ["), "{fs:?}");
    drop(file);
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
        assert!(matches!(file.write_at(b"x", most), Err(Error::FileTooLarge)));
        assert_eq!(file.write_at(b"last", most - 2).unwrap(), 2, "{options}");
        assert_eq!(file.metadata().len(), most);
        let mut tail = [0; 4];
        assert_eq!(file.read_at(&mut tail, most - 3).unwrap(), 3);
        assert_eq!(&tail[..3], b"\0la");
        assert_eq!(file.seek_data(0).unwrap().map(|at| at >= most - 4096), Some(true));
        drop(file);
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
    file.write_all_at(&bytes, 0).unwrap();
    // A block that looks like one of the log's own blocks is escaped in the log.
    file.write_all_at(&[0xC0, 0x3B, 0x39, 0x98], 2048).unwrap();
    file.sync_all().unwrap();
    drop(file);
    fs.close().unwrap();
    image.judge();
    let fs = image.open();
    let mut expected = bytes;
    expected[2048..2052].copy_from_slice(&[0xC0, 0x3B, 0x39, 0x98]);
    assert_eq!(fs.read("f").unwrap(), expected);
    // By the file's flag, on and off again.
    let file = fs.open_file("f").unwrap();
    let flags = file.metadata().flags();
    let set = |flags| SetAttributes { flags: Some(flags), ..Default::default() };
    file.set_attributes(&set(flags | InodeFlags::JOURNAL_DATA)).unwrap();
    file.write_all_at(&pattern(300_000, 9), 100).unwrap();
    expected[100..300_100].copy_from_slice(&pattern(300_000, 9));
    assert_eq!(fs.read("f").unwrap(), expected);
    file.set_attributes(&set(flags)).unwrap();
    file.write_all_at(&pattern(9000, 1), 5000).unwrap();
    expected[5000..14_000].copy_from_slice(&pattern(9000, 1));
    file.set_attributes(&set(flags | InodeFlags::JOURNAL_DATA)).unwrap();
    file.append(b"end").unwrap();
    expected.extend(b"end");
    assert_eq!(fs.read("f").unwrap(), expected);
    file.set_len(1000).unwrap();
    fs.root().unwrap().remove_file("f").unwrap();
    drop(file);
    fs.close().unwrap();
    image.judge();
}

#[test]
fn linux_and_extant_read_each_others_files() {
    if !judge::require(&[Judge::Root, Judge::Loop, Judge::E2fsprogs]) {
        return;
    }
    for options in ["-b 4096", "-b 1024 -O ^extents,^64bit", "-b 1024 -O inline_data -I 512"] {
        let image = Image::mke2fs(48, options);
        let (a, b) = (pattern(3_000_000, 5), pattern(100, 6));
        let mount = LoopMount::rw(&image.path, "").unwrap();
        std::fs::write(mount.path().join("by_linux"), &a).unwrap();
        std::fs::write(mount.path().join("small"), &b).unwrap();
        mount.unmount().unwrap();

        let fs = image.open();
        let by_linux = fs.open_file("by_linux").unwrap();
        by_linux.write_all_at(&b, 1_000_001).unwrap();
        by_linux.allocate(FallocateMode::PunchHole, 500_000, 70_001).unwrap();
        by_linux.set_len(2_500_000).unwrap();
        by_linux.append(&a[..123_456]).unwrap();
        fs.open_file("small").unwrap().append(&b).unwrap();
        let by_extant = new_file(&fs, "by_extant");
        by_extant.write_all_at(&a, 5_000_000).unwrap();
        fs.set_xattr("by_extant", "user.name", &[1; 300], XattrMode::Any).unwrap();
        drop((by_linux, by_extant));
        fs.close().unwrap();
        image.judge();

        let mut expected = a.clone();
        expected[1_000_001..1_000_101].copy_from_slice(&b);
        expected[500_000..570_001].fill(0);
        expected.truncate(2_500_000);
        expected.extend(&a[..123_456]);
        let mount = LoopMount::rw(&image.path, "").unwrap();
        assert!(std::fs::read(mount.path().join("by_linux")).unwrap() == expected, "{options}");
        assert_eq!(std::fs::read(mount.path().join("small")).unwrap(), [&b[..], &b].concat());
        let path = mount.path().join("by_extant");
        let by_extant = std::fs::File::options().read(true).write(true).open(path).unwrap();
        let mut back = vec![1; 8_000_000];
        by_extant.read_exact_at(&mut back, 0).unwrap();
        assert!(back[..5_000_000].iter().all(|byte| *byte == 0) && back[5_000_000..] == a);
        // Linux continues where this engine stopped.
        by_extant.write_all_at(&b, 4_999_990).unwrap();
        drop(by_extant);
        mount.unmount().unwrap();
        image.judge();
        let fs = image.open();
        let mut back = [0; 100];
        fs.open_file("by_extant").unwrap().read_at(&mut back, 4_999_990).unwrap();
        assert_eq!(back[..], b[..]);
        fs.close().unwrap();
    }
}

#[test]
fn threads_share_a_file() {
    let image = Image::mke2fs(32, "-b 4096");
    let fs = image.open();
    let lanes = new_file(&fs, "lanes");
    lanes.write_all_at(&[0; 400 * 300], 0).unwrap();
    let log = new_file(&fs, "log");
    let cut = new_file(&fs, "cut");
    std::thread::scope(|scope| {
        for lane in 0..4u8 {
            let (lanes, log, cut) = (&lanes, &log, &cut);
            scope.spawn(move || {
                for n in 0..300u64 {
                    let at = n * 400 + u64::from(lane) * 100;
                    lanes.write_all_at(&[lane + 1; 100], at).unwrap();
                    assert_eq!(log.append(&[lane + b'a'; 50]).unwrap(), 50);
                    match lane {
                        0 => cut.set_len(n % 7 * 5000).unwrap(),
                        1 => cut.allocate(FallocateMode::PunchHole, n * 100, 9000).unwrap(),
                        _ => drop(cut.write_at(&[9; 700], n * 77).unwrap()),
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

/// Memory is allocated in steps, whose borders must not be visible.
#[test]
fn a_large_sparse_file_reads_in_one_call() {
    let image = Image::mke2fs(96, "-b 4096");
    let fs = image.open();
    let file = new_file(&fs, "sparse");
    let mut wanted = vec![0; (70 << 20) + 5];
    for at in [0, (16 << 20) - 3000, (32 << 20) - 1, (70 << 20) - 9] {
        let bytes = pattern(6000.min(wanted.len() - at), at as u8);
        file.write_all_at(&bytes, at as u64).unwrap();
        wanted[at..at + bytes.len()].copy_from_slice(&bytes);
    }
    assert!(fs.read("/sparse").unwrap() == wanted);
    fs.write("/empty", b"").unwrap();
    assert_eq!(fs.read("/empty").unwrap(), b"");
    assert!(matches!(fs.read("/"), Err(Error::IsADirectory)));
    fs.close().unwrap();
    image.judge();
}
