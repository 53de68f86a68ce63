//! `copy_file_range`, `sendfile`, and the clones that ext4 does not have.

use crate::calls::*;
use crate::script::Script;
use rustix::fs::{OFlags, copy_file_range, ioctl_ficlone, sendfile};

pub fn run(s: &mut Script) {
    s.tell("make", put("from", &pattern(300_000, 1)));
    let from = open("from", BOTH).expect("just made");
    let to = create("to", 0o644).expect("a new name");
    let copy = |from_at: u64, to_at: u64, len: usize| {
        let (mut from_at, mut to_at) = (from_at, to_at);
        let done = copy_file_range(&from, Some(&mut from_at), &to, Some(&mut to_at), len)?;
        Ok(format!("{done}, then {from_at} and {to_at}"))
    };
    for (from_at, to_at, len) in [
        (0, 0, 4096),
        (0, 0, 300_000),
        (100, 200, 5000),
        (299_000, 0, 5000),
        (300_000, 0, 10),
        (400_000, 0, 10),
        (0, 400_000, 10_000),
        (0, 0, 0),
        (5, 5, 1),
        (4096, 8192, 65_536),
    ] {
        s.tell(&format!("copy {from_at} {to_at} {len}"), copy(from_at, to_at, len));
        s.content("to");
    }
    let within = |from_at: u64, to_at: u64, len: usize| {
        let (mut from_at, mut to_at) = (from_at, to_at);
        copy_file_range(&from, Some(&mut from_at), &from, Some(&mut to_at), len)
    };
    s.tell("copy within, apart", within(0, 100_000, 50_000));
    s.tell("copy within, overlapping", within(0, 10_000, 50_000));
    s.tell("copy within, behind", within(0, 300_000, 50_000));
    s.content("from");
    let reader = open("from", READ).expect("it is there");
    let appender = open("to", OFlags::WRONLY | OFlags::APPEND).expect("it is there");
    let dir = open(".", READ).expect("it is there");
    s.tell("to what is read", copy_file_range(&from, None, &reader, None, 10));
    s.tell("to what appends", copy_file_range(&reader, None, &appender, None, 10));
    s.tell("from a directory", copy_file_range(&dir, None, &to, None, 10));
    s.tell("by the files' places", copy_file_range(&reader, None, &to, None, 1000));
    s.tell("place", rustix::fs::seek(&reader, rustix::fs::SeekFrom::Current(0)));
    s.tell("place", rustix::fs::seek(&to, rustix::fs::SeekFrom::Current(0)));
    s.content("to");
    let sparse = create("sparse", 0o644).expect("a new name");
    s.tell("holes", write_all(&sparse, 1 << 20, b"end"));
    let copied = create("sparse-copy", 0o644).expect("a new name");
    s.tell("copy holes", copy_file_range(&sparse, Some(&mut 0), &copied, Some(&mut 0), 2 << 20));
    s.content("sparse-copy");
    let sent = create("sent", 0o644).expect("a new name");
    let mut at = 1000;
    s.tell("send", sendfile(&sent, &from, Some(&mut at), 100_000));
    s.tell("sent up to", at);
    s.content("sent");
    s.tell("send over the end", sendfile(&sent, &from, Some(&mut 349_000), 100_000));
    s.tell("send behind the end", sendfile(&sent, &from, Some(&mut 1_000_000), 10));
    s.tell("clone", ioctl_ficlone(&to, &from));
    s.tell("unlink the source", unlink("from"));
    s.tell("copy from what is gone", copy(0, 0, 1000));
    s.content("to");
}
