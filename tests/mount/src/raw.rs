//! The calls that rustix marks unsafe, as safe functions.
#![allow(unsafe_code)]

use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};
use std::ffi::c_void;

fn answer(rc: i64) -> Result<i64, Errno> {
    match rc {
        -1 => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
        rc => Ok(rc),
    }
}

/// A mapped file. Nothing else changes the file while a caller reads these bytes.
#[derive(Debug)]
pub struct Mapped {
    at: *mut c_void,
    len: usize,
}

impl Mapped {
    /// Maps `len` bytes from `offset` on, for reading and, with `write`, for writing.
    pub fn new(
        file: &OwnedFd,
        offset: u64,
        len: usize,
        write: bool,
        shared: bool,
    ) -> Result<Mapped, Errno> {
        let mut prot = ProtFlags::READ;
        prot.set(ProtFlags::WRITE, write);
        let flags = if shared { MapFlags::SHARED } else { MapFlags::PRIVATE };
        // SAFETY: the kernel chooses a place where nothing is, so no memory of ours is replaced.
        let at = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, prot, flags, file, offset)? };
        Ok(Mapped { at, len })
    }

    fn check(&self, from: usize, len: usize) {
        assert!(from <= self.len && len <= self.len - from, "outside of what is mapped");
    }

    /// A copy of `len` bytes; they are in pages that the file has.
    pub fn get(&self, from: usize, len: usize) -> Vec<u8> {
        self.check(from, len);
        let mut bytes = vec![0; len];
        // SAFETY: the range lies in the mapping (checked) and in the new vector, which overlap
        // nothing; the mapping lives as long as `self`, and no reference to its bytes is ever made.
        unsafe {
            std::ptr::copy(self.at.cast::<u8>().add(from), bytes.as_mut_ptr(), len);
        }
        bytes
    }

    /// Changes bytes of a mapping made for writing.
    pub fn set(&mut self, from: usize, bytes: &[u8]) {
        self.check(from, bytes.len());
        // SAFETY: as in `get`; a mapping made for reading ends the process by a signal, not in
        // wrong memory.
        unsafe {
            std::ptr::copy(bytes.as_ptr(), self.at.cast::<u8>().add(from), bytes.len());
        }
    }

    /// Writes changes to the file, and waits for them.
    pub fn sync(&self) -> Result<(), Errno> {
        // SAFETY: the range is the mapping itself.
        unsafe { rustix::mm::msync(self.at, self.len, MsyncFlags::SYNC) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the range is the mapping itself, and `self` is the only one that knows it.
        // An error would leave it mapped, which does no harm.
        let _ = unsafe { rustix::mm::munmap(self.at, self.len) };
    }
}

/// `sync_file_range`.
pub fn sync_file_range(file: impl AsFd, from: i64, len: i64, flags: u32) -> Result<(), Errno> {
    // SAFETY: no memory is passed, and the descriptor is open as long as it is borrowed.
    let rc = unsafe { libc::sync_file_range(file.as_fd().as_raw_fd(), from, len, flags) };
    answer(rc.into()).map(drop)
}

/// `fallocate` with any mode, also undefined ones.
pub fn fallocate(file: impl AsFd, mode: i32, from: i64, len: i64) -> Result<(), Errno> {
    // SAFETY: no memory is passed, and the descriptor is open as long as it is borrowed.
    let rc = unsafe { libc::fallocate(file.as_fd().as_raw_fd(), mode, from, len) };
    answer(rc.into()).map(drop)
}

/// The kind of a record lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// Shared.
    Read,
    /// Exclusive.
    Write,
    /// None.
    Off,
}

/// `F_SETLK`, or `F_OFD_SETLK` with `opening`: locks `len` bytes (0: all) from `from` on.
pub fn lock(file: impl AsFd, kind: Lock, from: i64, len: i64, opening: bool) -> Result<(), Errno> {
    let mut wish = record(kind, from, len);
    let command = if opening { libc::F_OFD_SETLK } else { libc::F_SETLK };
    // SAFETY: `wish` is a whole `struct flock` that outlives the call.
    let rc = unsafe { libc::fcntl(file.as_fd().as_raw_fd(), command, &raw mut wish) };
    answer(rc.into()).map(drop)
}

/// `F_GETLK`: the conflicting lock, as kind, start and length.
pub fn lock_in_the_way(file: impl AsFd, kind: Lock, from: i64, len: i64) -> Result<String, Errno> {
    let mut wish = record(kind, from, len);
    // SAFETY: `wish` is a whole `struct flock` that outlives the call.
    let rc = unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_GETLK, &raw mut wish) };
    answer(rc.into())?;
    Ok(match i32::from(wish.l_type) {
        libc::F_UNLCK => "free".into(),
        libc::F_RDLCK => format!("read {} {}", wish.l_start, wish.l_len),
        _ => format!("write {} {}", wish.l_start, wish.l_len),
    })
}

fn record(kind: Lock, from: i64, len: i64) -> libc::flock {
    let kind = match kind {
        Lock::Read => libc::F_RDLCK,
        Lock::Write => libc::F_WRLCK,
        Lock::Off => libc::F_UNLCK,
    };
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: from,
        l_len: len,
        l_pid: 0,
    }
}

/// `struct fsxattr`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Xflags {
    /// `FS_XFLAG_*`.
    pub flags: u32,
    /// Extent size.
    pub extent_bytes: u32,
    /// Extents.
    pub extents: u32,
    /// Project.
    pub project: u32,
    /// Extent size of copies.
    pub cow_bytes: u32,
    pad: [u8; 8],
}

/// `FS_IOC_FSGETXATTR`.
pub fn xflags(file: impl AsFd) -> Result<Xflags, Errno> {
    let mut all = Xflags::default();
    // SAFETY: the request's number says 28 bytes, the size of the structure.
    let rc = unsafe { libc::ioctl(file.as_fd().as_raw_fd(), 0x801C_581F, &raw mut all) };
    answer(rc.into()).map(|_| all)
}

/// `FS_IOC_FSSETXATTR`.
pub fn set_xflags(file: impl AsFd, mut all: Xflags) -> Result<(), Errno> {
    // SAFETY: the request's number says 28 bytes, the size of the structure.
    let rc = unsafe { libc::ioctl(file.as_fd().as_raw_fd(), 0x401C_5820, &raw mut all) };
    answer(rc.into()).map(drop)
}

/// An undefined `ioctl` with a word of memory.
pub fn unknown_ioctl(file: impl AsFd) -> Result<(), Errno> {
    let mut word = [0_u64; 32];
    // SAFETY: the number says 8 bytes; more are there.
    let rc = unsafe { libc::ioctl(file.as_fd().as_raw_fd(), 0x8008_F1FE, &raw mut word) };
    answer(rc.into()).map(drop)
}

/// `FS_IOC_GETVERSION` works.
pub fn has_generation(file: impl AsFd) -> Result<(), Errno> {
    let mut word = [0_u64; 1];
    // SAFETY: the number says 8 bytes, which are there.
    let rc = unsafe { libc::ioctl(file.as_fd().as_raw_fd(), 0x8008_7601, &raw mut word) };
    answer(rc.into()).map(drop)
}

/// A context of Linux' asynchronous I/O (`io_submit`), with one write in flight at a time.
#[derive(Debug)]
pub struct AsyncWrites {
    context: libc::c_ulong,
}

/// `struct iocb` of `linux/aio_abi.h`.
#[repr(C)]
#[derive(Default)]
struct Iocb {
    data: u64,
    key: u32,
    rw_flags: u32,
    opcode: u16,
    priority: i16,
    fd: u32,
    buf: u64,
    len: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_fd: u32,
}

/// `IOCB_CMD_PWRITE`.
const PWRITE: u16 = 1;

impl AsyncWrites {
    /// A context of its own.
    pub fn new() -> Result<AsyncWrites, Errno> {
        let mut context: libc::c_ulong = 0;
        // SAFETY: the kernel writes one number, to a variable of that type.
        answer(unsafe { libc::syscall(libc::SYS_io_setup, 8, &raw mut context) })?;
        Ok(AsyncWrites { context })
    }

    /// Starts a write of `bytes` at `offset` of `file`, and waits for its end. Returns the bytes
    /// written.
    pub fn write(&self, file: impl AsFd, bytes: &[u8], offset: u64) -> Result<usize, Errno> {
        let iocb = Iocb {
            opcode: PWRITE,
            fd: file.as_fd().as_raw_fd() as u32,
            buf: bytes.as_ptr() as u64,
            len: bytes.len() as u64,
            offset: offset as i64,
            ..Iocb::default()
        };
        let list = [&raw const iocb];
        // SAFETY: the context is this one's; the kernel copies the request before the call returns,
        // and reads `bytes` until the event below, which this function waits for.
        answer(unsafe { libc::syscall(libc::SYS_io_submit, self.context, 1, list.as_ptr()) })?;
        // data, obj, res, res2
        let mut event = [0i64; 4];
        let no_limit = std::ptr::null::<libc::timespec>();
        // SAFETY: the kernel writes one `struct io_event`, 32 bytes, to `event`.
        answer(unsafe {
            libc::syscall(libc::SYS_io_getevents, self.context, 1, 1, event.as_mut_ptr(), no_limit)
        })?;
        match event[2] {
            res @ 0.. => Ok(res as usize),
            res => Err(Errno::from_raw_os_error(-res as i32)),
        }
    }
}

impl Drop for AsyncWrites {
    fn drop(&mut self) {
        // SAFETY: the context is this one's, and nothing is in flight.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}

/// A file handle as `name_to_handle_at` returns it for a file on a FUSE mount: node (two words),
/// generation.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FileHandle {
    bytes: u32,
    kind: i32,
    /// High half of the node's number, low half, generation.
    words: [u32; 3],
    spare: [u32; 29],
}

impl FileHandle {
    /// The same handle for another node's number.
    pub fn with_node(self, node: u64) -> FileHandle {
        FileHandle { words: [(node >> 32) as u32, node as u32, self.words[2]], ..self }
    }

    /// The node's number.
    pub fn node(&self) -> u64 {
        u64::from(self.words[0]) << 32 | u64::from(self.words[1])
    }
}

/// The handle of the file at `path`.
pub fn handle_of(path: &std::path::Path) -> Result<FileHandle, Errno> {
    let path =
        std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).map_err(|_| Errno::INVAL)?;
    let mut handle = FileHandle { bytes: 128, kind: 0, words: [0; 3], spare: [0; 29] };
    let mut mount = 0i32;
    let (handle_at, mount_at) = (&raw mut handle, &raw mut mount);
    // SAFETY: the handle has room for the 128 bytes that it says; path and mount id are valid for
    // the call.
    answer(unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            libc::AT_FDCWD,
            path.as_ptr(),
            handle_at,
            mount_at,
            0,
        )
    })?;
    Ok(handle)
}

/// Opens the file of `handle` for reading, on the filesystem that contains `mount`.
pub fn open_handle(mount: impl AsFd, handle: &FileHandle) -> Result<OwnedFd, Errno> {
    use rustix::fd::FromRawFd;
    let (mut handle, dir) = (*handle, mount.as_fd().as_raw_fd());
    // SAFETY: the handle is valid for the call.
    let fd = answer(unsafe {
        libc::syscall(libc::SYS_open_by_handle_at, dir, &raw mut handle, libc::O_RDONLY)
    })?;
    // SAFETY: the kernel has just made this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}
