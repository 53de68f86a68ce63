//! Converts pointers from C to references. All conditions that the compiler cannot check are in
//! this module.

use crate::answer::Fault;
use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A string that may be NULL.
///
/// # Safety
/// `text` is NULL, or ends in NUL and stays unchanged for `'a`.
pub(crate) unsafe fn text_or_null<'a>(text: *const c_char) -> Option<&'a CStr> {
    // SAFETY: it is not NULL here, and the caller guarantees the rest.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
}

/// A path. Errors: EINVAL for NULL.
///
/// # Safety
/// As [`text_or_null`].
pub(crate) unsafe fn path<'a>(text: *const c_char) -> Result<&'a Path, Fault> {
    // SAFETY: this function has the same condition.
    let text = unsafe { text_or_null(text) };
    let text = text.ok_or_else(|| Fault::invalid("a path is NULL"))?;
    Ok(Path::new(OsStr::from_bytes(text.to_bytes())))
}

/// The strings of a list that ends in NULL. A list that is NULL is empty.
///
/// # Safety
/// `list` is NULL, or pointers to strings that stay unchanged for `'a`, the last pointer NULL.
pub(crate) unsafe fn strings<'a>(mut list: *const *const c_char) -> Vec<&'a CStr> {
    let mut strings = Vec::new();
    if list.is_null() {
        return strings;
    }
    // SAFETY: the caller guarantees that the pointers up to the NULL one can be read, and are
    // strings. The loop does not read past the NULL pointer.
    while let Some(string) = unsafe { text_or_null(*list) } {
        strings.push(string);
        // SAFETY: as above. This was not the last pointer.
        list = unsafe { list.add(1) };
    }
    strings
}

/// The object of a handle. Errors: EINVAL for NULL.
///
/// # Safety
/// `handle` is NULL, or came from [`put_box`] and was not taken back. No mutable reference to it
/// exists for `'a`.
pub(crate) unsafe fn handle<'a, T>(handle: *const T) -> Result<&'a T, Fault> {
    // SAFETY: the caller guarantees it.
    unsafe { handle.as_ref() }.ok_or_else(|| Fault::invalid("a handle is NULL"))
}

/// As [`handle`], for a handle that only one thread uses at a time.
///
/// # Safety
/// As [`handle`], and no other code uses it for `'a`.
pub(crate) unsafe fn handle_mut<'a, T>(handle: *mut T) -> Result<&'a mut T, Fault> {
    // SAFETY: the caller guarantees it.
    unsafe { handle.as_mut() }.ok_or_else(|| Fault::invalid("a handle is NULL"))
}

/// Writes `value` to the caller's memory. Errors: EINVAL for NULL.
///
/// # Safety
/// `out` is NULL or may be written as a `T`.
pub(crate) unsafe fn put<T>(out: *mut T, value: T) -> Result<(), Fault> {
    if out.is_null() {
        return Err(Fault::invalid("the place for the answer is NULL"));
    }
    // SAFETY: it is not NULL, and the caller guarantees the rest. No old value is read or dropped.
    unsafe { out.write(value) };
    Ok(())
}

/// Makes a handle for `value`. [`take`] takes it back. Errors: EINVAL for NULL.
///
/// # Safety
/// `out` is NULL or may be written as a pointer.
pub(crate) unsafe fn put_box<T>(out: *mut *mut T, value: T) -> Result<i32, Fault> {
    if out.is_null() {
        return Err(Fault::invalid("the place for the handle is NULL"));
    }
    // SAFETY: it is not NULL, and the caller guarantees the rest.
    unsafe { put(out, Box::into_raw(Box::new(value))) }?;
    Ok(0)
}

/// Takes a handle back. Returns `None` for NULL.
///
/// # Safety
/// `handle` is NULL, or came from [`put_box`] and is no longer used.
pub(crate) unsafe fn take<T>(handle: *mut T) -> Option<Box<T>> {
    // SAFETY: it was a box in `put_box`, and the caller passes the only pointer to it.
    (!handle.is_null()).then(|| unsafe { Box::from_raw(handle) })
}

/// Memory to fill. Memory of zero bytes may be NULL.
///
/// # Safety
/// `memory` is NULL, or has `len` initialised bytes that no other code uses for `'a`.
pub(crate) unsafe fn bytes_mut<'a>(memory: *mut u8, len: usize) -> Result<&'a mut [u8], Fault> {
    match (memory.is_null(), len) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(Fault::invalid("the memory is NULL")),
        (false, _) if isize::try_from(len).is_err() => Err(Fault::invalid("too many bytes")),
        // SAFETY: it is not NULL and not too long; the caller guarantees the rest; bytes need no
        // alignment. Memory that C calls uninitialised counts as initialised here: its pointer came
        // from outside of Rust.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts_mut(memory, len) }),
    }
}

/// Memory to read. Memory of zero bytes may be NULL.
///
/// # Safety
/// `memory` is NULL, or has `len` bytes that do not change for `'a`.
pub(crate) unsafe fn bytes<'a>(memory: *const u8, len: usize) -> Result<&'a [u8], Fault> {
    match (memory.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Fault::invalid("the memory is NULL")),
        (false, _) if isize::try_from(len).is_err() => Err(Fault::invalid("too many bytes")),
        // SAFETY: it is not NULL and not too long; the caller guarantees the rest; bytes need no
        // alignment.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(memory, len) }),
    }
}
