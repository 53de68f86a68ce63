//! `chattr`: immutable, append-only and the harmless ones; projects.

use crate::calls::*;
use crate::raw::{self, xflags};
use crate::script::{OWNER, Script};
use rustix::fs::{IFlags, OFlags, RenameFlags, XattrFlags, ioctl_getflags, ioctl_setflags};

/// `FS_IOC_SETFLAGS` on a path.
fn set(path: &str, flags: u32) -> Answer<()> {
    ioctl_setflags(open(path, READ | OFlags::NONBLOCK)?, IFlags::from_bits_retain(flags))
}

/// `FS_IOC_GETFLAGS`, without the flags that describe how the volume stores the file.
fn get(path: &str) -> Answer<String> {
    let flags = ioctl_getflags(open(path, READ | OFlags::NONBLOCK)?)?.bits();
    Ok(format!("{flags:#x}"))
}

const SYNC: u32 = 0x8;
const IMMUTABLE: u32 = 0x10;
const APPEND: u32 = 0x20;
const NODUMP: u32 = 0x40;
const NOATIME: u32 = 0x80;
const EXTENTS: u32 = 0x8_0000;

pub fn run(s: &mut Script) {
    words(s);
    fixed(s);
    projects(s);
}

/// Flags that the file always has stay set: ext4 refuses to clear them.
fn kept(path: &str) -> u32 {
    let flags = open(path, READ).and_then(ioctl_getflags).map_or(0, |flags| flags.bits());
    flags & (EXTENTS | 0x1000_0000 | 0x1000)
}

fn words(s: &mut Script) {
    s.tell("make", put("f", b"x"));
    s.tell("mkdir", mkdir("d", 0o755));
    s.tell("pipe", mknod("p", rustix::fs::FileType::Fifo, 0o644, 0));
    for path in ["f", "d"] {
        s.tell(&format!("flags of {path}"), get(path));
        for bit in 0..32 {
            if [14, 19].contains(&bit) {
                // The flag for journaled data changes how a mount works, and the one for extents
                // needs them.
                continue;
            }
            let flag = 1_u32 << bit;
            s.tell(&format!("set {flag:#x} of {path}"), set(path, flag | kept(path)));
            s.tell(&format!("flags {flag:#x} of {path}"), get(path));
            s.tell(&format!("clear {flag:#x} of {path}"), set(path, kept(path)));
        }
        s.tell(&format!("flags of {path}"), get(path));
    }
    s.tell("flags of a pipe", get("p"));
    s.tell("set of a pipe", set("p", NODUMP));
    s.tell("give", chown("f", Some(1000), None));
    s.as_user(OWNER, |s| {
        s.tell("owner sets nodump", set("f", NODUMP | kept("f")));
        s.tell("owner sets immutable", set("f", IMMUTABLE | kept("f")));
        s.tell("owner sets append", set("f", APPEND | kept("f")));
        s.tell("owner sets another's", set("d", NODUMP | kept("d")));
        s.tell("owner sees", get("f"));
    });
    let file = open("f", READ).expect("it is there");
    s.tell("unknown ioctl", raw::unknown_ioctl(&file));
    s.tell("generation", raw::has_generation(&file));
    s.tell("mkdir", mkdir("hands-on", 0o755));
    s.tell("set", set("hands-on", SYNC | NODUMP | NOATIME | kept("hands-on")));
    s.tell("make in it", put("hands-on/f", b"x"));
    s.tell("flags handed on", get("hands-on/f"));
    s.tell("mkdir in it", mkdir("hands-on/d", 0o755));
    s.tell("flags handed on", get("hands-on/d"));
}

fn fixed(s: &mut Script) {
    for (word, flag) in [("immutable", IMMUTABLE), ("append", APPEND)] {
        let at = |name: &str| format!("{word}-{name}");
        let (file, dir) = (at("file"), at("dir"));
        s.tell("make", put(&file, b"content"));
        s.tell("make", put(&at("other"), b"other"));
        s.tell("mkdir", mkdir(&dir, 0o755));
        s.tell("make", put(&format!("{dir}/in"), b"in"));
        let opened = open(&file, BOTH).expect("just made");
        s.tell("set", set(&file, flag | kept(&file)));
        s.tell("set", set(&dir, flag | kept(&dir)));
        let label = |what: &str| format!("{word}: {what}");
        s.tell(&label("flags"), get(&file));
        s.tell(
            &label("statx"),
            stat(&file).map(|stat| format!("{:#x}", stat.stx_attributes.bits() & 0x74)),
        );
        s.tell(&label("read"), content(&file));
        s.tell(&label("write by an earlier opening"), write_all(&opened, 0, b"x"));
        s.tell(&label("allocate by an earlier opening"), raw::fallocate(&opened, 0, 0, 9000));
        s.tell(&label("punch by an earlier opening"), raw::fallocate(&opened, 3, 0, 4096));
        s.tell(&label("truncate by an earlier opening"), rustix::fs::ftruncate(&opened, 3));
        s.tell(&label("open to write"), open(&file, OFlags::WRONLY));
        s.tell(&label("open to append"), open(&file, OFlags::WRONLY | OFlags::APPEND));
        s.tell(&label("open to cut"), open(&file, OFlags::WRONLY | OFlags::TRUNC));
        s.tell(
            &label("open to append and cut"),
            open(&file, OFlags::WRONLY | OFlags::APPEND | OFlags::TRUNC),
        );
        let more = open(&file, OFlags::WRONLY | OFlags::APPEND);
        s.tell(&label("append"), more.and_then(|file| rustix::io::write(file, b" more")));
        s.tell(&label("content"), content(&file));
        s.tell(&label("truncate"), truncate(&file, 2));
        s.tell(&label("chmod"), chmod(&file, 0o600));
        s.tell(&label("chown"), chown(&file, Some(5), None));
        s.tell(
            &label("set times"),
            rustix::fs::utimensat(
                rustix::fs::CWD,
                &*file,
                &super::times::at(5, 5),
                rustix::fs::AtFlags::empty(),
            ),
        );
        s.tell(
            &label("set now"),
            rustix::fs::utimensat(
                rustix::fs::CWD,
                &*file,
                &super::times::NOW,
                rustix::fs::AtFlags::empty(),
            ),
        );
        s.tell(&label("label"), rustix::fs::setxattr(&*file, "user.a", b"1", XattrFlags::empty()));
        s.tell(&label("unlabel"), rustix::fs::removexattr(&*file, "user.a"));
        s.tell(&label("link"), link(&*file, &*at("linked")));
        s.tell(&label("rename"), rename(&*file, &*at("renamed")));
        s.tell(&label("rename over"), rename(&*at("other"), &*file));
        s.tell(&label("exchange"), rename_with(&at("other"), &file, RenameFlags::EXCHANGE));
        s.tell(&label("unlink"), unlink(&*file));
        s.tell(&label("access to write"), rustix::fs::access(&*file, rustix::fs::Access::WRITE_OK));
        s.tell(&label("create in"), create(&format!("{dir}/new"), 0o644));
        s.tell(&label("mkdir in"), mkdir(&format!("{dir}/newdir"), 0o755));
        s.tell(&label("symlink in"), symlink("x", &*format!("{dir}/newlink")));
        s.tell(&label("link in"), link(&*at("other"), &*format!("{dir}/other")));
        s.tell(&label("move in"), rename(&*at("other"), &*format!("{dir}/moved")));
        s.tell(&label("unlink in"), unlink(&*format!("{dir}/in")));
        s.tell(&label("rename in"), rename(&*format!("{dir}/in"), &*format!("{dir}/in2")));
        s.tell(&label("move out"), rename(&*format!("{dir}/in"), &*at("out")));
        s.tell(&label("write in"), put(&format!("{dir}/in"), b"changed"));
        s.tell(&label("nameless in"), open(&dir, BOTH | OFlags::TMPFILE));
        s.tell(&label("chmod of directory"), chmod(&dir, 0o700));
        s.tell(&label("rmdir"), rmdir(&*dir));
        s.tell(&label("rename of directory"), rename(&*dir, &*at("dir2")));
        s.tell(&label("left"), list(&dir));
        // A mount with a write-back cache reports a refused write here, to whichever caller comes.
        let _ = rustix::fs::fsync(&opened);
        let _ = rustix::fs::syncfs(&opened);
        s.tell(&label("clear file"), set(&file, kept(&file)));
        s.tell(&label("clear directory"), set(&dir, kept(&dir)));
        s.tell(&label("write again"), put(&file, b"free"));
        s.tell(&label("unlink again"), unlink(&*file));
    }
}

fn projects(s: &mut Script) {
    let of = |path: &str| {
        let all = xflags(open(path, READ | OFlags::NONBLOCK)?)?;
        Ok(format!("flags {:#x} project {} extents {}", all.flags, all.project, all.extent_bytes))
    };
    let change = |path: &str, project: u32, flags: u32| {
        let file = open(path, READ | OFlags::NONBLOCK)?;
        let mut all = xflags(&file)?;
        (all.project, all.flags) = (project, flags);
        raw::set_xflags(&file, all)
    };
    s.tell("make", put("project", b"x"));
    s.tell("mkdir", mkdir("project-dir", 0o755));
    s.tell("of a file", of("project"));
    s.tell("set", change("project", 77, 0));
    s.tell("of a file", of("project"));
    for flags in [0x8, 0x10, 0x20, 0x40, 0x80, 0x100, 0x200, 0x8000, 0x800, 1 << 20] {
        s.tell(&format!("set {flags:#x}"), change("project", 0, flags));
        s.tell(&format!("flags {flags:#x}"), of("project"));
        s.tell("clear", change("project", 0, 0));
    }
    s.tell("set of a directory", change("project-dir", 0, 0x200));
    s.tell("of a directory", of("project-dir"));
    s.tell("make in it", put("project-dir/f", b"x"));
    s.tell("of what is in it", of("project-dir/f"));
    s.tell("mkdir in it", mkdir("project-dir/d", 0o755));
    s.tell("of what is in it", of("project-dir/d"));
    s.tell("move across projects", rename("project", "project-dir/moved"));
    s.tell("link across projects", link("project", "project-dir/linked"));
    s.tell("move out of a project", rename("project-dir/f", "out"));
    s.tell("move within", rename("project-dir/out", "project-dir/f2"));
    s.tell("of what moved", of("out"));
    s.tell("give", chown("project", Some(1000), None));
    s.as_user(OWNER, |s| {
        s.tell("owner sets a project", change("project", 88, 0));
        s.tell("owner sets nodump", change("project", 0, 0x80));
        s.tell("owner sets immutable", change("project", 0, 0x8));
        s.tell("owner sees", of("project"));
    });
}
