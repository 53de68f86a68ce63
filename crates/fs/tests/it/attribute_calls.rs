//! Calls on a file's metadata: flags, owners, times, projects, extended attributes and access
//! lists.

use crate::common::{Image, new_file, pattern};
use extant::check::{self, Finding, Options};
use extant::{
    Error, FallocateMode, FileKind, FileOptions, InodeFlags, NewFile, SetAttributes, Timestamp,
    XattrMode,
};
use extant_testkit::e2fsprogs;
use extant_testkit::loop_mount::LoopMount;
use extant_testkit::report::run_cases;
use extant_testkit::require;
use std::path::Path;
use std::sync::Arc;

#[test]
fn a_name_of_an_attribute_without_bytes_gives_erange_everywhere() {
    let image = Image::mke2fs(16, "");
    let fs = image.open();
    new_file(&fs, "f");
    let node = fs.node("f").unwrap();
    let mut flags = node.metadata().flags();
    for name in ["".to_owned(), format!("user.{}", "n".repeat(251))] {
        for immutable in [false, true] {
            flags.set(InodeFlags::IMMUTABLE, immutable);
            node.set_attributes(&SetAttributes { flags: Some(flags), ..Default::default() })
                .unwrap();
            let found = [
                fs.xattr("f", &name).err(),
                node.xattr(&name).err(),
                fs.set_xattr("f", &name, b"1", XattrMode::Any).err(),
                node.set_xattr(&name, b"1", XattrMode::Replace).err(),
                fs.remove_xattr("f", &name).err(),
                node.remove_xattr(&name).err(),
            ];
            for error in found {
                assert!(matches!(error, Some(Error::OutOfRange)), "{name:?} {error:?}");
            }
        }
    }
    drop((node, fs));
    let fs = extant::Filesystem::open(&image.path).unwrap();
    let refused = fs.set_xattr("f", "", b"1", XattrMode::Any).unwrap_err();
    assert_eq!(refused.errno(), 34, "{refused}");
}

#[test]
fn flags_protect_content() {
    let image = Image::mke2fs(16, "");
    let fs = image.open();
    let file = new_file(&fs, "f");
    file.write_all_at(b"kept", 0).unwrap();
    let flags = file.metadata().flags();
    let set = |flags| SetAttributes { flags: Some(flags), ..Default::default() };
    file.set_attributes(&set(flags | InodeFlags::APPEND)).unwrap();
    assert!(matches!(file.write_at(b"x", 0), Err(Error::NotPermitted)));
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
    // Callers cannot request the kind of map or flags that only the engine sets.
    let wrong = [flags ^ InodeFlags::EXTENTS, flags | InodeFlags::HUGE_FILE];
    for wrong in wrong {
        assert!(matches!(file.set_attributes(&set(wrong)), Err(Error::NotSupported(_))));
    }
    // A file does not get directory flags; all other settable flags are set.
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
    file.write_all_at(&[7; 5000], 0).unwrap();
    let times = [-1, 0, 1 << 31, (1 << 33) + 5, (3 << 32) + 1];
    for sec in times {
        let time = Timestamp { sec, nsec: 123_456_789 };
        let changes =
            SetAttributes { accessed: Some(time), modified: Some(time), ..Default::default() };
        file.set_attributes(&changes).unwrap();
        assert_eq!(file.metadata().modified(), time);
    }
    let changes = SetAttributes { mode: Some(0o6755), ..Default::default() };
    file.set_attributes(&changes).unwrap();
    let changes = SetAttributes { uid: Some(70_000), gid: Some(5), ..Default::default() };
    file.set_attributes(&changes).unwrap();
    // A change of owner removes the set-id bits.
    assert_eq!(file.metadata().permissions(), 0o755);
    let changes = SetAttributes { project: Some(9), size: Some(100), ..Default::default() };
    file.set_attributes(&changes).unwrap();
    let metadata = file.metadata();
    assert_eq!((metadata.uid(), metadata.gid(), metadata.project()), (70_000, 5, 9));
    assert_eq!(metadata.len(), 100);
    let changes = SetAttributes { mode: Some(0o700), ..Default::default() };
    fs.root().unwrap().symlink("f", "link", &NewFile::default()).unwrap();
    assert!(matches!(fs.set_symlink_attributes("link", &changes), Err(Error::NotSupported(_))));
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
    let changes = |projid| SetAttributes { project: Some(projid), ..Default::default() };
    assert!(matches!(file.set_attributes(&changes(1)), Err(Error::NotSupported(_))));
    file.set_attributes(&changes(0)).unwrap();
    let late = Timestamp { sec: 1 << 33, nsec: 5 };
    file.set_attributes(&SetAttributes { modified: Some(late), ..Default::default() }).unwrap();
    drop(file);
    fs.close().unwrap();
    image.judge();
    // Without the extra time fields, times end in 2038.
    let fs = image.open();
    assert_eq!(fs.metadata("f").unwrap().modified(), Timestamp::MAX_WITHOUT_EXTRA);
}

#[test]
fn attribute_calls_give_the_errors_of_the_system_calls() {
    let image = Image::mke2fs(16, "");
    let fs = image.open();
    drop(new_file(&fs, "f"));
    fs.root().unwrap().symlink("f", "l", &NewFile::default()).unwrap();
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

/// A short target is where other files have block numbers. Linux recognizes a target by its length.
/// e2fsck recognizes it by the attribute block if blocks are charged to the link, for example for
/// value inodes.
#[test]
fn a_short_link_with_attributes_of_any_size_is_read_as_a_link() {
    require!(Root, Loop, E2fsprogs);
    let rows: Vec<_> = ["ea_inode", "^ea_inode", "inline_data,ea_inode", "bigalloc,ea_inode"]
        .into_iter()
        .flat_map(|features| [1024, 4096].map(|block| (features, block)))
        .flat_map(|(features, block)| [128, 256, 512].map(|inode| (features, block, inode)))
        .filter(|(features, _, inode)| *inode > 128 || !features.contains("inline"))
        .collect();
    run_cases(
        "attributes/short-links",
        &rows,
        |row| format!("{row:?}"),
        |(features, block, inode)| {
            let image = Image::mke2fs(24, &format!("-b {block} -I {inode} -O {features}"));
            let fs = image.open();
            let mut links = Vec::new();
            for len in [3, 10, 59] {
                for value in [1, 100, 800, 3000, 9000, 60_000] {
                    let (path, target) = (format!("{len}-{value}"), "t".repeat(len));
                    fs.symlink(&target, &path, &NewFile::default()).map_err(|e| e.to_string())?;
                    let mut names = Vec::new();
                    // With other attributes before and after it; some are removed again.
                    for (name, value) in [("b", 100), ("a", value), ("c", 20), ("d", value)] {
                        let name = format!("trusted.{name}");
                        let value = vec![b'v'; value];
                        match fs.set_xattr(&path, &name, &value, XattrMode::Any) {
                            Ok(()) => names.push((name, value)),
                            Err(Error::NoSpace) => {}
                            Err(error) => return Err(format!("{path}: {error}")),
                        }
                    }
                    for gone in ["trusted.b", "trusted.d"] {
                        if let Some(at) = names.iter().position(|(name, _)| name == gone) {
                            fs.remove_xattr(&path, gone).map_err(|e| e.to_string())?;
                            names.remove(at);
                        }
                    }
                    links.push((path, target, names));
                }
            }
            fs.close().map_err(|e| e.to_string())?;
            e2fsprogs::e2fsck(&image.path, None).expect_clean()?;
            let found = check(&image.path);
            if let Some(finding) = found.first() {
                return Err(finding.to_string());
            }
            let mount = LoopMount::ro(&image.path, "")?;
            for (path, target, names) in links {
                let at = mount.path().join(&path);
                let there = std::fs::read_link(&at).map_err(|e| format!("{path}: {e}"))?;
                if there.as_os_str() != target.as_str() {
                    return Err(format!("{path} leads to {there:?}"));
                }
                for (name, value) in names {
                    let mut bytes = vec![0; 65_536];
                    let len = rustix::fs::lgetxattr(&at, &name, &mut bytes);
                    let len = len.map_err(|e| format!("{path}, {name}: {e}"))?;
                    if bytes[..len] != value {
                        return Err(format!("{path}, {name}: {len} bytes"));
                    }
                }
            }
            mount.unmount()?;
            Ok(String::new())
        },
    );
}

#[test]
fn a_short_link_that_linux_left_to_be_misread_is_read_as_a_link_after_a_change() {
    require!(Root, Loop, E2fsprogs);
    let image = Image::mke2fs(24, "-b 1024 -O ea_inode");
    let mount = LoopMount::rw(&image.path, "").unwrap();
    let link = mount.path().join("link");
    std::os::unix::fs::symlink("target", &link).unwrap();
    let set = |name: &str, value: &[u8]| {
        rustix::fs::lsetxattr(&link, name, value, rustix::fs::XattrFlags::empty()).unwrap();
    };
    set("trusted.large", &[b'v'; 9000]);
    mount.unmount().unwrap();
    assert!(!e2fsprogs::e2fsck(&image.path, None).clean(), "Linux itself leaves it so");
    for remove in [false, true] {
        let fs = image.open();
        match remove {
            false => fs.set_xattr("link", "trusted.small", b"1", XattrMode::Any).unwrap(),
            true => fs.remove_xattr("link", "trusted.small").unwrap(),
        }
        assert_eq!(fs.xattr("link", "trusted.large").unwrap(), [b'v'; 9000]);
        fs.close().unwrap();
        image.judge();
        assert_eq!(check(&image.path), []);
    }
    let fs = image.open();
    fs.remove_xattr("link", "trusted.large").unwrap();
    fs.close().unwrap();
    image.judge();
    assert_eq!(check(&image.path), []);
}

fn check(img: &Path) -> Vec<Finding> {
    let device = FileOptions::new().open(img).unwrap();
    check::check_device(Arc::new(device), &Options::default(), &()).unwrap().findings
}

/// An access list in the format of the system calls: owner rwx, user 7 r, group r-x, mask, other.
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
    file.write_all_at(b"program", 0).unwrap();
    let capability = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    for change in 0..3 {
        fs.set_xattr("f", "security.capability", &capability, XattrMode::Create).unwrap();
        match change {
            0 => file.write_all_at(b"P", 0).unwrap(),
            1 => file.set_len(3).unwrap(),
            _ => file.allocate(FallocateMode::Allocate, 0, 9000).unwrap(),
        }
        assert!(fs.xattrs("f").unwrap().is_empty(), "change {change}");
    }
    drop(file);
    fs.close().unwrap();
    image.judge();
}

#[test]
fn a_refused_change_leaves_capabilities() {
    let image = Image::mke2fs(16, "");
    let fs = image.open();
    let file = new_file(&fs, "f");
    file.write_all_at(b"program", 0).unwrap();
    fs.set_xattr("f", "security.capability", b"some", XattrMode::Create).unwrap();
    let far = 1 << 45;
    let allocate = FallocateMode::Allocate;
    for refused in [
        file.check_write(far),
        file.check_allocate(allocate, far, 1),
        file.write_at(b"x", far).map(drop),
        file.allocate(allocate, far, 1),
        file.set_len(far),
    ] {
        assert!(matches!(refused, Err(Error::FileTooLarge)), "{refused:?}");
    }
    let flags = Some(file.metadata().flags() | InodeFlags::APPEND);
    fs.set_attributes("f", &SetAttributes { flags, ..Default::default() }).unwrap();
    let (zero, punch) = (FallocateMode::ZeroRange, FallocateMode::PunchHole);
    for refused in [
        file.check_write(0),
        file.check_allocate(zero, 0, 1),
        file.write_at(b"x", 0).map(drop),
        file.allocate(punch, 0, 1),
    ] {
        assert!(matches!(refused, Err(Error::NotPermitted)), "{refused:?}");
    }
    assert_eq!(fs.xattr("f", "security.capability").unwrap(), b"some");
    file.check_write(7).unwrap();
    file.check_allocate(allocate, 0, 9000).unwrap();
    assert_eq!(fs.xattr("f", "security.capability").unwrap(), b"some");
    file.append(b"x").unwrap();
    assert!(fs.xattrs("f").unwrap().is_empty());
    drop(file);
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
