//! Names and nodes: links, devices, awkward names, directories with holes.

use std::io;

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use super::Place;

/// Symlinks of every length class, hard links of files and of a symlink.
pub(super) fn links(p: &Place) -> io::Result<()> {
    p.mkdir("links")?;
    for len in [1, 58, 59, 60, 61, 255, 1000, (p.block_size - 1).min(4094)] {
        let target = if len < 256 {
            "t".repeat(len)
        } else {
            format!("{}/", "d".repeat(99)).repeat(len / 100) + &"e".repeat(len % 100)
        };
        p.attempt(&format!("symlink of {len}"), || p.symlink(&target, &format!("links/sym_{len}")));
    }
    p.symlink("../files/size_1000", "links/good")?;
    p.symlink("/nonexistent", "links/dangling")?;
    p.put("links/h0", b"hard")?;
    for i in 1..12 {
        p.link("links/h0", format!("links/h{i}"))?;
    }
    p.link("links/sym_60", "links/sym_60_hard")
}

/// FIFO, socket, devices with small and large numbers.
pub(super) fn special(p: &Place) -> io::Result<()> {
    p.mkdir("special")?;
    let node = |name: &str, kind, mode: u32, major, minor| {
        let path = p.path(format!("special/{name}"));
        mknodat(CWD, &path, kind, Mode::from_raw_mode(mode), makedev(major, minor))?;
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode))
    };
    node("fifo", FileType::Fifo, 0o640, 0, 0)?;
    node("sock", FileType::Socket, 0o755, 0, 0)?;
    node("null", FileType::CharacterDevice, 0o666, 1, 3)?;
    node("blk", FileType::BlockDevice, 0o600, 8, 17)?;
    node("bigdev", FileType::CharacterDevice, 0o600, 4095, 1_048_575)?;
    node("dev300", FileType::BlockDevice, 0o600, 259, 300)
}

/// Names that are long, not text, or mean something to a shell; a deep path.
pub(super) fn names(p: &Place) -> io::Result<()> {
    p.mkdir("names")?;
    let long = [b'a'; 255];
    let awkward: &[&[u8]] = &[
        &long,
        b" lead and trail ",
        b"new\nline",
        b"tab\t",
        "ünïcødé-日本語-😀".as_bytes(),
        b"\xff\xfe\x80raw",
        b"-dash",
        b".hidden",
        b"..x",
        b"back\\slash",
        b"\"q\"",
        b"per%cent%41",
        b"\x01\x02",
        b"*?[",
    ];
    for name in awkward {
        let path = [b"names/", *name].concat();
        p.attempt("name", || p.put(&path, name));
    }
    let mut deep = String::from("names");
    for i in 0..30 {
        deep += &format!("/d{i}");
        p.mkdir(&deep)?;
    }
    p.put(deep + "/deep", b"deep")
}

/// A large directory, one with two thirds of its entries gone, an empty one, modes.
pub(super) fn dirs(p: &Place) -> io::Result<()> {
    for name in ["dir1000", "dirhole", "empty"] {
        p.mkdir(name)?;
    }
    p.mkdir_mode("sticky", 0o1777)?;
    p.mkdir_mode("setgid", 0o2775)?;
    std::os::unix::fs::chown(p.path("setgid"), Some(5), Some(6))?;
    std::fs::set_permissions(
        p.path("setgid"),
        std::os::unix::fs::PermissionsExt::from_mode(0o2775),
    )?;
    let name = |i: usize| format!("dir1000/entry_{i:05}_{}", "n".repeat(i % 40));
    for i in 0..1000 {
        if i % 50 == 0 {
            p.put(name(i), b"")?;
        } else {
            p.link(name(i / 50 * 50), name(i))?;
        }
    }
    for i in 0..600 {
        let name = format!("dirhole/k{i:04}");
        if i < 40 { p.mkdir(name)? } else { p.put(name, b"")? }
    }
    for i in (0..600).filter(|i| i % 3 != 0) {
        let path = p.path(format!("dirhole/k{i:04}"));
        if i < 40 { std::fs::remove_dir(path)? } else { std::fs::remove_file(path)? }
    }
    Ok(())
}
