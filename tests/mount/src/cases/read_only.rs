//! A volume mounted read-only.

use crate::calls::*;
use crate::raw::{self, Mapped};
use crate::script::{OWNER, STRANGER, Script};
use rustix::fs::{Access, AtFlags, CWD, FileType, IFlags, OFlags, RenameFlags, XattrFlags};

/// The files to read.
pub fn prepare(s: &mut Script) {
    s.tell("make", put("file", &pattern(10_000, 1)));
    s.tell("make", chmod("file", 0o666));
    s.tell("make", put("closed", b"x"));
    s.tell("make", chmod("closed", 0o600));
    s.tell("make", mkdir("dir", 0o777));
    s.tell("make", chmod("dir", 0o777));
    s.tell("make", put("dir/in", b"in"));
    s.tell("make", mkdir("dir/empty", 0o755));
    s.tell("make", symlink("file", "symlink"));
    s.tell("make", mknod("fifo", FileType::Fifo, 0o666, 0));
    s.tell("make", mknod("null", FileType::CharacterDevice, 0o666, 0x103));
    s.tell("make", rustix::fs::setxattr("file", "user.a", b"value", XattrFlags::empty()));
}

pub fn run(s: &mut Script) {
    act(s, "root");
    s.as_user(OWNER, |s| act(s, "user"));
    s.as_user(STRANGER, |s| act(s, "stranger"));
}

fn act(s: &mut Script, who: &str) {
    let mut tell = |label: &str, answer: &dyn crate::answer::Shown| {
        s.tell(&format!("{who}: {label}"), answer.shown());
    };
    let then = super::times::at(5, 5);
    for name in ["file", "closed", "dir", "symlink", "fifo", "null", "none", "dir/in", "none/x"] {
        let label = |what: &str| format!("{what} {name}");
        tell(&label("stat"), &stat(name));
        tell(&label("open to write"), &open(name, BOTH | OFlags::NONBLOCK));
        tell(&label("open to cut"), &open(name, READ | OFlags::TRUNC | OFlags::NONBLOCK));
        tell(&label("open to read"), &open(name, READ | OFlags::NONBLOCK));
        tell(&label("create"), &open(name, OFlags::CREATE | READ | OFlags::NONBLOCK));
        tell(&label("create alone"), &create(name, 0o644));
        tell(&label("mkdir"), &mkdir(name, 0o755));
        tell(&label("mknod"), &mknod(name, FileType::Fifo, 0o644, 0));
        tell(&label("symlink"), &symlink("x", name));
        tell(&label("link to"), &link("file", name));
        tell(&label("link from"), &link(name, "new"));
        tell(&label("rename from"), &rename(name, "new"));
        tell(&label("rename to"), &rename("file", name));
        tell(&label("exchange"), &rename_with("file", name, RenameFlags::EXCHANGE));
        tell(&label("unlink"), &unlink(name));
        tell(&label("rmdir"), &rmdir(name));
        tell(&label("chmod"), &chmod(name, 0o600));
        tell(&label("chown"), &chown(name, Some(1000), None));
        tell(&label("truncate"), &truncate_nonblocking(name));
        tell(&label("times"), &rustix::fs::utimensat(CWD, name, &then, AtFlags::SYMLINK_NOFOLLOW));
        tell(&label("label"), &rustix::fs::lsetxattr(name, "user.b", b"1", XattrFlags::empty()));
        tell(&label("unlabel"), &rustix::fs::lremovexattr(name, "user.a"));
        for (word, access) in
            [("r", Access::READ_OK), ("w", Access::WRITE_OK), ("x", Access::EXEC_OK)]
        {
            tell(&label(word), &rustix::fs::access(name, access));
        }
    }
    tell("nameless", &open("dir", BOTH | OFlags::TMPFILE));
    tell("rmdir empty", &rmdir("dir/empty"));
    tell("list", &list("."));
    tell("content", &content("file"));
    let file = open("file", READ).expect("it is there");
    tell("flags", &rustix::fs::ioctl_setflags(&file, IFlags::NODUMP));
    tell("sync", &rustix::fs::fsync(&file));
    tell("syncfs", &rustix::fs::syncfs(&file));
    tell("allocate", &raw::fallocate(&file, 0, 0, 100));
    tell("map", &Mapped::new(&file, 0, 100, false, true).map(|map| map.get(0, 100)));
    tell("map to write for itself", &Mapped::new(&file, 0, 100, true, false).map(drop));
    tell(
        "through a device",
        &open("null", OFlags::WRONLY).and_then(|null| rustix::io::write(null, b"x")),
    );
}

fn truncate_nonblocking(path: &str) -> Answer<()> {
    rustix::fs::ftruncate(open(path, OFlags::WRONLY | OFlags::NONBLOCK)?, 0)
}
