//! Set-user-ID, set-group-ID, sticky; who owns new files.

use crate::calls::*;
use crate::raw;
use crate::script::{MEMBER, OWNER, STRANGER, Script};
use rustix::fs::{FileType, OFlags, copy_file_range};

pub fn run(s: &mut Script) {
    sticky(s);
    group_directories(s);
    lost_bits(s);
    masks(s);
}

fn sticky(s: &mut Script) {
    s.tell("mkdir", mkdir("sticky", 0o777));
    s.tell("chmod", chmod("sticky", 0o1777));
    s.stat("sticky");
    for (name, uid) in [("owners", 1000), ("members", 1001), ("roots", 0)] {
        s.tell("make", put(&format!("sticky/{name}"), b"x"));
        s.tell("open up", chmod(&format!("sticky/{name}"), 0o666));
        s.tell("give", chown(&format!("sticky/{name}"), Some(uid), Some(uid)));
        s.tell("make", mkdir(&format!("sticky/{name}-dir"), 0o777));
        s.tell("give", chown(&format!("sticky/{name}-dir"), Some(uid), Some(uid)));
    }
    s.as_user(OWNER, |s| {
        s.tell("unlink another's", unlink("sticky/members"));
        s.tell("rename another's", rename("sticky/members", "sticky/taken"));
        s.tell("rename onto another's", rename("sticky/owners", "sticky/members"));
        s.tell("rename onto root's", rename("sticky/owners", "sticky/roots"));
        s.tell("rmdir another's", rmdir("sticky/members-dir"));
        s.tell("link own", link("sticky/owners", "sticky/owners-too"));
        s.tell("link another's", link("sticky/members", "sticky/members-too"));
        s.tell("rename own", rename("sticky/owners", "sticky/owners-new"));
        s.tell("unlink own", unlink("sticky/owners-new"));
        s.tell("rmdir own", rmdir("sticky/owners-dir"));
        // Linux' protected_regular: O_CREAT on another user's file in a sticky directory.
        s.tell("create over another's", open("sticky/members", OFlags::CREATE | BOTH));
    });
    s.tell("left", list("sticky"));
    s.tell("give the directory", chown("sticky", Some(1000), Some(1000)));
    s.as_user(OWNER, |s| {
        s.tell("unlink another's in one's own", unlink("sticky/members"));
        s.tell("rmdir another's in one's own", rmdir("sticky/members-dir"));
    });
    s.tell("left", list("sticky"));
}

fn group_directories(s: &mut Script) {
    s.tell("mkdir", mkdir("group", 0o777));
    s.tell("give", chown("group", Some(1000), Some(2000)));
    s.tell("chmod", chmod("group", 0o2777));
    s.stat("group");
    for (who, user) in [("member", MEMBER), ("stranger", STRANGER)] {
        s.as_user(user, |s| {
            for bits in [0o644, 0o2755, 0o2745, 0o6777] {
                let name = format!("group/{who}-{bits:04o}");
                s.tell("create", create(&name, bits));
                s.stat(&name);
            }
            let name = format!("group/{who}-dir");
            s.tell("mkdir", mkdir(&name, 0o755));
            s.stat(&name);
            s.tell("create below", create(&format!("{name}/f"), 0o644));
            s.stat(&format!("{name}/f"));
            let name = format!("group/{who}-pipe");
            s.tell("mknod", mknod(&name, FileType::Fifo, 0o2755, 0));
            s.stat(&name);
            let name = format!("group/{who}-link");
            s.tell("symlink", symlink("x", &*name));
            s.stat(&name);
            let name = format!("group/{who}-0644");
            s.tell("chmod with group bit", chmod(&name, 0o2755));
            s.stat(&name);
            let file = open_mode("group", OFlags::TMPFILE | BOTH, 0o2755);
            s.tell("nameless", file.and_then(|file| stat_of(&file)));
        });
    }
}

/// What clears set-user-ID and set-group-ID bits.
fn lost_bits(s: &mut Script) {
    s.tell("make", put("source", b"other content"));
    for bits in [0o6755, 0o6745, 0o4755, 0o2755, 0o2745, 0o6666] {
        for (who, user) in [("root", None), ("owner", Some(OWNER)), ("stranger", Some(STRANGER))] {
            for (what, act) in CHANGES {
                let name = format!("{bits:o}-{who}-{what}");
                let label = format!("{who} {what} {bits:o}");
                s.tell(&format!("{label}: make"), put(&name, b"some content"));
                s.tell(&format!("{label}: give"), chown(&name, Some(1000), Some(1000)));
                s.tell(&format!("{label}: open up"), chmod(&name, bits | 0o022));
                match user {
                    None => s.tell(&label, act(&name)),
                    Some(user) => s.as_user(user, |s| s.tell(&label, act(&name))),
                }
                s.tell(&format!("{label}: then"), stat(&name));
                let _ = unlink(&*name);
            }
        }
    }
}

type Change = (&'static str, fn(&str) -> Answer<()>);

const CHANGES: [Change; 16] = [
    ("writes", |name| write_all(&open(name, OFlags::WRONLY)?, 2, b"new")),
    ("writes nothing", |name| write_all(&open(name, OFlags::WRONLY)?, 2, b"")),
    ("writes too far", |name| write_all(&open(name, OFlags::WRONLY)?, 1 << 45, b"new")),
    ("reads", |name| read_at(&open(name, READ)?, 0, 4).map(drop)),
    ("cuts", |name| truncate(name, 4)),
    ("cuts to the same", |name| truncate(name, 12)),
    ("opens to cut", |name| open(name, OFlags::WRONLY | OFlags::TRUNC).map(drop)),
    ("allocates", |name| raw::fallocate(open(name, OFlags::WRONLY)?, 0, 0, 8192)),
    ("allocates too far", |name| raw::fallocate(open(name, OFlags::WRONLY)?, 0, 1 << 45, 8192)),
    ("allocates nothing", |name| raw::fallocate(open(name, OFlags::WRONLY)?, 0, 0, 0)),
    ("copies into", |name| copy(0, name, 2)),
    ("copies nothing into", |name| copy(1 << 20, name, 2)),
    ("copies too far", |name| copy(0, name, 1 << 45)),
    ("gives to its group", |name| chown(name, None, Some(1000))),
    ("gives to nobody", |name| chown(name, None, None)),
    ("maps and writes", |name| {
        let file = open(name, BOTH)?;
        let mut map = raw::Mapped::new(&file, 0, 12, true, true)?;
        map.set(1, b"mapped");
        map.sync()
    }),
];

/// Copies bytes of `source` to the file.
fn copy(mut from_at: u64, name: &str, mut to_at: u64) -> Answer<()> {
    let (from, to) = (open("source", READ)?, open(name, OFlags::WRONLY)?);
    copy_file_range(&from, Some(&mut from_at), &to, Some(&mut to_at), 5).map(drop)
}

fn masks(s: &mut Script) {
    for mask in [0o000, 0o022, 0o027, 0o077, 0o777] {
        rustix::process::umask(mode(mask));
        let name = |kind: &str| format!("mask-{mask:03o}-{kind}");
        s.tell("create", open_mode(&name("file"), OFlags::CREATE | BOTH, 0o7777));
        s.stat(&name("file"));
        s.tell("mkdir", mkdir(&name("dir"), 0o7777));
        s.stat(&name("dir"));
        s.tell("mknod", mknod(&name("fifo"), FileType::Fifo, 0o777, 0));
        s.stat(&name("fifo"));
        s.tell("symlink", symlink("x", &*name("symlink")));
        s.stat(&name("symlink"));
        let file = open_mode(".", OFlags::TMPFILE | BOTH, 0o666);
        s.tell(&format!("nameless {mask:o}"), file.and_then(|file| stat_of(&file)));
        s.tell("chmod knows no mask", chmod(&name("dir"), 0o775));
        s.stat(&name("dir"));
    }
    rustix::process::umask(mode(0o022));
}
