//! Names and paths: their length, their bytes, dots and slashes.

use crate::calls::*;
use crate::script::Script;
use rustix::fs::{CWD, FileType, OFlags};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

pub fn run(s: &mut Script) {
    lengths(s);
    odd(s);
    dots(s);
    slashes(s);
    targets(s);
}

fn lengths(s: &mut Script) {
    for len in [1, 2, 254, 255, 256, 4095] {
        let name = "n".repeat(len);
        let label = |what: &str| format!("{what} {len} bytes");
        s.tell(&label("look up"), stat(&name));
        s.tell(&label("create"), create(&name, 0o644));
        s.tell(&label("create again"), create(&name, 0o644));
        s.tell(&label("rename"), rename(&*name, "short"));
        s.tell(&label("rename back"), rename("short", &*name));
        s.tell(&label("link"), link(&*name, "linked"));
        s.tell(&label("unlink"), unlink(&*name));
        s.tell(&label("mkdir"), mkdir(&name, 0o755));
        s.tell(&label("rmdir"), rmdir(&*name));
        s.tell(&label("symlink"), symlink("x", &*name));
        s.tell(&label("unlink symlink"), unlink(&*name));
        s.tell(&label("mknod"), mknod(&name, FileType::Fifo, 0o644, 0));
        s.tell(&label("unlink pipe"), unlink(&*name));
        let _ = unlink("linked");
    }
    // A path of 4095 bytes has one name of the working directory too many, and one of 4096 too many
    // bytes.
    s.tell("mkdir", mkdir("p", 0o755));
    for len in [4094, 4095, 4096] {
        let path = format!("{}f", "p/../".repeat(819));
        let path = format!("{}{path}", "/".repeat(0).as_str());
        let path = format!("./{}", &path[path.len() - (len - 2)..].trim_start_matches('/'));
        s.tell(&format!("a path of {len} bytes: create"), open(&path, OFlags::CREATE | BOTH));
    }
    let mut deep = String::from("deep");
    let part = "d".repeat(250);
    s.tell("mkdir", mkdir(&deep, 0o755));
    for level in 0..17 {
        deep = format!("{deep}/{part}");
        s.tell(&format!("mkdir level {level}"), mkdir(&deep, 0o755));
    }
}

fn odd(s: &mut Script) {
    s.tell("mkdir", mkdir("odd", 0o755));
    let names: [&[u8]; 14] = [
        b" ",
        b"\n",
        b"\t\r",
        b"\x01",
        b"\x7F",
        b"\xFF\xFE",
        b"\xC3\x28",
        b"a\xCC\x88",
        b"\xC3\xA4",
        b"...",
        b"-rf",
        b"back\\slash",
        b"*?[",
        "\u{1F980}".as_bytes(),
    ];
    for name in names {
        let label = name.escape_ascii().to_string();
        let path = [b"odd/", name].concat();
        let path = OsStr::from_bytes(&path);
        let made = rustix::fs::open(path, OFlags::CREATE | OFlags::EXCL | BOTH, mode(0o644));
        s.tell(&format!("create {label}"), made);
        s.tell(&format!("exists {label}"), rustix::fs::access(path, rustix::fs::Access::EXISTS));
    }
    s.tell("list", list("odd"));
    s.tell("case matters", create("odd/Case", 0o644));
    s.tell("case matters", create("odd/case", 0o644));
}

fn dots(s: &mut Script) {
    s.tell("mkdir", mkdir("dir", 0o755));
    s.tell("make", put("file", b"x"));
    for name in [".", "..", "dir/.", "dir/..", "", "dir/../dir/./"] {
        let label = |what: &str| format!("{what} '{name}'");
        s.tell(&label("stat"), stat(name));
        s.tell(&label("mkdir"), mkdir(name, 0o755));
        s.tell(&label("create"), create(name, 0o644));
        s.tell(&label("rmdir"), rmdir(name));
        s.tell(&label("unlink"), unlink(name));
        s.tell(&label("rename from"), rename(name, "moved"));
        s.tell(&label("rename to"), rename("dir", name));
        s.tell(&label("rename file to"), rename("file", name));
        s.tell(&label("link to"), link("file", name));
        s.tell(&label("link from"), link(name, "linked"));
        s.tell(&label("symlink at"), symlink("x", name));
        s.tell(&label("mknod"), mknod(name, FileType::Fifo, 0o644, 0));
        s.tell(&label("open"), open(name, READ));
        for left in ["moved", "linked"] {
            let _ = rename(left, "dir");
            let _ = unlink(left);
        }
        s.tell(&label("left after"), list("."));
    }
    let parent = |path: &str| stat(path).map(|stat| stat.stx_ino);
    s.tell("parent", parent("dir/..") == parent("."));
    s.tell("itself", parent("dir/.") == parent("dir"));
}

fn slashes(s: &mut Script) {
    s.tell("make", put("plain", b"x"));
    s.tell("mkdir", mkdir("room", 0o755));
    s.tell("symlink", symlink("room", "to-room"));
    s.tell("symlink", symlink("plain", "to-plain"));
    s.tell("symlink", symlink("none", "to-none"));
    for name in
        ["plain/", "room/", "to-room/", "to-plain/", "to-none/", "none/", "room//", "plain/."]
    {
        let label = |what: &str| format!("{what} '{name}'");
        s.tell(&label("stat"), stat(name));
        s.tell(&label("open"), open(name, READ));
        s.tell(&label("create"), open(name, OFlags::CREATE | BOTH));
        s.tell(&label("create alone"), create(name, 0o644));
        s.tell(&label("mkdir"), mkdir(name, 0o755));
        s.tell(&label("rmdir"), rmdir(name));
        s.tell(&label("mkdir again"), mkdir("room", 0o755));
        s.tell(&label("unlink"), unlink(name));
        s.tell(&label("rename file to"), rename("plain", name));
        s.tell(&label("rename from"), rename(name, "moved"));
        s.tell(&label("rename back"), rename("moved", "room"));
        s.tell(&label("link to"), link("plain", name));
        s.tell(&label("link from"), link(name, "linked"));
        s.tell(&label("symlink at"), symlink("x", name));
        s.tell(&label("readlink"), readlink(name, Vec::new()));
        s.tell(&label("mknod"), mknod(name, FileType::Fifo, 0o644, 0));
        s.tell(&label("left after"), list("."));
    }
}

/// Targets of symlinks: in the inode, in a block, too long.
fn targets(s: &mut Script) {
    for len in [1, 59, 60, 61, 255, 1023, 1024, 4094, 4095, 4096] {
        let target = "t".repeat(len);
        let name = format!("target{len}");
        s.tell(&format!("symlink to {len} bytes"), symlink(&*target, &*name));
        s.stat(&name);
        s.tell(&format!("target of {len} bytes"), readlink(&*name, Vec::new()));
    }
    s.tell("symlink to nothing", symlink("", "empty"));
    s.tell("readlink of a file", readlink("file", Vec::new()));
    s.tell("readlink of nothing", readlink("none", Vec::new()));
    s.tell("symlink to itself", symlink("loop", "loop"));
    s.tell("follow itself", rustix::fs::stat("loop").map(drop));
    s.tell("symlink", symlink("chain0", "chain1"));
    s.tell("make", put("chain0", b"x"));
    for n in 1..42 {
        s.tell("chain", symlink(&*format!("chain{n}"), &*format!("chain{}", n + 1)));
    }
    for n in [39, 40, 41] {
        s.tell(&format!("follow {n}"), open(&format!("chain{n}"), READ));
    }
    let none = rustix::fs::readlinkat(CWD, "", Vec::new());
    s.tell("readlink of no path", none);
}
