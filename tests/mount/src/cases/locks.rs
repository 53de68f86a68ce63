//! Locks between two processes.

use crate::calls::*;
use crate::raw::{self, Lock};
use crate::script::Script;
use rustix::fs::{FlockOperation, OFlags, flock};
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

/// Locks `path` as `kind` says, prints the answer, and holds the lock until its input ends.
pub fn hold(kind: &str, path: &str) {
    let file = open(path, BOTH).expect("it is there");
    let done = match kind {
        "flock-shared" => flock(&file, FlockOperation::NonBlockingLockShared),
        "flock-alone" => flock(&file, FlockOperation::NonBlockingLockExclusive),
        "record-read" => raw::lock(&file, Lock::Read, 100, 50, false),
        "record-write" => raw::lock(&file, Lock::Write, 100, 50, false),
        "opening-write" => raw::lock(&file, Lock::Write, 100, 50, true),
        _ => panic!("no such lock: {kind}"),
    };
    println!("{}", crate::answer::Shown::shown(&done));
    std::io::stdout().flush().expect("the test reads it");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

fn other(kind: &str, path: &str) -> (Child, String) {
    let program = std::env::current_exe().expect("it runs");
    let mut command = Command::new(program);
    command.args(["--hold", kind, path]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("it ran before");
    let mut answer = String::new();
    let mut byte = [0];
    let stdout = child.stdout.as_mut().expect("it was asked for");
    while stdout.read(&mut byte).is_ok_and(|len| len == 1 && byte[0] != b'\n') {
        answer.push(byte[0].into());
    }
    (child, answer)
}

fn end(mut child: Child) {
    drop(child.stdin.take());
    child.wait().expect("it was started");
}

pub fn run(s: &mut Script) {
    s.tell("make", put("file", &[0; 1000]));
    for kind in ["flock-shared", "flock-alone", "record-read", "record-write", "opening-write"] {
        let (child, answer) = other(kind, "file");
        s.tell(&format!("{kind}: other"), answer);
        let label = |what: &str| format!("{kind}: {what}");
        let file = open("file", BOTH).expect("just made");
        s.tell(&label("flock shared"), flock(&file, FlockOperation::NonBlockingLockShared));
        s.tell(&label("flock alone"), flock(&file, FlockOperation::NonBlockingLockExclusive));
        s.tell(&label("flock off"), flock(&file, FlockOperation::Unlock));
        for (from, len) in [(0, 0), (0, 100), (0, 101), (120, 5), (149, 100), (150, 0)] {
            for lock in [Lock::Read, Lock::Write] {
                let what = format!("{kind}: {lock:?} {from} {len}");
                s.tell(&format!("{what} in the way"), raw::lock_in_the_way(&file, lock, from, len));
                s.tell(&what, raw::lock(&file, lock, from, len, false));
                s.tell(&format!("{what} off"), raw::lock(&file, Lock::Off, 0, 0, false));
                s.tell(&format!("{what} of the opening"), raw::lock(&file, lock, from, len, true));
                s.tell(
                    &format!("{what} of the opening off"),
                    raw::lock(&file, Lock::Off, 0, 0, true),
                );
            }
        }
        end(child);
        s.tell(&label("after: flock"), flock(&file, FlockOperation::NonBlockingLockExclusive));
        s.tell(&label("after: record"), raw::lock(&file, Lock::Write, 0, 0, false));
    }
    own(s);
}

/// Several openings of one process.
fn own(s: &mut Script) {
    let (one, two) = (open("file", BOTH).expect("made"), open("file", BOTH).expect("made"));
    s.tell("flock", flock(&one, FlockOperation::NonBlockingLockExclusive));
    s.tell("flock of another opening", flock(&two, FlockOperation::NonBlockingLockShared));
    drop(one);
    s.tell("flock after closing", flock(&two, FlockOperation::NonBlockingLockShared));
    let reader = open("file", READ).expect("made");
    let writer = open("file", OFlags::WRONLY).expect("made");
    s.tell("write lock for a reader", raw::lock(&reader, Lock::Write, 0, 1, false));
    s.tell("read lock for a writer", raw::lock(&writer, Lock::Read, 0, 1, false));
    s.tell("negative length", raw::lock(&writer, Lock::Write, 5, -10, false));
    let dir = open(".", READ).expect("it is there");
    s.tell("flock of a directory", flock(&dir, FlockOperation::NonBlockingLockExclusive));
    s.tell("read lock of a directory", raw::lock(&dir, Lock::Read, 0, 1, false));
}
