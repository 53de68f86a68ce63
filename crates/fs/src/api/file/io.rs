//! The standard library's traits, at the file's own cursor.

use super::File;
use extant_base::Error;
use std::io::{self, IoSlice, Read, Seek, SeekFrom, Write};

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.read_at(buf, self.cursor)?;
        self.cursor += n as u64;
        Ok(n)
    }
}

/// A file has no buffer of its own to flush; [`File::sync_all`] makes written data durable.
impl Write for File {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(buf)])
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let n = self.write_vectored_at(bufs, self.cursor)?;
        self.cursor += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (from, by) = match to {
            SeekFrom::Start(offset) => (offset, 0),
            SeekFrom::Current(by) => (self.cursor, by),
            SeekFrom::End(by) => (self.inode.read().disk.size, by),
        };
        let to = from.checked_add_signed(by);
        self.cursor = to.ok_or(Error::Invalid("seek before the file's start"))?;
        Ok(self.cursor)
    }
}
