//! The answers of the calls that make data durable.

use crate::calls::*;
use crate::raw::sync_file_range;
use crate::script::Script;
use rustix::fs::{FileType, OFlags, fdatasync, fsync, syncfs};

pub fn run(s: &mut Script) {
    s.tell("make", put("file", &pattern(10_000, 1)));
    s.tell("mkdir", mkdir("dir", 0o755));
    s.tell("pipe", mknod("pipe", FileType::Fifo, 0o600, 0));
    s.tell("device", mknod("null", FileType::CharacterDevice, 0o600, 0x103));
    for (name, flags) in [
        ("file", READ),
        ("file", OFlags::WRONLY),
        ("file", OFlags::PATH),
        ("dir", READ),
        ("pipe", BOTH | OFlags::NONBLOCK),
        ("null", BOTH),
    ] {
        let file = open(name, flags).expect("just made");
        let label = |what: &str| format!("{what} {name} opened {:#x}", flags.bits());
        s.tell(&label("fsync"), fsync(&file));
        s.tell(&label("fdatasync"), fdatasync(&file));
        s.tell(&label("syncfs"), syncfs(&file));
        for how in [0, 1, 2, 4, 7, 8] {
            s.tell(&format!("{} {how}", label("range")), sync_file_range(&file, 0, 0, how));
        }
        s.tell(&label("negative range"), sync_file_range(&file, -1, 10, 2));
    }
    let file = open("file", BOTH).expect("just made");
    for n in 0..5 {
        s.tell("write", write_all(&file, n * 5000, &pattern(6000, 2)));
        s.tell("fdatasync", fdatasync(&file));
    }
    s.content("file");
}
