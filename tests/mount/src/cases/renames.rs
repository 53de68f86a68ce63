//! Renames: each kind of file over each other kind, in every mode.

use crate::calls::*;
use crate::script::Script;
use rustix::fs::{FileType, RenameFlags};

const KINDS: [&str; 8] = ["none", "file", "other", "dir", "full", "link", "dangling", "pipe"];
const FLAGS: [(&str, RenameFlags); 6] = [
    ("plain", RenameFlags::empty()),
    ("noreplace", RenameFlags::NOREPLACE),
    ("exchange", RenameFlags::EXCHANGE),
    ("whiteout", RenameFlags::WHITEOUT),
    ("noreplace whiteout", RenameFlags::NOREPLACE.union(RenameFlags::WHITEOUT)),
    ("noreplace exchange", RenameFlags::NOREPLACE.union(RenameFlags::EXCHANGE)),
];

/// Creates a file of each kind.
fn make(kind: &str, path: &str) -> Answer<()> {
    match kind {
        "none" => Ok(()),
        "file" => put(path, b"file"),
        "other" => put(path, b"other"),
        "dir" => mkdir(path, 0o755),
        "full" => mkdir(path, 0o755).and_then(|()| put(&format!("{path}/in"), b"in")),
        "link" => symlink("target", path),
        "dangling" => symlink("none", path),
        _ => mknod(path, FileType::Fifo, 0o644, 0),
    }
}

fn clear(dir: &str) {
    for name in ["a", "b"] {
        let path = format!("{dir}/{name}");
        let _ = unlink(&*format!("{path}/in"));
        let _ = unlink(&*path);
        let _ = rmdir(&*path);
    }
}

pub fn run(s: &mut Script) {
    s.tell("mkdir", mkdir("m", 0o755));
    s.tell("mkdir", mkdir("n", 0o755));
    for (word, flags) in FLAGS {
        for from in KINDS {
            for to in KINDS {
                let (dir, label) =
                    (if from.len() > 4 { "n" } else { "m" }, format!("{word} {from} to {to}"));
                let made = make(from, "m/a").and_then(|()| make(to, &format!("{dir}/b")));
                s.tell(&format!("{label}: made"), made);
                s.tell(&label, rename_with("m/a", &format!("{dir}/b"), flags));
                s.tell(&format!("{label}: one"), list("m"));
                s.tell(&format!("{label}: other"), list("n"));
                s.tell(&format!("{label}: source"), stat("m/a"));
                s.tell(&format!("{label}: target"), stat(&format!("{dir}/b")));
                clear("m");
                clear("n");
            }
        }
    }
    odd(s);
    whiteouts(s);
    opened(s);
}

fn odd(s: &mut Script) {
    s.tell("make", put("same", b"x"));
    s.tell("link", link("same", "same2"));
    s.tell("between names of one file", rename("same", "same2"));
    s.tell("left", list("."));
    s.tell("exchange names of one file", rename_with("same", "same2", RenameFlags::EXCHANGE));
    s.tell("noreplace names of one file", rename_with("same", "same2", RenameFlags::NOREPLACE));
    s.tell("onto itself", rename("same", "same"));
    s.tell("exchange with itself", rename_with("same", "same", RenameFlags::EXCHANGE));
    s.tell("noreplace onto itself", rename_with("same", "same", RenameFlags::NOREPLACE));
    s.tell("mkdir", mkdir("d", 0o755));
    s.tell("mkdir", mkdir("d/e", 0o755));
    s.tell("mkdir", mkdir("d/e/f", 0o755));
    s.tell("onto itself, a directory", rename("d", "d"));
    s.tell("into itself", rename("d", "d/x"));
    s.tell("deep into itself", rename("d", "d/e/f/x"));
    s.tell("over its parent", rename("d/e", "d"));
    s.tell("deep over its ancestor", rename("d/e/f", "d"));
    s.tell("exchange with its parent", rename_with("d/e", "d", RenameFlags::EXCHANGE));
    s.tell("exchange with its child", rename_with("d", "d/e", RenameFlags::EXCHANGE));
    s.tell("exchange with nothing", rename_with("d", "none", RenameFlags::EXCHANGE));
    s.tell("flags that nobody knows", rename_with("d", "x", RenameFlags::from_bits_retain(8)));
    s.tell(
        "exchange and whiteout",
        rename_with("d", "d/e", RenameFlags::EXCHANGE | RenameFlags::WHITEOUT),
    );
    s.tell("from nothing", rename("none", "x"));
    s.tell("from nothing to itself", rename("none", "none"));
    s.tell("into nothing", rename("same", "none/x"));
    s.tell("into a file", rename("same", "same2/x"));
    s.tell("move up", rename("d/e/f", "f"));
    s.stat("d/e");
    s.tell(
        "parent of the moved",
        stat("f/..").map(|up| up.stx_ino) == stat(".").map(|here| here.stx_ino),
    );
    s.tell("move down", rename("f", "d/f"));
    s.tell(
        "exchange a file and a deep directory",
        rename_with("same", "d/e", RenameFlags::EXCHANGE),
    );
    s.stat("d");
    s.stat("same");
    s.stat("d/e");
    s.tell("left", list("d"));
}

fn whiteouts(s: &mut Script) {
    s.tell("make", put("w", b"w"));
    s.tell("whiteout", rename_with("w", "w2", RenameFlags::WHITEOUT));
    s.stat("w");
    s.stat("w2");
    s.tell("open a whiteout", open("w", READ));
    s.tell("rename over a whiteout", rename("w2", "w"));
    s.stat("w");
    s.tell("whiteout onto itself", rename_with("w", "w", RenameFlags::WHITEOUT));
    s.stat("w");
}

/// An open file stays the same, whatever its name.
fn opened(s: &mut Script) {
    s.tell("make", put("o", b"mine"));
    s.tell("make", put("over", b"theirs"));
    let (mine, theirs) = (open("o", BOTH), open("over", BOTH));
    let (mine, theirs) = (mine.expect("just made"), theirs.expect("just made"));
    s.tell("rename over what is open", rename("o", "over"));
    s.tell("the one", read_at(&mine, 0, 10));
    s.tell("the other", read_at(&theirs, 0, 10));
    s.tell("stat the other", stat_of(&theirs));
    s.tell("write the other", write_all(&theirs, 6, &pattern(5000, 3)));
    s.tell("read the other", read_at(&theirs, 0, 10_000));
    s.tell("sync the other", rustix::fs::fsync(&theirs));
    s.content("over");
    drop(theirs);
    s.stat("over");
}
