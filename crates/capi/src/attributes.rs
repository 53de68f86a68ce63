//! What is known of a file besides its content, and the volume's space.

use crate::answer::{Fault, answer, answer_long};
use crate::pointers::{bytes, bytes_mut, handle, path, put};
use crate::volume::{Time, Volume, done, permissions};
use extant::{DeviceNumber, FileKind, NewFile, Node, SetAttributes, Timestamp, XattrMode};
use std::ffi::{OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const EXCLUSIVE: u32 = 4;
const NOFOLLOW: u32 = 16;
const REPLACE: u32 = 32;
/// An owner or group that stays as it is.
const AS_IT_IS: u32 = u32::MAX;
/// The kind of a file in its mode.
const KIND: u32 = 0o170_000;

/// `struct extant_space`.
#[repr(C)]
pub struct Space {
    block_bytes: u32,
    reserved: u32,
    blocks: u64,
    free: u64,
    available: u64,
    inodes: u64,
    free_inodes: u64,
}

/// The file at `path`, or the symlink there.
///
/// # Safety
/// As the header says of pointers.
unsafe fn node(volume: *const Volume, name: *const c_char, flags: u32) -> Result<Node, Fault> {
    // SAFETY: an open handle and a string from C.
    let (volume, name) = unsafe { (handle(volume)?, path(name)?) };
    Ok(match flags & NOFOLLOW {
        0 => volume.0.node(name)?,
        _ => volume.0.node_nofollow(name)?,
    })
}

fn known(flags: u32, all: u32) -> Result<u32, Fault> {
    match flags & !all {
        0 => Ok(flags),
        _ => Err(Fault::invalid("a flag that this function does not have")),
    }
}

/// An attribute's name.
///
/// # Safety
/// As the header says of pointers.
unsafe fn attribute<'a>(name: *const c_char) -> Result<&'a OsStr, Fault> {
    // SAFETY: a string from C.
    unsafe { path(name) }.map(Path::as_os_str)
}

fn time(time: &Time) -> Result<Timestamp, Fault> {
    match time.nsec {
        0..=999_999_999 => Ok(Timestamp { sec: time.sec, nsec: time.nsec }),
        _ => Err(Fault::invalid("a time has 0 to 999999999 nanoseconds")),
    }
}

/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_chmod(
    volume: *const Volume,
    name: *const c_char,
    mode: u32,
) -> i32 {
    answer(|| {
        let wish = SetAttributes { mode: Some(permissions(mode)?), ..Default::default() };
        // SAFETY: an open handle and a string from C.
        done(unsafe { node(volume, name, 0) }?.set_attributes(&wish))
    })
}

/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_chown(
    volume: *const Volume,
    name: *const c_char,
    uid: u32,
    gid: u32,
    flags: u32,
) -> i32 {
    answer(|| {
        let flags = known(flags, NOFOLLOW)?;
        let given = |id: u32| (id != AS_IT_IS).then_some(id);
        let wish = SetAttributes { uid: given(uid), gid: given(gid), ..Default::default() };
        // SAFETY: an open handle and a string from C.
        done(unsafe { node(volume, name, flags) }?.set_attributes(&wish))
    })
}

/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_utime(
    volume: *const Volume,
    name: *const c_char,
    accessed: *const Time,
    modified: *const Time,
    flags: u32,
) -> i32 {
    answer(|| {
        let flags = known(flags, NOFOLLOW)?;
        // SAFETY: times, or NULL.
        let (accessed, modified) = unsafe { (accessed.as_ref(), modified.as_ref()) };
        let wish = SetAttributes {
            atime: accessed.map(time).transpose()?,
            mtime: modified.map(time).transpose()?,
            ..Default::default()
        };
        // SAFETY: an open handle and a string from C.
        let node = unsafe { node(volume, name, flags) }?;
        let now = extant::Environment::default().now();
        done(node.set_attributes(&match (accessed, modified) {
            (None, None) => {
                SetAttributes { atime: Some(now), mtime: Some(now), touch: true, ..wish }
            }
            _ => wish,
        }))
    })
}

/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_mknod(
    volume: *const Volume,
    name: *const c_char,
    mode: u32,
    major: u32,
    minor: u32,
) -> i32 {
    answer(|| {
        let kind = match mode & KIND {
            0o010_000 => FileKind::Fifo,
            0o020_000 => FileKind::CharDevice,
            0o060_000 => FileKind::BlockDevice,
            0o140_000 => FileKind::Socket,
            0 | 0o100_000 => FileKind::Regular,
            _ => return Err(Fault::invalid("a directory or symlink is made by its own function")),
        };
        let is_device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
        if is_device && (major > 0xFFF || minor > 0xF_FFFF) {
            return Err(Fault::invalid("a device has a number up to 4095:1048575"));
        }
        let rdev = is_device.then_some(DeviceNumber { major, minor });
        let new = NewFile { mode: permissions(mode & !KIND)?, rdev, ..NewFile::default() };
        // SAFETY: an open handle and a string from C.
        let (volume, name) = unsafe { (handle(volume)?, path(name)?) };
        match kind {
            FileKind::Regular => volume.0.create_file(name, &new)?,
            kind => volume.0.mknod(name, kind, &new)?,
        };
        Ok(0)
    })
}

/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_getxattr(
    volume: *const Volume,
    name: *const c_char,
    attribute_name: *const c_char,
    memory: *mut u8,
    len: usize,
    flags: u32,
) -> i64 {
    answer_long(|| {
        // SAFETY: an open handle and strings from C.
        let node = unsafe { node(volume, name, known(flags, NOFOLLOW)?) }?;
        // SAFETY: a string from C.
        let value = node.xattr(unsafe { attribute(attribute_name) }?)?;
        // SAFETY: the caller's memory.
        unsafe { give_bytes(&value, memory, len) }
    })
}

/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_listxattr(
    volume: *const Volume,
    name: *const c_char,
    memory: *mut u8,
    len: usize,
    flags: u32,
) -> i64 {
    answer_long(|| {
        // SAFETY: an open handle and a string from C.
        let node = unsafe { node(volume, name, known(flags, NOFOLLOW)?) }?;
        let mut all = Vec::new();
        for name in node.xattrs()? {
            all.extend_from_slice(name.as_bytes());
            all.push(0);
        }
        // SAFETY: the caller's memory.
        unsafe { give_bytes(&all, memory, len) }
    })
}

/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_setxattr(
    volume: *const Volume,
    name: *const c_char,
    attribute_name: *const c_char,
    value: *const u8,
    len: usize,
    flags: u32,
) -> i32 {
    answer(|| {
        let mode = match known(flags, NOFOLLOW | EXCLUSIVE | REPLACE)? & (EXCLUSIVE | REPLACE) {
            0 => XattrMode::Any,
            EXCLUSIVE => XattrMode::Create,
            REPLACE => XattrMode::Replace,
            _ => {
                return Err(Fault::invalid(
                    "EXTANT_EXCLUSIVE and EXTANT_REPLACE exclude each other",
                ));
            }
        };
        // SAFETY: an open handle and a string from C.
        let node = unsafe { node(volume, name, flags) }?;
        // SAFETY: a string from C and the caller's memory.
        let (attribute, value) = unsafe { (attribute(attribute_name)?, bytes(value, len)?) };
        done(node.set_xattr(attribute, value, mode))
    })
}

/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_removexattr(
    volume: *const Volume,
    name: *const c_char,
    attribute_name: *const c_char,
    flags: u32,
) -> i32 {
    answer(|| {
        // SAFETY: an open handle and a string from C.
        let node = unsafe { node(volume, name, known(flags, NOFOLLOW)?) }?;
        // SAFETY: a string from C.
        done(node.remove_xattr(unsafe { attribute(attribute_name) }?))
    })
}

/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_space(volume: *const Volume, out: *mut Space) -> i32 {
    answer(|| {
        // SAFETY: an open handle.
        let space = unsafe { handle(volume) }?.0.space();
        let space = Space {
            block_bytes: space.block_bytes,
            reserved: 0,
            blocks: space.blocks,
            free: space.free,
            available: space.available,
            inodes: space.inodes.into(),
            free_inodes: space.free_inodes.into(),
        };
        // SAFETY: a place for the answer.
        unsafe { put(out, space) }?;
        Ok(0)
    })
}

/// Puts as much of `all` as fits where the caller wants it; its whole length.
///
/// # Safety
/// As [`bytes_mut`].
unsafe fn give_bytes(all: &[u8], memory: *mut u8, len: usize) -> Result<i64, Fault> {
    // SAFETY: the caller keeps that.
    let out = unsafe { bytes_mut(memory, len.min(all.len())) }?;
    out.copy_from_slice(&all[..out.len()]);
    Ok(all.len() as i64)
}
