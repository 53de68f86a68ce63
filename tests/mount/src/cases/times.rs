//! Times: which calls change which, and which values can be stored.

use crate::calls::*;
use crate::raw;
use crate::script::Script;
use rustix::fs::RenameFlags;
use rustix::fs::{AtFlags, CWD, OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, XattrFlags};

const fn special(nsec: i64) -> Timespec {
    Timespec { tv_sec: 0, tv_nsec: nsec }
}

/// Sets both times to now.
pub const NOW: Timestamps =
    Timestamps { last_access: special(UTIME_NOW), last_modification: special(UTIME_NOW) };

/// Sets both times to one value.
pub fn at(sec: i64, nsec: i64) -> Timestamps {
    let time = Timespec { tv_sec: sec, tv_nsec: nsec };
    Timestamps { last_access: time, last_modification: time }
}

fn set(path: &str, times: &Timestamps) -> Answer<()> {
    rustix::fs::utimensat(CWD, path, times, AtFlags::SYMLINK_NOFOLLOW)
}

fn shown(path: &str) -> Answer<String> {
    let stat = stat(path)?;
    let (a, m) = (stat.stx_atime, stat.stx_mtime);
    Ok(format!("atime {}.{:09} mtime {}.{:09}", a.tv_sec, a.tv_nsec, m.tv_sec, m.tv_nsec))
}

pub fn run(s: &mut Script) {
    kept(s);
    birth(s);
}

/// Which calls change which times; for volumes that store fractions of seconds.
pub fn changes(s: &mut Script) {
    of_directories(s);
    of_files(s);
}

/// Exact times, inside and outside of what the volume can store.
fn kept(s: &mut Script) {
    s.tell("make", put("kept", b"x"));
    s.tell("make", symlink("kept", "symlink"));
    let moments = [
        (0, 0),
        (0, 1),
        (1, 999_999_999),
        (-1, 0),
        (-1, 999_999_999),
        (-2_147_483_648, 5),
        (-2_147_483_649, 5),
        (2_147_483_647, 7),
        (2_147_483_648, 7),
        (4_294_967_295, 1),
        (4_294_967_296, 1),
        (6_442_450_943, 3),
        (6_442_450_944, 3),
        (15_032_385_535, 999_999_999),
        (15_032_385_536, 0),
        (i64::MAX / 4, 0),
        (i64::MIN / 4, 0),
        (1_700_000_000, 123_456_789),
    ];
    for (sec, nsec) in moments {
        for path in ["kept", "symlink", "."] {
            s.tell(&format!("set {sec}.{nsec} of {path}"), set(path, &at(sec, nsec)));
            s.tell(&format!("has {sec}.{nsec} of {path}"), shown(path));
        }
    }
    s.tell("too many nanoseconds", set("kept", &at(5, 1_000_000_000)));
    s.tell("negative nanoseconds", set("kept", &at(5, -1)));
    let omit = special(UTIME_OMIT);
    let one = Timespec { tv_sec: 77, tv_nsec: 78 };
    s.tell("base", set("kept", &at(1000, 10)));
    s.tell("atime alone", set("kept", &Timestamps { last_access: one, last_modification: omit }));
    s.tell("has", shown("kept"));
    s.tell("mtime alone", set("kept", &Timestamps { last_access: omit, last_modification: one }));
    s.tell("has", shown("kept"));
    let neither = Timestamps { last_access: omit, last_modification: omit };
    s.tell("neither", set("kept", &neither));
    s.tell("has", shown("kept"));
    s.tell("now", set("kept", &NOW));
    s.tell("neither of nothing", set("none", &neither));
    s.tell("through a symlink", rustix::fs::utimensat(CWD, "symlink", &at(9, 9), AtFlags::empty()));
    s.tell("has", shown("kept"));
    // A write after a time was set changes the time to now; a time that was set survives
    // write-back.
    s.tell("write", open("kept", BOTH).and_then(|file| write_all(&file, 0, b"y")));
    s.tell("set after a write", set("kept", &at(123, 456)));
    s.tell("sync", open("kept", BOTH).and_then(rustix::fs::fsync));
    s.tell("has", shown("kept"));
    let file = open("kept", BOTH).expect("it is there");
    s.tell("write", write_all(&file, 0, b"z"));
    s.tell("set while open", rustix::fs::futimens(&file, &at(321, 654)));
    drop(file);
    s.tell("has", shown("kept"));
}

fn of_directories(s: &mut Script) {
    s.tell("mkdir", mkdir("d", 0o755));
    s.tell("mkdir", mkdir("e", 0o755));
    s.times("create", "d", || create("d/f", 0o644));
    s.times("create what is there", "d", || open("d/f", OFlags::CREATE | BOTH));
    s.times("fail to create", "d", || create("d/f", 0o644));
    s.times("mkdir", "d", || mkdir("d/sub", 0o755));
    s.times("symlink", "d", || symlink("x", "d/s"));
    s.times("mknod", "d", || mknod("d/p", rustix::fs::FileType::Fifo, 0o644, 0));
    s.times("link to a file", "d/f", || link("d/f", "d/g"));
    s.times("link", "d", || link("d/f", "d/h"));
    s.times("unlink one of two names", "d/f", || unlink("d/g"));
    s.times("unlink", "d", || unlink("d/h"));
    s.times("rename inside", "d", || rename("d/f", "d/i"));
    s.times("rename of the file", "d/i", || {
        rename("d/i", "d/f").and_then(|()| rename("d/f", "d/i"))
    });
    s.times("rename out", "d", || rename("d/i", "e/i"));
    s.times("rename in", "e", || rename("e/i", "d/i").and_then(|()| rename("d/i", "e/i")));
    s.times("rename a directory", "d/sub", || {
        rename("d/sub", "d/sub2").and_then(|()| rename("d/sub2", "d/sub"))
    });
    s.times("move a directory", "e", || rename("d/sub", "e/sub"));
    s.tell("make", put("e/over", b"x"));
    s.tell("make", link("e/over", "e/over2"));
    s.times("rename over", "e/over2", || rename("e/i", "e/over"));
    s.times("rename onto itself", "e", || rename("e/over", "e/over"));
    s.times("exchange", "e/sub", || rename_with("e/over", "e/sub", RenameFlags::EXCHANGE));
    s.times("rmdir", "e", || rmdir("e/over"));
    s.times("list", "e", || list("e").map(drop));
    s.times("look up nothing", "e", || stat("e/none"));
    s.times("nameless", "e", || open_mode("e", OFlags::TMPFILE | BOTH, 0o644));
    s.times("chmod", "e", || chmod("e", 0o700));
}

fn of_files(s: &mut Script) {
    s.tell("make", put("f", &pattern(9000, 1)));
    let file = open("f", BOTH).expect("it was just made");
    s.times("write", "f", || write_all(&file, 0, b"new"));
    s.times("append", "f", || write_all(&file, 9000, b"new"));
    s.times("write nothing", "f", || write_all(&file, 0, b""));
    s.times("read", "f", || read_at(&file, 0, 100).map(drop));
    s.times("truncate down", "f", || rustix::fs::ftruncate(&file, 5000));
    s.times("truncate up", "f", || rustix::fs::ftruncate(&file, 7000));
    s.times("truncate to the same", "f", || rustix::fs::ftruncate(&file, 7000));
    s.times("truncate to the same by name", "f", || truncate("f", 7000));
    s.times("allocate", "f", || raw::fallocate(&file, 0, 0, 20_000));
    s.times("allocate what is there", "f", || raw::fallocate(&file, 0, 0, 100));
    s.times("allocate behind the end", "f", || raw::fallocate(&file, 1, 0, 40_000));
    s.times("punch", "f", || raw::fallocate(&file, 3, 4096, 4096));
    s.times("zero", "f", || raw::fallocate(&file, 16, 0, 4096));
    s.times("chmod", "f", || chmod("f", 0o600));
    s.times("chmod to the same", "f", || chmod("f", 0o600));
    s.times("chown to the same", "f", || chown("f", Some(0), Some(0)));
    s.times("chown to nobody", "f", || chown("f", None, None));
    s.times("label", "f", || rustix::fs::setxattr("f", "user.a", b"1", XattrFlags::empty()));
    s.times("label the same", "f", || {
        rustix::fs::setxattr("f", "user.a", b"1", XattrFlags::empty())
    });
    s.times("unlabel", "f", || rustix::fs::removexattr("f", "user.a"));
    s.times("unlabel again", "f", || rustix::fs::removexattr("f", "user.a"));
    s.times("flag", "f", || {
        let flags = rustix::fs::ioctl_getflags(&file)?;
        rustix::fs::ioctl_setflags(&file, flags | rustix::fs::IFlags::NODUMP)
    });
    s.times("open to cut", "f", || open("f", BOTH | OFlags::TRUNC));
    s.times("open an empty one to cut", "f", || open("f", BOTH | OFlags::TRUNC));
    s.times("write again", "f", || write_all(&file, 0, &pattern(5000, 2)));
    s.times("sync", "f", || rustix::fs::fsync(&file));
    s.times("sync again", "f", || rustix::fs::fsync(&file));
    let mut map = raw::Mapped::new(&file, 0, 4096, true, true).expect("a mapping");
    s.times("write what is mapped", "f", || {
        map.set(0, b"mapped");
        map.sync()
    });
    drop(map);
    let other = create("g", 0o644).expect("a new name");
    s.times("copy to", "g", || {
        rustix::fs::copy_file_range(&file, Some(&mut 0), &other, Some(&mut 0), 4000)
    });
    s.times("copy from", "f", || {
        rustix::fs::copy_file_range(&file, Some(&mut 0), &other, Some(&mut 0), 4000)
    });
    s.tell("symlink", symlink("x", "l"));
    s.times("chown a symlink", "l", || chown("l", Some(1000), None));
}

fn birth(s: &mut Script) {
    s.tell("make", put("born", b"x"));
    let before = stat("born").map(|stat| (stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec));
    s.tell("birth is known", stat("born").map(|stat| stat.stx_mask & 0x800 != 0));
    s.tell(
        "birth is ctime",
        stat("born").map(|stat| stat.stx_btime.tv_sec == stat.stx_ctime.tv_sec),
    );
    s.tell("set", set("born", &at(5, 5)));
    s.tell("write", put("born", b"y"));
    s.tell("rename", rename("born", "reborn"));
    let after = stat("reborn").map(|stat| (stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec));
    s.tell("birth stays", before == after);
    s.tell(
        "statx attributes of a file",
        stat("reborn").map(|stat| stat.stx_attributes_mask.bits() & 0x74),
    );
}
