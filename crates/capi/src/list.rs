//! Lists: the names in a directory, and walks.

use crate::answer::{Fault, answer};
use crate::pointers::{handle, handle_mut, path, put, put_box, take};
use crate::volume::Volume;
use extant::{Error, FileKind, Ino, ReadDir, Walk};
use std::ffi::{CString, OsString, c_char};
use std::os::unix::ffi::OsStringExt;

enum Source {
    Names(ReadDir),
    Walk(Walk),
}

/// `extant_list`.
pub struct List {
    source: Source,
    /// The text of the entry that was returned last.
    shown: CString,
}

/// `struct extant_entry`.
#[repr(C)]
pub struct Entry {
    path: *const c_char,
    ino: u64,
    kind: u32,
    depth: u32,
}

impl Source {
    fn next(&mut self) -> Option<Result<(OsString, Ino, FileKind, usize), Error>> {
        Some(match self {
            Source::Names(names) => names.next()?.and_then(|entry| {
                Ok((entry.file_name().to_owned(), entry.ino(), entry.file_type()?, 0))
            }),
            Source::Walk(walk) => walk.next()?.map(|entry| {
                let (ino, kind, depth) = (entry.ino(), entry.file_type(), entry.depth());
                (entry.into_path().into_os_string(), ino, kind, depth)
            }),
        })
    }
}

/// # Safety
/// The rules of `include/extant.h` for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_readdir(
    volume: *const Volume,
    name: *const c_char,
    out: *mut *mut List,
) -> i32 {
    answer(|| {
        // SAFETY: the caller passes an open handle and a string.
        let names = unsafe { handle(volume)?.0.read_dir(path(name)?) }?;
        // SAFETY: the caller passes memory for the handle.
        unsafe { put_box(out, List { source: Source::Names(names), shown: CString::default() }) }
    })
}

/// # Safety
/// The rules of `include/extant.h` for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_walk(
    volume: *const Volume,
    name: *const c_char,
    out: *mut *mut List,
) -> i32 {
    answer(|| {
        // SAFETY: the caller passes an open handle and a string.
        let walk = unsafe { handle(volume)?.0.walk(path(name)?) };
        // SAFETY: the caller passes memory for the handle.
        unsafe { put_box(out, List { source: Source::Walk(walk), shown: CString::default() }) }
    })
}

/// # Safety
/// The rules of `include/extant.h` for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_list_next(list: *mut List, out: *mut Entry) -> i32 {
    answer(|| {
        // SAFETY: an open handle, of one thread at a time.
        let list = unsafe { handle_mut(list) }?;
        let Some(next) = list.source.next() else {
            return Ok(0);
        };
        let (name, ino, kind, depth) = next?;
        // Only a name in a damaged directory can contain a NUL.
        let name = CString::new(name.into_vec());
        list.shown = name.map_err(|_| Fault::invalid("a name in the directory holds a NUL"))?;
        let entry = Entry {
            path: list.shown.as_ptr(),
            ino: u64::from(ino.get()),
            kind: u32::from(kind.mode_bits()),
            depth: u32::try_from(depth).unwrap_or(u32::MAX),
        };
        // SAFETY: the caller passes memory for the result.
        unsafe { put(out, entry) }?;
        Ok(1)
    })
}

/// # Safety
/// The rules of `include/extant.h` for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_list_close(list: *mut List) -> i32 {
    answer(|| {
        // SAFETY: the caller gives the handle up and does not use it again.
        drop(unsafe { take(list) });
        Ok(0)
    })
}
