//! Content of files.

use crate::node::{Body, Node, without_set_ids};
use extant_fuse::{Answer, WriteFlags};
use parking_lot::RwLock;
use rustix::io::Errno;

const KEEP_SIZE: u32 = 1;
const PUNCH_HOLE: u32 = 2;
const ZERO_RANGE: u32 = 16;
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;
/// Largest file. Content is in memory.
const MOST: u64 = 1 << 32;

impl Node {
    fn bytes(&self) -> Answer<&RwLock<Vec<u8>>> {
        match &self.body {
            Body::File(bytes) => Ok(bytes),
            Body::Dir(_) => Err(Errno::ISDIR),
            _ => Err(Errno::INVAL),
        }
    }

    pub(super) fn read(&self, offset: u64, out: &mut [u8]) -> Answer<usize> {
        let bytes = self.bytes()?.read();
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        let len = out.len().min(bytes.len() - from);
        out[..len].copy_from_slice(&bytes[from..from + len]);
        Ok(len)
    }

    pub(super) fn write(&self, offset: u64, from: &[u8], flags: WriteFlags) -> Answer<usize> {
        let end = offset.checked_add(from.len() as u64).filter(|&e| e <= MOST);
        let (start, end) = (offset as usize, end.ok_or(Errno::FBIG)? as usize);
        let mut bytes = self.bytes()?.write();
        let over = bytes.len().clamp(start, end) - start;
        if start > bytes.len() {
            grow(&mut bytes, start)?;
        }
        bytes[start..start + over].copy_from_slice(&from[..over]);
        reserve(&mut bytes, end)?;
        bytes.extend_from_slice(&from[over..]);
        drop(bytes);
        // A kernel in write-back mode maintains the times itself and sends them later.
        if !flags.from_cache || flags.kill_suid_sgid {
            let mut meta = self.meta.lock();
            if flags.kill_suid_sgid {
                meta.mode = without_set_ids(meta.mode);
            }
            if !flags.from_cache {
                meta.changed();
            }
        }
        Ok(from.len())
    }

    pub(super) fn resize(&self, size: u64) -> Answer<()> {
        if size > MOST {
            return Err(Errno::FBIG);
        }
        let mut bytes = self.bytes()?.write();
        match size as usize {
            0 => *bytes = Vec::new(),
            size if size <= bytes.len() => bytes.truncate(size),
            size => grow(&mut bytes, size)?,
        }
        Ok(())
    }

    pub(super) fn allocate(&self, offset: u64, len: u64, mode: u32) -> Answer<()> {
        let end = offset.checked_add(len).filter(|&e| e <= MOST).ok_or(Errno::FBIG)? as usize;
        let start = offset as usize;
        let mut bytes = self.bytes()?.write();
        match mode & !KEEP_SIZE {
            0 | PUNCH_HOLE | ZERO_RANGE => {}
            _ => return Err(Errno::OPNOTSUPP),
        }
        if mode & (PUNCH_HOLE | ZERO_RANGE) != 0 {
            let until = end.min(bytes.len());
            bytes[start.min(until)..until].fill(0);
        }
        if mode & KEEP_SIZE == 0 && end > bytes.len() {
            grow(&mut bytes, end)?;
        }
        drop(bytes);
        self.meta.lock().changed();
        Ok(())
    }

    /// The whole file counts as data, with a hole after its end.
    pub(super) fn seek(&self, offset: u64, whence: u32) -> Answer<u64> {
        let size = self.bytes()?.read().len() as u64;
        match whence {
            SEEK_DATA | SEEK_HOLE if offset >= size => Err(Errno::NXIO),
            SEEK_DATA => Ok(offset),
            SEEK_HOLE => Ok(size),
            _ => Err(Errno::INVAL),
        }
    }
}

fn reserve(bytes: &mut Vec<u8>, len: usize) -> Answer<()> {
    bytes.try_reserve(len.saturating_sub(bytes.len())).map_err(|_| Errno::NOSPC)
}

fn grow(bytes: &mut Vec<u8>, len: usize) -> Answer<()> {
    reserve(bytes, len)?;
    bytes.resize(len, 0);
    Ok(())
}
