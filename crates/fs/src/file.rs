//! An open file: `Read`, `Seek`, and reads at a place.
//!
//! ```text
//!   File ─┬─ inode, shared          File::read_at(offset)    any number of threads
//!         └─ cursor (its own)       Read, Seek               move the cursor
//! ```

use crate::map::{LOGICAL_END, Target};
use crate::metadata::Metadata;
use crate::names::hold::InodeHold;
use extant_base::{BlockNr, Error, Ino, Result, Site, What};
use extant_ondisk::inode::FileKind;
use std::io::{self, Read, Seek, SeekFrom};

/// A regular file of a volume, open to read.
///
/// # Examples
///
/// ```no_run
/// use std::io::{Read, Seek, SeekFrom};
/// let fs = extant::Filesystem::open("disk.img")?;
/// let mut file = fs.open_file("/var/log/syslog")?;
/// file.seek(SeekFrom::End(-100))?;
/// let mut tail = String::new();
/// file.read_to_string(&mut tail)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct File {
    inode: InodeHold,
    cursor: u64,
}

/// A piece of a file and where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileExtent {
    /// Bytes from the file's start.
    pub offset: u64,
    /// Bytes, whole blocks: the last piece may reach past the file's end.
    pub len: u64,
    /// The volume's block where the piece starts.
    pub block: BlockNr,
    /// Whether the blocks hold data; they read as zeros otherwise.
    pub written: bool,
}

impl File {
    /// Opens what is held.
    ///
    /// Errors: `IsADirectory`; `Invalid` for devices and the like.
    pub(crate) fn open(inode: InodeHold) -> Result<File> {
        match inode.read().file_kind() {
            FileKind::Regular => {}
            FileKind::Directory => return Err(Error::IsADirectory),
            _ => return Err(Error::Invalid("not a regular file")),
        }
        Ok(File { inode, cursor: 0 })
    }

    /// The inode's number.
    pub fn ino(&self) -> Ino {
        self.inode.ino
    }

    /// What is known of the file besides its content.
    pub fn metadata(&self) -> Metadata {
        Metadata::of(self.inode.fs().volume(), self.inode.ino, &self.inode.read())
    }

    /// Reads bytes from `offset` on; how many, fewer than `buf` holds only at the file's end.
    ///
    /// Errors: `Encrypted`; `Corrupt`; `Device`.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.inode.fs().volume().read_file(self.inode.ino, &self.inode.read(), offset, buf)
    }

    /// As [`File::read_at`], encrypted content as it is stored.
    pub fn read_raw_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.inode.fs().volume().read_raw(self.inode.ino, &self.inode.read(), offset, buf)
    }

    /// Where data starts at or behind `offset`; `None` when only a hole follows.
    pub fn seek_data(&self, offset: u64) -> Result<Option<u64>> {
        self.inode.fs().volume().seek(self.inode.ino, &self.inode.read(), offset, true)
    }

    /// Where a hole starts at or behind `offset`; the end of the file is one. `None` from there on.
    pub fn seek_hole(&self, offset: u64) -> Result<Option<u64>> {
        self.inode.fs().volume().seek(self.inode.ino, &self.inode.read(), offset, false)
    }

    /// The file's pieces in order, holes left out, blocks past its end included; none where the
    /// content lies in the inode. Neighbours that continue each other are one.
    ///
    /// Errors: `Corrupt`, `Device`.
    pub fn extents(&self) -> Result<Vec<FileExtent>> {
        let body = self.inode.read();
        let mut pieces: Vec<FileExtent> = Vec::new();
        if body.disk.has_inline_data() {
            return Ok(pieces);
        }
        let volume = self.inode.fs().volume();
        let log2 = volume.block_size().log2();
        let mut mapped = 0;
        for run in volume.runs(self.inode.ino, &body, 0..LOGICAL_END) {
            let run = run?;
            let (block, written) = match run.target {
                Target::Hole => continue,
                Target::Written(block) => (block, true),
                Target::Unwritten(block) => (block, false),
            };
            // A crafted map can name the same blocks over and over.
            mapped += u64::from(run.len);
            if mapped > volume.layout.blocks_count() {
                return Err(Site::of_ino(self.inode.ino).corrupt(What::InodeBlocks));
            }
            let (offset, len) = (u64::from(run.logical.0) << log2, u64::from(run.len) << log2);
            match pieces.last_mut() {
                Some(last)
                    if last.offset + last.len == offset
                        && last.block.0 + (last.len >> log2) == block.0
                        && last.written == written =>
                {
                    last.len += len;
                }
                _ => pieces.push(FileExtent { offset, len, block, written }),
            }
        }
        Ok(pieces)
    }
}

/// An [`Error`] as the standard library carries it, its errno kept where the system has one.
pub(crate) fn io_error(error: Error) -> io::Error {
    let kind = io::Error::from_raw_os_error(error.errno()).kind();
    io::Error::new(kind, error)
}

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.read_at(self.cursor, buf).map_err(io_error)?;
        self.cursor += n as u64;
        Ok(n)
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
        self.cursor = to.ok_or_else(|| io_error(Error::Invalid("seek before the file's start")))?;
        Ok(self.cursor)
    }
}
