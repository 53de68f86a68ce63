//! Attributes of files, and the volume's space.

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
/// Keeps the owner or group.
const AS_IT_IS: u32 = u32::MAX;
/// The file type bits of a mode.
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

/// The file at `path`; with `NOFOLLOW` in `flags`, a symbolic link at `path` itself.
///
/// # Safety
/// The rules of `include/extant.h` for pointers.
unsafe fn node(volume: *const Volume, name: *const c_char, flags: u32) -> Result<Node, Fault> {
    // SAFETY: the caller passes an open handle and a string.
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
/// The rules of `include/extant.h` for pointers.
unsafe fn attribute<'a>(name: *const c_char) -> Result<&'a OsStr, Fault> {
    // SAFETY: the caller passes a string.
    unsafe { path(name) }.map(Path::as_os_str)
}

fn time(time: &Time) -> Result<Timestamp, Fault> {
    match time.nsec {
        0..=999_999_999 => Ok(Timestamp { sec: time.sec, nsec: time.nsec }),
        _ => Err(Fault::invalid("a time has 0 to 999999999 nanoseconds")),
    }
}

/// # Safety
/// The rules of `include/extant.h` for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_chmod(
    volume: *const Volume,
    name: *const c_char,
    mode: u32,
) -> i32 {
    answer(|| {
        let changes = SetAttributes { mode: Some(permissions(mode)?), ..Default::default() };
        // SAFETY: the caller passes an open handle and a string.
        done(unsafe { node(volume, name, 0) }?.set_attributes(&changes))
    })
}

/// # Safety
/// The rules of `include/extant.h` for pointers.
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
        let changes = SetAttributes { uid: given(uid), gid: given(gid), ..Default::default() };
        // SAFETY: the caller passes an open handle and a string.
        done(unsafe { node(volume, name, flags) }?.set_attributes(&changes))
    })
}

/// # Safety
/// The rules of `include/extant.h` for pointers.
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
        let changes = SetAttributes {
            accessed: accessed.map(time).transpose()?,
            modified: modified.map(time).transpose()?,
            ..Default::default()
        };
        // SAFETY: the caller passes an open handle and a string.
        let node = unsafe { node(volume, name, flags) }?;
        let now = extant::Environment::default().now();
        done(node.set_attributes(&match (accessed, modified) {
            (None, None) => {
                SetAttributes { accessed: Some(now), modified: Some(now), touch: true, ..changes }
            }
            _ => changes,
        }))
    })
}

/// # Safety
/// The rules of `include/extant.h` for pointers.
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
        let new = NewFile { mode: permissions(mode & !KIND)?, device: rdev, ..NewFile::default() };
        // SAFETY: the caller passes an open handle and a string.
        let (volume, name) = unsafe { (handle(volume)?, path(name)?) };
        match kind {
            FileKind::Regular => volume.0.create_file(name, &new)?,
            kind => volume.0.mknod(name, kind, &new)?,
        };
        Ok(0)
    })
}

/// # Safety
/// The rules of `include/extant.h` for pointers.
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
        // SAFETY: the caller passes an open handle and strings.
        let node = unsafe { node(volume, name, known(flags, NOFOLLOW)?) }?;
        // SAFETY: the caller passes a string.
        let value = node.xattr(unsafe { attribute(attribute_name) }?)?;
        // SAFETY: the caller passes `len` bytes of memory.
        unsafe { give_bytes(&value, memory, len) }
    })
}

/// # Safety
/// The rules of `include/extant.h` for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_listxattr(
    volume: *const Volume,
    name: *const c_char,
    memory: *mut u8,
    len: usize,
    flags: u32,
) -> i64 {
    answer_long(|| {
        // SAFETY: the caller passes an open handle and a string.
        let node = unsafe { node(volume, name, known(flags, NOFOLLOW)?) }?;
        let mut all = Vec::new();
        for name in node.xattrs()? {
            all.extend_from_slice(name.as_bytes());
            all.push(0);
        }
        // SAFETY: the caller passes `len` bytes of memory.
        unsafe { give_bytes(&all, memory, len) }
    })
}

/// # Safety
/// The rules of `include/extant.h` for pointers.
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
        // SAFETY: the caller passes an open handle and a string.
        let node = unsafe { node(volume, name, flags) }?;
        // SAFETY: a string from C and the caller's memory.
        let (attribute, value) = unsafe { (attribute(attribute_name)?, bytes(value, len)?) };
        done(node.set_xattr(attribute, value, mode))
    })
}

/// # Safety
/// The rules of `include/extant.h` for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_removexattr(
    volume: *const Volume,
    name: *const c_char,
    attribute_name: *const c_char,
    flags: u32,
) -> i32 {
    answer(|| {
        // SAFETY: the caller passes an open handle and a string.
        let node = unsafe { node(volume, name, known(flags, NOFOLLOW)?) }?;
        // SAFETY: the caller passes a string.
        done(node.remove_xattr(unsafe { attribute(attribute_name) }?))
    })
}

/// # Safety
/// The rules of `include/extant.h` for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_space(volume: *const Volume, out: *mut Space) -> i32 {
    answer(|| {
        // SAFETY: the caller passes an open handle.
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
        // SAFETY: the caller passes memory for the result.
        unsafe { put(out, space) }?;
        Ok(0)
    })
}

/// Copies as many bytes of `all` as fit into the caller's memory. Returns the whole length.
///
/// # Safety
/// As [`bytes_mut`].
unsafe fn give_bytes(all: &[u8], memory: *mut u8, len: usize) -> Result<i64, Fault> {
    // SAFETY: this function has the same conditions.
    let out = unsafe { bytes_mut(memory, len.min(all.len())) }?;
    out.copy_from_slice(&all[..out.len()]);
    Ok(all.len() as i64)
}
