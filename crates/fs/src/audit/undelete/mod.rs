//! Files that were deleted and whose content is still there.
//!
//! ```text
//!   journal   old copies of ── inode tables ──► inodes as they were ─┐
//!             (the whole ring) map nodes ────────────────────────────┼─► files: whole, partly
//!                              directories ───► their names ─────────┤   reused, or without blocks
//!   home      map nodes that the removal left ──► inodes without size┘
//!             block bitmaps ──► which blocks are in use again
//! ```
//!
//! Linux clears the map in an inode that it deletes, so the inode at home has nothing left. But the
//! log is a ring: until it is written over, it has the inode as it was before, and the directory
//! with the name. A file with many extents leaves more: the nodes of its map stay where they are,
//! with checksums that name the inode.
//!
//! Rules:
//! - Nothing is written.
//! - Nothing that was read is trusted: an inode, a node, a name is taken if its checksum and its
//!   fields are right, and left out if not.
//! - Content is never proven. A block counts as lost if a file uses it now, if a file had it that
//!   was deleted later, or if the log shows that it was written as metadata afterwards. A file with
//!   all its blocks is [`State::Whole`]; the log may have forgotten that one was written over.
//!
//! Memory: about 60 bytes for each copy in the log, and what the files found need.

mod evidence;
mod inodes;
mod map;
mod names;

use crate::api::filesystem::Filesystem;
use crate::inodes::metadata::Metadata;
use crate::progress::Progress;
use crate::state::inode::Body;
use crate::volume::Volume;
use evidence::Evidence;
use extant_base::narrow::fits_usize;
use extant_base::{BlockNr, ByteOffset, Ino, Result, Site, Tid, What};
use extant_ondisk::inode::FileKind;
use map::Run;
use rangemap::RangeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Options of a search.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Worker threads, 1..=64.
    pub threads: usize,
    /// How many files are kept. Further ones are only counted.
    pub files_limit: usize,
}

impl Default for Options {
    fn default() -> Options {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Options { threads, files_limit: 1 << 20 }
    }
}

/// What is left of a deleted file's content.
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

/// A file that was deleted.
#[derive(Debug)]
pub struct DeletedFile {
    metadata: Metadata,
    path: Option<PathBuf>,
    state: State,
    size_known: bool,
    deleted_at: Option<u64>,
    xattrs: Vec<(OsString, Vec<u8>)>,
    content: Content,
}

/// Where a deleted file's content is.
#[derive(Debug)]
enum Content {
    /// In the inode: inline data, or the target of a symbolic link.
    Bytes(Vec<u8>),
    /// In blocks: runs in ascending order, without blocks that are lost.
    Runs(Vec<Run>),
    /// A directory, a device, a pipe or a socket.
    None,
}

impl DeletedFile {
    /// The file's attributes before it was deleted. If [`DeletedFile::size_is_known`] is false, the
    /// size is that of its blocks.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The path that it had, from the root. `None` if no name was found. The names come from the
    /// disk: they may contain any byte.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Its extended attributes, names and values, as far as they were in the inode: what is in
    /// other blocks cannot be proven to be the file's.
    pub fn xattrs(&self) -> &[(OsString, Vec<u8>)] {
        &self.xattrs
    }

    /// What is left of its content.
    pub fn state(&self) -> State {
        self.state
    }

    /// Whether the size is that of the file; otherwise the end of its last block.
    pub fn size_is_known(&self) -> bool {
        self.size_known
    }

    /// When it was deleted, in seconds since 1970; `None` if unknown.
    pub fn deleted_at(&self) -> Option<u64> {
        self.deleted_at
    }
}

/// Deleted files of a volume.
#[derive(Debug)]
pub struct DeletedFiles {
    fs: Filesystem,
    files: Vec<DeletedFile>,
    count: u64,
}

/// A deleted inode before its names and blocks are examined.
struct Candidate {
    body: Body,
    /// The newest transaction that has it with a name; `None` for what was found at home.
    seen: Option<Tid>,
    /// The oldest transaction after that, which has it deleted.
    gone: Option<Tid>,
    deleted_at: Option<u64>,
    size_known: bool,
}

impl Candidate {
    fn ino(&self) -> Ino {
        self.body.ino()
    }
}

impl Filesystem {
    /// Finds deleted files, see [`undelete`](crate::undelete). Changes nothing.
    ///
    /// The less was written since the files were deleted, the more is found: open the volume
    /// read-only, and do not mount it before.
    ///
    /// # Errors
    /// `Corrupt` if the journal cannot be read; `Device`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// let fs = extant::Filesystem::open("disk.img")?;
    /// let deleted = fs.deleted_files(&extant::undelete::Options::default(), &())?;
    /// for file in deleted.files() {
    ///     println!("{:?}: {} bytes, {:?}", file.path(), file.metadata().len(), file.state());
    /// }
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn deleted_files(
        &self,
        options: &Options,
        progress: &dyn Progress,
    ) -> Result<DeletedFiles> {
        let volume = self.volume();
        let evidence = Evidence::read(volume)?;
        let found = inodes::find(&evidence, options, progress)?;
        let names = names::find(&evidence, &found)?;
        let mut paths = names::Paths::new(volume, &found.candidates, &names);
        let mut files = Vec::new();
        // The files that were deleted last come first: the blocks that they had are lost for the
        // others.
        let newest = evidence.newest();
        let age = |n: &usize| {
            found.candidates[*n].seen.map_or(u32::MAX, |tid| newest.0.wrapping_sub(tid.0))
        };
        let mut order: Vec<usize> = (0..found.candidates.len()).collect();
        order.sort_by_key(age);
        let mut later = RangeSet::new();
        for n in order {
            if let Some(mut file) = examine(&evidence, &found.candidates[n], &mut later)? {
                file.path = paths.of(n);
                files.push(file);
            }
        }
        files.sort_by(|a, b| (&a.path, a.metadata.ino()).cmp(&(&b.path, b.metadata.ino())));
        let count = files.len() as u64 + found.not_kept;
        Ok(DeletedFiles { fs: self.clone(), files, count })
    }
}

/// What is left of a candidate; `None` if it is not a file that can be used.
///
/// `later` are the blocks of files that were deleted later; those of this one are added.
fn examine(
    evidence: &Evidence<'_>,
    candidate: &Candidate,
    later: &mut RangeSet<u64>,
) -> Result<Option<DeletedFile>> {
    let volume = evidence.volume;
    let body = &candidate.body;
    let file = volume.file(body);
    let metadata = Metadata::of(file);
    let mut done = DeletedFile {
        metadata,
        path: None,
        state: State::Whole,
        size_known: candidate.size_known,
        deleted_at: candidate.deleted_at,
        xattrs: xattrs_in_inode(volume, body),
        content: Content::None,
    };
    let kind = body.file_kind();
    let in_inode = body.disk.has_inline_data() || body.disk.is_fast_symlink(volume.inode_format());
    match kind {
        FileKind::Symlink if in_inode => match file.symlink_target() {
            Ok(target) => done.content = Content::Bytes(target),
            Err(_) => return Ok(None),
        },
        FileKind::Regular if in_inode => {
            let mut bytes = vec![0; fits_usize(body.size.min(u16::MAX.into()))];
            match file.read_raw(0, &mut bytes) {
                Ok(len) => bytes.truncate(len),
                Err(_) => return Ok(None),
            }
            done.content = Content::Bytes(bytes);
        }
        FileKind::Regular | FileKind::Symlink => {
            let map = map::walk(evidence, candidate)?;
            let gone = candidate.gone.or(candidate.seen);
            let (state, left) = evidence.state_of(&map, later, gone)?;
            later.extend(map.runs.iter().map(Run::blocks));
            done.state = state;
            done.content = Content::Runs(left);
        }
        _ => {}
    }
    Ok(Some(done))
}

/// The extended attributes in the inode itself. What is malformed is left out.
fn xattrs_in_inode(volume: &Volume, body: &Body) -> Vec<(OsString, Vec<u8>)> {
    let mut body = body.clone();
    body.disk.file_acl = None;
    let xattrs = volume.xattrs(&body);
    let names = xattrs.names().unwrap_or_default().into_iter();
    names
        .filter_map(|name| {
            let value = xattrs.get(&name).ok()??;
            Some((OsString::from_vec(name), value))
        })
        .collect()
}

impl DeletedFiles {
    /// The files: by path, those without one first.
    pub fn files(&self) -> &[DeletedFile] {
        &self.files
    }

    /// How many there are, those that were not kept included.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Where the file has data that can be read: ranges of bytes, (offset, length), ascending.
    pub fn data_ranges(&self, file: &DeletedFile) -> Vec<(u64, u64)> {
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
    pub fn read_at(&self, file: &DeletedFile, buf: &mut [u8], offset: u64) -> Result<usize> {
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
    pub fn read_link(&self, file: &DeletedFile) -> Result<Vec<u8>> {
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
