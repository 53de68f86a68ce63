//! Mapped files: shared, private, beside reads and writes.

use crate::calls::*;
use crate::raw::Mapped;
use crate::script::Script;
use rustix::fs::{OFlags, ftruncate};

pub fn run(s: &mut Script) {
    s.tell("make", put("f", &pattern(20_000, 1)));
    let file = open("f", BOTH).expect("just made");
    let mut shared = Mapped::new(&file, 0, 20_000, true, true).expect("a mapping");
    let mut private = Mapped::new(&file, 0, 20_000, true, false).expect("a mapping");
    let reader = Mapped::new(&open("f", READ).expect("it is there"), 4096, 8192, false, true)
        .expect("a mapping");
    s.tell("shared has the content", shared.get(0, 20_000));
    shared.set(5000, b"through shared memory");
    s.tell("read sees shared", read_at(&file, 4990, 50));
    s.tell("reader sees shared", reader.get(900, 50));
    s.tell("private sees shared", private.get(4990, 50));
    private.set(6000, b"for itself");
    s.tell("private has its own", private.get(5990, 30));
    s.tell("read sees no private", read_at(&file, 5990, 30));
    s.tell("write", write_all(&file, 7000, b"by a call"));
    s.tell("shared sees the write", shared.get(6990, 30));
    s.tell("msync", shared.sync());
    s.content("f");
    s.tell("behind the end is 0", shared.get(19_990, 10));
    s.tell("longer", ftruncate(&file, 24_576));
    s.tell("longer is 0", reader.get(0, 8192));
    drop((shared, private, reader));
    s.content("f");
    end(s);
    refused(s);
}

/// The last page: bytes written beyond the end are not part of the file.
fn end(s: &mut Script) {
    s.tell("make", put("e", &pattern(5000, 2)));
    let file = open("e", BOTH).expect("just made");
    let mut map = Mapped::new(&file, 0, 8192, true, true).expect("a mapping");
    s.tell("behind the end", map.get(5000, 3192));
    map.set(4990, b"over the end of the file");
    s.tell("msync", map.sync());
    s.stat("e");
    s.content("e");
    s.tell("longer", ftruncate(&file, 8000));
    s.tell("sync", rustix::fs::fsync(&file));
    s.content("e");
    s.tell("shorter", ftruncate(&file, 4500));
    s.tell("longer", ftruncate(&file, 9000));
    s.tell("cut off is 0", map.get(4400, 3000));
    map.set(4500, b"again");
    drop(map);
    drop(file);
    s.content("e");
    let hole = create("hole", 0o644).expect("a new name");
    s.tell("longer", ftruncate(&hole, 1 << 20));
    let mut map = Mapped::new(&hole, 0, 1 << 20, true, true).expect("a mapping");
    for at in (0..1 << 20).step_by(100_000) {
        map.set(at, b"into a hole");
    }
    s.tell("msync", map.sync());
    s.content("hole");
    s.tell("unlink", unlink("hole"));
    map.set(50_000, b"without a name");
    s.tell("without a name", map.get(49_990, 30));
}

fn refused(s: &mut Script) {
    let reader = open("f", READ).expect("it is there");
    let writer = open("f", OFlags::WRONLY).expect("it is there");
    let dir = open(".", READ).expect("it is there");
    s.tell("write what is read", Mapped::new(&reader, 0, 10, true, true).map(drop));
    s.tell("write for itself what is read", Mapped::new(&reader, 0, 10, true, false).map(drop));
    s.tell("what is written", Mapped::new(&writer, 0, 10, true, true).map(drop));
    s.tell("a directory", Mapped::new(&dir, 0, 10, false, true).map(drop));
    s.tell("nothing", Mapped::new(&reader, 0, 0, false, true).map(drop));
    s.tell("unaligned", Mapped::new(&reader, 100, 10, false, true).map(drop));
}
