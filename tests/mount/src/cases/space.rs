//! `fallocate`, holes, and the space that files take.

use crate::calls::*;
use crate::raw::fallocate;
use crate::script::Script;
use rustix::fs::{OFlags, SeekFrom, ftruncate, seek};

const KEEP: i32 = 1;
const PUNCH: i32 = 2;
const COLLAPSE: i32 = 8;
const ZERO: i32 = 16;
const INSERT: i32 = 32;
const UNSHARE: i32 = 64;

pub fn run(s: &mut Script) {
    modes(s);
    refused(s);
    sparse(s);
    taken(s);
}

/// Size, space and content, after everything reached the device.
fn look(s: &mut Script, name: &str, what: &str) {
    s.tell(&format!("{what}: sync {name}"), open(name, BOTH).and_then(rustix::fs::fsync));
    s.stat(name);
    s.tell(&format!("{what}: space of {name}"), stat(name).map(|stat| stat.stx_blocks));
    s.content(name);
}

fn modes(s: &mut Script) {
    let steps = [
        ("allocate", 0, 0, 50_000),
        ("allocate within", 0, 4096, 100),
        ("allocate on", 0, 60_000, 30_000),
        ("keep within", KEEP, 0, 100),
        ("keep behind", KEEP, 100_000, 50_000),
        ("punch blocks", PUNCH | KEEP, 8192, 8192),
        ("punch bytes", PUNCH | KEEP, 20_000, 100),
        ("punch unaligned", PUNCH | KEEP, 21_000, 20_000),
        ("punch over the end", PUNCH | KEEP, 85_000, 1 << 20),
        ("punch behind the end", PUNCH | KEEP, 1 << 21, 4096),
        ("zero blocks", ZERO, 4096, 8192),
        ("zero bytes", ZERO, 30_001, 99),
        ("zero unaligned", ZERO | KEEP, 33_333, 22_222),
        ("zero over the end, keep", ZERO | KEEP, 80_000, 60_000),
        ("zero over the end", ZERO, 80_000, 70_000),
        ("fill", 0, 0, 150_000),
    ];
    s.tell("make", put("f", &pattern(70_000, 1)));
    look(s, "f", "made");
    for (what, mode, from, len) in steps {
        let file = open("f", BOTH).expect("it is there");
        s.tell(what, fallocate(&file, mode, from, len));
        look(s, "f", what);
    }
    s.tell("new", put("g", b""));
    let file = open("g", BOTH).expect("just made");
    s.tell("keep in an empty one", fallocate(&file, KEEP, 0, 100_000));
    look(s, "g", "kept");
    s.tell("write into it", write_all(&file, 10_000, b"written"));
    look(s, "g", "written");
    s.tell("cut to its size", ftruncate(&file, 10_007));
    look(s, "g", "cut");
    s.tell("longer", ftruncate(&file, 90_000));
    look(s, "g", "longer");
}

fn refused(s: &mut Script) {
    s.tell("make", put("r", &pattern(40_960, 2)));
    let file = open("r", BOTH).expect("just made");
    s.tell("no length", fallocate(&file, 0, 0, 0));
    s.tell("negative length", fallocate(&file, 0, 0, -1));
    s.tell("negative offset", fallocate(&file, 0, -1, 10));
    s.tell("punch without keep", fallocate(&file, PUNCH, 0, 4096));
    s.tell("punch and zero", fallocate(&file, PUNCH | ZERO | KEEP, 0, 4096));
    s.tell("a mode nobody knows", fallocate(&file, 1 << 20, 0, 4096));
    s.tell("unshare", fallocate(&file, UNSHARE, 0, 4096));
    s.tell("collapse", fallocate(&file, COLLAPSE, 4096, 4096));
    s.tell("insert", fallocate(&file, INSERT, 4096, 4096));
    s.tell("too far", fallocate(&file, 0, i64::MAX - 10, 100));
    s.tell("too far for ext4", fallocate(&file, 0, 1 << 45, 4096));
    s.tell("keep too far for ext4", fallocate(&file, KEEP, 1 << 45, 4096));
    let greedy = create("greedy", 0o644).expect("a new name");
    s.tell("too much", fallocate(&greedy, 0, 0, 1 << 40));
    s.tell("and back", ftruncate(&greedy, 0));
    s.tell("read only", fallocate(open("r", READ).expect("it is there"), 0, 0, 100));
    s.tell("a directory", fallocate(open(".", READ).expect("it is there"), 0, 0, 100));
    s.tell("pipe", mknod("pipe", rustix::fs::FileType::Fifo, 0o600, 0));
    let pipe = open("pipe", BOTH | OFlags::NONBLOCK).expect("Linux opens pipes both ways");
    s.tell("a pipe", fallocate(&pipe, 0, 0, 100));
    s.stat("r");
    // Collapsed and filled on one side alone.
    s.tell("unlink", unlink("r"));
}

/// Where data and holes are: in whole blocks, after everything reached the device.
fn sparse(s: &mut Script) {
    s.tell("make", put("s", b""));
    let file = open("s", BOTH).expect("just made");
    for (at, len) in [(0, 1), (65_536, 65_536), (262_144, 4096), (1 << 20, 1 << 16)] {
        s.tell(&format!("write at {at}"), write_all(&file, at, &pattern(len, 3)));
    }
    s.tell("longer", ftruncate(&file, 2 << 20));
    s.tell("sync", rustix::fs::fsync(&file));
    let places = [
        0,
        1,
        4095,
        4096,
        65_535,
        65_536,
        100_000,
        131_072,
        262_143,
        262_144,
        266_240,
        1 << 20,
        (1 << 20) + (1 << 16),
        (2 << 20) - 1,
        2 << 20,
        3 << 20,
    ];
    for at in places {
        s.tell(&format!("data from {at}"), seek(&file, SeekFrom::Data(at)));
        s.tell(&format!("hole from {at}"), seek(&file, SeekFrom::Hole(at)));
    }
    s.tell("data before the start", seek(&file, SeekFrom::Data(u64::MAX)));
    s.tell("place is kept", seek(&file, SeekFrom::Current(0)));
    s.tell("space", stat("s").map(|stat| stat.stx_blocks));
    s.tell("all hole", put("hole", b"").and_then(|()| truncate("hole", 1 << 20)));
    let hole = open("hole", READ).expect("just made");
    s.tell("data in a hole", seek(&hole, SeekFrom::Data(0)));
    s.tell("hole in a hole", seek(&hole, SeekFrom::Hole(5)));
    let empty = create("empty", 0o644).expect("a new name");
    s.tell("data in nothing", seek(&empty, SeekFrom::Data(0)));
    s.tell("hole in nothing", seek(&empty, SeekFrom::Hole(0)));
    s.tell("write, not synced", write_all(&empty, 1 << 20, b"x"));
    s.tell("data not synced", seek(&empty, SeekFrom::Data(0)));
    s.tell("unwritten space", fallocate(&empty, 0, 0, 1 << 19));
    s.tell("sync", rustix::fs::fsync(&empty));
    s.tell("unwritten is a hole", seek(&empty, SeekFrom::Data(0)));
    let dir = open(".", READ).expect("it is there");
    s.tell("data of a directory", seek(&dir, SeekFrom::Data(0)).map(drop));
}

/// `st_blocks` after everything reached the device.
fn taken(s: &mut Script) {
    for (name, bytes) in [
        ("b0", 0),
        ("b1", 1),
        ("b60", 60),
        ("b160", 160),
        ("b1k", 1024),
        ("b1k1", 1025),
        ("b4k", 4096),
        ("b4k1", 4097),
        ("b100k", 100_000),
        ("b1m", 1 << 20),
    ] {
        s.tell("make", put(name, &pattern(bytes, 4)));
        look(s, name, "taken");
    }
    let file = create("far", 0o644).expect("a new name");
    s.tell("write far", write_all(&file, 1 << 33, b"far"));
    drop(file);
    s.tell("sync", open("far", BOTH).and_then(rustix::fs::fsync));
    s.tell("space", stat("far").map(|stat| stat.stx_blocks));
    s.tell("unlink", unlink("far"));
    s.tell("cut", truncate("b1m", 5000));
    look(s, "b1m", "cut");
    s.tell("mkdir", mkdir("dir", 0o755));
    s.tell("space of a directory", stat("dir").map(|stat| stat.stx_blocks));
    s.tell("size of a directory", stat("dir").map(|stat| stat.stx_size));
    s.tell("block size", stat("b1m").map(|stat| stat.stx_blksize));
    s.tell("symlink", symlink("x", "short"));
    s.tell("space of a symlink", stat("short").map(|stat| stat.stx_blocks));
    s.tell("symlink", symlink(&*"x".repeat(500), "long"));
    s.tell("space of a long symlink", stat("long").map(|stat| stat.stx_blocks));
}
