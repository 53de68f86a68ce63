//! Attributes and extended attributes.

use crate::rig::Rig;
use rustix::fs::{AtFlags, CWD, StatxFlags, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;
use std::fs::{self, OpenOptions, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

pub fn attributes_are_set_and_shown(rig: &Rig) {
    let path = rig.path("a");
    fs::write(&path, "12345").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o4751)).unwrap();
    std::os::unix::fs::chown(&path, Some(1), Some(2)).unwrap();
    let times = Timestamps {
        last_access: Timespec { tv_sec: -5, tv_nsec: 123_456_789 },
        last_modification: Timespec { tv_sec: 1 << 33, tv_nsec: 999_999_999 },
    };
    rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
    OpenOptions::new().write(true).open(&path).unwrap().set_len(3).unwrap();
    rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
    let seen = fs::metadata(&path).unwrap();
    assert_eq!((seen.uid(), seen.gid(), seen.len()), (1, 2, 3));
    assert_eq!((seen.atime(), seen.atime_nsec()), (-5, 123_456_789));
    assert_eq!((seen.mtime(), seen.mtime_nsec()), (1 << 33, 999_999_999));
    assert_eq!(seen.mode() & 0o777, 0o751);
    let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let seen = rustix::fs::statx(CWD, &path, AtFlags::empty(), mask).unwrap();
    assert!(seen.stx_mask & StatxFlags::BTIME.bits() != 0);
    assert!(seen.stx_btime.tv_sec > 1_600_000_000);
    assert_eq!((seen.stx_size, seen.stx_nlink), (3, 1));
}

pub fn extended_attributes_keep_their_bounds(rig: &Rig) {
    let path = rig.path("x");
    fs::write(&path, "").unwrap();
    let big = vec![7; 65_536];
    rustix::fs::setxattr(&path, "user.big", &big, XattrFlags::CREATE).unwrap();
    rustix::fs::setxattr(&path, "user.small", b"v", XattrFlags::empty()).unwrap();
    rustix::fs::setxattr(&path, "user.empty", b"", XattrFlags::empty()).unwrap();
    assert_eq!(rustix::fs::setxattr(&path, "user.big", b"", XattrFlags::CREATE), Err(Errno::EXIST));
    assert_eq!(
        rustix::fs::setxattr(&path, "user.none", b"", XattrFlags::REPLACE),
        Err(Errno::NODATA)
    );
    let mut room = vec![0; 65_536];
    assert_eq!(rustix::fs::getxattr(&path, "user.big", &mut room[..]), Ok(65_536));
    assert_eq!(room, big);
    assert_eq!(rustix::fs::getxattr_query(&path, "user.small"), Ok(1));
    assert_eq!(rustix::fs::getxattr(&path, "user.empty", &mut room[..]), Ok(0));
    assert_eq!(rustix::fs::getxattr(&path, "user.big", &mut room[..10]), Err(Errno::RANGE));
    assert_eq!(rustix::fs::getxattr(&path, "user.none", &mut room[..]), Err(Errno::NODATA));
    let len = rustix::fs::listxattr(&path, &mut room[..]).unwrap();
    assert_eq!(&room[..len], b"user.big\0user.empty\0user.small\0");
    assert_eq!(rustix::fs::listxattr(&path, &mut room[..5]), Err(Errno::RANGE));
    rustix::fs::removexattr(&path, "user.big").unwrap();
    assert_eq!(rustix::fs::removexattr(&path, "user.big"), Err(Errno::NODATA));
}

pub fn statfs_reports_the_space_in_use(rig: &Rig) {
    let seen = rustix::fs::statvfs(rig.root()).unwrap();
    assert_eq!((seen.f_bsize, seen.f_frsize, seen.f_namemax), (4096, 4096, 255));
    assert!(seen.f_bavail <= seen.f_blocks && seen.f_ffree < seen.f_files);
}
