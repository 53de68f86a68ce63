//! Who may do what, and which of several reasons a refusal gives.

use crate::calls::*;
use crate::script::{MEMBER, OWNER, STRANGER, Script, User};
use rustix::fs::{Access, AtFlags, CWD, OFlags};

const USERS: [(&str, User); 3] = [("owner", OWNER), ("member", MEMBER), ("stranger", STRANGER)];
const MODES: [u32; 9] = [0o000, 0o400, 0o200, 0o100, 0o040, 0o026, 0o604, 0o755, 0o666];

pub fn run(s: &mut Script) {
    files(s);
    directories(s);
    precedence(s);
    not_the_owner(s);
    access(s);
}

fn files(s: &mut Script) {
    for bits in MODES {
        let name = format!("f{bits:03o}");
        s.tell(&format!("make {name}"), put(&name, b"content"));
        s.tell(&format!("give {name}"), chown(&name, Some(1000), Some(1000)));
        s.tell(&format!("chmod {name}"), chmod(&name, bits));
        for (who, user) in USERS {
            s.as_user(user, |s| {
                let label = |what: &str| format!("{who} {what} {name}");
                s.tell(&label("reads"), open(&name, READ));
                s.tell(&label("writes"), open(&name, OFlags::WRONLY));
                s.tell(&label("reads and writes"), open(&name, BOTH));
                s.tell(&label("cuts"), open(&name, READ | OFlags::TRUNC));
                s.tell(&label("names"), open(&name, OFlags::PATH));
                s.tell(&label("stats"), stat(&name));
                s.tell(&label("truncates"), truncate(&name, 3));
                s.tell(&label("avoids atime of"), open(&name, READ | OFlags::NOATIME));
                for (word, access) in
                    [("r", Access::READ_OK), ("w", Access::WRITE_OK), ("x", Access::EXEC_OK)]
                {
                    s.tell(&label(word), rustix::fs::access(&*name, access));
                }
            });
        }
    }
}

fn directories(s: &mut Script) {
    for bits in MODES {
        let dir = format!("d{bits:03o}");
        s.tell(&format!("mkdir {dir}"), mkdir(&dir, 0o777));
        s.tell(&format!("fill {dir}"), put(&format!("{dir}/in"), b"in"));
        s.tell(&format!("fill {dir}"), mkdir(&format!("{dir}/sub"), 0o777));
        s.tell(&format!("give {dir}"), chown(&dir, Some(1000), Some(1000)));
        s.tell(&format!("give in {dir}"), chown(&format!("{dir}/in"), Some(1000), Some(1000)));
        s.tell(&format!("chmod {dir}"), chmod(&dir, bits));
        for (who, user) in USERS {
            s.as_user(user, |s| {
                let label = |what: &str| format!("{who} {what} {dir}");
                let at = |name: &str| format!("{dir}/{name}");
                s.tell(&label("lists"), list(&dir));
                s.tell(&label("stats in"), stat(&at("in")));
                s.tell(&label("misses in"), stat(&at("none")));
                s.tell(&label("creates in"), create(&at("new"), 0o644));
                s.tell(&label("creates again in"), create(&at("new"), 0o644));
                s.tell(&label("mkdirs in"), mkdir(&at("dir"), 0o755));
                s.tell(&label("links in"), link(&*at("in"), &*at("linked")));
                s.tell(&label("symlinks in"), symlink("in", &*at("symbolic")));
                s.tell(&label("renames in"), rename(&*at("in"), &*at("moved")));
                s.tell(&label("renames back in"), rename(&*at("moved"), &*at("in")));
                s.tell(&label("unlinks in"), unlink(&*at("new")));
                s.tell(&label("unlinks link in"), unlink(&*at("linked")));
                s.tell(&label("unlinks symlink in"), unlink(&*at("symbolic")));
                s.tell(&label("rmdirs in"), rmdir(&*at("dir")));
                s.tell(&label("rmdirs other's in"), rmdir(&*at("sub")));
                s.tell(&label("opens"), open(&dir, READ | OFlags::DIRECTORY));
            });
        }
    }
}

/// Which errno is returned if several apply.
fn precedence(s: &mut Script) {
    s.tell("prepare", mkdir("closed", 0o700));
    s.tell("prepare", mkdir("seen", 0o755));
    s.tell("prepare", put("seen/file", b"x"));
    s.tell("prepare", mkdir("seen/dir", 0o755));
    s.tell("prepare", mkdir("seen/full", 0o755));
    s.tell("prepare", put("seen/full/file", b"x"));
    s.tell("prepare", put("closed/file", b"x"));
    s.tell("prepare", mkdir("open", 0o777));
    s.tell("prepare", put("open/mine-not", b"x"));
    s.as_user(STRANGER, |s| {
        s.tell("create what is there where one may not", create("seen/file", 0o644));
        s.tell("mkdir what is there where one may not", mkdir("seen/dir", 0o755));
        s.tell("mkdir what is a file", mkdir("seen/file", 0o755));
        s.tell("symlink what is there", symlink("t", "seen/file"));
        s.tell("link what is there", link("seen/file", "seen/dir"));
        s.tell("unlink a directory where one may not", unlink("seen/dir"));
        s.tell("rmdir a file where one may not", rmdir("seen/file"));
        s.tell("rmdir a full one where one may not", rmdir("seen/full"));
        s.tell("unlink nothing where one may not", unlink("seen/none"));
        s.tell("rmdir nothing where one may not", rmdir("seen/none"));
        s.tell("rename nothing where one may not", rename("seen/none", "open/x"));
        s.tell("rename onto a directory", rename("seen/file", "seen/dir"));
        s.tell("rename into a closed one", rename("open/mine-not", "closed/x"));
        s.tell("rename out of a closed one", rename("closed/file", "open/x"));
        s.tell("file as a directory", stat("seen/file/x"));
        s.tell("through a closed one", stat("closed/file/x"));
        s.tell("write a directory where one may not", open("seen/dir", OFlags::WRONLY));
        s.tell("write a directory", open("open", OFlags::WRONLY));
        s.tell("make a directory by open", open("open/", OFlags::CREATE | BOTH));
        s.tell("link another's file", link("open/mine-not", "open/linked"));
        s.tell(
            "truncate a directory",
            rustix::fs::open("open", OFlags::WRONLY | OFlags::TRUNC, mode(0)),
        );
        s.tell(
            "mknod a device",
            mknod("open/dev", rustix::fs::FileType::CharacterDevice, 0o666, 0x103),
        );
        s.tell("unlink another's in an open one", unlink("open/mine-not"));
    });
    s.tell("left", list("open"));
}

fn not_the_owner(s: &mut Script) {
    s.tell("prepare", put("owned", b"x"));
    s.tell("prepare", chown("owned", Some(1000), Some(1000)));
    s.tell("prepare", chmod("owned", 0o666));
    for (who, user) in USERS {
        s.as_user(user, |s| {
            s.tell(&format!("{who} chmods"), chmod("owned", 0o666));
            s.tell(&format!("{who} keeps owner"), chown("owned", Some(1000), None));
            s.tell(&format!("{who} gives away"), chown("owned", Some(1001), None));
            s.tell(&format!("{who} gives to own group"), chown("owned", None, Some(1000)));
            s.tell(&format!("{who} gives to group 2000"), chown("owned", None, Some(2000)));
            s.tell(&format!("{who} gives to nobody"), chown("owned", None, None));
            let now = super::times::NOW;
            s.tell(
                &format!("{who} sets now"),
                rustix::fs::utimensat(CWD, "owned", &now, AtFlags::empty()),
            );
            let then = super::times::at(1_000_000, 5);
            s.tell(
                &format!("{who} sets then"),
                rustix::fs::utimensat(CWD, "owned", &then, AtFlags::empty()),
            );
            s.tell(
                &format!("{who} labels"),
                rustix::fs::setxattr(
                    "owned",
                    "user.a",
                    who.as_bytes(),
                    rustix::fs::XattrFlags::empty(),
                ),
            );
            s.stat("owned");
        });
    }
    s.tell("prepare", chmod("owned", 0o600));
    s.as_user(MEMBER, |s| {
        let now = super::times::NOW;
        s.tell(
            "member sets now of a closed one",
            rustix::fs::utimensat(CWD, "owned", &now, AtFlags::empty()),
        );
        s.tell(
            "member labels a closed one",
            rustix::fs::setxattr("owned", "user.a", b"1", rustix::fs::XattrFlags::empty()),
        );
        let mut buffer = [0; 8];
        s.tell(
            "member reads a closed one's label",
            rustix::fs::getxattr("owned", "user.a", &mut buffer),
        );
        s.tell("member lists a closed one's labels", rustix::fs::listxattr("owned", &mut buffer));
    });
}

fn access(s: &mut Script) {
    s.tell("root on no bits: read", rustix::fs::access("f000", Access::READ_OK));
    s.tell("root on no bits: run", rustix::fs::access("f000", Access::EXEC_OK));
    s.tell("root on a run bit", rustix::fs::access("f100", Access::EXEC_OK));
    s.tell("root in a closed directory", rustix::fs::access("d000", Access::EXEC_OK));
    s.tell("nothing", rustix::fs::access("none", Access::EXISTS));
    s.tell("effective", rustix::fs::accessat(CWD, "f000", Access::WRITE_OK, AtFlags::EACCESS));
    s.tell("prepare", symlink("none", "dangling"));
    s.tell("dangling", rustix::fs::access("dangling", Access::EXISTS));
    s.tell("prepare", put("tool", b"#!/bin/sh\nexit 0\n"));
    s.tell("run without bit", ran("./tool"));
    s.tell("prepare", chmod("tool", 0o755));
    s.tell("run", ran("./tool"));
    let writer = open("tool", OFlags::WRONLY).expect("it is there");
    s.tell("run while written", ran("./tool"));
    drop(writer);
    s.tell("run a directory", ran("./d755"));
}

fn ran(path: &str) -> Answer<i64> {
    match std::process::Command::new(path).status() {
        Ok(status) => Ok(status.code().unwrap_or(-1).into()),
        Err(error) => {
            Err(rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO))
        }
    }
}
