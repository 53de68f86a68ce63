//! Reading the files' bytes by position, from as many threads as there are readers.
//!
//! ```text
//!   read_at(node, offset) ──► data map ─┬─ hole ─────────────► zeros
//!                                       └─ data ─► Content ─┬─ Host ────► open, check, pread
//!                                                           ├─ Archive ─► pread
//!                                                           └─ Inline ──► copy
//! ```
//!
//! A source file is opened relative to its source's root, never through a symbolic link. It must
//! still be the file that was listed: same inode number, size and modification time.

use crate::beneath::open_beneath;
use crate::entry::{ArchiveId, Content, HostFileId, Kind, MapId, NodeId};
use crate::error::SourceError;
use crate::tree::{HostDir, Tree};
use extant_base::narrow::fits_usize;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags, fstat, openat};
use rustix::io::{Errno, pread};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Levels that one path opens. On the way to a deeper directory, those in between are kept open.
const STEP: usize = 64;
/// The most directories that are kept open, not counting the last one.
const KEPT_MAX: usize = 32;

/// Reads contents of a [`Tree`]'s files. Each thread uses its own: it keeps the last directory and
/// file open.
#[derive(Debug)]
pub struct ContentReader<'t> {
    tree: &'t Tree,
    dir: Option<(u32, OwnedFd)>,
    /// Some of the directories above that one.
    kept: Vec<(u32, OwnedFd)>,
    file: Option<(HostFileId, OpenFile)>,
    no_atime: bool,
}

#[derive(Debug)]
enum OpenFile {
    Open(OwnedFd),
    /// Skipped because of `keep_going`: reads as zeros.
    Lost,
}

impl Tree {
    /// A reader of this tree's file contents.
    pub fn reader(&self) -> ContentReader<'_> {
        ContentReader { tree: self, dir: None, kept: Vec::new(), file: None, no_atime: true }
    }
}

impl ContentReader<'_> {
    /// Reads a regular file's bytes from `offset` on and returns how many: `buf.len()`, or fewer at
    /// the end of the file, and 0 at or past the end and for anything that is not a regular file.
    /// Holes read as zeros.
    ///
    /// # Errors
    /// `Io` and `Changed`, naming the source file. With `keep_going` these are recorded once for
    /// each file instead, and the bytes that could not be read are zeros.
    pub fn read_at(
        &mut self,
        id: NodeId,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize, SourceError> {
        let Kind::File { size, content, map } = self.tree.node(id).kind else { return Ok(0) };
        let len = buf.len().min(usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX));
        let buf = &mut buf[..len];
        if len == 0 || matches!(content, Content::Empty | Content::Outside(_)) {
            buf.fill(0);
            return Ok(len);
        }
        if map == MapId::DENSE {
            self.read_stored(content, offset, offset, buf, size)?;
            return Ok(len);
        }
        let ranges = self.tree.map_ranges(map);
        let mut at = ranges.partition_point(|r| r.offset + r.len <= offset);
        let mut done = 0;
        while done < len {
            let here = offset + done as u64;
            let left = (len - done) as u64;
            let Some(range) = ranges.get(at) else {
                buf[done..].fill(0);
                break;
            };
            if here < range.offset {
                let hole = fits_usize(left.min(range.offset - here));
                buf[done..done + hole].fill(0);
                done += hole;
                continue;
            }
            let inside = here - range.offset;
            let part = fits_usize(left.min(range.len - inside));
            let piece = &mut buf[done..done + part];
            self.read_stored(content, here, range.stored + inside, piece, size)?;
            done += part;
            at += 1;
        }
        Ok(len)
    }

    /// Reads a whole file. Meant for small files and tests.
    ///
    /// # Errors
    /// As for `read_at`.
    pub fn read(&mut self, id: NodeId) -> Result<Vec<u8>, SourceError> {
        let size = self.tree.node(id).kind.size();
        let mut bytes = Vec::new();
        let mut chunk = vec![0; size.min(1 << 20) as usize];
        while (bytes.len() as u64) < size {
            let len = self.read_at(id, bytes.len() as u64, &mut chunk)?;
            bytes.extend_from_slice(&chunk[..len]);
        }
        Ok(bytes)
    }

    /// `logical` is the position in the file, `stored` the position in the data that an archive
    /// stores of it.
    fn read_stored(
        &mut self,
        content: Content,
        logical: u64,
        stored: u64,
        buf: &mut [u8],
        size: u64,
    ) -> Result<(), SourceError> {
        match content {
            Content::Empty | Content::Outside(_) => buf.fill(0),
            Content::Inline(at) => {
                let bytes = &self.tree.inline[at as usize];
                let start = usize::try_from(stored).unwrap_or(usize::MAX).min(bytes.len());
                let len = buf.len().min(bytes.len() - start);
                buf[..len].copy_from_slice(&bytes[start..start + len]);
                buf[len..].fill(0);
            }
            Content::Archive { archive, offset } => {
                self.read_archive(archive, offset.saturating_add(stored), buf)?;
            }
            Content::Host(file) => self.read_host(file, logical, buf, size)?,
        }
        Ok(())
    }

    fn read_archive(&self, id: ArchiveId, at: u64, buf: &mut [u8]) -> Result<(), SourceError> {
        let archive = &self.tree.archives[id.0 as usize];
        archive.file.read_exact_at(buf, at).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => {
                SourceError::Changed { path: archive.path.clone(), change: "shrank" }
            }
            _ => SourceError::io("read", archive.path.clone(), e),
        })
    }

    fn read_host(
        &mut self,
        id: HostFileId,
        at: u64,
        buf: &mut [u8],
        size: u64,
    ) -> Result<(), SourceError> {
        if self.file.as_ref().is_none_or(|(open, _)| *open != id) {
            let file = match self.open(id) {
                Ok(fd) => OpenFile::Open(fd),
                Err(error) => self.lose(error)?,
            };
            self.file = Some((id, file));
        }
        let Some((_, OpenFile::Open(fd))) = &self.file else {
            buf.fill(0);
            return Ok(());
        };
        let mut done = 0;
        let failed = loop {
            if done == buf.len() {
                // This read reached the end: verify that the file has not changed until now.
                let ends = at + done as u64 == size;
                break if ends { self.unchanged(id, fd).err() } else { None };
            }
            match pread(fd, &mut buf[done..], at + done as u64) {
                Ok(0) => break Some(self.changed(id, "shrank")),
                Ok(len) => done += len,
                Err(Errno::INTR) => {}
                Err(e) => {
                    break Some(SourceError::io("read", self.tree.host_file_path(id), e.into()));
                }
            }
        };
        if let Some(error) = failed {
            buf[done..].fill(0);
            self.file = Some((id, self.lose(error)?));
        }
        Ok(())
    }

    /// Returns an error to the caller, or, with `keep_going`, records it and continues without the
    /// file.
    fn lose(&self, error: SourceError) -> Result<OpenFile, SourceError> {
        if !self.tree.keep_going {
            return Err(error);
        }
        let mut problems = self.tree.problems.lock();
        // Several readers may fail on one file: the first error is recorded.
        if !problems.iter().any(|known| known.path() == error.path()) {
            problems.push(error);
        }
        Ok(OpenFile::Lost)
    }

    fn open(&mut self, id: HostFileId) -> Result<OwnedFd, SourceError> {
        let file = &self.tree.host_files[id.0 as usize];
        let broken = |action, e: Errno| {
            let path = self.tree.host_file_path(id);
            match e {
                Errno::NOENT => SourceError::Changed { path, change: "vanished" },
                e => SourceError::io(action, path, e.into()),
            }
        };
        if self.dir.as_ref().is_none_or(|(open, _)| *open != file.dir) {
            let fd = self.open_dir(file.dir).map_err(|e| broken("open", e))?;
            self.dir = Some((file.dir, fd));
        }
        let Some((_, dir)) = &self.dir else { unreachable!("set just above") };
        let name = self.tree.text(file.name);
        // NONBLOCK: a FIFO that replaced the file must not block the build.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let mut opened = Err(Errno::PERM);
        if self.no_atime {
            opened = openat(dir, name, flags | OFlags::NOATIME, Mode::empty());
        }
        if matches!(opened, Err(Errno::PERM)) {
            // Only the owner may use NOATIME.
            self.no_atime = false;
            opened = openat(dir, name, flags, Mode::empty());
        }
        let fd = opened.map_err(|e| broken("open", e))?;
        self.unchanged(id, &fd)?;
        Ok(fd)
    }

    /// Opens a source directory, starting at the nearest ancestor that is open.
    fn open_dir(&mut self, dir: u32) -> Result<OwnedFd, Errno> {
        let dirs = &self.tree.host_dirs;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        // The directories to open, the innermost first.
        let (mut way, mut at) = (Vec::new(), dir);
        let open = self.dir.iter().chain(&self.kept);
        let from = loop {
            if let Some((_, fd)) = open.clone().find(|(open, _)| *open == at) {
                break fd.as_fd();
            }
            let HostDir { root, parent, .. } = dirs[at as usize];
            if parent == at {
                break self.tree.roots[root as usize].fd.as_fd();
            }
            way.push(at);
            at = parent;
        };
        if way.is_empty() {
            return open_beneath(from, b"", flags);
        }
        let path = |way: &[u32]| -> Vec<u8> {
            let names = way.iter().rev().map(|&dir| self.tree.text(dirs[dir as usize].name));
            names.collect::<Vec<_>>().join(&b'/')
        };
        let mut opened: Vec<(u32, OwnedFd)> = Vec::new();
        for step in way.rchunks(STEP) {
            let from = opened.last().map_or(from, |(_, fd)| fd.as_fd());
            let fd = open_beneath(from, &path(step), flags)?;
            opened.push((step[0], fd));
            if opened.len() > KEPT_MAX {
                opened.remove(0);
            }
        }
        let Some((_, fd)) = opened.pop() else { return Err(Errno::NOENT) };
        let over = (self.kept.len() + opened.len()).saturating_sub(KEPT_MAX);
        self.kept.drain(..over.min(self.kept.len()));
        self.kept.extend(opened);
        Ok(fd)
    }

    fn unchanged(&self, id: HostFileId, fd: &OwnedFd) -> Result<(), SourceError> {
        let stat = fstat(fd).map_err(|e| {
            let path: PathBuf = self.tree.host_file_path(id);
            SourceError::io("stat", path, e.into())
        })?;
        let file = &self.tree.host_files[id.0 as usize];
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        if stat.st_mode & 0o170000 != 0o100000 || stat.st_ino != file.ino {
            return Err(self.changed(id, "was replaced"));
        }
        if size != file.size {
            return Err(self.changed(id, if size < file.size { "shrank" } else { "grew" }));
        }
        let nsec = u32::try_from(stat.st_mtime_nsec).ok();
        if (stat.st_mtime as i64, nsec) != (file.mtime.sec, Some(file.mtime.nsec)) {
            return Err(self.changed(id, "changed"));
        }
        Ok(())
    }

    fn changed(&self, id: HostFileId, change: &'static str) -> SourceError {
        SourceError::Changed { path: self.tree.host_file_path(id), change }
    }
}
