//! POSIX access control lists, byte by byte as system calls pass them.

use crate::calls::*;
use crate::script::{MEMBER, OWNER, STRANGER, Script};
use rustix::fs::{Access, FileType, OFlags, XattrFlags};

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";
const USER_OBJ: u16 = 1;
const USER: u16 = 2;
const GROUP_OBJ: u16 = 4;
const GROUP: u16 = 8;
const MASK: u16 = 16;
const OTHER: u16 = 32;
const NO_ID: u32 = u32::MAX;

type Entry = (u16, u16, u32);

fn bytes(entries: &[Entry]) -> Vec<u8> {
    let mut all = vec![2, 0, 0, 0];
    for (tag, perm, id) in entries {
        all.extend(tag.to_le_bytes());
        all.extend(perm.to_le_bytes());
        all.extend(id.to_le_bytes());
    }
    all
}

fn set(path: &str, name: &str, entries: &[Entry]) -> Answer<()> {
    rustix::fs::setxattr(path, name, &bytes(entries), XattrFlags::empty())
}

fn get(path: &str, name: &str) -> Answer<Vec<u8>> {
    let mut buffer = vec![0; 4096];
    let len = rustix::fs::getxattr(path, name, &mut buffer[..])?;
    buffer.truncate(len);
    Ok(buffer)
}

fn both(s: &mut Script, path: &str) {
    s.stat(path);
    s.tell(&format!("access list of {path}"), get(path, ACCESS));
    s.tell(&format!("default list of {path}"), get(path, DEFAULT));
}

/// The member may read and write, the strangers' group nothing.
const NAMED: [Entry; 6] = [
    (USER_OBJ, 6, NO_ID),
    (USER, 6, 1001),
    (GROUP_OBJ, 4, NO_ID),
    (GROUP, 0, 1002),
    (MASK, 6, NO_ID),
    (OTHER, 4, NO_ID),
];

pub fn run(s: &mut Script) {
    on_files(s);
    malformed(s);
    inherited(s);
    removed(s);
}

fn on_files(s: &mut Script) {
    s.tell("make", put("file", b"x"));
    s.tell("give", chown("file", Some(1000), Some(1000)));
    s.tell("set", set("file", ACCESS, &NAMED));
    both(s, "file");
    for (who, user) in [("owner", OWNER), ("member", MEMBER), ("stranger", STRANGER)] {
        s.as_user(user, |s| {
            s.tell(&format!("{who} reads"), open("file", READ));
            s.tell(&format!("{who} writes"), open("file", OFlags::WRONLY));
            s.tell(&format!("{who} may run"), rustix::fs::access("file", Access::EXEC_OK));
            s.tell(&format!("{who} sees the list"), get("file", ACCESS));
            s.tell(&format!("{who} sets"), set("file", ACCESS, &NAMED));
        });
    }
    for bits in [0o600, 0o640, 0o777, 0o2755] {
        s.tell("chmod", chmod("file", bits));
        both(s, "file");
        s.as_user(MEMBER, |s| s.tell("member writes", open("file", OFlags::WRONLY)));
    }
    let plain = [(USER_OBJ, 7, NO_ID), (GROUP_OBJ, 5, NO_ID), (OTHER, 0, NO_ID)];
    s.tell("set what the mode can say", set("file", ACCESS, &plain));
    both(s, "file");
    s.tell("default list on a file", set("file", DEFAULT, &plain));
    s.tell("symlink", symlink("file", "symlink"));
    let list = bytes(&plain);
    s.tell("on a symlink", rustix::fs::lsetxattr("symlink", ACCESS, &list, XattrFlags::empty()));
    // A list set by a user outside the file's group clears set-group-ID.
    s.tell("give to another group", chown("file", Some(1000), Some(3000)));
    s.tell("chmod", chmod("file", 0o2775));
    s.as_user(OWNER, |s| s.tell("owner sets", set("file", ACCESS, &NAMED)));
    both(s, "file");
}

fn malformed(s: &mut Script) {
    s.tell("make", put("bad", b"x"));
    let raw = |value: &[u8]| rustix::fs::setxattr("bad", ACCESS, value, XattrFlags::empty());
    s.tell("too short", raw(&[2, 0]));
    s.tell("header alone", raw(&[2, 0, 0, 0]));
    s.tell("wrong version", raw(&[1, 0, 0, 0]));
    s.tell("half an entry", raw(&bytes(&NAMED)[..14]));
    s.tell("empty", raw(&[]));
    let without_mask = [NAMED[0], NAMED[1], NAMED[2], NAMED[5]];
    s.tell("named without a mask", set("bad", ACCESS, &without_mask));
    s.tell("no other", set("bad", ACCESS, &NAMED[..5]));
    s.tell("twice the owner", set("bad", ACCESS, &[NAMED[0], NAMED[0], NAMED[2], NAMED[5]]));
    s.tell("unordered", set("bad", ACCESS, &[NAMED[5], NAMED[2], NAMED[0]]));
    s.tell("unknown tag", set("bad", ACCESS, &[(64, 7, NO_ID)]));
    s.tell("unknown right", set("bad", ACCESS, &[(USER_OBJ, 8, NO_ID), NAMED[2], NAMED[5]]));
    s.tell("create", rustix::fs::setxattr("bad", ACCESS, &bytes(&NAMED), XattrFlags::CREATE));
    s.tell("replace", rustix::fs::setxattr("bad", ACCESS, &bytes(&NAMED), XattrFlags::REPLACE));
    both(s, "bad");
}

fn inherited(s: &mut Script) {
    let list = [
        (USER_OBJ, 7, NO_ID),
        (USER, 7, 1001),
        (GROUP_OBJ, 5, NO_ID),
        (MASK, 7, NO_ID),
        (OTHER, 1, NO_ID),
    ];
    let plain = [(USER_OBJ, 7, NO_ID), (GROUP_OBJ, 5, NO_ID), (OTHER, 0, NO_ID)];
    for (dir, list) in [("named", &list[..]), ("plain", &plain[..])] {
        s.tell("mkdir", mkdir(dir, 0o755));
        s.tell("set default", set(dir, DEFAULT, list));
        both(s, dir);
        for mask in [0o000, 0o077] {
            rustix::process::umask(mode(mask));
            let at = |kind: &str| format!("{dir}/{mask:03o}-{kind}");
            s.tell("create", create(&at("file"), 0o666));
            both(s, &at("file"));
            s.tell("create closed", create(&at("closed"), 0o600));
            both(s, &at("closed"));
            s.tell("mkdir", mkdir(&at("dir"), 0o777));
            both(s, &at("dir"));
            s.tell("mknod", mknod(&at("fifo"), FileType::Fifo, 0o666, 0));
            both(s, &at("fifo"));
            s.tell("symlink", symlink("x", &*at("symlink")));
            s.stat(&at("symlink"));
            let file = open_mode(dir, OFlags::TMPFILE | BOTH, 0o666);
            s.tell("nameless", file.and_then(|file| stat_of(&file)));
            s.tell("create deep", create(&at("dir/deep"), 0o644));
            both(s, &at("dir/deep"));
        }
        rustix::process::umask(mode(0o022));
    }
}

fn removed(s: &mut Script) {
    s.tell("remove default", rustix::fs::removexattr("named", DEFAULT));
    s.tell("remove default again", rustix::fs::removexattr("named", DEFAULT));
    both(s, "named");
    s.tell("remove access", rustix::fs::removexattr("bad", ACCESS));
    both(s, "bad");
    s.tell("create after", create("named/after", 0o664));
    both(s, "named/after");
    s.tell("set default by root's hand", set("plain", DEFAULT, &[]));
    both(s, "plain");
}
