//! What comes from C as pointers, as references. All that the compiler cannot see stands here.

use crate::answer::Fault;
use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A string that may be NULL.
///
/// # Safety
/// `text` is NULL, or ends in NUL and stays unchanged for `'a`.
pub(crate) unsafe fn text_or_null<'a>(text: *const c_char) -> Option<&'a CStr> {
    // SAFETY: not NULL here, and the caller promises the rest.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
}

/// A path. Errors: EINVAL for NULL.
///
/// # Safety
/// As [`text_or_null`].
pub(crate) unsafe fn path<'a>(text: *const c_char) -> Result<&'a Path, Fault> {
    // SAFETY: the caller promises it.
    let text = unsafe { text_or_null(text) };
    let text = text.ok_or_else(|| Fault::invalid("a path is NULL"))?;
    Ok(Path::new(OsStr::from_bytes(text.to_bytes())))
}

/// The strings of a list that ends in NULL; none for a list that is NULL.
///
/// # Safety
/// `list` is NULL, or pointers to strings that stay unchanged for `'a`, the last pointer NULL.
pub(crate) unsafe fn strings<'a>(mut list: *const *const c_char) -> Vec<&'a CStr> {
    let mut strings = Vec::new();
    if list.is_null() {
        return strings;
    }
    // SAFETY: the pointers up to the NULL one can be read, and are strings, as the caller promises; the list is
    // not left past its NULL.
    while let Some(string) = unsafe { text_or_null(*list) } {
        strings.push(string);
        // SAFETY: as above: this was not the last pointer.
        list = unsafe { list.add(1) };
    }
    strings
}

/// What a handle stands for. Errors: EINVAL for NULL.
///
/// # Safety
/// `handle` is NULL, or came from [`give`] and was not taken back; nobody has it mutably for `'a`.
pub(crate) unsafe fn handle<'a, T>(handle: *const T) -> Result<&'a T, Fault> {
    // SAFETY: the caller promises it.
    unsafe { handle.as_ref() }.ok_or_else(|| Fault::invalid("a handle is NULL"))
}

/// As [`handle`], for one that only one thread uses.
///
/// # Safety
/// As [`handle`], and nobody else uses it for `'a`.
pub(crate) unsafe fn handle_mut<'a, T>(handle: *mut T) -> Result<&'a mut T, Fault> {
    // SAFETY: the caller promises it.
    unsafe { handle.as_mut() }.ok_or_else(|| Fault::invalid("a handle is NULL"))
}

/// Puts `value` where the caller wants it. Errors: EINVAL for NULL.
///
/// # Safety
/// `out` is NULL or may be written as a `T`.
pub(crate) unsafe fn put<T>(out: *mut T, value: T) -> Result<(), Fault> {
    if out.is_null() {
        return Err(Fault::invalid("the place for the answer is NULL"));
    }
    // SAFETY: not NULL; the caller promises the rest. Nothing old is read or dropped.
    unsafe { out.write(value) };
    Ok(())
}

/// Makes a handle of `value`, to be taken back by [`take`].
///
/// # Safety
/// `out` is NULL or may be written as a pointer.
pub(crate) unsafe fn give<T>(out: *mut *mut T, value: T) -> Result<i32, Fault> {
    if out.is_null() {
        return Err(Fault::invalid("the place for the handle is NULL"));
    }
    // SAFETY: not NULL; the caller promises the rest.
    unsafe { put(out, Box::into_raw(Box::new(value))) }?;
    Ok(0)
}

/// Takes a handle back; nothing for NULL.
///
/// # Safety
/// `handle` is NULL, or came from [`give`] and is used nowhere any more.
pub(crate) unsafe fn take<T>(handle: *mut T) -> Option<Box<T>> {
    // SAFETY: it was a box in `give`, and the caller gives the only pointer back.
    (!handle.is_null()).then(|| unsafe { Box::from_raw(handle) })
}

/// Memory to fill; zero bytes may be at NULL.
///
/// # Safety
/// `memory` is NULL, or `len` initialised bytes that nobody else uses for `'a`.
pub(crate) unsafe fn bytes_mut<'a>(memory: *mut u8, len: usize) -> Result<&'a mut [u8], Fault> {
    match (memory.is_null(), len) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(Fault::invalid("the memory is NULL")),
        (false, _) if isize::try_from(len).is_err() => Err(Fault::invalid("too many bytes")),
        // SAFETY: not NULL, not too long, and the caller promises the rest; bytes are aligned.
        // What C calls uninitialised is memory that exists: it came by a pointer from outside.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts_mut(memory, len) }),
    }
}

/// Memory to read; zero bytes may be at NULL.
///
/// # Safety
/// `memory` is NULL, or `len` bytes that nobody changes for `'a`.
pub(crate) unsafe fn bytes<'a>(memory: *const u8, len: usize) -> Result<&'a [u8], Fault> {
    match (memory.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Fault::invalid("the memory is NULL")),
        (false, _) if isize::try_from(len).is_err() => Err(Fault::invalid("too many bytes")),
        // SAFETY: not NULL, not too long, and the caller promises the rest; bytes are aligned.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(memory, len) }),
    }
}
