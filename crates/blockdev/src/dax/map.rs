//! A window onto a file: the file's bytes, mapped into memory.
//!
//! ```text
//!   file      ──┬───────────────┬─ window ─┬──────
//!   pages       ├──────┬──────┬─┴────┬─────┴┐
//!   map         └─────────────┴──────┴──────┘    whole pages, accessed in 8-byte words
//!                             skip ─►│
//! ```

use super::cpu::Lines;
use super::{Dax, DaxMode, PersistenceDomain, Way, check_window};
use crate::range::failed;
use crate::shared_words;
use extant_base::{ByteOffset, IoOp, Result};
use rustix::mm::{MapFlags, ProtFlags};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// A window onto a mapped file.
pub(super) struct MappedFile {
    map: NonNull<AtomicU64>,
    /// Mapped bytes, a multiple of the page size.
    map_bytes: usize,
    /// Bytes from the map's start to the window's.
    skip: usize,
    len: u64,
    /// Offset of the window in the file.
    at: u64,
    /// The file; `None` for a block device, whose metadata does not give its length.
    sized: Option<File>,
    lines: Lines,
    persistence_domain: PersistenceDomain,
}

/// A window onto `len` bytes of `file` from `at` on. They lie below the file's end and their space
/// is reserved. `None` where the system, the CPU or `mode` offers no window.
pub(crate) fn map_file(
    file: &File,
    (at, len): (u64, u64),
    mode: DaxMode,
    is_block_device: bool,
) -> Option<Arc<dyn Dax>> {
    if mode == DaxMode::Never {
        return None;
    }
    let lines = Lines::detect()?;
    let page = rustix::param::page_size() as u64;
    let start = at - at % page;
    let map_bytes = usize::try_from((at + len).checked_next_multiple_of(page)? - start).ok()?;
    if len == 0 || !at.is_multiple_of(8) {
        return None;
    }
    let mapped = |flags| {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the system chooses the address, so nothing that exists is mapped over. Changes
        // that other processes make to the file are seen through atomic words only. `refuse_if_cut`
        // handles a file that shrinks.
        unsafe { rustix::mm::mmap(std::ptr::null_mut(), map_bytes, protection, flags, file, start) }
    };
    let durable = mapped(MapFlags::SHARED_VALIDATE | MapFlags::SYNC);
    let (map, persistence_domain) = match durable {
        Ok(map) => (map, PersistenceDomain::Power),
        Err(_) if mode == DaxMode::Always => {
            (mapped(MapFlags::SHARED).ok()?, PersistenceDomain::ProcessCrash)
        }
        Err(_) => return None,
    };
    let mut window = MappedFile {
        map: NonNull::new(map.cast())?,
        map_bytes,
        skip: (at - start) as usize,
        len,
        at,
        sized: None,
        lines,
        persistence_domain,
    };
    if !is_block_device {
        window.sized = Some(file.try_clone().ok()?);
    }
    window.refuse_if_cut(IoOp::Open, 0, len).ok()?;
    Some(Arc::new(window))
}

impl MappedFile {
    /// Fails when the file no longer reaches the window's end.
    fn refuse_if_cut(&self, op: IoOp, at: u64, len: u64) -> Result<()> {
        let Some(file) = &self.sized else { return Ok(()) };
        let there = match rustix::fs::fstat(file) {
            Ok(stat) => u64::try_from(stat.st_size).is_ok_and(|size| size >= self.at + self.len),
            Err(_) => false,
        };
        match there {
            true => Ok(()),
            false => {
                let cut = io::Error::new(ErrorKind::UnexpectedEof, "the file was cut short");
                Err(failed(op, ByteOffset(self.at + at), len, cut))
            }
        }
    }

    /// All words of the map.
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: `map` is what `mmap` returned for `map_bytes` bytes: whole pages, aligned, and
        // mapped until `drop`. Any bytes are a valid `AtomicU64`, and other writers are allowed.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr(), self.map_bytes / 8) }
    }
}

impl Dax for MappedFile {
    fn len(&self) -> u64 {
        self.len
    }

    fn store(&self, at: u64, bytes: &[u8]) -> Result<()> {
        check_window(IoOp::Write, self.len, at, bytes.len() as u64)?;
        self.refuse_if_cut(IoOp::Write, at, bytes.len() as u64)?;
        shared_words::store(self.words(), self.skip + at as usize, bytes);
        Ok(())
    }

    fn load(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        check_window(IoOp::Read, self.len, at, buf.len() as u64)?;
        self.refuse_if_cut(IoOp::Read, at, buf.len() as u64)?;
        shared_words::load(self.words(), self.skip + at as usize, buf);
        Ok(())
    }

    fn write_back(&self, at: u64, len: u64) -> Result<()> {
        check_window(IoOp::Flush, self.len, at, len)?;
        let start = self.skip + at as usize;
        // The stores made before are not moved after this: to the compiler the instruction is a
        // call that may read memory.
        // SAFETY: the range lies in the window, which is mapped until `drop`.
        unsafe {
            let start = self.map.as_ptr().cast::<u8>().add(start);
            self.lines.write_back(start, len as usize);
        }
        Ok(())
    }

    fn fence(&self) -> Result<()> {
        self.lines.fence();
        Ok(())
    }

    fn persistence_domain(&self) -> PersistenceDomain {
        self.persistence_domain
    }

    fn way(&self) -> Way {
        self.lines.way()
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // SAFETY: this is exactly what `mmap` returned, and no reference to it is left: `words`
        // borrows from `self`.
        let unmapped = unsafe { rustix::mm::munmap(self.map.as_ptr().cast(), self.map_bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

// SAFETY: this value alone owns the map, which is read and written through atomic words only.
unsafe impl Send for MappedFile {}
// SAFETY: as above; a shared reference gives no other access.
unsafe impl Sync for MappedFile {}
