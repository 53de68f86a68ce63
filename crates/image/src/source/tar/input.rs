//! The source of a tar's blocks: a file read in place, or a stream whose file contents are spooled.
//!
//! ```text
//!   plain, seekable   ┌──hdr──┬──data──┬──hdr──┬ …      headers read, data skipped: content is a
//!                     └───────┴────────┴───────┴ …      range of the archive itself
//!
//!   pipe, gzip, zstd  ──► hdr, data, hdr, data, …       read once, in order
//!                              └──► spool: content is a range of an unlinked temporary file
//! ```

use extant_base::narrow::fits_usize;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// The block size of a tar in bytes.
pub(crate) const BLOCK: usize = 512;

/// The most bytes after the end mark of a stream that count as padding.
const TRAIL_MAX: u64 = 1 << 30;

/// A temporary file without a name, for file contents of an archive that cannot be read
/// by position. It only grows at its end.
#[derive(Debug)]
pub(crate) struct Spool {
    pub(crate) file: Arc<File>,
    len: u64,
}

impl Spool {
    /// Creates a spool in a directory with enough free space.
    pub(crate) fn new(dir: &Path) -> io::Result<Spool> {
        Ok(Spool { file: Arc::new(tempfile::tempfile_in(dir)?), len: 0 })
    }

    /// Appends bytes. Zeros become a hole, so data that compresses well needs no space here,
    /// either.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.iter().any(|&b| b != 0) {
            self.file.write_all_at(bytes, self.len)?;
        }
        self.len += bytes.len() as u64;
        Ok(())
    }
}

/// A range of a file: an archive, or a layer inside one.
#[derive(Clone, Debug)]
pub(crate) struct Region {
    pub(crate) file: Arc<File>,
    pub(crate) start: u64,
    pub(crate) len: u64,
}

impl Region {
    /// A file from its current position to its end.
    pub(crate) fn rest_of(mut file: File) -> io::Result<Region> {
        let start = file.stream_position()?;
        let len = file.metadata()?.len().saturating_sub(start);
        Ok(Region { file: Arc::new(file), start, len })
    }

    /// Reads by position. Returns fewer bytes than requested only at the region's end.
    pub(crate) fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<usize> {
        let len = fits_usize(self.len.saturating_sub(at).min(buf.len() as u64));
        let mut done = 0;
        while done < len {
            match self.file.read_at(&mut buf[done..len], self.start + at + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    /// Reads the region from its start to its end.
    pub(crate) fn reader(&self) -> RegionReader {
        RegionReader { region: self.clone(), at: 0 }
    }
}

/// A region as a stream.
pub(crate) struct RegionReader {
    region: Region,
    at: u64,
}

impl Read for RegionReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.region.read_at(self.at, buf)?;
        self.at += len as u64;
        Ok(len)
    }
}

enum Way<'a> {
    Place { region: Region, window: Vec<u8>, window_at: u64 },
    Stream { reader: Box<dyn Read + 'a>, spool: &'a mut Spool, chunk: Vec<u8> },
}

/// The blocks of one tar, in order.
pub(crate) struct TarInput<'a> {
    way: Way<'a>,
    at: u64,
    /// An archive that unpacks to more bytes is refused.
    limit: u64,
}

/// Why a read returned no bytes.
#[derive(Debug)]
pub(crate) enum Short {
    /// The archive ends here.
    End,
    /// The archive has more bytes than the limit.
    Limit,
    /// Reading, unpacking or spooling failed.
    Io(io::Error),
}

impl From<io::Error> for Short {
    fn from(e: io::Error) -> Short {
        match e.kind() {
            io::ErrorKind::UnexpectedEof => Short::End,
            _ => Short::Io(e),
        }
    }
}

impl<'a> TarInput<'a> {
    /// A plain tar in a file that can be read by position.
    pub(crate) fn in_place(region: Region, limit: u64) -> TarInput<'a> {
        TarInput { way: Way::Place { region, window: Vec::new(), window_at: 0 }, at: 0, limit }
    }

    /// A tar that can be read only once. Its file contents go to `spool`.
    pub(crate) fn stream(
        reader: Box<dyn Read + 'a>,
        spool: &'a mut Spool,
        limit: u64,
    ) -> TarInput<'a> {
        TarInput { way: Way::Stream { reader, spool, chunk: vec![0; 256 << 10] }, at: 0, limit }
    }

    /// Fails if `len` more bytes exceed the limit. Called before they are unpacked.
    fn within_limit(&self, len: u64) -> Result<(), Short> {
        match self.at.checked_add(len) {
            Some(end) if end <= self.limit => Ok(()),
            _ => Err(Short::Limit),
        }
    }

    /// Offset in bytes from the start of the unpacked archive.
    pub(crate) fn position(&self) -> u64 {
        self.at
    }

    /// Fills `buf`. Errors: `End` if the archive ends before.
    pub(crate) fn read(&mut self, buf: &mut [u8]) -> Result<(), Short> {
        self.within_limit(buf.len() as u64)?;
        match &mut self.way {
            Way::Stream { reader, .. } => reader.read_exact(buf)?,
            Way::Place { region, window, window_at } => {
                let mut done = 0;
                while done < buf.len() {
                    let here = self.at + done as u64;
                    let inside = here.wrapping_sub(*window_at);
                    if here < *window_at || inside >= window.len() as u64 {
                        // Large enough that small files are read with their headers, small enough
                        // that a jump over a large file wastes little.
                        window.resize(32 << 10, 0);
                        let len = region.read_at(here, window)?;
                        window.truncate(len);
                        *window_at = here;
                        if len == 0 {
                            return Err(Short::End);
                        }
                        continue;
                    }
                    let inside = fits_usize(inside);
                    let len = (window.len() - inside).min(buf.len() - done);
                    buf[done..done + len].copy_from_slice(&window[inside..inside + len]);
                    done += len;
                }
            }
        }
        self.at += buf.len() as u64;
        Ok(())
    }

    /// Reads the next block. `None` where the archive ends exactly before it.
    pub(crate) fn block(&mut self) -> Result<Option<[u8; BLOCK]>, Short> {
        let mut block = [0; BLOCK];
        // Reading one byte first distinguishes a clean end from a cut block.
        match self.read(&mut block[..1]) {
            Err(Short::End) => return Ok(None),
            other => other?,
        }
        self.read(&mut block[1..])?;
        Ok(Some(block))
    }

    /// Reads `len` bytes and the padding after them. The caller has limited `len`.
    pub(crate) fn bytes(&mut self, len: usize) -> Result<Vec<u8>, Short> {
        let mut bytes = Vec::new();
        let mut left = len;
        while left > 0 {
            // In steps, so that memory grows only with the bytes that exist.
            let step = left.min(64 << 10);
            let at = bytes.len();
            bytes.resize(at + step, 0);
            self.read(&mut bytes[at..])?;
            left -= step;
        }
        self.skip(padding(len as u64))?;
        Ok(bytes)
    }

    /// Skips `len` bytes.
    pub(crate) fn skip(&mut self, len: u64) -> Result<(), Short> {
        self.within_limit(len)?;
        match &mut self.way {
            Way::Place { region, .. } => {
                let end = self.at.checked_add(len).filter(|end| *end <= region.len);
                self.at = end.ok_or(Short::End)?;
            }
            Way::Stream { reader, chunk, .. } => {
                let mut left = len;
                while left > 0 {
                    let step = fits_usize(left.min(chunk.len() as u64));
                    reader.read_exact(&mut chunk[..step])?;
                    left -= step as u64;
                }
                self.at += len;
            }
        }
        Ok(())
    }

    /// Skips the padding after `len` bytes of data. If `may_end`, the archive may end within it.
    pub(crate) fn skip_padding(&mut self, len: u64, may_end: bool) -> Result<(), Short> {
        match self.skip(padding(len)) {
            Err(Short::End) if may_end => {
                if let Way::Place { region, .. } = &self.way {
                    self.at = region.len;
                }
                Ok(())
            }
            skipped => skipped,
        }
    }

    /// Keeps the next `len` bytes as a file's content and moves past them. Returns their offset
    /// in the archive's file or in the spool.
    pub(crate) fn keep(&mut self, len: u64) -> Result<u64, Short> {
        self.within_limit(len)?;
        match &mut self.way {
            Way::Place { region, .. } => {
                let place = region.start + self.at;
                self.skip(len)?;
                Ok(place)
            }
            Way::Stream { reader, spool, chunk } => {
                let place = spool.len;
                let mut left = len;
                while left > 0 {
                    let step = fits_usize(left.min(chunk.len() as u64));
                    reader.read_exact(&mut chunk[..step])?;
                    spool.append(&chunk[..step]).map_err(|e| {
                        Short::Io(io::Error::new(e.kind(), format!("spooling its files: {e}")))
                    })?;
                    left -= step as u64;
                }
                self.at += len;
                Ok(place)
            }
        }
    }

    /// Reads a stream to its end, so that its checksums are verified. Errors: more data after the
    /// archive's end than padding may have; `Limit`.
    pub(crate) fn drain(&mut self) -> Result<(), Short> {
        let Way::Stream { reader, spool, chunk } = &mut self.way else { return Ok(()) };
        // A hole at the end of the spool was not written, so set the length: it must read as zeros.
        spool.file.set_len(spool.len).map_err(Short::Io)?;
        let mut left = TRAIL_MAX;
        loop {
            let len = reader.read(chunk).map_err(Short::Io)? as u64;
            if len == 0 {
                return Ok(());
            }
            if len > left {
                return Err(Short::Io(io::Error::other("it goes on after its end mark")));
            }
            left -= len;
            self.at += len;
            if self.at > self.limit {
                return Err(Short::Limit);
            }
        }
    }

    /// The file that contains the contents, for the tree's archives.
    pub(crate) fn kept_in(&self) -> Arc<File> {
        match &self.way {
            Way::Place { region, .. } => region.file.clone(),
            Way::Stream { spool, .. } => spool.file.clone(),
        }
    }
}

/// Bytes from the end of `len` bytes of data to the next block.
pub(crate) fn padding(len: u64) -> u64 {
    len.wrapping_neg() % BLOCK as u64
}
