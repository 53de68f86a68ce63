//! Files as they were, and what can be read of them.
//!
//! ```text
//!   PastFiles ─► PastFile ─┬─ path, metadata, attributes     as they were
//!                          ├─ state, lost ranges             what became of it
//!                          └─ content ─► runs ─► the device
//! ```

use super::map::Run;
use crate::api::filesystem::Filesystem;
use crate::inodes::metadata::Metadata;
use extant_base::narrow::fits_usize;
use extant_base::{BlockNr, ByteOffset, Result, Site, What};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// What is left of a file's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// All blocks are there, and nothing shows that one was written over.
    Whole,
    /// Some blocks were written over or are in use now, or parts of the map are lost.
    Partial {
        /// Blocks that can still be read.
        free_blocks: u64,
        /// Blocks that are in use now or were written over.
        reused_blocks: u64,
        /// Parts of the map are lost, so there may have been more blocks.
        map_damaged: bool,
    },
    /// No block is left.
    Gone,
}

/// A file as it was: before it was deleted, or at a given time.
#[derive(Debug)]
pub struct PastFile {
    pub(super) metadata: Metadata,
    pub(super) paths: Vec<PathBuf>,
    pub(super) state: State,
    pub(super) is_deleted: bool,
    pub(super) is_changed: bool,
    pub(super) is_certain: bool,
    pub(super) size_known: bool,
    pub(super) deleted_at: Option<u64>,
    pub(super) xattrs: Vec<(OsString, Vec<u8>)>,
    pub(super) lost: Vec<(u64, u64)>,
    pub(super) content: Content,
}

/// Where a file's content is.
#[derive(Debug)]
pub(super) enum Content {
    /// In the inode: inline data, or the target of a symbolic link.
    Bytes(Vec<u8>),
    /// In blocks: runs in ascending order, without blocks that are lost.
    Runs(Vec<Run>),
    /// A directory, a device, a pipe or a socket.
    None,
}

impl PastFile {
    /// The file's attributes at that time. If [`PastFile::size_is_known`] is false, the size is
    /// that of its blocks.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The path that it had, from the root. `None` if no name was found. The names come from the
    /// disk: they may contain any byte.
    pub fn path(&self) -> Option<&Path> {
        self.paths.first().map(PathBuf::as_path)
    }

    /// All paths that it had, for a file with hard links; empty if no name was found.
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Its extended attributes, names and values. Attributes in a block of their own are left out
    /// if that block may have been written over.
    pub fn xattrs(&self) -> &[(OsString, Vec<u8>)] {
        &self.xattrs
    }

    /// What is left of its content.
    pub fn state(&self) -> State {
        self.state
    }

    /// Whether it was deleted; otherwise it is there now.
    pub fn is_deleted(&self) -> bool {
        self.is_deleted
    }

    /// Whether its size or the time of its last modification changed after the time that is shown,
    /// also if it was deleted later. Then its blocks may have newer content in parts.
    pub fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// Whether its name and its attributes are those of that time; otherwise they may be of a later
    /// one. Deleted files are always certain: the time is that of their last state.
    pub fn is_certain(&self) -> bool {
        self.is_certain
    }

    /// The parts of its content that are lost: ranges of bytes, (offset, length), ascending. There
    /// may be more if the map is damaged.
    pub fn lost_ranges(&self) -> &[(u64, u64)] {
        &self.lost
    }

    /// Whether the size is that of the file; otherwise the end of its last block.
    pub fn size_is_known(&self) -> bool {
        self.size_known
    }

    /// When it was deleted, in seconds since 1970; `None` if it was not, or if that is not known.
    pub fn deleted_at(&self) -> Option<u64> {
        self.deleted_at
    }
}

/// Files of a volume as they were.
#[derive(Debug)]
pub struct PastFiles {
    pub(super) fs: Filesystem,
    pub(super) files: Vec<PastFile>,
    pub(super) count: u64,
}

impl PastFiles {
    /// These files, by path.
    pub(super) fn sorted(fs: Filesystem, mut files: Vec<PastFile>, count: u64) -> PastFiles {
        files.sort_by(|a, b| (&a.paths, a.metadata.ino()).cmp(&(&b.paths, b.metadata.ino())));
        PastFiles { fs, files, count }
    }

    /// The files: by path, those without one first.
    pub fn files(&self) -> &[PastFile] {
        &self.files
    }

    /// How many there are, those that were not kept included.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Where the file has data that can be read: ranges of bytes, (offset, length), ascending.
    pub fn data_ranges(&self, file: &PastFile) -> Vec<(u64, u64)> {
        let end = file.metadata.len();
        let log2 = self.fs.volume().block_size().log2();
        match &file.content {
            Content::None => Vec::new(),
            Content::Bytes(bytes) => vec![(0, bytes.len() as u64)],
            Content::Runs(runs) => runs
                .iter()
                .filter(|run| run.written)
                .map(|run| (u64::from(run.logical) << log2, (run.end() << log2).min(end)))
                .filter(|(start, end)| start < end)
                .map(|(start, end)| (start, end - start))
                .collect(),
        }
    }

    /// Reads what the file's blocks contain now, from `offset` on. Returns how many bytes: fewer
    /// than `buf` holds only at the end of the file. Holes are zeros, and so are lost blocks.
    ///
    /// # Errors
    /// `Device`.
    pub fn read_at(&self, file: &PastFile, buf: &mut [u8], offset: u64) -> Result<usize> {
        let left = file.metadata.len().saturating_sub(offset);
        let want = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        let buf = &mut buf[..want];
        buf.fill(0);
        match &file.content {
            Content::None => Ok(0),
            Content::Bytes(bytes) => {
                let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
                let bytes = &bytes[from..];
                let len = bytes.len().min(want);
                buf[..len].copy_from_slice(&bytes[..len]);
                Ok(len)
            }
            Content::Runs(runs) => {
                self.read_runs(runs, buf, offset)?;
                Ok(want)
            }
        }
    }

    fn read_runs(&self, runs: &[Run], buf: &mut [u8], offset: u64) -> Result<()> {
        let volume = self.fs.volume();
        let size = volume.block_size();
        let end = offset + buf.len() as u64;
        let first = runs.partition_point(|run| run.end() << size.log2() <= offset);
        for run in &runs[first..] {
            let start = u64::from(run.logical) << size.log2();
            if start >= end {
                break;
            }
            if !run.written {
                continue;
            }
            let from = start.max(offset);
            let upto = (run.end() << size.log2()).min(end);
            let at = ByteOffset(size.start_of(BlockNr(run.physical)).0 + (from - start));
            let part = fits_usize(from - offset)..fits_usize(upto - offset);
            volume.device().read_at(at, &mut buf[part])?;
        }
        Ok(())
    }

    /// The target of a deleted symbolic link.
    ///
    /// # Errors
    /// `Corrupt` if the block that it was in contains no target now; `Device`.
    pub fn read_link(&self, file: &PastFile) -> Result<Vec<u8>> {
        let wrong = || Site::of_ino(file.metadata.ino()).corrupt(What::SymlinkTarget);
        let block = self.fs.volume().block_size().bytes() as u64;
        if !file.metadata.is_symlink() || file.metadata.len() >= block {
            return Err(wrong());
        }
        let mut target = vec![0; fits_usize(file.metadata.len())];
        let len = self.read_at(file, &mut target, 0)?;
        match len == target.len() && len > 0 && !target.contains(&0) {
            true => Ok(target),
            false => Err(wrong()),
        }
    }
}
