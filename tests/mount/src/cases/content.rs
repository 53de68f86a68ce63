//! Content of files: written, truncated, extended, and compared with a plain vector.

use crate::calls::*;
use crate::script::Script;
use rustix::fs::{OFlags, ftruncate};

pub fn run(s: &mut Script) {
    cuts(s);
    random(s);
    vectors(s);
}

fn cuts(s: &mut Script) {
    s.tell("make", put("f", &pattern(30_000, 1)));
    for len in [29_999, 12_288, 12_289, 4097, 4096, 4095, 1, 0, 1, 4096, 100_000, 50_000, 50_001] {
        s.tell(&format!("truncate to {len}"), truncate("f", len));
        s.stat("f");
        s.content("f");
        let file = open("f", BOTH).expect("it is there");
        s.tell(&format!("write behind {len}"), write_all(&file, len + 1000, b"mark"));
        s.content("f");
        s.tell(&format!("sync at {len}"), rustix::fs::fsync(&file));
        s.tell(&format!("back to {len}"), ftruncate(&file, len));
        // Truncated bytes do not come back.
        s.tell(&format!("longer than {len}"), ftruncate(&file, len + 3000));
        s.content("f");
        s.tell(&format!("and back to {len}"), ftruncate(&file, len));
    }
    s.tell("truncate nothing", truncate("none", 5));
    s.tell("truncate a directory", truncate(".", 5));
    s.tell("truncate to less than nothing", truncate("f", u64::MAX));
    s.tell("symlink", symlink("f", "l"));
    s.tell("truncate through a symlink", truncate("l", 10));
    s.stat("f");
}

/// A fixed random sequence. Both sides must agree with a vector, and so with each other.
fn random(s: &mut Script) {
    for seed in 1..=6_u32 {
        let name = format!("random{seed}");
        let file = create(&name, 0o644).expect("a new name");
        let again = open(&name, BOTH).expect("just made");
        let mut model: Vec<u8> = Vec::new();
        let mut state = seed.wrapping_mul(0x9E37_79B9);
        let mut next = |below: usize| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as usize % below
        };
        for step in 0..120 {
            let file = if step % 3 == 0 { &again } else { &file };
            match next(10) {
                0..5 => {
                    let (at, len) = (next(200_000), next(30_000));
                    let bytes = pattern(len, step);
                    write_all(file, at as u64, &bytes).expect("room");
                    if len > 0 {
                        model.resize(model.len().max(at + len), 0);
                        model[at..at + len].copy_from_slice(&bytes);
                    }
                }
                5..7 => {
                    let len = next(220_000);
                    ftruncate(file, len as u64).expect("room");
                    model.resize(len, 0);
                }
                7 => {
                    let (at, len) = (next(200_000), 1 + next(60_000));
                    crate::raw::fallocate(file, 3, at as i64, len as i64).expect("punching");
                    let (from, to) = (at.min(model.len()), (at + len).min(model.len()));
                    model[from..to].fill(0);
                }
                8 => rustix::fs::fsync(file).expect("a healthy device"),
                _ => {
                    let (at, len) = (next(220_000), next(50_000));
                    let read = read_at(file, at as u64, len).expect("a healthy device");
                    let (from, to) = (at.min(model.len()), (at + len).min(model.len()));
                    assert!(read == model[from..to], "{name}, step {step}: wrong bytes at {at}");
                }
            }
        }
        s.content(&name);
        s.tell(&format!("{name} is as it should be"), content(&name).map(|bytes| bytes == model));
    }
}

fn vectors(s: &mut Script) {
    let file = create("vectors", 0o644).expect("a new name");
    let parts = [b"one ".as_slice(), b"", b"two ", b"three"].map(std::io::IoSlice::new);
    s.tell("several at once", rustix::io::writev(&file, &parts));
    s.tell("several at once, there", rustix::io::pwritev(&file, &parts, 5));
    s.content("vectors");
    s.tell("nothing far off", rustix::io::pwrite(&file, b"", 1 << 30));
    s.stat("vectors");
    s.tell("one far off", rustix::io::pwrite(&file, b"x", 1 << 30));
    s.stat("vectors");
    s.tell("read in the gap", read_at(&file, 1 << 20, 5000));
    let append = rustix::io::ReadWriteFlags::APPEND;
    s.tell("append by a flag", rustix::io::pwritev2(&file, &parts, 0, append));
    s.stat("vectors");
    let now = rustix::io::ReadWriteFlags::DSYNC;
    s.tell("durable by a flag", rustix::io::pwritev2(&file, &parts, 0, now));
    s.tell(
        "a flag nobody knows",
        rustix::io::pwritev2(
            &file,
            &parts,
            0,
            rustix::io::ReadWriteFlags::from_bits_retain(1 << 30),
        ),
    );
    s.tell("open, write, close, cut", open("vectors", BOTH | OFlags::TRUNC));
    s.stat("vectors");
}
