//! Volumes: open, close, and what is asked and changed by path.

use crate::answer::{Fault, answer, answer_long};
use crate::pointers::{bytes_mut, give, handle, path, put, take};
use extant::{Filesystem, Metadata, NewFile, OpenOptions, Timestamp};
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
            links: found.links(),
            uid: found.uid(),
            gid: found.gid(),
            accessed: found.accessed().into(),
            modified: found.modified().into(),
            changed: found.changed().into(),
        }
    }
}

/// What a call that only works or fails answers.
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
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_open(
    image: *const c_char,
    flags: u32,
    out: *mut *mut Volume,
) -> i32 {
    // SAFETY: as here.
    unsafe { extant_open_at(image, 0, flags, out) }
}

/// # Safety
/// As the header says of pointers.
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
        // SAFETY: a string from C.
        let image = unsafe { path(image) }?;
        let fs = OpenOptions::new().write(flags & WRITE != 0).offset(offset).open(image)?;
        // SAFETY: a place for a handle.
        unsafe { give(out, Volume(fs)) }
    })
}

/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_close(volume: *mut Volume) -> i32 {
    // SAFETY: a handle that is given back.
    answer(|| match unsafe { take(volume) } {
        Some(volume) => done(volume.0.close()),
        None => Ok(0),
    })
}

/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_sync(volume: *const Volume) -> i32 {
    // SAFETY: an open handle.
    answer(|| done(unsafe { handle(volume) }?.0.sync()))
}

/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_stat(
    volume: *const Volume,
    name: *const c_char,
    out: *mut Stat,
) -> i32 {
    answer(|| {
        // SAFETY: an open handle and a string from C.
        let found = unsafe { handle(volume)?.0.metadata(path(name)?) }?;
        // SAFETY: a place for the answer.
        unsafe { put(out, found.into()) }?;
        Ok(0)
    })
}

/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_lstat(
    volume: *const Volume,
    name: *const c_char,
    out: *mut Stat,
) -> i32 {
    answer(|| {
        // SAFETY: an open handle and a string from C.
        let found = unsafe { handle(volume)?.0.symlink_metadata(path(name)?) }?;
        // SAFETY: a place for the answer.
        unsafe { put(out, found.into()) }?;
        Ok(0)
    })
}

/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_readlink(
    volume: *const Volume,
    name: *const c_char,
    memory: *mut u8,
    len: usize,
) -> i64 {
    answer_long(|| {
        // SAFETY: an open handle and a string from C.
        let target = unsafe { handle(volume)?.0.read_link(path(name)?) }?;
        let target = target.as_os_str().as_bytes();
        // SAFETY: the caller's memory.
        let out = unsafe { bytes_mut(memory, len.min(target.len())) }?;
        out.copy_from_slice(&target[..out.len()]);
        Ok(target.len() as i64)
    })
}

/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_mkdir(
    volume: *const Volume,
    name: *const c_char,
    mode: u32,
) -> i32 {
    answer(|| {
        let new = NewFile { mode: permissions(mode)?, ..NewFile::directory() };
        // SAFETY: an open handle and a string from C.
        unsafe { handle(volume)?.0.create_dir(path(name)?, &new) }?;
        Ok(0)
    })
}

/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_rmdir(volume: *const Volume, name: *const c_char) -> i32 {
    // SAFETY: an open handle and a string from C.
    answer(|| done(unsafe { handle(volume)?.0.remove_dir(path(name)?) }))
}

/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_mkdir_all(
    volume: *const Volume,
    name: *const c_char,
    mode: u32,
) -> i32 {
    answer(|| {
        let new = NewFile { mode: permissions(mode)?, ..NewFile::directory() };
        // SAFETY: an open handle and a string from C.
        done(unsafe { handle(volume)?.0.create_dir_all(path(name)?, &new) })
    })
}

/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_rmdir_all(volume: *const Volume, name: *const c_char) -> i32 {
    // SAFETY: an open handle and a string from C.
    answer(|| done(unsafe { handle(volume)?.0.remove_dir_all(path(name)?) }))
}

/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_unlink(volume: *const Volume, name: *const c_char) -> i32 {
    // SAFETY: an open handle and a string from C.
    answer(|| done(unsafe { handle(volume)?.0.remove_file(path(name)?) }))
}

/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_rename(
    volume: *const Volume,
    from: *const c_char,
    to: *const c_char,
) -> i32 {
    // SAFETY: an open handle and strings from C.
    answer(|| done(unsafe { handle(volume)?.0.rename(path(from)?, path(to)?) }))
}

/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_symlink(
    volume: *const Volume,
    target: *const c_char,
    name: *const c_char,
) -> i32 {
    answer(|| {
        let new = NewFile::default();
        // SAFETY: an open handle and strings from C.
        unsafe { handle(volume)?.0.symlink(path(target)?, path(name)?, &new) }?;
        Ok(0)
    })
}

/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_link(
    volume: *const Volume,
    original: *const c_char,
    name: *const c_char,
) -> i32 {
    // SAFETY: an open handle and strings from C.
    answer(|| done(unsafe { handle(volume)?.0.hard_link(path(original)?, path(name)?) }))
}
