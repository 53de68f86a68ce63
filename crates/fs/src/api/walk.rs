//! Walking a directory tree.
//!
//! ```text
//!   stack   [ / ] [ /usr ] [ /usr/share ]      one open directory a level
//!   next:   the next name of the innermost one; a directory is pushed, an empty one popped
//! ```
//!
//! Each directory is entered once. A forged second path to a directory gives an error in its place,
//! so a damaged volume cannot cause an endless walk or multiply its tree. The walk keeps one path,
//! which grows and shrinks with the depth; each entry gets a copy of it.

use crate::api::filesystem::Filesystem;
use crate::api::read_dir::{DirEntry, ReadDir};
use crate::inodes::metadata::Metadata;
use extant_base::{Error, Ino, Result, Site, What};
use extant_ondisk::inode::FileKind;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The longest path, in bytes, to which a walk descends: the total length of the paths of a deeper
/// tree grows with the square of its depth. Nodes ([`crate::Node`]) descend any number of levels.
const PATH_MAX: usize = 64 << 10;

/// A walk through a tree. A damaged part gives an error as an item; the walk continues after it.
pub struct Walk {
    fs: Filesystem,
    start: Option<PathBuf>,
    sorted: bool,
    /// The path of the innermost directory.
    path: Vec<u8>,
    stack: Vec<Level>,
    entered: HashSet<u32>,
}

impl std::fmt::Debug for Walk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Walk")
            .field("path", &String::from_utf8_lossy(&self.path))
            .finish_non_exhaustive()
    }
}

struct Level {
    /// Length in bytes of this level's path.
    path_len: usize,
    names: Names,
}

enum Names {
    Stored(ReadDir),
    Sorted(std::vec::IntoIter<Result<DirEntry>>),
}

impl Iterator for Names {
    type Item = Result<DirEntry>;
    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Names::Stored(names) => names.next(),
            Names::Sorted(names) => names.next(),
        }
    }
}

/// A file that a walk found.
#[derive(Clone)]
pub struct WalkEntry {
    fs: Filesystem,
    path: PathBuf,
    ino: Ino,
    kind: FileKind,
    depth: usize,
}

impl std::fmt::Debug for WalkEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WalkEntry")
            .field("path", &self.path)
            .field("ino", &self.ino)
            .field("file_type", &self.kind)
            .field("depth", &self.depth)
            .finish_non_exhaustive()
    }
}

impl WalkEntry {
    /// The path, which starts with the path given to the walk.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path, by value.
    pub fn into_path(self) -> PathBuf {
        self.path
    }

    /// The inode's number.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// The kind of file. A symlink is not followed.
    pub fn file_type(&self) -> FileKind {
        self.kind
    }

    /// Levels below the start, whose depth is 0.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// The metadata of the file. A symlink is not followed.
    ///
    /// # Errors
    /// `NotFound` if the file was removed since; `Corrupt`, `Device`.
    pub fn metadata(&self) -> Result<Metadata> {
        self.fs.volume().context().recording_errors(|| {
            let body = self.fs.volume().inodes().peek_listed(self.ino)?;
            Ok(Metadata::of(self.fs.volume().file(&body)))
        })
    }

    /// Opens the file, which must be a regular one.
    ///
    /// # Errors
    /// `IsADirectory`, `Invalid` for another kind of file; `NotFound` if it was removed since;
    /// `Corrupt`, `Device`.
    pub fn open(&self) -> Result<crate::api::file::File> {
        self.fs.node_of_ino(self.ino)?.open()
    }

    /// The target of the symlink.
    ///
    /// # Errors
    /// `Invalid` for another kind of file; `NotFound` if it was removed since; `Encrypted`;
    /// `Corrupt`, `Device`.
    pub fn read_link(&self) -> Result<PathBuf> {
        self.fs.volume().context().recording_errors(|| {
            use std::os::unix::ffi::OsStringExt;
            let body = self.fs.volume().inodes().peek_listed(self.ino)?;
            let target = self.fs.volume().file(&body).symlink_target()?;
            Ok(PathBuf::from(std::ffi::OsString::from_vec(target)))
        })
    }
}

impl Walk {
    pub(crate) fn new(fs: Filesystem, path: &Path) -> Walk {
        let start = Some(path.to_path_buf());
        Walk {
            fs,
            start,
            sorted: false,
            path: Vec::new(),
            stack: Vec::new(),
            entered: HashSet::new(),
        }
    }

    /// Whether each directory is listed in byte order of its names. This needs memory for one whole
    /// directory per level.
    pub fn sorted(mut self, sorted: bool) -> Walk {
        self.sorted = sorted;
        self
    }

    fn begin(&mut self, path: PathBuf) -> Result<WalkEntry> {
        let node = self.fs.node(&path)?;
        let kind = node.metadata().file_type();
        let entry = WalkEntry { fs: self.fs.clone(), path, ino: node.ino(), kind, depth: 0 };
        drop(node);
        if kind == FileKind::Directory {
            self.enter(&entry)?;
        }
        Ok(entry)
    }

    /// Makes the directory the innermost one.
    fn enter(&mut self, entry: &WalkEntry) -> Result<()> {
        let at = Site::of_ino(entry.ino);
        if !self.entered.insert(entry.ino.get()) {
            let twice = at.corrupt(What::DirectoryLoop);
            return self.fs.volume().context().recording_errors(|| Err(twice));
        }
        if entry.path.as_os_str().len() > PATH_MAX {
            return Err(Error::NameTooLong);
        }
        // The entries open their files by number; the path is built here, once.
        let names = self.fs.node_of_ino(entry.ino)?.read_dir()?;
        let names = match self.sorted {
            false => Names::Stored(names),
            true => {
                let mut all: Vec<Result<DirEntry>> = names.collect();
                // Errors are kept and come first.
                all.sort_by(|a, b| match (a, b) {
                    (Ok(a), Ok(b)) => a.name_bytes().cmp(b.name_bytes()),
                    (a, b) => a.is_ok().cmp(&b.is_ok()),
                });
                Names::Sorted(all.into_iter())
            }
        };
        self.path.clear();
        self.path.extend_from_slice(entry.path.as_os_str().as_bytes());
        self.stack.push(Level { path_len: self.path.len(), names });
        Ok(())
    }

    fn visit(&mut self, name: DirEntry) -> Result<WalkEntry> {
        let kind = name.file_type()?;
        let level = self.stack.last().expect("a name comes from the innermost directory");
        self.path.truncate(level.path_len);
        let dir = Path::new(OsStr::from_bytes(&self.path));
        let entry = WalkEntry {
            fs: self.fs.clone(),
            path: dir.join(name.file_name()),
            ino: name.ino(),
            kind,
            depth: self.stack.len(),
        };
        if kind == FileKind::Directory {
            self.enter(&entry)?;
        }
        Ok(entry)
    }
}

impl Iterator for Walk {
    type Item = Result<WalkEntry>;

    fn next(&mut self) -> Option<Result<WalkEntry>> {
        if let Some(path) = self.start.take() {
            return Some(self.begin(path));
        }
        loop {
            match self.stack.last_mut()?.names.next() {
                Some(Ok(name)) => return Some(self.visit(name)),
                Some(Err(error)) => return Some(Err(error)),
                None => drop(self.stack.pop()),
            }
        }
    }
}
