//! Volumes: opening, closing, and queries and changes by path.

use crate::answer::{Fault, answer, answer_long};
use crate::place::volume_at;
use crate::pointers::{bytes_mut, handle, path, put, put_box, take};
use extant::{Filesystem, Metadata, NewFile, Timestamp};
use std::ffi::c_char;
use std::os::unix::ffi::OsStrExt;

pub(crate) const WRITE: u32 = 1;

/// `extant_volume`.
pub struct Volume(pub(crate) Filesystem);

/// `struct extant_time`.
#[repr(C)]
pub struct Time {
    pub(crate) sec: i64,
    pub(crate) nsec: u32,
    reserved: u32,
}

impl From<Timestamp> for Time {
    fn from(time: Timestamp) -> Time {
        Time { sec: time.sec, nsec: time.nsec, reserved: 0 }
    }
}

/// `struct extant_stat`.
#[repr(C)]
pub struct Stat {
    ino: u64,
    size: u64,
    sectors: u64,
    mode: u32,
    links: u32,
    uid: u32,
    gid: u32,
    accessed: Time,
    modified: Time,
    changed: Time,
    device_major: u32,
    device_minor: u32,
}

impl From<Metadata> for Stat {
    fn from(found: Metadata) -> Stat {
        let (device_major, device_minor) =
            found.device().map_or((0, 0), |device| (device.major, device.minor));
        Stat {
            device_major,
            device_minor,
            ino: u64::from(found.ino().get()),
            size: found.len(),
            sectors: found.sectors(),
            mode: found.mode(),
            links: found.nlink(),
            uid: found.uid(),
            gid: found.gid(),
            accessed: found.accessed().into(),
            modified: found.modified().into(),
            changed: found.changed().into(),
        }
    }
}

/// The result of a call that returns no number: 0 on success.
pub(crate) fn done(result: extant::Result<()>) -> Result<i32, Fault> {
    result?;
    Ok(0)
}

/// Permission bits of a new file or directory.
pub(crate) fn permissions(mode: u32) -> Result<u16, Fault> {
    match u16::try_from(mode) {
        Ok(mode @ 0..=0o7777) => Ok(mode),
        _ => Err(Fault::invalid("a mode has permission bits only, up to 07777")),
    }
}

/// # Safety
/// The rules of `include/extant.h` for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_open(
    image: *const c_char,
    flags: u32,
    out: *mut *mut Volume,
) -> i32 {
    // SAFETY: this function has the same conditions.
    unsafe { extant_open_at(image, 0, flags, out) }
}

/// # Safety
/// The rules of `include/extant.h` for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_open_at(
    image: *const c_char,
    offset: u64,
    flags: u32,
    out: *mut *mut Volume,
) -> i32 {
    answer(|| {
        if flags & !WRITE != 0 {
            return Err(Fault::invalid("a volume is opened with EXTANT_READ or EXTANT_WRITE"));
        }
        // SAFETY: the caller passes a string.
        let image = unsafe { path(image) }?;
        let (image, mut open) = volume_at(image, offset)?;
        let fs = open.write(flags & WRITE != 0).open(image)?;
        // SAFETY: the caller passes memory for the handle.
        unsafe { put_box(out, Volume(fs)) }
    })
}

/// # Safety
/// The rules of `include/extant.h` for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_close(volume: *mut Volume) -> i32 {
    // SAFETY: the caller gives the handle up and does not use it again.
    answer(|| match unsafe { take(volume) } {
        Some(volume) => done(volume.0.close()),
        None => Ok(0),
    })
}

/// # Safety
/// The rules of `include/extant.h` for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_sync(volume: *const Volume) -> i32 {
    // SAFETY: the caller passes an open handle.
    answer(|| done(unsafe { handle(volume) }?.0.sync()))
}

/// # Safety
/// The rules of `include/extant.h` for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_stat(
    volume: *const Volume,
    name: *const c_char,
    out: *mut Stat,
) -> i32 {
    answer(|| {
        // SAFETY: the caller passes an open handle and a string.
        let found = unsafe { handle(volume)?.0.metadata(path(name)?) }?;
        // SAFETY: the caller passes memory for the result.
        unsafe { put(out, found.into()) }?;
        Ok(0)
    })
}

/// # Safety
/// The rules of `include/extant.h` for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_lstat(
    volume: *const Volume,
    name: *const c_char,
    out: *mut Stat,
) -> i32 {
    answer(|| {
        // SAFETY: the caller passes an open handle and a string.
        let found = unsafe { handle(volume)?.0.symlink_metadata(path(name)?) }?;
        // SAFETY: the caller passes memory for the result.
        unsafe { put(out, found.into()) }?;
        Ok(0)
    })
}

/// # Safety
/// The rules of `include/extant.h` for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_readlink(
    volume: *const Volume,
    name: *const c_char,
    memory: *mut u8,
    len: usize,
) -> i64 {
    answer_long(|| {
        // SAFETY: the caller passes an open handle and a string.
        let target = unsafe { handle(volume)?.0.read_link(path(name)?) }?;
        let target = target.as_os_str().as_bytes();
        // SAFETY: the caller passes `len` bytes of memory.
        let out = unsafe { bytes_mut(memory, len.min(target.len())) }?;
        out.copy_from_slice(&target[..out.len()]);
        Ok(target.len() as i64)
    })
}

/// # Safety
/// The rules of `include/extant.h` for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_mkdir(
    volume: *const Volume,
    name: *const c_char,
    mode: u32,
) -> i32 {
    answer(|| {
        let new = NewFile { mode: permissions(mode)?, ..NewFile::directory() };
        // SAFETY: the caller passes an open handle and a string.
        unsafe { handle(volume)?.0.create_dir(path(name)?, &new) }?;
        Ok(0)
    })
}

/// # Safety
/// The rules of `include/extant.h` for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_rmdir(volume: *const Volume, name: *const c_char) -> i32 {
    // SAFETY: the caller passes an open handle and a string.
    answer(|| done(unsafe { handle(volume)?.0.remove_dir(path(name)?) }))
}

/// # Safety
/// The rules of `include/extant.h` for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_mkdir_all(
    volume: *const Volume,
    name: *const c_char,
    mode: u32,
) -> i32 {
    answer(|| {
        let new = NewFile { mode: permissions(mode)?, ..NewFile::directory() };
        // SAFETY: the caller passes an open handle and a string.
        done(unsafe { handle(volume)?.0.create_dir_all(path(name)?, &new) })
    })
}

/// # Safety
/// The rules of `include/extant.h` for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_rmdir_all(volume: *const Volume, name: *const c_char) -> i32 {
    // SAFETY: the caller passes an open handle and a string.
    answer(|| done(unsafe { handle(volume)?.0.remove_dir_all(path(name)?) }))
}

/// # Safety
/// The rules of `include/extant.h` for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_unlink(volume: *const Volume, name: *const c_char) -> i32 {
    // SAFETY: the caller passes an open handle and a string.
    answer(|| done(unsafe { handle(volume)?.0.remove_file(path(name)?) }))
}

/// # Safety
/// The rules of `include/extant.h` for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_rename(
    volume: *const Volume,
    from: *const c_char,
    to: *const c_char,
) -> i32 {
    // SAFETY: the caller passes an open handle and strings.
    answer(|| done(unsafe { handle(volume)?.0.rename(path(from)?, path(to)?) }))
}

/// # Safety
/// The rules of `include/extant.h` for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_symlink(
    volume: *const Volume,
    target: *const c_char,
    name: *const c_char,
) -> i32 {
    answer(|| {
        let new = NewFile::default();
        // SAFETY: the caller passes an open handle and strings.
        unsafe { handle(volume)?.0.symlink(path(target)?, path(name)?, &new) }?;
        Ok(0)
    })
}

/// # Safety
/// The rules of `include/extant.h` for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_link(
    volume: *const Volume,
    original: *const c_char,
    name: *const c_char,
) -> i32 {
    // SAFETY: the caller passes an open handle and strings.
    answer(|| done(unsafe { handle(volume)?.0.hard_link(path(original)?, path(name)?) }))
}
