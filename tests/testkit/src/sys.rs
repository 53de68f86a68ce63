//! The few ioctls that no safe crate has, as safe functions.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// `struct fsxattr` of the `FS_IOC_FSGETXATTR` ioctl: flags, extent size, extents, project, ….
#[repr(C)]
#[derive(Default, Clone, Copy)]
struct FsXattr {
    xflags: u32,
    extsize: u32,
    nextents: u32,
    projid: u32,
    cowextsize: u32,
    pad: [u8; 8],
}

const FS_IOC_GETFLAGS: libc::c_ulong = 0x8008_6601;
const FS_IOC_SETFLAGS: libc::c_ulong = 0x4008_6602;
const FS_IOC_FSGETXATTR: libc::c_ulong = 0x801c_581f;
const FS_IOC_FSSETXATTR: libc::c_ulong = 0x401c_5820;
const EXT4_IOC_SHUTDOWN: libc::c_ulong = 0x8004_587d;
const SHUTDOWN_NO_LOG_FLUSH: u32 = 2;
const XFLAG_PROJECT_INHERIT: u32 = 0x200;

/// Calls ioctl `request` with a pointer to `arg`.
///
/// Private: every request above reads and writes at most `size_of::<T>()` bytes of `arg`.
fn ioctl<T: Copy>(fd: impl AsFd, request: libc::c_ulong, arg: &mut T) -> io::Result<()> {
    // SAFETY: the descriptor is open for as long as `fd` is borrowed; `arg` is valid for reads and
    // writes of its whole size, which each caller below matches to the request's own size (it is
    // encoded in the request); all types passed admit every bit pattern.
    let rc = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), request, std::ptr::from_mut(arg)) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The inode's flags, as `FS_IOC_GETFLAGS` returns them.
pub fn flags(fd: impl AsFd) -> io::Result<u32> {
    // The request encodes 8 bytes, ext4 writes 4: the buffer fits both.
    let mut flags = [0u32; 2];
    ioctl(fd, FS_IOC_GETFLAGS, &mut flags)?;
    Ok(flags[0])
}

/// Sets `flags` in the inode's flags.
pub fn add_flags(fd: impl AsFd, flags: u32) -> io::Result<()> {
    let mut all = [self::flags(fd.as_fd())? | flags, 0];
    ioctl(fd, FS_IOC_SETFLAGS, &mut all)
}

/// Clears `flags` in the inode's flags.
pub fn clear_flags(fd: impl AsFd, flags: u32) -> io::Result<()> {
    let mut all = [self::flags(fd.as_fd())? & !flags, 0];
    ioctl(fd, FS_IOC_SETFLAGS, &mut all)
}

/// The inode's project id.
pub fn project(fd: impl AsFd) -> io::Result<u32> {
    let mut xattr = FsXattr::default();
    ioctl(fd, FS_IOC_FSGETXATTR, &mut xattr)?;
    Ok(xattr.projid)
}

/// Sets the inode's project id; with `inherit`, files created inside get it, too.
pub fn set_project(fd: impl AsFd, project: u32, inherit: bool) -> io::Result<()> {
    let mut xattr = FsXattr::default();
    ioctl(fd.as_fd(), FS_IOC_FSGETXATTR, &mut xattr)?;
    xattr.projid = project;
    if inherit {
        xattr.xflags |= XFLAG_PROJECT_INHERIT;
    }
    ioctl(fd, FS_IOC_FSSETXATTR, &mut xattr)
}

/// Cuts an ext4 volume off from its device at once, without writing the log, like a power cut.
pub fn shut_down(fd: impl AsFd) -> io::Result<()> {
    let mut how = SHUTDOWN_NO_LOG_FLUSH;
    ioctl(fd, EXT4_IOC_SHUTDOWN, &mut how)
}

/// Sets an encryption policy (version 2) on an empty directory; `key` is the key's identifier.
pub fn set_encryption_policy(
    fd: impl AsFd,
    contents_mode: u8,
    names_mode: u8,
    flags: u8,
    key: [u8; 16],
) -> io::Result<()> {
    const FS_IOC_SET_ENCRYPTION_POLICY: libc::c_ulong = 0x800c_6613;
    let mut policy = [0u8; 24];
    policy[..4].copy_from_slice(&[2, contents_mode, names_mode, flags]);
    policy[8..].copy_from_slice(&key);
    ioctl(fd, FS_IOC_SET_ENCRYPTION_POLICY, &mut policy)
}

/// Gives the kernel a raw encryption key for the volume of `fd`; returns the key's identifier.
pub fn add_encryption_key(fd: impl AsFd, key: &[u8; 64]) -> io::Result<[u8; 16]> {
    const FS_IOC_ADD_ENCRYPTION_KEY: libc::c_ulong = 0xc050_6617;
    let mut arg = [0u8; 80 + 64];
    arg[0] = 2; // an identifier names the key
    arg[40] = 64; // raw_size
    arg[80..].copy_from_slice(key);
    ioctl(fd, FS_IOC_ADD_ENCRYPTION_KEY, &mut arg)?;
    Ok(arg[8..24].try_into().expect("16 bytes"))
}
