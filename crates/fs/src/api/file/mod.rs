//! An open file: reads and writes at an offset, and `Read`, `Write`, `Seek` at a cursor.
//!
//! ```text
//!   File ─┬─ inode, shared          read_at, write_at, append, set_len, allocate, sync_all …
//!         └─ cursor (its own)       Read, Write, Seek
//! ```
//!
//! Any number of threads may use one file. A read or overwrite of bytes in the page cache locks
//! folios only. Other readers share the inode; other writers run one at a time. A write is atomic
//! for other writers. A reader may see the part of a write that is in one folio before the part in
//! the next.

mod io;
mod sync;

use crate::api::inode_hold::InodeHold;
use crate::files::attributes::SetAttributes;
use crate::files::file::write::Place;
use crate::files::file::{Defragmented, FallocateMode};
use crate::inodes::map::{LOGICAL_END, Target};
use crate::inodes::metadata::Metadata;
use crate::state::inode::Inode;
use crate::volume::Volume;
use extant_base::{BlockNr, Error, Ino, Result, Site, What};
use extant_ondisk::inode::{FileKind, InodeFlags};
use extant_pagecache::{Content, ReadStream, Use as CacheUse};
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A regular file of a volume. It is open for reading and, if the volume is, for writing.
///
/// # Examples
///
/// ```
/// # let _here = extant_guide_tests::with_image();
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
    opened: Arc<Opened>,
    cursor: u64,
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("File")
            .field("ino", &self.ino())
            .field("cursor", &self.cursor)
            .finish_non_exhaustive()
    }
}

/// State of one opening; clones of a file share it.
struct Opened {
    inode: InodeHold,
    /// Its read pattern, for read-ahead.
    stream: ReadStream,
    /// The last write-back error that was reported to this opening.
    error_seen: AtomicU64,
    /// Its bytes leave the cache once they are on the device.
    drop_behind: AtomicBool,
}

/// A piece of a file and where it is on the volume.
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

/// The opening ends with its last clone.
impl Drop for Opened {
    fn drop(&mut self) {
        self.inode.end_opening();
    }
}

impl File {
    /// Opens an inode as a file.
    ///
    /// Errors: `IsADirectory`; `Invalid` for devices and other kinds.
    pub(crate) fn open(inode: InodeHold) -> Result<File> {
        match inode.read().file_kind() {
            FileKind::Regular => {}
            FileKind::Directory => return Err(Error::IsADirectory),
            _ => return Err(Error::Invalid("not a regular file")),
        }
        let volume = inode.fs().volume();
        let error_seen =
            inode.file_cache.get().map_or(0, |file_cache| file_cache.pages.error_seen());
        let opened = Opened {
            inode: inode.clone(),
            stream: ReadStream::default(),
            error_seen: AtomicU64::new(error_seen),
            drop_behind: AtomicBool::new(volume.drops_behind()),
        };
        Ok(File { inode, opened: Arc::new(opened), cursor: 0 })
    }

    /// Sets whether bytes read or written through this file leave the cache soon: a hint for data
    /// that is used once. Clones share the setting;
    /// [`OpenOptions::dont_cache`](crate::OpenOptions::dont_cache) is its initial value.
    pub fn set_dont_cache(&self, dont_cache: bool) {
        self.opened.drop_behind.store(dont_cache, Ordering::Relaxed);
    }

    pub(crate) fn cache_use(&self) -> CacheUse {
        match self.opened.drop_behind.load(Ordering::Relaxed) {
            true => CacheUse::DropBehind,
            false => CacheUse::Keep,
        }
    }

    pub(crate) fn held(&self) -> &Inode {
        &self.inode
    }

    pub(crate) fn volume(&self) -> &Volume {
        self.inode.fs().volume()
    }

    /// The inode's number.
    pub fn ino(&self) -> Ino {
        self.inode.ino
    }

    /// The file's attributes.
    pub fn metadata(&self) -> Metadata {
        self.inode.metadata(self.volume())
    }

    /// Reads bytes from `offset` on. Returns how many: fewer than `buf` holds only at the file's
    /// end.
    ///
    /// # Errors
    /// `Encrypted`; `Corrupt`; `Device`.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.read_at_with(buf, offset, self.cache_use())
    }

    /// As [`File::read_at`], with a hint how the cache should treat the bytes.
    ///
    /// # Errors
    /// As [`File::read_at`].
    pub fn read_at_with(&self, buf: &mut [u8], offset: u64, how: CacheUse) -> Result<usize> {
        self.volume().io(&self.inode).read_through(offset, buf, how, Some(&self.opened.stream))
    }

    /// As [`File::read_at`]. Encrypted content is returned as it is stored.
    ///
    /// # Errors
    /// `Corrupt`; `Device`.
    pub fn read_raw_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        if self.inode.file_cache.get().is_some() {
            // The file is not encrypted, and the cache may hold newer bytes than the device.
            return self.read_at(buf, offset);
        }
        self.volume()
            .context()
            .recording_errors(|| self.volume().file(&self.inode.read()).read_raw(offset, buf))
    }

    /// Writes bytes from `offset` on. Returns how many: fewer than `buf` holds only if the volume
    /// becomes full or the largest possible file ends in between. A further call then returns the
    /// error.
    ///
    /// # Errors
    /// `ReadOnly`; `NotPermitted` for an immutable or append-only file; `Encrypted`;
    /// `FileTooLarge`; `NoSpace`; `Corrupt`; `Device`.
    ///
    /// # Examples
    ///
    /// ```
    /// # let _here = extant_guide_tests::with_image();
    /// let fs = extant::OpenOptions::new().write(true).open("disk.img")?;
    /// let file = fs.open_file("/var/log/syslog")?;
    /// file.write_all_at(b"first line\n", 0)?;
    /// file.append(b"last line\n")?;
    /// file.sync_all()?;
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn write_at(&self, buf: &[u8], offset: u64) -> Result<usize> {
        self.write_vectored_at(&[IoSlice::new(buf)], offset)
    }

    /// As [`File::write_at`], with the bytes in several pieces of memory, one after the other.
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<usize> {
        self.write_vectored_at_with(bufs, offset, self.cache_use())
    }

    /// As [`File::write_vectored_at`], with a hint how the cache should treat the bytes.
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub fn write_vectored_at_with(
        &self,
        bufs: &[IoSlice<'_>],
        offset: u64,
        how: CacheUse,
    ) -> Result<usize> {
        self.write_to(Place::At(offset), bufs, how)
    }

    /// Checks whether [`File::write_at`], or [`File::append`] for an append-only file, accepts
    /// bytes at `offset` as long as there is space. For callers that have to change something else
    /// first.
    ///
    /// # Errors
    /// As those.
    pub fn check_write(&self, offset: u64) -> Result<()> {
        let body = self.inode.read();
        let appends = body.flags.contains(InodeFlags::APPEND) && offset == body.size;
        let place = if appends { Place::End } else { Place::At(offset) };
        self.volume().file(&body).check_write(place).map(drop)
    }

    /// Writes all of `buf` from `offset` on. After an error some of them may be written.
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub fn write_all_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        let mut done = 0;
        while done < buf.len() {
            done += self.write_at(&buf[done..], offset.saturating_add(done as u64))?;
        }
        Ok(())
    }

    /// Writes bytes after the file's last one, wherever other writers move the end. Returns how
    /// many, as [`File::write_at`].
    ///
    /// # Errors
    /// As [`File::write_at`], but an append-only file accepts them.
    pub fn append(&self, buf: &[u8]) -> Result<usize> {
        self.append_with(buf, self.cache_use())
    }

    /// As [`File::append`], with a hint how the cache should treat the bytes.
    ///
    /// # Errors
    /// As [`File::append`].
    pub fn append_with(&self, buf: &[u8], how: CacheUse) -> Result<usize> {
        self.write_to(Place::End, &[IoSlice::new(buf)], how)
    }

    fn write_to(&self, place: Place, bufs: &[IoSlice<'_>], how: CacheUse) -> Result<usize> {
        self.volume().context().recording_errors(|| {
            let io = self.volume().io(&self.inode);
            let done = io.write_file(place, Content::new(bufs), how)?;
            io.sync_if_flagged()?;
            Ok(done)
        })
    }

    /// Truncates the file to `size` bytes, or extends it with a hole.
    ///
    /// # Errors
    /// `ReadOnly`; `NotPermitted` for an immutable or append-only file; `FileTooLarge`; `Corrupt`;
    /// `Device`.
    pub fn set_len(&self, size: u64) -> Result<()> {
        self.volume().context().recording_errors(|| {
            self.volume().io(&self.inode).set_len(size)?;
            self.volume().io(&self.inode).sync_if_flagged()
        })
    }

    /// Allocates or frees blocks as `fallocate` does, see [`FallocateMode`].
    ///
    /// # Errors
    /// `Invalid` for an empty or misplaced range; `NotSupported` on a file that is mapped by
    /// pointers; `NotPermitted`; `FileTooLarge`; `NoSpace`, and blocks allocated so far stay;
    /// `Corrupt`; `Device`.
    pub fn allocate(&self, mode: FallocateMode, offset: u64, len: u64) -> Result<()> {
        self.volume().context().recording_errors(|| {
            self.volume().io(&self.inode).fallocate(mode, offset, len)?;
            self.volume().io(&self.inode).sync_if_flagged()
        })
    }

    /// Moves the file's blocks to fewer runs, if there are such free blocks. Content, times, holes
    /// and unwritten blocks stay as they are, also after a crash at any time. An immutable or
    /// append-only file moves, too.
    ///
    /// Needs free space for a part of the file of at most 256 MiB. While that part is copied, no
    /// other thread can read or write the file.
    ///
    /// # Errors
    /// `ReadOnly`; `NotPermitted` for an internal file; `NotSupported` for a file without extents,
    /// with clusters (bigalloc) or journaled data, and for a swap file; `DataChecksum`, `Corrupt`,
    /// `Device`: parts may have moved by then.
    pub fn defragment(&self) -> Result<Defragmented> {
        self.volume().context().recording_errors(|| self.volume().io(&self.inode).defragment())
    }

    /// Checks whether [`File::allocate`] accepts this range of this file as long as there is space
    /// and the file's map can do it. For callers that have to change something else first.
    ///
    /// # Errors
    /// As [`File::allocate`].
    pub fn check_allocate(&self, mode: FallocateMode, offset: u64, len: u64) -> Result<()> {
        self.volume().file(&self.inode.read()).check_range(mode, offset, len).map(drop)
    }

    /// Changes the file's attributes, see [`SetAttributes`].
    ///
    /// # Errors
    /// As [`Filesystem::set_attributes`](crate::Filesystem::set_attributes).
    pub fn set_attributes(&self, changes: &SetAttributes) -> Result<()> {
        self.volume()
            .context()
            .recording_errors(|| self.volume().io(&self.inode).set_attributes(changes))
    }

    /// Where data starts at or after `offset`; `None` when only a hole follows.
    ///
    /// # Errors
    /// `Corrupt`; `Device`.
    pub fn seek_data(&self, offset: u64) -> Result<Option<u64>> {
        self.seek_to(offset, true)
    }

    /// Where a hole starts at or after `offset`; the end of the file is one. `None` from there on.
    ///
    /// # Errors
    /// As [`File::seek_data`].
    pub fn seek_hole(&self, offset: u64) -> Result<Option<u64>> {
        self.seek_to(offset, false)
    }

    fn seek_to(&self, offset: u64, data: bool) -> Result<Option<u64>> {
        self.volume().context().recording_errors(|| {
            self.volume().io(&self.inode).write_back_file()?;
            self.volume().file(&self.inode.read()).seek(offset, data)
        })
    }

    /// The extent that holds the byte at `offset`. `None` in a hole, after the last extent, and for
    /// content in the inode.
    ///
    /// # Errors
    /// `Corrupt`, `Device`.
    pub fn extent_at(&self, offset: u64) -> Result<Option<FileExtent>> {
        self.volume().context().recording_errors(|| {
            let volume = self.volume();
            volume.io(&self.inode).write_back_file()?;
            let body = self.inode.read();
            let log2 = volume.block_size().log2();
            let block = u32::try_from(offset >> log2).unwrap_or(LOGICAL_END);
            if body.disk.has_inline_data() || block == LOGICAL_END {
                return Ok(None);
            }
            let Some(run) = volume.file(&body).runs(block..block + 1).next() else {
                return Ok(None);
            };
            let run = run?;
            let (block, written) = match run.target {
                Target::Hole => return Ok(None),
                Target::Written(block) => (block, true),
                Target::Unwritten(block) => (block, false),
            };
            let (offset, len) = (u64::from(run.logical.0) << log2, u64::from(run.len) << log2);
            Ok(Some(FileExtent { offset, len, block, written }))
        })
    }

    /// The file's extents in order, blocks past its end included. Holes are left out, and content
    /// in the inode has none. Neighbours that continue each other are one extent.
    ///
    /// # Errors
    /// `Corrupt`, `Device`.
    pub fn extents(&self) -> Result<Vec<FileExtent>> {
        self.volume().context().recording_errors(|| {
            // Reserved blocks have no place yet: write the data back first.
            self.volume().io(&self.inode).write_back_file()?;
            let body = self.inode.read();
            let mut pieces: Vec<FileExtent> = Vec::new();
            if body.disk.has_inline_data() {
                return Ok(pieces);
            }
            let volume = self.volume();
            let log2 = volume.block_size().log2();
            let mut mapped = 0;
            for run in volume.file(&body).runs(0..LOGICAL_END) {
                let run = run?;
                let (block, written) = match run.target {
                    Target::Hole => continue,
                    Target::Written(block) => (block, true),
                    Target::Unwritten(block) => (block, false),
                };
                // A crafted map can name the same blocks again and again.
                mapped += u64::from(run.len);
                if mapped > volume.geometry().blocks_count() {
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
        })
    }
}
