//! Limits of files, and how full the volume says it is.

use crate::calls::*;
use crate::script::Script;
use rustix::fs::ftruncate;

const TIB: u64 = 1 << 40;

pub fn run(s: &mut Script) {
    let file = create("far", 0o644).expect("a new name");
    let synced = open("far", BOTH | rustix::fs::OFlags::SYNC).expect("just made");
    for at in [
        (1 << 31) - 1,
        1 << 31,
        (1 << 32) - 1,
        1 << 32,
        2 * TIB - 513,
        2 * TIB,
        4 * TIB,
        16 * TIB - 4097,
        16 * TIB - 4096,
        16 * TIB - 2,
        16 * TIB - 1,
        16 * TIB,
        16 * TIB + 1,
        1 << 50,
        (1 << 63) - 2,
        (1 << 63) - 1,
        1 << 63,
    ] {
        // Synced at once: a mount with a write-back cache notices a limit when it sends the data.
        let write = |bytes: &[u8]| {
            let written = rustix::io::pwrite(&synced, bytes, at)?;
            rustix::fs::fsync(&synced)?;
            Ok(written)
        };
        s.tell(&format!("write at {at}"), write(b"x"));
        s.tell(&format!("read at {at}"), read_at(&file, at, 4));
        s.tell(&format!("truncate to {at}"), ftruncate(&file, at));
        s.stat("far");
        s.tell("back", ftruncate(&file, 0));
        s.tell(&format!("allocate up to {at}"), crate::raw::fallocate(&file, 0, at as i64, 1));
        s.stat("far");
        s.tell("back", ftruncate(&file, 0));
    }
    s.tell("truncate", ftruncate(&file, 1 << 41));
    s.tell("data", rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)));
    s.tell("hole", rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(1 << 40)));
    s.tell("end", rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0)));
    s.tell("far behind", rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(1 << 62)));
    s.tell("sync", rustix::fs::fsync(&file));
    s.tell("unlink", unlink("far"));
}

/// On a new volume: all numbers. After changes: the differences.
pub fn statfs(s: &mut Script) {
    let all = |s: &mut Script, what: &str| {
        if let Ok(file) = open(".", READ) {
            let _ = rustix::fs::syncfs(file);
        }
        let shown = rustix::fs::statvfs(".").map(|all| {
            format!(
                "block {} fragment {} blocks {} free {} available {} inodes {} free {} available {} name {}",
                all.f_bsize, all.f_frsize, all.f_blocks, all.f_bfree, all.f_bavail, all.f_files, all.f_ffree,
                all.f_favail, all.f_namemax
            )
        });
        s.tell(what, shown);
    };
    all(s, "new");
    for n in 0..10 {
        s.tell("make", put(&format!("f{n}"), &pattern(40_960, n)));
    }
    all(s, "ten files");
    s.tell("mkdir", mkdir("d", 0o755));
    all(s, "a directory");
    let file = create("allocated", 0o644).expect("a new name");
    s.tell("allocate", crate::raw::fallocate(&file, 0, 0, 1 << 20));
    all(s, "allocated");
    s.tell("unlink open", unlink("allocated"));
    all(s, "unlinked, open");
    drop(file);
    std::thread::sleep(std::time::Duration::from_millis(50));
    all(s, "closed");
    for n in 0..10 {
        s.tell("unlink", unlink(&*format!("f{n}")));
    }
    all(s, "without them");
}
