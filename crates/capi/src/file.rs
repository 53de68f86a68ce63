//! Open files.

use crate::answer::{Fault, answer, answer_long};
use crate::pointers::{bytes, bytes_mut, handle, path, put_box, take};
use crate::volume::{Volume, WRITE, done, permissions};
use extant::{Error, File, NewFile};
use std::ffi::c_char;

const CREATE: u32 = 2;
const EXCLUSIVE: u32 = 4;
const TRUNCATE: u32 = 8;

/// `extant_file`.
pub struct OpenFile {
    file: File,
    write: bool,
}

impl OpenFile {
    fn to_write(&self) -> Result<&File, Fault> {
        let refused = || Fault::invalid("the file was opened without EXTANT_WRITE");
        self.write.then_some(&self.file).ok_or_else(refused)
    }
}

/// # Safety
/// The rules of `include/extant.h` for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_file_open(
    volume: *const Volume,
    name: *const c_char,
    flags: u32,
    mode: u32,
    out: *mut *mut OpenFile,
) -> i32 {
    answer(|| {
        let has = |flag| flags & flag != 0;
        let known = flags & !(WRITE | CREATE | EXCLUSIVE | TRUNCATE) == 0;
        if !known || has(EXCLUSIVE) && !has(CREATE) || has(TRUNCATE) && !has(WRITE) {
            return Err(Fault::invalid("flags of extant_file_open that make no sense together"));
        }
        // SAFETY: the caller passes an open handle and a string.
        let (fs, name) = unsafe { (&handle(volume)?.0, path(name)?) };
        if has(CREATE) {
            let new = NewFile { mode: permissions(mode)?, ..NewFile::default() };
            match fs.create_file(name, &new) {
                Err(Error::Exists) if !has(EXCLUSIVE) => {}
                made => drop(made?),
            }
        }
        let file = fs.open_file(name)?;
        if has(TRUNCATE) {
            file.set_len(0)?;
        }
        // SAFETY: the caller passes memory for the handle.
        unsafe { put_box(out, OpenFile { file, write: has(WRITE) }) }
    })
}

/// # Safety
/// The rules of `include/extant.h` for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_file_close(file: *mut OpenFile) -> i32 {
    answer(|| {
        // SAFETY: the caller gives the handle up and does not use it again.
        drop(unsafe { take(file) });
        Ok(0)
    })
}

/// # Safety
/// The rules of `include/extant.h` for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_file_read(
    file: *const OpenFile,
    offset: u64,
    memory: *mut u8,
    len: usize,
) -> i64 {
    answer_long(|| {
        // SAFETY: the caller passes an open handle and `len` bytes of memory.
        let (file, memory) = unsafe { (&handle(file)?.file, bytes_mut(memory, len)?) };
        let mut read = 0;
        while read < memory.len() {
            match file.read_at(&mut memory[read..], offset.saturating_add(read as u64))? {
                0 => break,
                n => read += n,
            }
        }
        Ok(read as i64)
    })
}

/// # Safety
/// The rules of `include/extant.h` for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_file_write(
    file: *const OpenFile,
    offset: u64,
    memory: *const u8,
    len: usize,
) -> i64 {
    answer_long(|| {
        // SAFETY: the caller passes an open handle and `len` bytes of memory.
        let (file, memory) = unsafe { (handle(file)?, bytes(memory, len)?) };
        file.to_write()?.write_all_at(memory, offset)?;
        Ok(len as i64)
    })
}

/// # Safety
/// The rules of `include/extant.h` for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_file_truncate(file: *const OpenFile, size: u64) -> i32 {
    // SAFETY: the caller passes an open handle.
    answer(|| done(unsafe { handle(file) }?.to_write()?.set_len(size)))
}

/// # Safety
/// The rules of `include/extant.h` for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_file_sync(file: *const OpenFile) -> i32 {
    // SAFETY: the caller passes an open handle.
    answer(|| done(unsafe { handle(file) }?.file.sync_all()))
}
