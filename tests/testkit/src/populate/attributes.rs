//! Properties of inodes: extended attributes, ACLs, times, flags, projects, encryption.

use std::fs::File;
use std::io;

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

use super::Place;
use crate::rng::bytes;

/// In the inode, in a block, in a shared block, on a symlink, on a directory.
pub(super) fn xattrs(p: &Place) -> io::Result<()> {
    p.mkdir("xattr")?;
    p.put("xattr/user", b"x")?;
    for i in 0..8 {
        p.setxattr("xattr/user", &format!("user.k{i}"), &bytes(i, i as usize * 3))?;
    }
    p.setxattr("xattr/user", "user.empty", b"")?;
    p.put("xattr/inbody", b"x")?;
    p.setxattr("xattr/inbody", "user.a", b"1")?;
    p.put("xattr/block", b"x")?;
    let big = if p.block_size < 65_536 { p.block_size - 200 } else { 4000 };
    p.setxattr("xattr/block", "user.big", &bytes(1, big))?;
    for i in 0..5 {
        p.put(format!("xattr/shared{i}"), b"x")?;
        p.setxattr(&format!("xattr/shared{i}"), "user.same", &[b'S'; 600])?;
    }
    p.put("xattr/trusted", b"x")?;
    p.setxattr("xattr/trusted", "trusted.t", b"\0\x01\x02")?;
    p.setxattr("xattr/trusted", "security.custom", b"sec")?;
    p.put_mode("xattr/caps", b"x", 0o755)?;
    let words = [0x0200_0001u32, 0x400, 0, 0, 0];
    let capability: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    p.setxattr("xattr/caps", "security.capability", &capability)?;
    p.symlink("nowhere", "xattr/symx")?;
    p.setxattr("xattr/symx", "trusted.onlink", b"link")?;
    p.mkdir("xattr/dirx")?;
    p.setxattr("xattr/dirx", "user.d", b"dir")
}

/// POSIX ACLs, as getxattr shows them: version 2, then (tag, permission, id).
pub(super) fn acls(p: &Place) -> io::Result<()> {
    let acl = |entries: &[(u16, u16, u32)]| {
        let mut value = 2u32.to_le_bytes().to_vec();
        for (tag, perm, id) in entries {
            value.extend(tag.to_le_bytes());
            value.extend(perm.to_le_bytes());
            value.extend(id.to_le_bytes());
        }
        value
    };
    const NO_ID: u32 = u32::MAX;
    p.mkdir("acl")?;
    let default = [(1, 7, NO_ID), (2, 5, 1000), (4, 5, NO_ID), (16, 7, NO_ID), (32, 5, NO_ID)];
    p.setxattr("acl", "system.posix_acl_default", &acl(&default))?;
    let access = [
        (1, 7, NO_ID),
        (2, 6, 1000),
        (4, 5, NO_ID),
        (8, 4, 70_000),
        (16, 7, NO_ID),
        (32, 0, NO_ID),
    ];
    p.setxattr("acl", "system.posix_acl_access", &acl(&access))?;
    p.put("acl/inherits", b"i")?;
    p.mkdir("acl/sub")
}

/// Times before 1970, after 2038, up to the last second that 34 bits can express.
pub(super) fn times(p: &Place) -> io::Result<()> {
    p.mkdir("times")?;
    let set = |name: &str, sec: i64, a: i64, m: i64| {
        let at = |nsec| Timespec { tv_sec: sec, tv_nsec: nsec };
        let times = Timestamps { last_access: at(a), last_modification: at(m) };
        utimensat(CWD, p.path(name), &times, AtFlags::empty()).map_err(io::Error::from)
    };
    let moments = [
        ("y1901", -(1 << 31) + 1),
        ("y1969", -1),
        ("epoch", 0),
        ("y2001", 1_000_000_000),
        ("y2038m", (1 << 31) - 1),
        ("y2038", 1 << 31),
        ("y2106", 1 << 32),
        ("y2200", 7_258_118_400),
        ("y2446", 15_032_385_535),
    ];
    for (name, sec) in moments {
        let name = format!("times/{name}");
        p.put(&name, name.as_bytes())?;
        set(&name, sec, 123_456_789, 987_654_321)?;
    }
    p.mkdir("times/dir")?;
    set("times/dir", 1_234_567_890, 0, 1)
}

/// One file for each flag that can be set.
pub(super) fn flags(p: &Place) -> io::Result<()> {
    p.mkdir("flags")?;
    let of_files = [
        ("sync", 0x8),
        ("nodump", 0x40),
        ("noatime", 0x80),
        ("secrm", 0x1),
        ("unrm", 0x2),
        ("journal_data", 0x4000),
        ("notail", 0x8000),
        ("append", 0x20),
        ("immutable", 0x10),
    ];
    for (name, flag) in of_files {
        let name = format!("flags/{name}");
        p.put(&name, b"f")?;
        p.attempt(&name, || crate::sys::add_flags(File::open(p.path(&name))?, flag));
    }
    for (name, flag) in [("dirsync", 0x10000), ("topdir", 0x20000)] {
        let name = format!("flags/{name}");
        p.mkdir(&name)?;
        p.attempt(&name, || crate::sys::add_flags(File::open(p.path(&name))?, flag));
    }
    Ok(())
}

/// Project ids, inherited and single.
pub(super) fn project(p: &Place) -> io::Result<()> {
    let set =
        |name: &str, id, inherit| crate::sys::set_project(File::open(p.path(name))?, id, inherit);
    p.mkdir("p100")?;
    set("p100", 100, true)?;
    p.put("p100/a", &bytes(1, 50_000))?;
    p.mkdir("p100/sub")?;
    p.put("p100/sub/b", &bytes(2, 9000))?;
    p.mkdir("p7")?;
    set("p7", 7, true)?;
    p.put("p7/c", b"c")?;
    p.put("pfile", b"x")?;
    set("pfile", 12_345, false)?;
    p.put("quser", &bytes(3, 30_000))?;
    std::os::unix::fs::chown(p.path("quser"), Some(1000), Some(1000))
}

/// Directories under several encryption policies, with a fixed key.
pub(super) fn encrypt(p: &Place) -> io::Result<()> {
    let mut key = [0; 64];
    (0..64).for_each(|i| key[i] = i as u8);
    let identifier = crate::sys::add_encryption_key(File::open(p.path(""))?, &key)?;
    let policies =
        [("enc", 1, 4, 3), ("enc_iv64", 1, 4, 11), ("enc_iv32", 1, 4, 19), ("enc_cts128", 5, 6, 3)];
    for (name, contents, names, flags) in policies {
        p.mkdir(name)?;
        let set = || {
            let dir = File::open(p.path(name))?;
            crate::sys::set_encryption_policy(dir, contents, names, flags, identifier)?;
            p.put(format!("{name}/plain name"), &bytes(5, 10_000))?;
            p.put(format!("{name}/empty"), b"")?;
            p.symlink("target/of/link", &format!("{name}/sym"))?;
            p.mkdir(format!("{name}/sub"))?;
            p.put(format!("{name}/sub/{}", "L".repeat(200)), &bytes(6, 5000))?;
            p.put(format!("{name}/n000"), b"")?;
            (1..300).try_for_each(|i| p.link(format!("{name}/n000"), format!("{name}/n{i:03}")))
        };
        p.attempt(name, set);
    }
    Ok(())
}

/// Values in inodes of their own: shared, of the greatest size, on a directory, removed.
pub(super) fn eainode(p: &Place) -> io::Result<()> {
    p.mkdir("ea")?;
    for i in 0..3 {
        p.put(format!("ea/big{i}"), b"e")?;
        p.setxattr(&format!("ea/big{i}"), "user.big", &bytes(42, 20_000))?;
    }
    p.put("ea/max", b"e")?;
    p.setxattr("ea/max", "user.max", &bytes(43, 65_536))?;
    p.mkdir("ea/dir")?;
    p.setxattr("ea/dir", "trusted.d", &bytes(44, 9000))?;
    p.put("ea/gone", b"e")?;
    p.setxattr("ea/gone", "user.g", &bytes(45, 30_000))?;
    Ok(rustix::fs::removexattr(p.path("ea/gone"), "user.g")?)
}
