//! One directory, name after name.
//!
//! ```text
//!   ReadDir ── batch empty? ──► lock the directory, read its next block, unlock ──► batch
//!       └───── next name ◄─────────────────────────────────────────────────────────┘
//! ```

use crate::dir::read::{Entry, Position};
use crate::filesystem::Filesystem;
use crate::metadata::Metadata;
use crate::names::hold::InodeHold;
use extant_base::{Error, Ino, Result};
use extant_ondisk::dirent::EntryKind;
use extant_ondisk::inode::FileKind;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;

/// The names in a directory. One that stays while others come and go is listed once; one that comes
/// or goes meanwhile may be listed or not. An item is an error where a block or an entry is damaged; what
/// follows comes after it.
///
/// # Examples
///
/// ```
/// # let _here = extant_guide_tests::with_image();
/// let fs = extant::Filesystem::open("disk.img")?;
/// let mut names = Vec::new();
/// for entry in fs.read_dir("/etc")? {
///     names.push(entry?.file_name().to_owned());
/// }
/// names.sort();
/// assert_eq!(names, ["hostname", "motd", "passwd", "shadow"]);
/// # Ok::<(), extant::Error>(())
/// ```
pub struct ReadDir {
    inode: InodeHold,
    path: Arc<PathBuf>,
    position: Position,
    batch: VecDeque<Result<Entry>>,
    done: bool,
}

impl ReadDir {
    pub(crate) fn new(inode: InodeHold, path: PathBuf) -> Result<ReadDir> {
        inode.fs().volume().dir(inode.ino, &inode.read())?;
        Ok(ReadDir {
            inode,
            path: Arc::new(path),
            position: Position::default(),
            batch: VecDeque::new(),
            done: false,
        })
    }

    fn fill(&mut self) {
        let body = self.inode.read();
        let batch = &mut self.batch;
        let more = self
            .inode
            .fs()
            .volume()
            .dir(self.inode.ino, &body)
            .and_then(|dir| dir.next_batch(&mut self.position, |entry| batch.push_back(entry)));
        match more {
            Ok(true) => {}
            Ok(false) => self.done = true,
            Err(error) => {
                self.batch.push_back(Err(error));
                self.done = true;
            }
        }
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Result<DirEntry>> {
        while self.batch.is_empty() && !self.done {
            self.fill();
        }
        let entry = self.batch.pop_front()?;
        let entry = self.inode.fs().volume().noting(|| entry);
        Some(entry.map(|entry| DirEntry {
            fs: self.inode.fs().clone(),
            dir: Arc::clone(&self.path),
            name: OsString::from_vec(entry.name),
            ino: entry.ino,
            kind: entry.kind,
        }))
    }
}

/// The kind of file an entry records, as far as it does.
pub(crate) fn kind_of(kind: EntryKind) -> Option<FileKind> {
    Some(match kind {
        EntryKind::Regular => FileKind::Regular,
        EntryKind::Directory => FileKind::Directory,
        EntryKind::CharDevice => FileKind::CharDevice,
        EntryKind::BlockDevice => FileKind::BlockDevice,
        EntryKind::Fifo => FileKind::Fifo,
        EntryKind::Socket => FileKind::Socket,
        EntryKind::Symlink => FileKind::Symlink,
        EntryKind::Unknown | EntryKind::Other(_) => return None,
    })
}

/// A name in a directory.
#[derive(Clone)]
pub struct DirEntry {
    fs: Filesystem,
    dir: Arc<PathBuf>,
    name: OsString,
    ino: Ino,
    kind: EntryKind,
}

impl DirEntry {
    /// The name.
    pub fn file_name(&self) -> &OsStr {
        &self.name
    }

    /// The name's bytes.
    pub fn name_bytes(&self) -> &[u8] {
        self.name.as_bytes()
    }

    /// The path that was listed, and the name.
    pub fn path(&self) -> PathBuf {
        self.dir.join(&self.name)
    }

    /// The inode's number.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// The kind of file: from the entry where it says, else from the inode.
    pub fn kind(&self) -> Result<FileKind> {
        match kind_of(self.kind) {
            Some(kind) => Ok(kind),
            None => self.metadata().map(|metadata| metadata.kind()),
        }
    }

    /// What is known of the file; a symlink stands for itself.
    pub fn metadata(&self) -> Result<Metadata> {
        self.fs.volume().noting(|| {
            let body = self.fs.volume().peek_listed(self.ino)?;
            Ok(Metadata::of(self.fs.volume(), self.ino, &body))
        })
    }

    /// Opens the file, if it is a regular one.
    pub fn open(&self) -> Result<crate::file::File> {
        match self.kind()? {
            FileKind::Symlink => Err(Error::Invalid("not a regular file")),
            _ => self.fs.open_ino(self.ino),
        }
    }
}
