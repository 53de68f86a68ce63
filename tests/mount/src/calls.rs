//! System calls in the form that scripts use: paths relative to the working directory, modes as
//! numbers.

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, Dev, FileType, Mode, OFlags, RenameFlags, Statx, StatxFlags};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};

pub use rustix::fs::{link, readlink, rename, rmdir, symlink, unlink};

/// Answer of a call.
pub type Answer<T> = Result<T, Errno>;

/// Open for reading.
pub const READ: OFlags = OFlags::RDONLY;
/// Open for reading and writing.
pub const BOTH: OFlags = OFlags::RDWR;

/// Permission bits.
pub fn mode(bits: u32) -> Mode {
    Mode::from_raw_mode(bits)
}

/// Opens; a new file has mode 0644.
pub fn open(path: &str, flags: OFlags) -> Answer<OwnedFd> {
    rustix::fs::open(path, flags | OFlags::CLOEXEC, mode(0o644))
}

/// Opens; a new file has the mode `bits`.
pub fn open_mode(path: &str, flags: OFlags, bits: u32) -> Answer<OwnedFd> {
    rustix::fs::open(path, flags | OFlags::CLOEXEC, mode(bits))
}

/// Creates a file that does not exist.
pub fn create(path: &str, bits: u32) -> Answer<OwnedFd> {
    open_mode(path, OFlags::CREATE | OFlags::EXCL | BOTH, bits)
}

/// Creates a file with the content `bytes`, or replaces the content of an existing one.
pub fn put(path: &str, bytes: &[u8]) -> Answer<()> {
    let file = open(path, OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY)?;
    write_all(&file, 0, bytes)
}

/// Writes all of `bytes` at `offset`.
pub fn write_all(file: &OwnedFd, mut offset: u64, mut bytes: &[u8]) -> Answer<()> {
    while !bytes.is_empty() {
        let written = rustix::io::pwrite(file, bytes, offset)?;
        bytes = &bytes[written..];
        offset += written as u64;
    }
    Ok(())
}

/// Reads up to `len` bytes at `offset`.
pub fn read_at(file: &OwnedFd, offset: u64, len: usize) -> Answer<Vec<u8>> {
    let mut bytes = vec![0; len];
    let mut have = 0;
    while have < len {
        match rustix::io::pread(file, &mut bytes[have..], offset + have as u64)? {
            0 => break,
            read => have += read,
        }
    }
    bytes.truncate(have);
    Ok(bytes)
}

/// All of a file, up to 16 MiB.
pub fn content(path: &str) -> Answer<Vec<u8>> {
    read_at(&open(path, READ | OFlags::NONBLOCK)?, 0, 16 << 20)
}

/// `lstat`, with the birth time.
pub fn stat(path: &str) -> Answer<Statx> {
    let all = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    rustix::fs::statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, all)
}

/// `fstat`.
pub fn stat_of(file: &OwnedFd) -> Answer<Statx> {
    rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)
}

/// Makes a directory.
pub fn mkdir(path: &str, bits: u32) -> Answer<()> {
    rustix::fs::mkdir(path, mode(bits))
}

/// Makes a node that is neither a directory nor a symlink.
pub fn mknod(path: &str, kind: FileType, bits: u32, dev: Dev) -> Answer<()> {
    rustix::fs::mknodat(CWD, path, kind, mode(bits), dev)
}

/// Sets permission bits.
pub fn chmod(path: &str, bits: u32) -> Answer<()> {
    rustix::fs::chmod(path, mode(bits))
}

/// Changes the owners; `None` keeps one.
pub fn chown(path: &str, uid: Option<u32>, gid: Option<u32>) -> Answer<()> {
    let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
    rustix::fs::chownat(CWD, path, uid, gid, AtFlags::SYMLINK_NOFOLLOW)
}

/// `renameat2`.
pub fn rename_with(from: &str, to: &str, flags: RenameFlags) -> Answer<()> {
    rustix::fs::renameat_with(CWD, from, CWD, to, flags)
}

/// Truncates or extends.
pub fn truncate(path: &str, len: u64) -> Answer<()> {
    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, mode(0))?;
    rustix::fs::ftruncate(file, len)
}

/// Names in a directory with their types, sorted by bytes; includes "." and "..".
pub fn list(path: &str) -> Answer<String> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::new(open(path, READ | OFlags::DIRECTORY)?)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes().escape_ascii().to_string();
        names.push(format!("{name}({:?})", entry.file_type()));
    }
    names.sort();
    Ok(names.join(" "))
}

/// Bytes that identify their offset.
pub fn pattern(len: usize, seed: u32) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 8) as u8 | 1
    };
    (0..len).map(|_| next()).collect()
}
