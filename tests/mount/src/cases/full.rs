//! A full volume, and what works after something was freed.

use crate::calls::*;
use crate::raw;
use crate::script::{OWNER, Script};
use rustix::io::Errno;

/// Writes and syncs until one of them returns an error. Returns which.
///
/// A mount with a write-back cache notices a full volume when it sends the data.
fn fill(path: &str, step: usize) -> String {
    let filled = || -> Answer<()> {
        let file = open(path, rustix::fs::OFlags::CREATE | BOTH)?;
        let bytes = pattern(step, 1);
        for n in 0..4096 {
            write_all(&file, n * step as u64, &bytes)?;
            if n % 4 == 3 {
                rustix::fs::fsync(&file)?;
            }
        }
        Ok(())
    };
    crate::answer::Shown::shown(&filled())
}

pub fn run(s: &mut Script) {
    s.tell("make", put("before", &pattern(50_000, 3)));
    s.tell("open up", chmod(".", 0o777));
    s.as_user(OWNER, |s| s.tell("a user fills", fill("users", 65_536)));
    s.as_user(OWNER, |s| {
        s.tell(
            "a user allocates",
            open("users", BOTH).and_then(|file| raw::fallocate(file, 1, 0, 8 << 20)),
        )
    });
    s.tell("root goes on", fill("roots", 65_536));
    s.tell("root fills the last", fill("last", 4096));
    let full = open("before", BOTH).expect("made");
    s.tell("write over what is there", write_all(&full, 0, &pattern(4096, 4)));
    s.tell("sync", rustix::fs::fsync(&full));
    s.tell(
        "write more",
        write_all(&full, 1 << 20, &pattern(100_000, 4)).and_then(|()| rustix::fs::fsync(&full)),
    );
    s.tell("allocate", raw::fallocate(&full, 0, 0, 8 << 20));
    s.tell("truncate up", rustix::fs::ftruncate(&full, 1 << 30));
    s.tell("truncate back", rustix::fs::ftruncate(&full, 50_000));
    s.tell("read", read_at(&full, 0, 60_000));
    s.tell("no space in statfs", rustix::fs::statvfs(".").map(|all| all.f_bavail));
    s.tell("mkdir", mkdirs());
    s.tell("rename", rename("before", "renamed"));
    s.tell("chmod", chmod("renamed", 0o600));
    s.tell("link", link("renamed", "linked"));
    s.tell(
        "big label",
        rustix::fs::setxattr(
            "renamed",
            "user.a",
            &pattern(900, 1),
            rustix::fs::XattrFlags::empty(),
        ),
    );
    drop(full);
    s.tell("unlink", unlink("users"));
    s.tell("write after deleting", put("after", &pattern(1 << 20, 5)));
    s.tell("sync after deleting", open("after", BOTH).and_then(rustix::fs::fsync));
    s.content("after");
    s.content("renamed");
    s.tell("mkdir after deleting", mkdir("room", 0o755));
    s.tell("unlink", unlink("roots"));
    s.tell("unlink", unlink("last"));
    inodes(s);
}

/// Creates directories until there is no block for another.
fn mkdirs() -> Answer<()> {
    for n in 0..10_000 {
        mkdir(&format!("full{n}"), 0o755)?;
    }
    Ok(())
}

/// Creates names until there is no inode for another.
fn inodes(s: &mut Script) {
    let mut made = 0;
    let error = loop {
        if made > 100_000 {
            break Errno::IO;
        }
        match mknod(&format!("i{made}"), rustix::fs::FileType::RegularFile, 0o644, 0) {
            Ok(()) => made += 1,
            Err(error) => break error,
        }
    };
    s.tell("no more files", Err::<(), Errno>(error));
    s.tell("free inodes", rustix::fs::statvfs(".").map(|all| all.f_ffree));
    s.tell("symlink", symlink("x", "s"));
    s.tell("mkdir", mkdir("d", 0o755));
    s.tell("nameless", open(".", BOTH | rustix::fs::OFlags::TMPFILE));
    s.tell("link needs none", link("i0", "needs-none"));
    s.tell("unlink", unlink("i1"));
    // FUSE releases a file some time after its last name was removed.
    std::thread::sleep(std::time::Duration::from_millis(100));
    s.tell("one more", create("one-more", 0o644));
    s.tell("and not one more", create("two-more", 0o644));
    for n in 0..made {
        let _ = unlink(&*format!("i{n}"));
    }
    std::thread::sleep(std::time::Duration::from_millis(100));
    s.tell("and again", create("two-more", 0o644));
}
