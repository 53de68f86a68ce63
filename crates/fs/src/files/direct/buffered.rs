//! The parts of a direct transfer that go through the cache: parts of units and of new blocks, and
//! content that is not in blocks.
//!
//! The bytes are copied to other memory before any lock is taken, so the caller's memory may be the
//! cache of the same file.

use crate::files::direct::DirectIo;
use crate::files::file::write::Place;
use crate::state::bounce::CHUNK_MAX;
use extant_base::{Error, Result};
use extant_blockdev::{CallerMemory, Faults};
use extant_pagecache::Content;
use std::io::IoSlice;
use std::sync::atomic::Ordering::Relaxed;

impl DirectIo<'_> {
    /// Writes the start of `len` bytes through the cache, and from there to the device. Returns how
    /// many.
    pub(crate) fn write_buffered<'m>(
        self,
        pos: u64,
        len: usize,
        memory: &mut (impl CallerMemory<'m> + ?Sized),
    ) -> Result<usize> {
        let len = len.min(memory.left()).min(CHUNK_MAX);
        let mut chunk = self.volume.bounce_chunks().take(len, 1)?;
        let n = memory.copy_out(&mut chunk.buf, Faults::Allowed);
        if n < chunk.buf.len() {
            memory.revert(n);
            return Err(Error::Fault);
        }
        let pieces = [IoSlice::new(&chunk.buf)];
        let written = self.volume.io(self.inode).write_file(
            Place::At(pos),
            Content::new(&pieces),
            self.volume.cache_use(),
        );
        let done = *written.as_ref().unwrap_or(&0);
        memory.revert(n - done);
        written?;
        self.volume.bounce_chunks().stats.buffered.fetch_add(done as u64, Relaxed);
        self.volume.io(self.inode).write_back(
            self.volume.direct_steps().in_whole_blocks(pos..pos + done as u64),
            &u64::MAX,
        )?;
        Ok(done)
    }

    /// Reads the start of `len` bytes through the cache. Returns how many.
    pub(crate) fn read_buffered<'m>(
        self,
        pos: u64,
        len: usize,
        memory: &mut (impl CallerMemory<'m> + ?Sized),
    ) -> Result<usize> {
        let len = len.min(memory.left()).min(CHUNK_MAX);
        let mut chunk = self.volume.bounce_chunks().take(len, 1)?;
        let n = self.volume.io(self.inode).read_through(
            pos,
            &mut chunk.buf,
            self.volume.cache_use(),
            None,
        )?;
        let done = memory.copy_in(&chunk.buf[..n], Faults::Allowed);
        self.volume.bounce_chunks().stats.buffered.fetch_add(done as u64, Relaxed);
        if done == 0 && n > 0 { Err(Error::Fault) } else { Ok(done) }
    }
}
