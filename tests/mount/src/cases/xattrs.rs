//! Extended attributes: names, sizes, errors, permissions.

use crate::calls::*;
use crate::script::{OWNER, STRANGER, Script};
use rustix::fs::{FileType, XattrFlags, lgetxattr, llistxattr, lremovexattr, lsetxattr};

fn set(path: &str, name: &str, value: &[u8]) -> Answer<()> {
    lsetxattr(path, name, value, XattrFlags::empty())
}

fn get(path: &str, name: &str) -> Answer<Vec<u8>> {
    let mut buffer = vec![0; 70_000];
    let len = lgetxattr(path, name, &mut buffer[..])?;
    buffer.truncate(len);
    Ok(buffer)
}

fn names(path: &str) -> Answer<String> {
    let mut buffer = vec![0; 70_000];
    let len = llistxattr(path, &mut buffer[..])?;
    let mut names: Vec<String> = buffer[..len]
        .split(|byte| *byte == 0)
        .map(|name| name.escape_ascii().to_string())
        .collect();
    names.sort();
    Ok(names.join(" "))
}

pub fn run(s: &mut Script) {
    spaces(s);
    sizes(s);
    modes(s);
    users(s);
    many(s);
}

fn spaces(s: &mut Script) {
    s.tell("make", put("file", b"x"));
    s.tell("mkdir", mkdir("dir", 0o755));
    s.tell("symlink", symlink("file", "link"));
    s.tell("pipe", mknod("pipe", FileType::Fifo, 0o644, 0));
    let all = [
        "user.a",
        "user.",
        "user",
        "trusted.a",
        "trusted.",
        "security.a",
        "security.",
        "system.a",
        "system.",
        "system.data",
        "none.a",
        "a",
        ".",
        "",
        "user.\u{e4}",
        "USER.a",
        "os2.a",
    ];
    for path in ["file", "dir", "link", "pipe", "none"] {
        for name in all {
            s.tell(&format!("set {name} of {path}"), set(path, name, b"value"));
            s.tell(&format!("get {name} of {path}"), get(path, name));
            s.tell(&format!("remove {name} of {path}"), lremovexattr(path, name));
            s.tell(&format!("remove {name} of {path} again"), lremovexattr(path, name));
            s.tell(&format!("get {name} of {path} again"), get(path, name));
        }
        s.tell(&format!("names of {path}"), names(path));
    }
    s.tell(
        "a capability",
        set(
            "file",
            "security.capability",
            &[1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        ),
    );
    s.tell("its value", get("file", "security.capability"));
    s.tell("write", open("file", BOTH).and_then(|file| write_all(&file, 0, b"y")));
    s.tell("a write takes it", get("file", "security.capability"));
}

fn sizes(s: &mut Script) {
    s.tell("make", put("sizes", b"x"));
    for len in [0, 1, 63, 64, 100, 500, 1000, 3000, 4000, 4020, 4060, 4096, 5000, 65_536, 65_537] {
        let value = pattern(len, 1);
        s.tell(&format!("set {len} bytes"), set("sizes", "user.big", &value));
        s.tell(&format!("get after {len} bytes"), get("sizes", "user.big"));
        s.tell(&format!("shrink after {len} bytes"), set("sizes", "user.big", b"small"));
    }
    for len in [1, 249, 250, 251, 255] {
        let name = format!("user.{}", "n".repeat(len));
        s.tell(&format!("a name of 5 + {len} bytes"), set("sizes", &name, b"v"));
        s.tell(&format!("value of a name of 5 + {len} bytes"), get("sizes", &name));
        s.tell(&format!("remove a name of 5 + {len} bytes"), lremovexattr("sizes", &*name));
    }
    s.tell("set", set("sizes", "user.big", &pattern(100, 2)));
    let mut small = [0; 99];
    s.tell("into too little", lgetxattr("sizes", "user.big", &mut small));
    s.tell("none into too little", lgetxattr("sizes", "user.none", &mut small[..1]));
    s.tell("how long", rustix::fs::lgetxattr_query("sizes", "user.big"));
    s.tell("list into too little", llistxattr("sizes", &mut small[..3]));
    s.tell("how long is the list", rustix::fs::llistxattr_query("sizes"));
}

fn modes(s: &mut Script) {
    s.tell("make", put("modes", b"x"));
    for (word, flags) in [
        ("replace", XattrFlags::REPLACE),
        ("create", XattrFlags::CREATE),
        ("create again", XattrFlags::CREATE),
        ("replace again", XattrFlags::REPLACE),
        ("both", XattrFlags::CREATE | XattrFlags::REPLACE),
        ("unknown", XattrFlags::from_bits_retain(4)),
    ] {
        s.tell(word, lsetxattr("modes", "user.m", word.as_bytes(), flags));
        s.tell(&format!("{word}: value"), get("modes", "user.m"));
    }
    let both = XattrFlags::CREATE | XattrFlags::REPLACE;
    s.tell("both of what is not", lsetxattr("modes", "user.n", b"", both));
}

fn users(s: &mut Script) {
    s.tell("make", put("theirs", b"x"));
    s.tell("give", chown("theirs", Some(1000), Some(1000)));
    s.tell("mkdir", mkdir("sticky", 0o1777));
    s.tell("chmod", chmod("sticky", 0o1777));
    for name in ["user.r", "trusted.r", "security.r"] {
        s.tell("set", set("theirs", name, b"by root"));
    }
    for (who, user) in [("owner", OWNER), ("stranger", STRANGER)] {
        s.as_user(user, |s| {
            for name in ["user.r", "trusted.r", "security.r", "user.none", "trusted.none"] {
                s.tell(&format!("{who} gets {name}"), get("theirs", name));
                s.tell(&format!("{who} sets {name}"), set("theirs", name, b"mine"));
                s.tell(&format!("{who} removes {name}"), lremovexattr("theirs", name));
            }
            s.tell(&format!("{who} lists"), names("theirs"));
            s.tell(&format!("{who} labels a sticky directory"), set("sticky", "user.a", b"x"));
        });
        s.tell("set again", set("theirs", "user.r", b"by root"));
    }
    s.tell("names", names("theirs"));
}

/// Adds attributes until the inode and its block are full; then removes some and adds others.
fn many(s: &mut Script) {
    s.tell("make", put("many", b"x"));
    for n in 0..24 {
        let name = format!("user.number{n:02}");
        s.tell("set", set("many", &name, &pattern(30 + 11 * n, n as u32)));
    }
    s.tell("names", names("many"));
    for n in (0..24).step_by(3) {
        s.tell("remove", lremovexattr("many", &*format!("user.number{n:02}")));
        s.tell("change", set("many", &format!("user.number{:02}", n + 1), b"changed"));
    }
    s.tell("names", names("many"));
    for n in 0..24 {
        s.tell(&format!("value {n}"), get("many", &format!("user.number{n:02}")));
    }
    // Two files with the same attributes share a block on the device, and change independently.
    for name in ["twin1", "twin2"] {
        s.tell("make", put(name, b"x"));
        s.tell("set", set(name, "user.shared", &pattern(700, 9)));
    }
    s.tell("change one", set("twin1", "user.shared", &pattern(700, 10)));
    s.tell("one", get("twin1", "user.shared"));
    s.tell("other", get("twin2", "user.shared"));
}
