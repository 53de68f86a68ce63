//! Listing one directory.
//!
//! ```text
//!   ReadDir ── batch empty? ──► lock the directory, read its next block, unlock ──► batch
//!       └───── next name ◄─────────────────────────────────────────────────────────┘
//! ```

use crate::api::filesystem::Filesystem;
use crate::api::inode_hold::InodeHold;
use crate::inodes::metadata::Metadata;
use crate::tree::dir::places::{self, Batch, Order};
use crate::tree::dir::read::{Entry, Position};
use extant_base::{Error, Ino, Result};
use extant_ondisk::dirent::EntryKind;
use extant_ondisk::inode::FileKind;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;

/// The names in a directory. A name that stays is listed exactly once, whatever happens to others.
/// A name that is added or removed during the listing may or may not be listed. A damaged block or
/// entry gives an error as an item; the listing continues after it.
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

impl std::fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadDir").field("path", &self.path).finish_non_exhaustive()
    }
}

impl ReadDir {
    pub(crate) fn new(inode: InodeHold, path: PathBuf) -> Result<ReadDir> {
        inode.fs().volume().file(&inode.read()).dir()?;
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
            .file(&body)
            .dir()
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
        let entry = self.inode.fs().volume().context().recording_errors(|| entry);
        Some(entry.map(|entry| DirEntry {
            fs: self.inode.fs().clone(),
            dir: Arc::clone(&self.path),
            name: OsString::from_vec(entry.name),
            ino: entry.ino,
            kind: entry.kind,
        }))
    }
}

/// Lists a directory by positions, for callers that continue where they stopped, even in another
/// opening: an NFS server, `seekdir`.
///
/// A position is a number from 2 to 2^63 - 1. A name keeps its position while it exists, so a name
/// that stays is listed once, whatever happens to others. The order is that of ext4 in Linux, which
/// is by hash of the name, except in directories without an index.
pub struct DirCursor {
    inode: InodeHold,
    path: Arc<PathBuf>,
    /// The next name has this place or a later one.
    place: u64,
    /// Names already given at `place`, if further names share that place.
    same: Vec<Vec<u8>>,
    part: Option<Part>,
    /// The entry that `peek` returned last. Its buffer is used again for the next one.
    peeked: Option<DirEntry>,
}

impl std::fmt::Debug for DirCursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DirCursor")
            .field("path", &self.path)
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

/// The part of a directory that is in memory.
struct Part {
    /// The directory's change count when the part was read.
    changes: u64,
    order: Order,
    batch: Batch,
    /// The index in the batch of the next entry.
    at: usize,
}

impl DirCursor {
    pub(crate) fn new(inode: InodeHold) -> Result<DirCursor> {
        inode.fs().volume().file(&inode.read()).dir()?;
        let path = Arc::default();
        Ok(DirCursor {
            inode,
            path,
            place: places::FIRST,
            same: Vec::new(),
            part: None,
            peeked: None,
        })
    }

    /// Moves to `position`: 0, or a position that [`DirCursor::peek`] returned, in this or any
    /// other opening. Names that were added or removed in the meantime are taken into account.
    pub fn seek(&mut self, position: u64) {
        // Locks: takes `Inode` (shared).
        let place = position.max(places::FIRST);
        let changes = self.inode.read().moves.changes();
        if place == self.place && self.part.as_ref().is_some_and(|part| part.changes == changes) {
            return;
        }
        if place != self.place {
            (self.place, self.same) = (place, Vec::new());
        }
        // The part in memory is the rest of a leaf, from some place on.
        self.part = match self.part.take() {
            Some(mut part) if part.changes == changes => {
                let entries = &part.batch.entries;
                part.at = entries.partition_point(|(at, _)| *at < place);
                let is_inside = entries.first().is_some_and(|(first, _)| *first <= place)
                    && part.at < entries.len();
                is_inside.then_some(part)
            }
            _ => None,
        };
    }

    fn fill(&mut self) -> Result<()> {
        let body = self.inode.read();
        let changes = body.moves.changes();
        let dir = self.inode.fs().volume().file(&body).dir()?;
        let known = self.part.as_ref().filter(|part| part.changes == changes);
        let order = known.map_or_else(|| dir.order(), |part| part.order);
        let mut batch = dir.batch_at(order, self.place)?;
        let (place, same) = (self.place, &self.same);
        if !same.is_empty() {
            let mut entries = std::mem::take(&mut batch.entries);
            entries.retain(|(at, entry)| {
                let is_new = |entry| !same.iter().any(|name| name == batch.name(entry));
                *at != place || entry.as_ref().is_ok_and(is_new)
            });
            batch.entries = entries;
        }
        self.part = Some(Part { changes, order, batch, at: 0 });
        Ok(())
    }

    /// The next name and the position after it; [`DirCursor::advance`] passes it. An error reports
    /// a damaged part of the directory, and is returned once.
    ///
    /// # Errors
    /// `Corrupt`, `Device`.
    pub fn peek(&mut self) -> Option<Result<(&DirEntry, u64)>> {
        // Locks: takes `Inode` (shared).
        loop {
            let is_over = match &self.part {
                None => true,
                Some(part) if part.at == part.batch.entries.len() => {
                    self.place = part.batch.next?;
                    self.same.clear();
                    true
                }
                Some(_) => false,
            };
            if !is_over {
                break;
            }
            if let Err(error) = self.fill() {
                // From here on no part of the directory can be found.
                let batch = Batch::of_error(self.place, error);
                let changes = self.inode.read().moves.changes();
                self.part = Some(Part { changes, order: Order::Byte, batch, at: 0 });
            }
        }
        let part = self.part.as_mut()?;
        let volume = self.inode.fs().volume();
        match &part.batch.entries[part.at].1 {
            Ok(entry) => {
                let peeked = self.peeked.get_or_insert_with(|| DirEntry {
                    fs: self.inode.fs().clone(),
                    dir: Arc::clone(&self.path),
                    name: OsString::new(),
                    ino: entry.ino,
                    kind: entry.kind,
                });
                peeked.name.clear();
                peeked.name.push(OsStr::from_bytes(part.batch.name(entry)));
                (peeked.ino, peeked.kind) = (entry.ino, entry.kind);
                Some(Ok((peeked, part.after(part.at))))
            }
            Err(_) => {
                let (_, damage) = part.batch.entries.remove(part.at);
                damage.err().map(|error| volume.context().recording_errors(|| Err(*error)))
            }
        }
    }

    /// Advances past the name that [`DirCursor::peek`] returned.
    pub fn advance(&mut self) {
        let Some(part) = &mut self.part else { return };
        let Some((place, entry)) = part.batch.entries.get(part.at) else { return };
        if let Ok(entry) = entry {
            let after = part.after(part.at);
            if after == *place {
                self.same.push(part.batch.name(entry).to_vec());
            } else {
                self.same.clear();
            }
            self.place = after;
        }
        part.at += 1;
    }
}

impl Part {
    /// The place after entry `at`: the entry's own place if the next name shares it.
    fn after(&self, at: usize) -> u64 {
        let entries = &self.batch.entries;
        let place = entries[at].0;
        match entries.get(at + 1) {
            Some((next, _)) if *next == place => place,
            _ => place + 1,
        }
    }
}

/// The kind of file that an entry records, if it records one.
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

impl std::fmt::Debug for DirEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DirEntry")
            .field("path", &self.path())
            .field("ino", &self.ino)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
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

    /// The path of the listed directory, joined with the name.
    pub fn path(&self) -> PathBuf {
        self.dir.join(&self.name)
    }

    /// The inode's number.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// The kind of file: from the entry if it records one, otherwise from the inode.
    ///
    /// # Errors
    /// As [`DirEntry::metadata`], if the entry does not record the kind.
    pub fn file_type(&self) -> Result<FileKind> {
        match kind_of(self.kind) {
            Some(kind) => Ok(kind),
            None => self.metadata().map(|metadata| metadata.file_type()),
        }
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
        match self.file_type()? {
            FileKind::Symlink => Err(Error::Invalid("not a regular file")),
            _ => self.fs.node_of_ino(self.ino)?.open(),
        }
    }
}
