//! Hard links and link counts.

use crate::calls::*;
use crate::script::{OWNER, Script};
use rustix::fs::{AtFlags, CWD, FileType};

/// The number of names of one file that ext4 allows.
const LINKS_MAX: u32 = 65_000;
/// How many names fewer the prepared volume's file has.
const LEFT: u32 = 3;

pub fn run(s: &mut Script) {
    s.tell("make", put("file", b"content"));
    s.tell("link", link("file", "second"));
    s.stat("file");
    let ino = |path: &str| stat(path).map(|stat| stat.stx_ino);
    s.tell("same file", ino("file") == ino("second"));
    s.tell("write by one name", put("file", b"changed"));
    s.content("second");
    s.tell("unlink", unlink("file"));
    s.stat("second");
    s.tell("link to what is there", link("second", "second"));
    s.tell("link to nothing", link("none", "x"));
    s.tell("mkdir", mkdir("dir", 0o755));
    s.tell("link to a directory", link("dir", "dir2"));
    s.tell("link into nothing", link("second", "none/x"));
    s.tell("link into a file", link("second", "second/x"));
    s.tell("symlink", symlink("second", "sym"));
    s.tell("link to a symlink", link("sym", "sym2"));
    s.stat("sym2");
    let follow = AtFlags::SYMLINK_FOLLOW;
    s.tell("link through a symlink", rustix::fs::linkat(CWD, "sym", CWD, "sym3", follow));
    s.stat("sym3");
    s.tell("mknod", mknod("pipe", FileType::Fifo, 0o600, 0));
    s.tell("link to a pipe", link("pipe", "pipe2"));
    s.stat("pipe2");
    s.as_user(OWNER, |s| {
        s.tell("link another's readable file", link("second", "stolen"));
    });
    for n in 0..5 {
        s.tell("mkdir", mkdir(&format!("dir/{n}"), 0o755));
        s.stat("dir");
    }
    s.tell("a file counts not", put("dir/file", b""));
    s.stat("dir");
    s.tell("mkdir", mkdir("dir/0/deep", 0o755));
    s.tell("rmdir", rmdir("dir/1"));
    s.stat("dir");
    s.tell("move", rename("dir/2", "dir/0/2"));
    s.stat("dir");
    s.stat("dir/0");
    s.tell("rmdir full", rmdir("dir/0"));
    s.tell("rmdir file", rmdir("dir/file"));
    s.tell("unlink directory", unlink("dir/3"));
    let inside = open("dir/4", READ).expect("it was just made");
    s.tell("rmdir while open", rmdir("dir/4"));
    s.tell(
        "links of what is gone",
        rustix::fs::fstat(&inside).map(|stat| u64::from(stat.st_nlink as u32)),
    );
    s.tell(
        "create in what is gone",
        rustix::fs::openat(&inside, "x", rustix::fs::OFlags::CREATE | BOTH, mode(0o644)),
    );
    s.tell("mkdir in what is gone", rustix::fs::mkdirat(&inside, "x", mode(0o755)));
    s.tell("look up in what is gone", rustix::fs::openat(&inside, "x", READ, mode(0)));
    s.tell("dots in what is gone", rustix::fs::openat(&inside, "..", READ, mode(0)));
    s.tell("move into what is gone", rustix::fs::renameat(CWD, "second", &inside, "x"));
    s.tell(
        "link into what is gone",
        rustix::fs::linkat(CWD, "second", &inside, "x", AtFlags::empty()),
    );
    s.tell("list what is gone", rustix::fs::Dir::read_from(&inside).map(|dir| dir.count()));
    s.tell("sync what is gone", rustix::fs::fsync(&inside));
    for n in 0..300 {
        let _ = link("second", &*format!("dir/link{n}"));
    }
    s.stat("second");
}

/// A file with a few names fewer than allowed.
pub fn prepare_many(s: &mut Script) {
    let made = put("many", b"x").and_then(|()| {
        for n in 1..LINKS_MAX - LEFT {
            link("many", &*format!("link{n}"))?;
        }
        Ok(())
    });
    s.tell("make", made);
}

pub fn run_many(s: &mut Script) {
    s.stat("many");
    for n in 0..LEFT + 2 {
        s.tell(&format!("link {n}"), link("many", &*format!("more{n}")));
        s.stat("many");
    }
    s.tell("rename is no link", rename("link1", "renamed"));
    s.tell("unlink", unlink("link2"));
    s.tell("link again", link("many", "again"));
    s.tell("link too many", link("many", "too-many"));
}
