//! File data on the device: reading it, and writing it (direct I/O has a path of its own).
//!
//! ```text
//!   offset ──► map ──► run ─┬─ written   ──one device read──► buffer
//!                           ├─ hole      ──zeros────────────► buffer
//!                           └─ unwritten ──zeros────────────► buffer
//!   inline data and fast symlinks are copied from the inode
//!
//!   DataPath ─┬─ Device            one device write for each run of blocks
//!             └─ Journal(handle)   as metadata of the handle's transaction
//! ```
//!
//! File data enters the metadata cache only where it also goes through the journal. Blocks that the
//! engine writes as metadata (symlink targets, attribute values) are read through that cache.

use crate::files::DataIo;
use crate::inodes::file::{FileMut, FileRef};
use crate::inodes::map::{LOGICAL_END, Target};
use crate::tree::dir::nokey;
use crate::volume::DataMode;
use extant_base::narrow::fits_usize;
use extant_base::{BlockNr, ByteOffset, Error, LogicalBlock, Result, Site, What};
use extant_journal::{Handle, Ineligible, MetaBlock};
use extant_ondisk::inode::{FileKind, InodeFlags};
use std::io::IoSlice;

/// Source of padding: never more than a block.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// How a file's data reaches the device.
#[derive(Clone, Copy)]
pub(crate) enum DataPath<'h, 'j> {
    /// Directly, not through the metadata cache.
    Device,
    /// Directly, together with changes under this handle.
    Under(&'h Handle<'j>),
    /// As metadata of the handle's transaction, one credit a block.
    Journal {
        /// The handle.
        handle: &'h Handle<'j>,
        /// The blocks were just allocated to the file and are written whole.
        fresh: bool,
    },
}

impl DataPath<'_, '_> {
    /// The same path, for blocks that are newly allocated (`fresh`) or not.
    pub(crate) fn to_fresh(self, fresh: bool) -> Self {
        match self {
            DataPath::Journal { handle, .. } => DataPath::Journal { handle, fresh },
            other => other,
        }
    }
}

/// `len` zeros, at most a block's worth.
pub(crate) fn zeros(len: usize) -> IoSlice<'static> {
    IoSlice::new(&ZEROS[..len])
}

impl FileRef<'_> {
    /// Whether the data of this file goes through the journal.
    pub(crate) fn journals_data(self) -> bool {
        let wanted = self.volume.data_mode() == DataMode::Journal
            || self.body.disk.flags.contains(InodeFlags::JOURNAL_DATA);
        wanted && !self.volume.journal().is_off() && self.body.file_kind() == FileKind::Regular
    }

    /// How the data of this file is written under `handle`.
    pub(crate) fn data_path<'h, 'j>(self, handle: &'h Handle<'j>) -> DataPath<'h, 'j> {
        match self.journals_data() {
            true => {
                self.volume.context().require_full_commit(handle, Ineligible::JournaledData);
                DataPath::Journal { handle, fresh: false }
            }
            false => DataPath::Under(handle),
        }
    }
}

impl DataIo<'_> {
    /// Writes `parts`, one after the other, from `skip` bytes after the start of `block` on.
    ///
    /// Through the journal, bytes of a block that `parts` do not cover keep their content.
    /// Errors: `Device`, `Aborted`. Locks: takes `Leaf`.
    pub(crate) fn write_data(
        self,
        path: DataPath<'_, '_>,
        block: BlockNr,
        skip: usize,
        parts: &[IoSlice<'_>],
    ) -> Result<()> {
        let DataPath::Journal { handle, fresh } = path else {
            let start = self.volume.block_size().start_of(block).0.saturating_add(skip as u64);
            return match parts {
                [] => Ok(()),
                [one] => self.volume.device().write_at(ByteOffset(start), one),
                _ => self.volume.device().write_vectored_at(ByteOffset(start), parts),
            };
        };
        let size = self.volume.block_size().bytes();
        let mut parts = parts.iter().map(|part| &**part);
        let mut part: &[u8] = &[];
        let mut left: usize = parts.clone().map(<[u8]>::len).sum();
        let (mut nr, mut at) = (block.0 + (skip / size) as u64, skip % size);
        while left > 0 {
            let end = size.min(at + left);
            let cache = self.volume.journal().cache();
            let block = if fresh { cache.get_new(BlockNr(nr))? } else { cache.get(BlockNr(nr))? };
            let block = block.write(handle)?;
            let mut bytes = block.bytes_mut();
            left -= end - at;
            while at < end {
                if part.is_empty() {
                    part = parts.next().expect("the parts hold `left` bytes");
                    continue;
                }
                let n = part.len().min(end - at);
                bytes[at..at + n].copy_from_slice(&part[..n]);
                (part, at) = (&part[n..], at + n);
            }
            (nr, at) = (nr + 1, 0);
        }
        Ok(())
    }
}

impl FileRef<'_> {
    /// Reads `buf.len()` bytes of a file, from `skip` bytes after the start of `block` on.
    ///
    /// Errors: `Device`; for a covered file those of
    /// `DataChecksums::read_with_checksums`.
    pub(crate) fn read_data(self, block: BlockNr, skip: usize, buf: &mut [u8]) -> Result<()> {
        let size = self.volume.block_size();
        if self.has_data_checksums() {
            return self.volume.data_checksums().read_part_with_checksums(
                self.ino(),
                block,
                skip,
                buf,
            );
        }
        if !self.journals_data() {
            let start = size.start_of(block).0.saturating_add(skip as u64);
            return self.volume.device().read_at(ByteOffset(start), buf);
        }
        // The newest bytes may be only in the log.
        let blocks = size.blocks_for((skip + buf.len()) as u64);
        self.volume.journal().cache().prefetch(block, u32::try_from(blocks).unwrap_or(u32::MAX))?;
        let mut done = 0;
        while done < buf.len() {
            let at = skip + done;
            let block =
                self.volume.journal().cache().get(BlockNr(block.0 + (at >> size.log2()) as u64))?;
            let from = at & (size.bytes() - 1);
            let n = (size.bytes() - from).min(buf.len() - done);
            buf[done..done + n].copy_from_slice(&block.read()[from..from + n]);
            done += n;
        }
        Ok(())
    }
}

impl FileMut<'_> {
    /// Zeroes the block around byte `end` of a file from that byte on, if the block is written.
    ///
    /// Spends one credit where data goes through the journal. Errors: what the map gives; `Device`.
    pub(crate) fn zero_after(&mut self, path: DataPath<'_, '_>, end: u64) -> Result<()> {
        let size = self.volume.block_size();
        let next = end.next_multiple_of(size.bytes() as u64);
        self.zero_range(path, end..next)
    }

    /// Zeroes the bytes of `range`, which lies within one block, if that block is written. In a
    /// covered file the data moves to another block: then the caller stores the inode, except with
    /// [`DataPath::Device`].
    pub(crate) fn zero_range(
        &mut self,
        path: DataPath<'_, '_>,
        range: std::ops::Range<u64>,
    ) -> Result<()> {
        let log2 = self.volume.block_size().log2();
        let logical = u32::try_from(range.start >> log2).ok().filter(|n| *n < LOGICAL_END);
        let Some(logical) = logical.filter(|_| !range.is_empty()) else { return Ok(()) };
        let Target::Written(block) = self.as_ref().map(LogicalBlock(logical), 1)?.target else {
            return Ok(());
        };
        let skip = fits_usize(range.start - (u64::from(logical) << log2));
        if self.as_ref().has_data_checksums() {
            let handle = match path {
                DataPath::Device => None,
                DataPath::Under(handle) | DataPath::Journal { handle, .. } => Some(handle),
            };
            let range = skip..skip + fits_usize(range.end - range.start);
            return self.zero_covered(handle, (LogicalBlock(logical), block), range);
        }
        self.volume.data_io().write_data(
            path,
            block,
            skip,
            &[zeros(fits_usize(range.end - range.start))],
        )
    }
}

impl FileRef<'_> {
    /// Reads bytes of a regular file from `offset` on. Returns how many: fewer than requested only
    /// at the end of the file.
    ///
    /// Errors: `IsADirectory` and `Invalid` for other kinds of file; `Encrypted`; `Corrupt`;
    /// `Device`.
    /// Locks: the caller holds the inode's; takes `Leaf`.
    pub(crate) fn read_file(self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        match self.body.file_kind() {
            FileKind::Regular => {}
            FileKind::Directory => return Err(Error::IsADirectory),
            _ => return Err(Error::Invalid("not a regular file")),
        }
        if self.body.disk.flags.contains(InodeFlags::ENCRYPT) {
            return Err(Error::Encrypted);
        }
        self.read_raw(offset, buf)
    }

    /// As [`FileRef::read_file`], for any kind of file with content. Encrypted content is returned
    /// as it is stored.
    pub(crate) fn read_raw(self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let Some(left) = self.body.disk.size.checked_sub(offset).filter(|left| *left > 0) else {
            return Ok(0);
        };
        let want = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        let buf = &mut buf[..want];
        if self.body.disk.has_inline_data() {
            let parts = self.inline_parts()?;
            parts.read(offset, buf);
            return Ok(want);
        }
        let size = self.volume.block_size();
        let mut done = 0;
        while done < want {
            let pos = offset + done as u64;
            let skip = fits_usize(pos & (size.bytes() as u64 - 1));
            let first = u32::try_from(pos >> size.log2()).ok().filter(|n| *n < LOGICAL_END);
            let first = first.ok_or_else(|| Site::of_ino(self.ino()).corrupt(What::InodeSize))?;
            let blocks = size.blocks_for((skip + want - done) as u64);
            let limit = u32::try_from(blocks).unwrap_or(u32::MAX);
            let run = self.map(LogicalBlock(first), limit)?;
            let bytes =
                ((u64::from(run.len) << size.log2()) - skip as u64).min((want - done) as u64);
            let part = &mut buf[done..done + fits_usize(bytes)];
            match run.target {
                Target::Written(block) => self.read_data(block, skip, part)?,
                Target::Hole | Target::Unwritten(_) => part.fill(0),
            }
            done += fits_usize(bytes);
        }
        Ok(want)
    }

    /// A mapped block of content that the engine treats as metadata; `None` for a hole.
    ///
    /// Errors: `ExtentUnwritten`, what the map gives, `Device`.
    pub(crate) fn content_block(self, at: LogicalBlock) -> Result<Option<MetaBlock>> {
        match self.map(at, 1)?.target {
            Target::Hole => Ok(None),
            Target::Unwritten(block) => {
                Err(Site::of_ino(self.ino()).block(block).corrupt(What::ExtentUnwritten))
            }
            Target::Written(block) => Ok(Some(self.volume.journal().cache().get(block)?)),
        }
    }

    /// The target of a symlink, wherever it is stored. For an encrypted one, the text that
    /// represents it without the key.
    ///
    /// Errors: `Invalid` for other kinds of file; `SymlinkTarget`; what the map gives.
    pub(crate) fn symlink_target(self) -> Result<Vec<u8>> {
        let at = Site::of_ino(self.ino());
        if self.body.file_kind() != FileKind::Symlink {
            return Err(Error::Invalid("not a symbolic link"));
        }
        let len = fits_usize(self.body.disk.size);
        let mut target = Vec::new();
        if self.body.disk.has_inline_data() {
            let parts = self.inline_parts()?;
            target.resize(len, 0); // fits into both parts together
            parts.read(0, &mut target);
        } else if self.body.disk.is_fast_symlink(self.volume.inode_format()) {
            match self.body.disk.flags.contains(InodeFlags::ENCRYPT) {
                // Ciphertext may hold NUL; the size was checked to fit with the inode.
                true => target.extend(self.body.disk.i_block.iter().take(len)),
                false => target.extend_from_slice(self.body.disk.fast_symlink_target(self.ino())?),
            }
        } else {
            let block = self.content_block(LogicalBlock(0))?;
            let block = block.ok_or_else(|| at.corrupt(What::SymlinkTarget))?;
            let bytes = block.read();
            // Shorter than a block: checked when the inode was read.
            target.extend_from_slice(&bytes[..len.min(bytes.len())]);
        }
        if self.body.disk.flags.contains(InodeFlags::ENCRYPT) {
            let text = nokey::encode_target(&target);
            return text.ok_or_else(|| at.corrupt(What::SymlinkTarget));
        }
        if target.is_empty() || target.contains(&0) {
            return Err(at.corrupt(What::SymlinkTarget));
        }
        Ok(target)
    }

    /// The next offset of data (`data` true) or hole at or after `offset`, as `lseek` finds it.
    /// Unwritten blocks count as holes, and the end of the file is one.
    ///
    /// `None` when `offset` is at or past the end, or no data follows. Errors: what the map gives.
    pub(crate) fn seek(self, offset: u64, data: bool) -> Result<Option<u64>> {
        let end = self.body.disk.size;
        if offset >= end {
            return Ok(None);
        }
        if self.body.disk.has_inline_data() {
            let held = (self.inline_parts()?.capacity() as u64).min(end);
            return Ok(match data {
                true => Some(offset).filter(|offset| *offset < held),
                false => Some(held.max(offset)),
            });
        }
        let size = self.volume.block_size();
        let blocks = u32::try_from(size.blocks_for(end)).unwrap_or(LOGICAL_END);
        let first = u32::try_from(offset >> size.log2()).unwrap_or(LOGICAL_END);
        for run in self.runs(first..blocks) {
            let run = run?;
            if matches!(run.target, Target::Written(_)) == data {
                let start = u64::from(run.logical.0) << size.log2();
                return Ok(Some(start.max(offset)));
            }
        }
        Ok(if data { None } else { Some(end) })
    }
}
