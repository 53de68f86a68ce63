//! `open`: its flags, and their effect on later calls.

use crate::calls::*;
use crate::script::{OWNER, Script};
use rustix::fs::{AtFlags, CWD, OFlags};
use rustix::io::Errno;

pub fn run(s: &mut Script) {
    combinations(s);
    appending(s);
    nameless(s);
    by_path_alone(s);
    direct(s);
    gone(s);
}

fn combinations(s: &mut Script) {
    s.tell("make", put("file", b"content"));
    s.tell("mkdir", mkdir("dir", 0o755));
    s.tell("symlink", symlink("file", "to-file"));
    s.tell("symlink", symlink("dir", "to-dir"));
    s.tell("symlink", symlink("made-through", "to-none"));
    let flags = [
        ("read", READ),
        ("write", OFlags::WRONLY),
        ("both", BOTH),
        ("neither", OFlags::WRONLY | BOTH),
        ("create", READ | OFlags::CREATE),
        ("create to write", BOTH | OFlags::CREATE),
        ("create alone", READ | OFlags::CREATE | OFlags::EXCL),
        ("alone", READ | OFlags::EXCL),
        ("no follow", READ | OFlags::NOFOLLOW),
        ("create no follow", READ | OFlags::CREATE | OFlags::NOFOLLOW),
        ("directory", READ | OFlags::DIRECTORY),
        ("create directory", READ | OFlags::CREATE | OFlags::DIRECTORY),
        ("directory no follow", READ | OFlags::DIRECTORY | OFlags::NOFOLLOW),
        ("directory to write", BOTH | OFlags::DIRECTORY),
        ("cut for reading", READ | OFlags::TRUNC),
        ("cut", BOTH | OFlags::TRUNC),
        ("append", OFlags::WRONLY | OFlags::APPEND),
        ("path", OFlags::PATH),
        ("path no follow", OFlags::PATH | OFlags::NOFOLLOW),
        ("path directory", OFlags::PATH | OFlags::DIRECTORY),
        ("sync", BOTH | OFlags::SYNC),
        ("dsync", BOTH | OFlags::DSYNC),
        ("direct", BOTH | OFlags::DIRECT),
        ("nameless", BOTH | OFlags::TMPFILE),
        ("nameless to read", READ | OFlags::TMPFILE),
    ];
    for path in ["file", "dir", "to-file", "to-dir", "to-none", "none", "file/x", "dir/x", "none/x"]
    {
        for (word, flags) in flags {
            s.tell(&format!("{word} {path}"), open(path, flags));
            for made in ["none", "dir/x", "made-through"] {
                let _ = unlink(made);
            }
            if path.ends_with("file") {
                s.tell(&format!("{word} {path}: size"), stat("file").map(|stat| stat.stx_size));
                let _ = put("file", b"content");
            }
        }
    }
    let reader = open("file", READ).expect("it is there");
    s.tell("write what is read", rustix::io::write(&reader, b"x"));
    s.tell("truncate what is read", rustix::fs::ftruncate(&reader, 0));
    let writer = open("file", OFlags::WRONLY).expect("it is there");
    let mut buffer = [0; 4];
    s.tell("read what is written", rustix::io::read(&writer, &mut buffer));
    let dir = open("dir", READ).expect("it is there");
    s.tell("read a directory", rustix::io::read(&dir, &mut buffer));
    s.tell("seek before the start", rustix::fs::seek(&reader, rustix::fs::SeekFrom::Current(-1)));
    s.tell("seek from the end", rustix::fs::seek(&reader, rustix::fs::SeekFrom::End(-2)));
    s.tell("read behind", rustix::io::pread(&reader, &mut buffer, 100));
    s.tell("create without rights", open_mode("write-only", OFlags::CREATE | BOTH, 0));
    s.stat("write-only");
    s.as_user(OWNER, |s| s.tell("create in root's", open("mine", OFlags::CREATE | BOTH)));
}

fn appending(s: &mut Script) {
    s.tell("make", put("log", b"begin "));
    let file = open("log", BOTH | OFlags::APPEND).expect("just made");
    s.tell("append", rustix::io::write(&file, b"one "));
    // Linux appends here, too, whatever the offset is.
    s.tell("write at 0 while appending", rustix::io::pwrite(&file, b"two ", 0));
    s.content("log");
    let other = open("log", OFlags::WRONLY | OFlags::APPEND).expect("just made");
    s.tell("append by another", rustix::io::write(&other, b"three "));
    s.tell("append by the first", rustix::io::write(&file, b"four "));
    s.content("log");
    s.tell("cut", rustix::fs::ftruncate(&file, 3));
    s.tell("append behind the cut", rustix::io::write(&other, b"five"));
    s.content("log");
    let flags = rustix::fs::fcntl_getfl(&file).map(|flags| flags - OFlags::APPEND);
    s.tell("stop appending", flags.and_then(|flags| rustix::fs::fcntl_setfl(&file, flags)));
    s.tell("write at 0", rustix::io::pwrite(&file, b"SIX", 0));
    s.content("log");
    for n in 0..200 {
        let bytes = pattern(100 + n, n as u32);
        let file = if n % 2 == 0 { &other } else { &file };
        if n % 2 == 1 {
            let _ = rustix::fs::seek(file, rustix::fs::SeekFrom::End(0));
        }
        let _ = rustix::io::write(file, &bytes);
    }
    s.content("log");
}

fn nameless(s: &mut Script) {
    let file = open(".", BOTH | OFlags::TMPFILE).expect("ext4 has these");
    s.tell("stat", stat_of(&file));
    s.tell("write", write_all(&file, 0, &pattern(10_000, 4)));
    let proc = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    let follow = AtFlags::SYMLINK_FOLLOW;
    s.tell("name it", rustix::fs::linkat(CWD, &*proc, CWD, "named", follow));
    s.tell("name it twice", rustix::fs::linkat(CWD, &*proc, CWD, "named2", follow));
    s.tell("name it over another", rustix::fs::linkat(CWD, &*proc, CWD, "named", follow));
    drop(file);
    s.stat("named");
    s.content("named");
    let file = open(".", BOTH | OFlags::TMPFILE | OFlags::EXCL).expect("ext4 has these");
    s.tell("write", write_all(&file, 0, b"never seen"));
    let proc = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    s.tell("name one that shall have none", rustix::fs::linkat(CWD, &*proc, CWD, "named3", follow));
    s.tell("sync", rustix::fs::fsync(&file));
    let dropped = open(".", BOTH | OFlags::TMPFILE).expect("ext4 has these");
    s.tell("write", write_all(&dropped, 100_000, b"x"));
    s.tell(
        "link by descriptor",
        rustix::fs::linkat(&dropped, "", CWD, "named4", AtFlags::EMPTY_PATH),
    );
    s.stat("named4");
    s.tell("in a file", open("file", BOTH | OFlags::TMPFILE));
}

fn by_path_alone(s: &mut Script) {
    let file = open("file", OFlags::PATH).expect("it is there");
    let mut buffer = [0; 4];
    s.tell("read", rustix::io::read(&file, &mut buffer));
    s.tell("write", rustix::io::write(&file, b"x"));
    s.tell("truncate", rustix::fs::ftruncate(&file, 0));
    s.tell("stat", stat_of(&file));
    s.tell("chmod", rustix::fs::fchmod(&file, mode(0o600)));
    s.tell("chown by empty path", rustix::fs::chownat(&file, "", None, None, AtFlags::EMPTY_PATH));
    s.tell("sync", rustix::fs::fsync(&file));
    let dir = open("dir", OFlags::PATH).expect("it is there");
    s.tell("list", rustix::fs::Dir::read_from(&dir).map(|dir| dir.count()));
    s.tell("open below", rustix::fs::openat(&dir, "../file", READ, mode(0)));
    let link = open("to-file", OFlags::PATH | OFlags::NOFOLLOW).expect("it is there");
    s.tell("read the link", rustix::fs::readlinkat(&link, "", Vec::new()));
    s.tell("stat the link", stat_of(&link));
}

fn direct(s: &mut Script) {
    s.tell("make", put("direct", &pattern(20_000, 5)));
    let file = open("direct", BOTH | OFlags::DIRECT).expect("just made");
    let mut bytes = vec![0; 3 * 8192];
    let start = bytes.as_ptr().align_offset(4096);
    bytes[start..start + 8192].copy_from_slice(&pattern(8192, 6));
    let part = &bytes[start..start + 8192];
    s.tell("aligned write", rustix::io::pwrite(&file, part, 4096));
    s.content("direct");
    s.tell("aligned write at the end", rustix::io::pwrite(&file, part, 20_480));
    s.content("direct");
    let mut space = vec![0; 3 * 8192];
    let start = space.as_ptr().align_offset(4096);
    let read = rustix::io::pread(&file, &mut space[start..start + 8192], 8192);
    s.tell("aligned read", read.map(|len| space[start..start + len].to_vec()));
    let read = rustix::io::pread(&file, &mut space[start..start + 8192], 24_576);
    s.tell("aligned read over the end", read.map(|len| space[start..start + len].to_vec()));
    let read = rustix::io::pread(&file, &mut space[start..start + 4096], 40_960);
    s.tell("aligned read behind the end", read);
    s.tell("unaligned offset", rustix::io::pwrite(&file, part, 100));
    s.tell("unaligned length", rustix::io::pwrite(&file, &part[..100], 4096));
    s.tell("unaligned read", rustix::io::pread(&file, &mut space[start..start + 100], 5));
    s.tell("unaligned memory", rustix::io::pread(&file, &mut space[start + 1..start + 4097], 0));
    drop(file);
    s.tell("anew", put("direct", &pattern(20_000, 5)));
    // Beside a cached writer: each sees what the other wrote.
    let cached = open("direct", BOTH).expect("it is there");
    let file = open("direct", BOTH | OFlags::DIRECT).expect("it is there");
    s.tell("cached write", write_all(&cached, 0, &pattern(4096, 7)));
    let read = rustix::io::pread(&file, &mut space[start..start + 4096], 0);
    s.tell("direct read of it", read.map(|len| space[start..start + len].to_vec()));
    s.tell("direct write", rustix::io::pwrite(&file, part, 0));
    s.tell("cached read of it", read_at(&cached, 0, 9000));
    s.tell(
        "sync write",
        open("direct", BOTH | OFlags::SYNC).and_then(|file| write_all(&file, 9000, b"now")),
    );
    s.content("direct");
}

/// Files without names, which exist as long as they are open.
fn gone(s: &mut Script) {
    s.tell("make", put("gone", &pattern(50_000, 8)));
    let file = open("gone", BOTH).expect("just made");
    s.tell("unlink", unlink("gone"));
    s.tell("stat by name", stat("gone"));
    s.tell("stat", stat_of(&file));
    s.tell("read", read_at(&file, 0, 60_000));
    s.tell("write", write_all(&file, 60_000, b"still here"));
    s.tell("read", read_at(&file, 0, 70_000));
    s.tell("truncate", rustix::fs::ftruncate(&file, 1000));
    s.tell("chmod", rustix::fs::fchmod(&file, mode(0o400)));
    s.tell("chown", rustix::fs::fchown(&file, Some(rustix::process::Uid::from_raw(5)), None));
    s.tell("label", rustix::fs::fsetxattr(&file, "user.a", b"1", rustix::fs::XattrFlags::empty()));
    s.tell("times", rustix::fs::futimens(&file, &super::times::at(5, 5)));
    s.tell("sync", rustix::fs::fsync(&file));
    s.tell("stat", stat_of(&file));
    s.tell("read", read_at(&file, 0, 70_000));
    let proc = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    s.tell("open again", open(&proc, READ));
    s.tell("name again", rustix::fs::linkat(CWD, &*proc, CWD, "back", AtFlags::SYMLINK_FOLLOW));
    s.tell(
        "name again by descriptor",
        rustix::fs::linkat(&file, "", CWD, "back", AtFlags::EMPTY_PATH),
    );
    s.tell("a new file of the name", put("gone", b"new"));
    s.content("gone");
    s.tell("old one", read_at(&file, 0, 10).map(|bytes| bytes.len()));
    drop(file);
    let missing: Answer<()> = stat("back").map(drop);
    s.tell(
        "back",
        missing.or_else(|error| if error == Errno::NOENT { Err(error) } else { Ok(()) }),
    );
}
