//! A file driven as the engine drives it: a store of blocks, holes and errors; lengths and
//! write-back.
#![allow(dead_code)]

use extant_base::{BlockSize, ByteOffset, Error, Ino, IoOp, Result};
use extant_pagecache::{CacheConfig, FileCache, Fill, PageCache, ReadStream, Source, Use};
use std::ops::Range;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, RwLock};

/// The blocks of one file on a device.
pub struct Store {
    pub block: usize,
    disk: Mutex<Disk>,
    pub fills: AtomicUsize,
    pub fill_fails: AtomicBool,
    pub log: Mutex<Vec<Range<u64>>>,
}

struct Disk {
    bytes: Vec<u8>,
    allocated: Vec<bool>,
    /// Allocated but unwritten: reads as zeros.
    fresh: Vec<bool>,
    len: u64,
}

impl Store {
    pub fn new(block: usize) -> Store {
        let disk = Disk { bytes: Vec::new(), allocated: Vec::new(), fresh: Vec::new(), len: 0 };
        Store {
            block,
            disk: Mutex::new(disk),
            fills: AtomicUsize::new(0),
            fill_fails: AtomicBool::new(false),
            log: Mutex::new(Vec::new()),
        }
    }

    /// Reserves or allocates the blocks of `range`. Their content on the device is arbitrary.
    pub fn back(&self, range: Range<u64>) {
        let mut disk = self.disk.lock().unwrap();
        let last = (range.end as usize).div_ceil(self.block);
        if disk.allocated.len() < last {
            disk.allocated.resize(last, false);
            disk.fresh.resize(last, true);
            disk.bytes.resize(last * self.block, 0xEE);
        }
        for block in range.start as usize / self.block..last {
            disk.allocated[block] = true;
        }
    }

    pub fn set_len(&self, len: u64) {
        self.disk.lock().unwrap().len = len;
    }

    /// Stores bytes that write-back wrote.
    pub fn put(&self, at: u64, bytes: &[u8]) {
        let mut disk = self.disk.lock().unwrap();
        let at = at as usize;
        assert_eq!((at % self.block, bytes.len() % self.block), (0, 0));
        for block in at / self.block..(at + bytes.len()) / self.block {
            assert!(disk.allocated[block], "write-back of a block that is not allocated");
            disk.fresh[block] = false;
        }
        disk.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Frees blocks; other files may use them.
    pub fn free(&self, range: Range<u64>) {
        let mut disk = self.disk.lock().unwrap();
        let last = ((range.end as usize).div_ceil(self.block)).min(disk.allocated.len());
        for block in (range.start as usize).div_ceil(self.block)..last {
            disk.allocated[block] = false;
            disk.fresh[block] = true;
            let at = block * self.block;
            disk.bytes[at..at + self.block].fill(0xEE);
        }
    }
}

impl Fill for Store {
    fn fill(&self, offset: u64, buf: &mut [u8], backed: &mut dyn FnMut(Range<u64>)) -> Result<()> {
        self.fills.fetch_add(1, SeqCst);
        self.log.lock().unwrap().push(offset..offset + buf.len() as u64);
        if self.fill_fails.load(SeqCst) {
            buf.fill(0xDD);
            return Err(failed(IoOp::Read));
        }
        let disk = self.disk.lock().unwrap();
        assert_eq!((offset as usize % self.block, buf.len() % self.block), (0, 0));
        for (n, part) in buf.chunks_mut(self.block).enumerate() {
            let block = offset as usize / self.block + n;
            let start = (block * self.block) as u64;
            if !disk.allocated.get(block).is_some_and(|is| *is) {
                part.fill(0);
                continue;
            }
            backed(start..start + self.block as u64);
            if disk.fresh[block] {
                part.fill(0);
            } else {
                part.copy_from_slice(&disk.bytes[start as usize..start as usize + self.block]);
            }
            let past = disk.len.saturating_sub(start).min(self.block as u64) as usize;
            part[past..].fill(0);
        }
        Ok(())
    }
}

pub fn failed(op: IoOp) -> Error {
    let source = std::io::Error::from_raw_os_error(5);
    Error::Device { op, at: ByteOffset(0), len: 0, source }
}

/// A source that faults after `good` bytes.
pub struct Faulty<'a> {
    pub bytes: &'a [u8],
    pub good: usize,
}

impl Source for Faulty<'_> {
    fn len(&self) -> usize {
        self.bytes.len()
    }

    fn copy_to(&mut self, to: &mut [u8]) -> usize {
        let n = to.len().min(self.good);
        to[..n].copy_from_slice(&self.bytes[..n]);
        self.bytes = &self.bytes[n..];
        self.good -= n;
        n
    }
}

/// One file with the locks that the engine has.
pub struct Driver {
    pub cache: PageCache,
    pub file: Arc<FileCache>,
    pub store: Store,
    pub inode: RwLock<()>,
    pub write_back: Mutex<()>,
}

pub fn config(block: usize, limit: u64) -> CacheConfig {
    let size = BlockSize::from_bytes(block as u32).unwrap();
    CacheConfig { limit, ..CacheConfig::new(size) }
}

pub fn driver(block: usize, limit: u64) -> Driver {
    let cache = PageCache::new(config(block, limit));
    let file = cache.file(Ino::new(12).unwrap());
    Driver {
        cache,
        file,
        store: Store::new(block),
        inode: RwLock::new(()),
        write_back: Mutex::new(()),
    }
}

impl Driver {
    pub fn write(&self, offset: u64, bytes: &[u8], how: Use) -> usize {
        let mut source = bytes;
        let n = self.file.overwrite_hit(offset, &mut source, how, &|| true);
        if n > 0 {
            return n;
        }
        self.write_slow(offset, &mut &*bytes, how).unwrap()
    }

    pub fn write_slow(&self, offset: u64, source: &mut dyn Source, how: Use) -> Result<usize> {
        let _inode = self.inode.write().unwrap();
        let len = self.file.len();
        let end = offset + source.len() as u64;
        if offset > len && !len.is_multiple_of(self.store.block as u64) {
            self.store.back(len..len + 1);
            self.file.dirty_block(len, &self.store)?;
        }
        self.store.back(offset..end);
        let n = self.file.write(offset, source, how, &self.store)?;
        if n > 0 && offset + n as u64 > len {
            self.file.set_len(offset + n as u64);
            self.store.set_len(offset + n as u64);
        }
        Ok(n)
    }

    pub fn read(&self, offset: u64, len: usize, how: Use) -> Vec<u8> {
        self.read_with(offset, len, how, None).unwrap()
    }

    pub fn read_with(
        &self,
        offset: u64,
        len: usize,
        how: Use,
        stream: Option<&ReadStream>,
    ) -> Result<Vec<u8>> {
        let mut buf = vec![0x77; len];
        let mut n = self.file.read_hit(offset, &mut buf, how);
        if n < len {
            let _inode = self.inode.read().unwrap();
            n += self.file.read(offset + n as u64, &mut buf[n..], how, stream, &self.store)?;
        }
        buf.truncate(n);
        Ok(buf)
    }

    /// Writes back the dirty bytes of `range`, at most `max` bytes at a time.
    pub fn write_back(&self, range: Range<u64>, max: u64) -> u64 {
        let _only = self.write_back.lock().unwrap();
        let mut written = 0;
        while let Some(run) = self.file.next_dirty(range.clone(), max) {
            let taken = self.file.take_dirty(run.clone()).unwrap();
            assert_eq!(taken.range().start, run.start);
            assert!(taken.range().end <= run.end);
            let mut at = taken.range().start;
            for slice in taken.slices() {
                self.store.put(at, &slice);
                at += slice.len() as u64;
            }
            assert_eq!(at, taken.range().end);
            written += at - taken.range().start;
            taken.release_buffers().done();
        }
        written
    }

    pub fn truncate(&self, len: u64) {
        let _only = self.write_back.lock().unwrap();
        let _inode = self.inode.write().unwrap();
        let (old, block) = (self.file.len(), self.store.block as u64);
        self.file.set_len(len);
        if len < old {
            let tail = len.next_multiple_of(block).min(old);
            if len < tail {
                // The rest of the last block is zeroed through the cache, at its old length.
                self.file.set_len(old);
                self.store.back(len..tail);
                let zeros = vec![0; (tail - len) as usize];
                self.file.write(len, &mut &*zeros, Use::Keep, &self.store).unwrap();
                self.file.set_len(len);
            }
            self.file.discard(len.next_multiple_of(block)..u64::MAX);
            self.store.free(len..u64::MAX >> 1);
        }
        self.store.set_len(len);
    }
}
