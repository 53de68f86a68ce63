//! A held inode: what a door works with that does not think in paths.
//!
//! ```text
//!   Filesystem::node(path), root() ──► Node ─┬─ lookup, create, link, unlink, rename …  (directory)
//!                                            ├─ open ──► File                           (file)
//!                                            └─ metadata
//! ```
//!
//! While any clone lives, the inode's content lives, whether it still has a name or not.

use crate::file::File;
use crate::filesystem::Filesystem;
use crate::inode::Inode;
use crate::metadata::Metadata;
use crate::names::NewFile;
use crate::names::create::Content;
use crate::names::hold::{Held, InodeHold};
use crate::names::rename::RenameFlags;
use crate::read_dir::{DirPlaces, ReadDir};
use crate::volume::Volume;
use extant_base::{Error, Ino, Result};
use extant_ondisk::inode::{FileKind, InodeFlags};
use extant_ondisk::time::Timestamp;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// A file, directory or anything else of a volume, held by itself and not by a name. Clones are
/// cheap and hold the same.
///
/// # Examples
///
/// ```
/// # let _here = extant_guide_tests::with_image();
/// use extant::{NewFile, OpenOptions};
/// let fs = OpenOptions::new().write(true).open("disk.img")?;
/// let etc = fs.node("/etc")?;
/// let file = etc.create("new", &NewFile::default())?;
/// etc.unlink("new")?;
/// assert_eq!(file.metadata().links(), 0);
/// # Ok::<(), extant::Error>(())
/// ```
#[derive(Clone)]
pub struct Node {
    held: InodeHold,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("ino", &self.ino()).finish_non_exhaustive()
    }
}

/// What decides whether a read changes the time of access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastAccess {
    /// The time of the last access that is stored.
    pub accessed: Timestamp,
    /// When the content was last changed.
    pub modified: Timestamp,
    /// When the inode was last changed.
    pub changed: Timestamp,
    /// Its flags.
    pub flags: InodeFlags,
    /// Whether it is a directory.
    pub is_dir: bool,
}

impl Node {
    pub(crate) fn new(held: InodeHold) -> Node {
        Node { held }
    }

    pub(crate) fn volume(&self) -> &Volume {
        self.held.fs().volume()
    }

    pub(crate) fn inode(&self) -> &Inode {
        &self.held
    }

    fn keep(&self, held: Held<'_>) -> Node {
        Node::new(held.keep(self.held.fs()))
    }

    fn make(&self, name: &OsStr, content: Content<'_>, new: &NewFile) -> Result<Node> {
        self.volume().context().noting(|| {
            let made = self.volume().create(self.inode(), name.as_bytes(), content, new)?;
            Ok(self.keep(made))
        })
    }

    /// The volume it belongs to.
    pub fn filesystem(&self) -> &Filesystem {
        self.held.fs()
    }

    /// Its number.
    pub fn ino(&self) -> Ino {
        self.held.ino
    }

    /// Whether changes of its content leave its times as they are, for a caller who keeps them and sets them, as a
    /// kernel with a cache of its own does. Holds for as long as the inode is in use; append-only files are left out.
    ///
    /// Locks: takes `Inode`.
    pub fn set_times_kept(&self, kept: bool) {
        self.inode().write().times_kept = kept;
    }

    /// What is known of it besides its content.
    pub fn metadata(&self) -> Metadata {
        self.inode().look(self.volume())
    }

    /// Its times and flags, for a decision about [`Node::set_accessed`]: unlike [`Node::metadata`] it is no look that a later
    /// change has to leave another time for.
    ///
    /// Locks: takes `Inode` (shared).
    pub fn last_access(&self) -> LastAccess {
        let body = self.inode().read();
        LastAccess {
            accessed: body.atime,
            modified: body.mtime,
            changed: body.ctime,
            flags: body.flags,
            is_dir: body.file_kind() == FileKind::Directory,
        }
    }

    /// Sets the generation, by which file handles tell two uses of an inode number apart.
    ///
    /// Errors: `NotSupported` with checksums of metadata, whose seed it is; `ReadOnly`; `Corrupt`, `Device`, `Aborted`.
    /// Locks: takes `Inode`, then a handle.
    pub fn set_generation(&self, generation: u32) -> Result<()> {
        self.volume().context().noting(|| self.volume().set_generation(self.inode(), generation))
    }

    /// Sets the time of the last access and nothing else. An inode without names stays as it is.
    ///
    /// Errors: `ReadOnly`; `Corrupt`, `Device`, `Aborted`. Locks: takes `Inode`, then a handle.
    pub fn set_accessed(&self, time: Timestamp) -> Result<()> {
        self.volume().context().noting(|| self.volume().set_accessed(self.inode(), time))
    }

    /// What `name` means in this directory; "." and ".." included.
    ///
    /// Errors: `NotADirectory`, `NotFound`, `NameTooLong`; `Corrupt`, `Device`.
    pub fn lookup(&self, name: impl AsRef<OsStr>) -> Result<Node> {
        self.volume().context().noting(|| {
            let found = self.volume().lookup(self.inode(), name.as_ref().as_bytes())?;
            Ok(self.keep(found))
        })
    }

    /// Makes an empty regular file in this directory.
    ///
    /// Errors: `Exists`, `NameTooLong`, `NotADirectory`; `NotFound` when the directory was removed;
    /// `ReadOnly`; `NotPermitted` when it is immutable; `Encrypted`; `NoSpace`; `Corrupt`,
    /// `Device`. Nothing has changed then.
    pub fn create(&self, name: impl AsRef<OsStr>, new: &NewFile) -> Result<Node> {
        self.make(name.as_ref(), Content::Empty(FileKind::Regular), new)
    }

    /// Makes an empty directory in this one.
    ///
    /// Errors: as [`Node::create`]; `LinkLimit` when this one cannot count one more.
    pub fn create_dir(&self, name: impl AsRef<OsStr>, new: &NewFile) -> Result<Node> {
        self.make(name.as_ref(), Content::Directory, new)
    }

    /// Makes a symlink in this directory that leads to `target`.
    ///
    /// Errors: as [`Node::create`]; `NotFound` for an empty target; `NameTooLong` for one of a
    /// block's size, or 4096 bytes.
    pub fn symlink(
        &self,
        name: impl AsRef<OsStr>,
        target: impl AsRef<OsStr>,
        new: &NewFile,
    ) -> Result<Node> {
        self.make(name.as_ref(), Content::Symlink(target.as_ref().as_bytes()), new)
    }

    /// Makes a regular file, pipe, socket or device file in this directory.
    ///
    /// Errors: as [`Node::create`]; `Invalid` for another kind, and for a device file without a
    /// device or with one that the format cannot hold.
    pub fn mknod(&self, name: impl AsRef<OsStr>, kind: FileKind, new: &NewFile) -> Result<Node> {
        self.make(name.as_ref(), Content::Empty(kind), new)
    }

    /// Makes a regular file without a name, near this directory. [`Node::link`] can give it one;
    /// otherwise it is gone with the last that holds it, or with a crash.
    ///
    /// Errors: as [`Node::create`].
    pub fn tmpfile(&self, new: &NewFile) -> Result<Node> {
        self.volume()
            .context()
            .noting(|| Ok(self.keep(self.volume().create_unnamed(self.inode(), new)?)))
    }

    /// Makes `name` in this directory a further name of `target`.
    ///
    /// Errors: as [`Node::create`]; `NotPermitted` for a directory, or an immutable or append-only
    /// file; `NotFound` for one that lost its last name; `LinkLimit`; `CrossProject`; `Invalid` for
    /// one of another volume.
    pub fn link(&self, name: impl AsRef<OsStr>, target: &Node) -> Result<()> {
        self.volume().context().noting(|| {
            self.check_same_volume(target)?;
            self.volume().link(self.inode(), name.as_ref().as_bytes(), target.inode())
        })
    }

    /// Takes a name out of this directory that means anything but a directory.
    ///
    /// Errors: `NotFound`, `NameTooLong`, `NotADirectory`; `IsADirectory`; `ReadOnly`;
    /// `NotPermitted` when either is immutable or append-only; `Corrupt`, `Device`. Nothing has
    /// changed then.
    pub fn unlink(&self, name: impl AsRef<OsStr>) -> Result<()> {
        self.volume()
            .context()
            .noting(|| self.volume().unlink(self.inode(), name.as_ref().as_bytes()))
    }

    /// Takes an empty directory out of this one.
    ///
    /// Errors: as [`Node::unlink`], but `NotADirectory` for other files; `NotEmpty`.
    pub fn rmdir(&self, name: impl AsRef<OsStr>) -> Result<()> {
        self.volume()
            .context()
            .noting(|| self.volume().rmdir(self.inode(), name.as_ref().as_bytes()))
    }

    /// Makes `new_name` in `new_dir` mean what `name` in this directory does, and takes that away.
    /// One step: nobody, not even after a crash, finds both names or none.
    ///
    /// Errors: `NotFound`, `NameTooLong`, `NotADirectory`; `Exists` and `Invalid` as the flags say;
    /// `Invalid` for a directory that would come below itself; `IsADirectory`, `NotADirectory`,
    /// `NotEmpty` for what stands there; `Busy` for "." and ".."; `ReadOnly`; `NotPermitted`;
    /// `CrossProject`; `LinkLimit`; `NoSpace`; `Corrupt`, `Device`. Nothing has changed then.
    pub fn rename(
        &self,
        name: impl AsRef<OsStr>,
        new_dir: &Node,
        new_name: impl AsRef<OsStr>,
        flags: RenameFlags,
    ) -> Result<()> {
        self.volume().context().noting(|| {
            self.check_same_volume(new_dir)?;
            let (old, new) = (name.as_ref().as_bytes(), new_name.as_ref().as_bytes());
            self.volume().rename(self.inode(), old, new_dir.inode(), new, flags)
        })
    }

    /// The names in this directory, "." and ".." left out.
    ///
    /// Errors: `NotADirectory`. What is wrong with single entries or blocks comes as an item.
    pub fn read_dir(&self) -> Result<ReadDir> {
        self.volume().context().noting(|| ReadDir::new(self.held.clone(), PathBuf::new()))
    }

    /// The same by places, where a listing can go on later.
    ///
    /// Errors: as [`Node::read_dir`].
    pub fn dir_places(&self) -> Result<DirPlaces> {
        self.volume().context().noting(|| DirPlaces::new(self.held.clone()))
    }

    /// The target of a symlink.
    ///
    /// Errors: `Invalid` for anything else.
    pub fn read_link(&self) -> Result<PathBuf> {
        self.volume().context().noting(|| {
            let target = self.volume().symlink_target(self.ino(), &self.inode().read())?;
            Ok(PathBuf::from(OsString::from_vec(target)))
        })
    }

    /// Returns when all that was changed of it before the call is durable: content and attributes,
    /// a directory's names.
    ///
    /// Errors: `Device`, `Aborted`.
    pub fn sync_all(&self) -> Result<()> {
        let kind = self.inode().read().file_kind();
        match kind {
            FileKind::Regular => self.open()?.sync_all(),
            FileKind::Directory => self.volume().sync_names(),
            _ => self.volume().sync(),
        }
    }

    /// As [`Node::sync_all`], but times and the like may come later.
    ///
    /// Errors: `Device`, `Aborted`.
    pub fn sync_data(&self) -> Result<()> {
        let kind = self.inode().read().file_kind();
        match kind {
            FileKind::Regular => self.open()?.sync_data(),
            FileKind::Directory => self.volume().sync_names(),
            _ => self.volume().sync(),
        }
    }

    /// Opens the regular file.
    ///
    /// Errors: `IsADirectory`; `Invalid` for devices and the like.
    pub fn open(&self) -> Result<File> {
        File::open(self.held.clone())
    }

    fn check_same_volume(&self, other: &Node) -> Result<()> {
        match std::ptr::eq(self.volume(), other.volume()) {
            true => Ok(()),
            false => Err(Error::Invalid("the nodes are of different volumes")),
        }
    }
}
