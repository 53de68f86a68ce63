//! Names of directories.

use crate::rig::Rig;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::collections::HashSet;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::time::{Duration, Instant};

pub fn ten_thousand_names_are_listed_once_and_forgotten(rig: &Rig) {
    fs::create_dir(rig.path("many")).unwrap();
    for i in 0..10_000 {
        let name = rig.path(&format!("many/a name of some length {i}"));
        rustix::fs::mknodat(CWD, &name, FileType::RegularFile, Mode::RUSR, 0).unwrap();
    }
    for with_attributes in [false, true] {
        // The renames empty the kernel's cache, and a new opening lists the directory again.
        fs::rename(rig.path("many"), rig.path("other")).unwrap();
        fs::rename(rig.path("other"), rig.path("many")).unwrap();
        let mut seen = HashSet::new();
        for entry in fs::read_dir(rig.path("many")).unwrap() {
            let entry = entry.unwrap();
            assert!(entry.file_type().unwrap().is_file());
            if with_attributes {
                assert_eq!(
                    entry.metadata().unwrap().ino(),
                    std::os::unix::fs::DirEntryExt::ino(&entry)
                );
            }
            assert!(seen.insert(entry.file_name()), "{:?} twice", entry.file_name());
        }
        assert_eq!(seen.len(), 10_000);
    }
    fs::remove_dir_all(rig.path("many")).unwrap();
    // The kernel returns each count that a listing or lookup gave; otherwise nodes would remain.
    let start = Instant::now();
    while rig.operations.nodes() > 1 {
        assert!(start.elapsed() < Duration::from_secs(20), "{} stay", rig.operations.nodes());
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub fn rename_heeds_its_flags(rig: &Rig) {
    fs::write(rig.path("a"), "a").unwrap();
    fs::create_dir_all(rig.path("d/e")).unwrap();
    let rename = |from: &str, to: &str, flags| {
        rustix::fs::renameat_with(CWD, rig.path(from), CWD, rig.path(to), flags)
    };
    assert_eq!(rename("a", "d", RenameFlags::NOREPLACE), Err(Errno::EXIST));
    assert_eq!(rename("a", "none", RenameFlags::EXCHANGE), Err(Errno::NOENT));
    assert_eq!(rename("a", "d/f", RenameFlags::WHITEOUT), Err(Errno::INVAL));
    rename("a", "d/e", RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read(rig.path("d/e")).unwrap(), b"a");
    assert_eq!(fs::metadata(rig.path("d")).unwrap().nlink(), 2);
    fs::write(rig.path("a/in it"), "").unwrap();
    fs::write(rig.path("b"), "b").unwrap();
    rename("b", "d/e", RenameFlags::empty()).unwrap();
    assert_eq!(fs::read(rig.path("d/e")).unwrap(), b"b");
    assert_eq!(rename("d", "a", RenameFlags::empty()), Err(Errno::NOTEMPTY));
    assert_eq!(rename("d/e", "a", RenameFlags::empty()), Err(Errno::ISDIR));
    let up = fs::metadata(rig.path("a/..")).unwrap().ino();
    assert_eq!(up, fs::metadata(rig.root()).unwrap().ino());
}

pub fn unnamed_files_get_names(rig: &Rig) {
    let flags = OFlags::RDWR | OFlags::TMPFILE;
    let file = File::from(rustix::fs::open(rig.root(), flags, Mode::RUSR | Mode::WUSR).unwrap());
    file.write_all_at(b"nobody yet", 0).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    assert_eq!(fs::read_dir(rig.root()).unwrap().count(), 0);
    let open = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(CWD, open, CWD, rig.path("named"), AtFlags::SYMLINK_FOLLOW).unwrap();
    drop(file);
    assert_eq!(fs::read(rig.path("named")).unwrap(), b"nobody yet");
}

pub fn links_of_both_kinds_and_special_files(rig: &Rig) {
    fs::write(rig.path("file"), "x").unwrap();
    fs::hard_link(rig.path("file"), rig.path("again")).unwrap();
    assert_eq!(fs::metadata(rig.path("file")).unwrap().nlink(), 2);
    let target = "over/there/".repeat(200);
    std::os::unix::fs::symlink(&target, rig.path("link")).unwrap();
    assert_eq!(fs::read_link(rig.path("link")).unwrap().to_str(), Some(&*target));
    rustix::fs::mknodat(CWD, rig.path("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    assert!(fs::metadata(rig.path("pipe")).unwrap().file_type().is_fifo());
    let device = rustix::fs::makedev(259, 70_000);
    rustix::fs::mknodat(CWD, rig.path("dev"), FileType::CharacterDevice, Mode::RUSR, device)
        .unwrap();
    assert_eq!(fs::metadata(rig.path("dev")).unwrap().rdev(), device);
    let long = "n".repeat(255);
    fs::write(rig.path(&long), "").unwrap();
    let longer = "n".repeat(256);
    assert_eq!(rustix::fs::stat(rig.path(&longer)).err(), Some(Errno::NAMETOOLONG));
    assert_eq!(rustix::fs::stat(rig.path("none")).err(), Some(Errno::NOENT));
    assert_eq!(rustix::fs::mkdir(rig.path("file"), Mode::RWXU), Err(Errno::EXIST));
}
