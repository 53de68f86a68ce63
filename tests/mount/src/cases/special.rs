//! Pipes, sockets, devices.

use crate::calls::*;
use crate::script::{OWNER, Script};
use rustix::fs::{FileType, OFlags, makedev};
use rustix::io::Errno;
use std::io::{Read, Write};

pub fn run(s: &mut Script) {
    let kinds = [
        ("fifo", FileType::Fifo, 0),
        ("socket", FileType::Socket, 0),
        ("null", FileType::CharacterDevice, makedev(1, 3)),
        ("zero", FileType::CharacterDevice, makedev(1, 5)),
        ("none", FileType::BlockDevice, makedev(0xEFF, 0xFFFFF)),
        ("old", FileType::BlockDevice, makedev(255, 255)),
        ("new", FileType::CharacterDevice, makedev(256, 256)),
        ("zeros", FileType::CharacterDevice, 0),
        ("regular", FileType::RegularFile, 0),
        ("directory", FileType::Directory, 0),
        ("symlink", FileType::Symlink, 0),
    ];
    for (name, kind, device) in kinds {
        s.tell(&format!("mknod {name}"), mknod(name, kind, 0o640, device));
        s.tell(&format!("mknod {name} again"), mknod(name, kind, 0o640, device));
        s.stat(name);
        s.as_user(OWNER, |s| {
            s.tell(
                &format!("owner mknods {name}"),
                mknod(&format!("{name}2"), kind, 0o640, device),
            );
        });
    }
    s.tell("list", list("."));
    s.tell("open a socket", open("socket", READ));
    s.tell("open no device", open("none", READ | OFlags::NONBLOCK));
    s.tell("write to null", open("null", BOTH).and_then(|null| rustix::io::write(null, b"gone")));
    s.tell("read from zero", open("zero", BOTH).and_then(|zero| read_at(&zero, 0, 10)));
    s.tell("open a pipe to write", open("fifo", OFlags::WRONLY | OFlags::NONBLOCK));
    s.tell(
        "truncate a pipe",
        open("fifo", BOTH | OFlags::NONBLOCK).and_then(|pipe| rustix::fs::ftruncate(pipe, 0)),
    );
    s.tell("through a pipe", through_a_pipe());
    s.tell("through a socket", through_a_socket());
    s.stat("bound");
    s.tell("chmod a pipe", chmod("fifo", 0o600));
    s.tell("chown a device", chown("null", Some(1000), Some(1000)));
    s.stat("null");
    for name in ["fifo", "socket", "null", "bound"] {
        s.tell(&format!("link {name}"), link(name, &*format!("{name}-linked")));
        s.tell(&format!("rename {name}"), rename(name, &*format!("{name}-moved")));
        s.stat(&format!("{name}-linked"));
        s.tell(&format!("unlink {name}"), unlink(&*format!("{name}-moved")));
    }
}

fn failed(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

fn through_a_pipe() -> Answer<Vec<u8>> {
    let pipe = open("fifo", BOTH | OFlags::NONBLOCK)?;
    rustix::io::write(&pipe, b"through the pipe")?;
    let mut bytes = vec![0; 100];
    let len = rustix::io::read(&pipe, &mut bytes)?;
    bytes.truncate(len);
    Ok(bytes)
}

fn through_a_socket() -> Answer<Vec<u8>> {
    let listener = std::os::unix::net::UnixListener::bind("bound").map_err(failed)?;
    let mut one = std::os::unix::net::UnixStream::connect("bound").map_err(failed)?;
    let (mut other, _) = listener.accept().map_err(failed)?;
    one.write_all(b"through the socket").map_err(failed)?;
    drop(one);
    let mut bytes = Vec::new();
    other.read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}
