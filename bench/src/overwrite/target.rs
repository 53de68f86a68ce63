//! The target of writes: a file of extant or of the kernel, or plain memory.

use std::fs::File;
use std::io::{IoSlice, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result};

/// An opening of a file that one thread uses.
pub(super) trait Target: Send {
    /// Moves the cursor to the start.
    fn rewind(&mut self) -> Result<()>;
    /// Writes at the cursor.
    fn write(&mut self, bytes: &[u8]) -> Result<usize>;
    /// Writes several pieces at the cursor, in one call.
    fn writev(&mut self, pieces: &[IoSlice<'_>]) -> Result<usize>;
    /// Writes at an offset, without the cursor.
    fn pwrite(&mut self, offset: u64, bytes: &[u8]) -> Result<usize>;
}

/// The operation in which the two kinds of file differ.
pub(super) trait WriteAt {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<usize>;
}

impl WriteAt for extant::File {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<usize> {
        Ok(extant::File::write_at(self, bytes, offset)?)
    }
}

impl WriteAt for File {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<usize> {
        Ok(FileExt::write_at(self, bytes, offset)?)
    }
}

impl<F: Write + Seek + WriteAt + Send> Target for F {
    fn rewind(&mut self) -> Result<()> {
        self.seek(SeekFrom::Start(0))?;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        Ok(Write::write(self, bytes)?)
    }

    fn writev(&mut self, pieces: &[IoSlice<'_>]) -> Result<usize> {
        Ok(self.write_vectored(pieces)?)
    }

    fn pwrite(&mut self, offset: u64, bytes: &[u8]) -> Result<usize> {
        self.write_at(offset, bytes)
    }
}

/// Bytes in memory that are only copied. No subject can be faster.
pub(super) struct Plain {
    bytes: Vec<u8>,
    cursor: usize,
}

impl Plain {
    /// A buffer of `len` bytes.
    pub(super) fn new(len: usize) -> Plain {
        Plain { bytes: vec![1; len], cursor: 0 }
    }
}

impl Target for Plain {
    fn rewind(&mut self) -> Result<()> {
        self.cursor = 0;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let at = self.cursor;
        self.cursor += bytes.len();
        self.pwrite(at as u64, bytes)
    }

    fn writev(&mut self, pieces: &[IoSlice<'_>]) -> Result<usize> {
        pieces.iter().map(|piece| self.write(piece)).sum()
    }

    fn pwrite(&mut self, offset: u64, bytes: &[u8]) -> Result<usize> {
        let at = offset as usize;
        let to = self.bytes.get_mut(at..at + bytes.len()).context("past the end")?;
        to.copy_from_slice(std::hint::black_box(bytes));
        Ok(bytes.len())
    }
}
