//! Decodes requests and checks each struct and name.

use super::{Limits, Message, Operation, Request};
use crate::abi::{self, Fattr, IoctlFlags, Opcode, WriteRequest};
use crate::operations::{Caller, HandleId, NewNode, NodeId, SetAttr, SetTime, Timestamp};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use zerocopy::FromBytes;

const S_IFMT: u32 = 0o170_000;
const S_IFREG: u32 = 0o100_000;
const S_IFDIR: u32 = 0o040_000;
const S_IFCHR: u32 = 0o020_000;
const S_IFBLK: u32 = 0o060_000;
const S_IFIFO: u32 = 0o010_000;
const S_IFSOCK: u32 = 0o140_000;
/// Set-ID bits, sticky bit and permissions.
const PERMISSIONS: u32 = 0o7777;

/// The struct at the front of `bytes`. EINVAL if there are too few bytes.
fn fixed<T: FromBytes>(bytes: &[u8]) -> Result<T, Errno> {
    T::read_from_prefix(bytes).map(|(value, _)| value).map_err(|_| Errno::INVAL)
}

/// Takes a NUL-terminated string off the front.
fn text<'a>(payload: &mut &'a [u8]) -> Result<&'a [u8], Errno> {
    let end = payload.iter().position(|&b| b == 0).ok_or(Errno::INVAL)?;
    let text = &payload[..end];
    *payload = &payload[end + 1..];
    Ok(text)
}

/// Takes one path component off the front.
fn name<'a>(payload: &mut &'a [u8]) -> Result<&'a OsStr, Errno> {
    match text(payload)? {
        b"" => Err(Errno::INVAL),
        name if name.len() > abi::NAME_MAX => Err(Errno::NAMETOOLONG),
        name if name.contains(&b'/') => Err(Errno::INVAL),
        name => Ok(OsStr::from_bytes(name)),
    }
}

/// As [`name`], but refuses "." and "..", which cannot be created or removed.
fn entry_name<'a>(payload: &mut &'a [u8]) -> Result<&'a OsStr, Errno> {
    match name(payload)? {
        name if name == "." || name == ".." => Err(Errno::INVAL),
        name => Ok(name),
    }
}

/// Takes the name of an extended attribute off the front. It may hold any bytes but NUL.
fn xattr_name<'a>(payload: &mut &'a [u8]) -> Result<&'a OsStr, Errno> {
    match text(payload)? {
        b"" => Err(Errno::INVAL),
        name if name.len() > abi::NAME_MAX => Err(Errno::RANGE),
        name => Ok(OsStr::from_bytes(name)),
    }
}

/// Checks that `offset` and the end of the range of `len` bytes are possible file sizes.
fn range(offset: u64, len: u64) -> Result<(), Errno> {
    match offset.checked_add(len) {
        Some(end) if end <= i64::MAX as u64 => Ok(()),
        _ => Err(Errno::INVAL),
    }
}

fn handle_if(valid: bool, fh: u64) -> Option<HandleId> {
    valid.then_some(HandleId(fh))
}

impl<'a> Request<'a> {
    /// Checks `message`.
    ///
    /// # Errors
    /// The errno is the reply; for an operation without a reply it is dropped.
    pub fn read(message: &Message<'a>, limits: &Limits) -> Result<Request<'a>, Errno> {
        let head = &message.head;
        let by = Caller { uid: head.uid, gid: head.gid, pid: head.pid };
        let opcode = Opcode::of(head.opcode).ok_or(Errno::NOSYS)?;
        let operation = operation(opcode, message.fixed, message.payload, limits)?;
        Ok(Request { node: NodeId(head.nodeid), by, operation })
    }
}

fn operation<'a>(
    opcode: Opcode,
    front: &[u8],
    mut rest: &'a [u8],
    limits: &Limits,
) -> Result<Operation<'a>, Errno> {
    let rest = &mut rest;
    Ok(match opcode {
        Opcode::Lookup => Operation::Lookup { name: name(rest)? },
        Opcode::Forget => Operation::Forget { count: fixed::<abi::ForgetIn>(front)?.nlookup },
        Opcode::BatchForget => {
            let count = fixed::<abi::BatchForgetIn>(front)?.count as usize;
            let bytes = count.checked_mul(size_of::<abi::ForgetOne>()).ok_or(Errno::INVAL)?;
            Operation::BatchForget { all: rest.get(..bytes).ok_or(Errno::INVAL)? }
        }
        Opcode::Getattr => {
            let raw: abi::GetattrIn = fixed(front)?;
            Operation::Getattr {
                handle: handle_if(raw.getattr_flags & abi::GETATTR_FH != 0, raw.fh),
            }
        }
        Opcode::Statx => {
            let raw: abi::StatxIn = fixed(front)?;
            Operation::Statx { handle: handle_if(raw.getattr_flags & abi::GETATTR_FH != 0, raw.fh) }
        }
        Opcode::Setattr => set_attributes(&fixed(front)?)?,
        Opcode::Readlink => Operation::Readlink,
        Opcode::Symlink => {
            let name = entry_name(rest)?;
            match text(rest)? {
                b"" => return Err(Errno::NOENT),
                target if target.len() >= abi::PAGE => return Err(Errno::NAMETOOLONG),
                target => Operation::Symlink { name, target: OsStr::from_bytes(target) },
            }
        }
        Opcode::Mknod => {
            let raw: abi::MknodIn = fixed(front)?;
            let mode = match raw.mode & S_IFMT {
                0 => raw.mode & PERMISSIONS | S_IFREG,
                S_IFREG | S_IFCHR | S_IFBLK | S_IFIFO | S_IFSOCK => {
                    raw.mode & (S_IFMT | PERMISSIONS)
                }
                _ => return Err(Errno::INVAL),
            };
            let new = NewNode { mode, umask: raw.umask & 0o777, rdev: raw.rdev };
            Operation::Mknod { name: entry_name(rest)?, new }
        }
        Opcode::Mkdir => {
            let raw: abi::MkdirIn = fixed(front)?;
            let mode = raw.mode & PERMISSIONS | S_IFDIR;
            let new = NewNode { mode, umask: raw.umask & 0o777, rdev: 0 };
            Operation::Mkdir { name: entry_name(rest)?, new }
        }
        Opcode::Unlink => Operation::Unlink { name: entry_name(rest)? },
        Opcode::Rmdir => Operation::Rmdir { name: entry_name(rest)? },
        Opcode::Rename => {
            let raw: abi::RenameIn = fixed(front)?;
            let (name, new_name) = (entry_name(rest)?, entry_name(rest)?);
            Operation::Rename { name, new_dir: NodeId(raw.newdir), new_name, flags: 0 }
        }
        Opcode::Rename2 => {
            let raw: abi::Rename2In = fixed(front)?;
            let (name, new_name) = (entry_name(rest)?, entry_name(rest)?);
            Operation::Rename { name, new_dir: NodeId(raw.newdir), new_name, flags: raw.flags }
        }
        Opcode::Link => {
            let node = NodeId(fixed::<abi::LinkIn>(front)?.oldnodeid);
            Operation::Link { node, name: entry_name(rest)? }
        }
        Opcode::Open => Operation::Open { flags: fixed::<abi::OpenIn>(front)?.flags },
        Opcode::Opendir => Operation::Opendir { flags: fixed::<abi::OpenIn>(front)?.flags },
        Opcode::Read => {
            let (handle, offset, size) = span(front, limits.max_transfer.min(limits.max_reply))?;
            range(offset, size as u64)?;
            Operation::Read { handle, offset, size }
        }
        Opcode::Readdir | Opcode::Readdirplus => {
            let (handle, offset, size) = span(front, limits.max_reply)?;
            Operation::Readdir { handle, offset, size, plus: opcode == Opcode::Readdirplus }
        }
        Opcode::Write => {
            let raw: abi::WriteIn = fixed(front)?;
            range(raw.offset, raw.size.into())?;
            if raw.size > limits.max_transfer {
                return Err(Errno::INVAL);
            }
            Operation::Write {
                handle: HandleId(raw.fh),
                offset: raw.offset,
                bytes: rest.get(..raw.size as usize).ok_or(Errno::INVAL)?,
                how: WriteRequest::from_bits_retain(raw.write_flags),
                open_flags: raw.flags,
            }
        }
        Opcode::Statfs => Operation::Statfs,
        Opcode::Flush => Operation::Flush { handle: HandleId(fixed::<abi::FlushIn>(front)?.fh) },
        Opcode::Release => {
            Operation::Release { handle: HandleId(fixed::<abi::ReleaseIn>(front)?.fh) }
        }
        Opcode::Releasedir => {
            Operation::Releasedir { handle: HandleId(fixed::<abi::ReleaseIn>(front)?.fh) }
        }
        Opcode::Fsync => Operation::Fsync {
            handle: HandleId(fixed::<abi::FsyncIn>(front)?.fh),
            data_only: data_only(front)?,
        },
        Opcode::Fsyncdir => Operation::Fsyncdir { data_only: data_only(front)? },
        Opcode::Syncfs => Operation::Syncfs,
        Opcode::Setxattr => {
            let (size, flags) = match front.len() {
                8.. => fixed::<[u32; 2]>(front).map(|[size, flags]| (size as usize, flags))?,
                _ => return Err(Errno::INVAL),
            };
            let long = fixed::<abi::SetxattrIn>(front).map_or(0, |raw| raw.setxattr_flags);
            let name = xattr_name(rest)?;
            if size > abi::XATTR_MAX {
                return Err(Errno::TOOBIG);
            }
            let value = rest.get(..size).ok_or(Errno::INVAL)?;
            let kill_sgid = long & abi::SETXATTR_ACL_KILL_SGID != 0;
            Operation::Setxattr { name, value, flags, kill_sgid }
        }
        Opcode::Getxattr => {
            let raw: abi::GetxattrIn = fixed(front)?;
            Operation::Getxattr { name: xattr_name(rest)?, size: raw.size as usize }
        }
        Opcode::Listxattr => {
            Operation::Listxattr { size: fixed::<abi::GetxattrIn>(front)?.size as usize }
        }
        Opcode::Removexattr => Operation::Removexattr { name: xattr_name(rest)? },
        Opcode::Create => {
            let (new, flags) = create(front)?;
            Operation::Create { name: entry_name(rest)?, new, flags }
        }
        // The name that comes with it is "/", and has no meaning.
        Opcode::Tmpfile => {
            let (new, flags) = create(front)?;
            Operation::Tmpfile { new, flags }
        }
        Opcode::Bmap => {
            let raw: abi::BmapIn = fixed(front)?;
            if !raw.blocksize.is_power_of_two() {
                return Err(Errno::INVAL);
            }
            Operation::Bmap { block: raw.block, block_bytes: raw.blocksize }
        }
        Opcode::Ioctl => {
            let raw: abi::IoctlIn = fixed(front)?;
            if raw.flags & IoctlFlags::UNRESTRICTED.bits() != 0 {
                return Err(Errno::NOTTY);
            }
            let out_size = raw.out_size as usize;
            if out_size + size_of::<abi::IoctlOut>() > limits.max_reply as usize {
                return Err(Errno::INVAL);
            }
            let input = rest.get(..raw.in_size as usize).ok_or(Errno::INVAL)?;
            Operation::Ioctl { command: raw.cmd, input, out_size }
        }
        Opcode::Fallocate => {
            let raw: abi::FallocateIn = fixed(front)?;
            range(raw.offset, raw.length)?;
            Operation::Fallocate {
                handle: HandleId(raw.fh),
                offset: raw.offset,
                len: raw.length,
                mode: raw.mode,
            }
        }
        Opcode::Lseek => {
            let raw: abi::LseekIn = fixed(front)?;
            Operation::Lseek { offset: raw.offset, whence: raw.whence }
        }
        Opcode::CopyFileRange | Opcode::CopyFileRange64 => {
            let raw: abi::CopyFileRangeIn = fixed(front)?;
            let wide = opcode == Opcode::CopyFileRange64;
            // The narrow reply has 32 bits for the byte count.
            let len = if wide { raw.len } else { raw.len.min(u64::from(u32::MAX) & !0xfff) };
            range(raw.off_in, len)?;
            range(raw.off_out, len)?;
            let to = (NodeId(raw.nodeid_out), raw.off_out);
            Operation::CopyFileRange {
                from: raw.off_in,
                to,
                to_handle: HandleId(raw.fh_out),
                len,
                wide,
            }
        }
        Opcode::Destroy => Operation::Destroy,
        // INIT is answered before a dispatcher exists. A second INIT is a protocol error.
        Opcode::Init => return Err(Errno::PROTO),
        Opcode::Getlk
        | Opcode::Setlk
        | Opcode::Setlkw
        | Opcode::Access
        | Opcode::Interrupt
        | Opcode::Poll
        | Opcode::NotifyReply
        | Opcode::Setupmapping
        | Opcode::Removemapping => Operation::Never,
    })
}

/// Handle, offset and size of READ and the listings; EINVAL above `max`.
fn span(front: &[u8], max: u32) -> Result<(HandleId, u64, usize), Errno> {
    let raw: abi::ReadIn = fixed(front)?;
    if raw.size > max {
        return Err(Errno::INVAL);
    }
    Ok((HandleId(raw.fh), raw.offset, raw.size as usize))
}

fn data_only(front: &[u8]) -> Result<bool, Errno> {
    Ok(fixed::<abi::FsyncIn>(front)?.fsync_flags & abi::FSYNC_FDATASYNC != 0)
}

fn create(front: &[u8]) -> Result<(NewNode, u32), Errno> {
    let raw: abi::CreateIn = fixed(front)?;
    let mode = raw.mode & PERMISSIONS | S_IFREG;
    Ok((NewNode { mode, umask: raw.umask & 0o777, rdev: 0 }, raw.flags))
}

fn timestamp(sec: u64, nsec: u32) -> Result<Timestamp, Errno> {
    match nsec {
        0..1_000_000_000 => Ok(Timestamp { sec: sec.cast_signed(), nsec }),
        _ => Err(Errno::INVAL),
    }
}

fn set_attributes(raw: &abi::SetattrIn) -> Result<Operation<'static>, Errno> {
    let valid = Fattr::from_bits_retain(raw.valid);
    let time = |set: Fattr, now: Fattr, sec, nsec| -> Result<Option<SetTime>, Errno> {
        match (valid.contains(now), valid.contains(set)) {
            (true, _) => Ok(Some(SetTime::Now)),
            (false, true) => Ok(Some(SetTime::To(timestamp(sec, nsec)?))),
            (false, false) => Ok(None),
        }
    };
    if valid.contains(Fattr::SIZE) {
        range(raw.size, 0)?;
    }
    let changes = SetAttr {
        mode: valid.contains(Fattr::MODE).then_some(raw.mode & PERMISSIONS),
        uid: valid.contains(Fattr::UID).then_some(raw.uid),
        gid: valid.contains(Fattr::GID).then_some(raw.gid),
        size: valid.contains(Fattr::SIZE).then_some(raw.size),
        atime: time(Fattr::ATIME, Fattr::ATIME_NOW, raw.atime, raw.atimensec)?,
        mtime: time(Fattr::MTIME, Fattr::MTIME_NOW, raw.mtime, raw.mtimensec)?,
        ctime: match valid.contains(Fattr::CTIME) {
            true => Some(timestamp(raw.ctime, raw.ctimensec)?),
            false => None,
        },
        kill_suid_sgid: valid.contains(Fattr::KILL_SUIDGID),
    };
    Ok(Operation::Setattr { handle: handle_if(valid.contains(Fattr::FH), raw.fh), changes })
}
