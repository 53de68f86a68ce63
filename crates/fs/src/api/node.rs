//! A held inode, for callers that do not work with paths, such as a mount server.
//!
//! ```text
//!   Filesystem::node(path), root() ──► Node ─┬─ lookup, create_file, rename, … (directory)
//!                                            ├─ open ──► File                          (file)
//!                                            └─ metadata
//! ```
//!
//! The inode's content stays while any clone exists, whether the inode still has a name or not.

use crate::api::file::File;
use crate::api::filesystem::Filesystem;
use crate::api::inode_hold::InodeHold;
use crate::api::read_dir::{DirCursor, ReadDir};
use crate::files::file::Defragmented;
use crate::files::file::relocate::Piece;
use crate::inodes::metadata::Metadata;
use crate::state::inode::Inode;
use crate::tree::names::NewFile;
use crate::tree::names::create::Content;
use crate::tree::names::hold::Held;
use crate::tree::names::rename::RenameFlags;
use crate::volume::Volume;
use extant_base::{BlockNr, Error, Ino, Result};
use extant_ondisk::inode::{FileKind, InodeFlags};
use extant_ondisk::time::Timestamp;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// A file, directory or other inode that is held by itself rather than by a name. Clones are cheap
/// and hold the same inode.
///
/// # Examples
///
/// ```
/// # let _here = extant_guide_tests::with_image();
/// use extant::{NewFile, OpenOptions};
/// let fs = OpenOptions::new().write(true).open("disk.img")?;
/// let etc = fs.node("/etc")?;
/// let file = etc.create_file("new", &NewFile::default())?;
/// etc.remove_file("new")?;
/// assert_eq!(file.metadata().nlink(), 0);
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

/// The values that decide whether a read updates the access time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastAccess {
    /// The stored time of the last access.
    pub accessed: Timestamp,
    /// When the content was last changed.
    pub modified: Timestamp,
    /// When the inode was last changed.
    pub changed: Timestamp,
    /// The inode's flags.
    pub flags: InodeFlags,
    /// Whether the inode is a directory.
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
        self.volume().context().recording_errors(|| {
            let made = self.volume().names().create(self.inode(), name.as_bytes(), content, new)?;
            Ok(self.keep(made))
        })
    }

    /// The volume of this inode.
    pub fn filesystem(&self) -> &Filesystem {
        self.held.fs()
    }

    /// The inode's number.
    pub fn ino(&self) -> Ino {
        self.held.ino
    }

    /// Sets whether changes of the content leave the inode's times alone. A caller that keeps the
    /// times itself and sets them uses this, as a kernel with its own cache does. The setting lasts
    /// as long as the inode is in use. It does not apply to append-only files.
    pub fn set_times_kept(&self, kept: bool) {
        // Locks: takes `Inode`.
        self.inode().write().times_kept = kept;
    }

    /// The inode's metadata.
    pub fn metadata(&self) -> Metadata {
        self.inode().metadata(self.volume())
    }

    /// The times and flags for a decision about [`Node::set_accessed`]. Unlike [`Node::metadata`],
    /// this call does not force the next change to leave a different time.
    pub fn last_access(&self) -> LastAccess {
        // Locks: takes `Inode` (shared).
        let body = self.inode().read();
        LastAccess {
            accessed: body.atime,
            modified: body.mtime,
            changed: body.ctime,
            flags: body.flags,
            is_dir: body.file_kind() == FileKind::Directory,
        }
    }

    /// Sets the generation, by which file handles distinguish two uses of an inode number.
    ///
    /// # Errors
    /// `NotSupported` with metadata checksums, because the generation is part of their seed;
    /// `ReadOnly`; `Corrupt`, `Device`, `Aborted`.
    pub fn set_generation(&self, generation: u32) -> Result<()> {
        self.volume()
            .context()
            .recording_errors(|| self.volume().io(self.inode()).set_generation(generation))
    }

    /// As [`File::defragment`], without opening the file.
    ///
    /// # Errors
    /// As [`File::defragment`].
    pub fn defragment(&self) -> Result<Defragmented> {
        self.volume().context().recording_errors(|| self.volume().io(self.inode()).defragment())
    }

    /// The number of extents of a regular file that [`Node::defragment`] can move, and how many its
    /// holes and unwritten blocks require.
    ///
    /// # Errors
    /// As [`File::defragment`].
    pub fn count_extents(&self) -> Result<(u64, u64)> {
        self.volume().context().recording_errors(|| self.volume().io(self.inode()).count_extents())
    }

    /// The pieces of a regular file, if they can move.
    pub(crate) fn movable_pieces(&self) -> Result<Vec<Piece>> {
        self.volume().io(self.inode()).movable_pieces()
    }

    /// Moves a piece to free blocks. Returns whether it moved.
    pub(crate) fn relocate(&self, piece: Piece, to: BlockNr) -> Result<bool> {
        self.volume().io(self.inode()).relocate(piece, to)
    }

    /// Sets the time of the last access and nothing else. An inode without names is left unchanged.
    ///
    /// # Errors
    /// `ReadOnly`; `Corrupt`, `Device`, `Aborted`.
    pub fn set_accessed(&self, time: Timestamp) -> Result<()> {
        self.volume()
            .context()
            .recording_errors(|| self.volume().io(self.inode()).set_accessed(time))
    }

    /// Looks up `name` in this directory; "." and ".." are included.
    ///
    /// # Errors
    /// `NotADirectory`, `NotFound`, `NameTooLong`; `Corrupt`, `Device`.
    pub fn lookup(&self, name: impl AsRef<OsStr>) -> Result<Node> {
        self.volume().context().recording_errors(|| {
            let found = self.volume().names().lookup(self.inode(), name.as_ref().as_bytes())?;
            Ok(self.keep(found))
        })
    }

    /// Creates an empty regular file in this directory.
    ///
    /// # Errors
    /// `Exists`, `NameTooLong`, `NotADirectory`; `NotFound` if the directory was removed;
    /// `ReadOnly`; `NotPermitted` if it is immutable; `Encrypted`; `NoSpace`; `Corrupt`, `Device`.
    /// After an error nothing has changed.
    pub fn create_file(&self, name: impl AsRef<OsStr>, new: &NewFile) -> Result<Node> {
        self.make(name.as_ref(), Content::Empty(FileKind::Regular), new)
    }

    /// Creates an empty directory in this one.
    ///
    /// # Errors
    /// As [`Node::create_file`]; `LinkLimit` if this directory's link count is at its maximum.
    pub fn create_dir(&self, name: impl AsRef<OsStr>, new: &NewFile) -> Result<Node> {
        self.make(name.as_ref(), Content::Directory, new)
    }

    /// Creates the symlink `name` to `target` in this directory.
    ///
    /// # Errors
    /// As [`Node::create_file`]; `NotFound` for an empty target; `NameTooLong` for a target as long
    /// as a block, or of 4096 bytes.
    pub fn symlink(
        &self,
        target: impl AsRef<OsStr>,
        name: impl AsRef<OsStr>,
        new: &NewFile,
    ) -> Result<Node> {
        self.make(name.as_ref(), Content::Symlink(target.as_ref().as_bytes()), new)
    }

    /// Creates a regular file, pipe, socket or device file in this directory.
    ///
    /// # Errors
    /// As [`Node::create_file`]; `Invalid` for another kind, and for a device file without a device
    /// number or with one that the format cannot store.
    pub fn mknod(&self, name: impl AsRef<OsStr>, kind: FileKind, new: &NewFile) -> Result<Node> {
        self.make(name.as_ref(), Content::Empty(kind), new)
    }

    /// Creates a regular file without a name, near this directory. [`Node::hard_link`] can give it
    /// a name. Otherwise it is removed when its last holder drops it, or by recovery after a crash.
    ///
    /// # Errors
    /// As [`Node::create_file`].
    pub fn tmpfile(&self, new: &NewFile) -> Result<Node> {
        self.volume().context().recording_errors(|| {
            Ok(self.keep(self.volume().names().create_unnamed(self.inode(), new)?))
        })
    }

    /// Adds `name` in this directory as a further name of `original`.
    ///
    /// # Errors
    /// As [`Node::create_file`]; `NotPermitted` for a directory, or an immutable or append-only
    /// file; `NotFound` for a file that has lost its last name; `LinkLimit`; `CrossProject`;
    /// `Invalid` for a node of another volume.
    pub fn hard_link(&self, original: &Node, name: impl AsRef<OsStr>) -> Result<()> {
        self.volume().context().recording_errors(|| {
            self.check_same_volume(original)?;
            self.volume().names().link(self.inode(), name.as_ref().as_bytes(), original.inode())
        })
    }

    /// Removes a name from this directory. The name must not be that of a directory.
    ///
    /// # Errors
    /// `NotFound`, `NameTooLong`, `NotADirectory`; `IsADirectory`; `ReadOnly`; `NotPermitted` if
    /// the directory or the file is immutable or append-only; `Corrupt`, `Device`. After an error
    /// nothing has changed.
    pub fn remove_file(&self, name: impl AsRef<OsStr>) -> Result<()> {
        self.volume().context().recording_errors(|| {
            self.volume().names().unlink(self.inode(), name.as_ref().as_bytes())
        })
    }

    /// Removes an empty directory from this one.
    ///
    /// # Errors
    /// As [`Node::remove_file`], but `NotADirectory` for other kinds of file; `NotEmpty`.
    pub fn remove_dir(&self, name: impl AsRef<OsStr>) -> Result<()> {
        self.volume().context().recording_errors(|| {
            self.volume().names().rmdir(self.inode(), name.as_ref().as_bytes())
        })
    }

    /// Moves the name `name` of this directory to `new_name` in `new_dir`. The change is atomic: no
    /// thread, and no recovery after a crash, finds both names or neither.
    ///
    /// # Errors
    /// `NotFound`, `NameTooLong`, `NotADirectory`; `Exists` and `Invalid` as the flags define;
    /// `Invalid` for moving a directory below itself; `IsADirectory`, `NotADirectory`, `NotEmpty`
    /// because of the file that has the new name; `Busy` for "." and ".."; `ReadOnly`;
    /// `NotPermitted`; `CrossProject`; `LinkLimit`; `NoSpace`; `Corrupt`, `Device`. After an error
    /// nothing has changed.
    pub fn rename(
        &self,
        name: impl AsRef<OsStr>,
        new_dir: &Node,
        new_name: impl AsRef<OsStr>,
        flags: RenameFlags,
    ) -> Result<()> {
        self.volume().context().recording_errors(|| {
            self.check_same_volume(new_dir)?;
            let (old, new) = (name.as_ref().as_bytes(), new_name.as_ref().as_bytes());
            self.volume().names().rename(self.inode(), old, new_dir.inode(), new, flags)
        })
    }

    /// Lists this directory, without "." and "..".
    ///
    /// # Errors
    /// `NotADirectory`. An item of the iterator reports damage in single entries or blocks.
    pub fn read_dir(&self) -> Result<ReadDir> {
        self.volume().context().recording_errors(|| ReadDir::new(self.held.clone(), PathBuf::new()))
    }

    /// Lists this directory by positions, from which a later listing can continue.
    ///
    /// # Errors
    /// As [`Node::read_dir`].
    pub fn dir_cursor(&self) -> Result<DirCursor> {
        self.volume().context().recording_errors(|| DirCursor::new(self.held.clone()))
    }

    /// How often names of this directory, ".." included, have changed since the inode was loaded
    /// into memory. Two calls on one `Node` that return the same number had the same names between
    /// them.
    pub fn name_changes(&self) -> u64 {
        // Locks: takes `Inode` (shared).
        self.inode().read().moves.changes()
    }

    /// The target of a symlink.
    ///
    /// # Errors
    /// `Invalid` for any other kind of file.
    pub fn read_link(&self) -> Result<PathBuf> {
        self.volume().context().recording_errors(|| {
            let target = self.volume().file(&self.inode().read()).symlink_target()?;
            Ok(PathBuf::from(OsString::from_vec(target)))
        })
    }

    /// Makes all earlier changes of this inode durable: its content and attributes, and the names
    /// of a directory. For anything but a regular file this writes back no data of files.
    ///
    /// # Errors
    /// `Device`, `Aborted`.
    pub fn sync_all(&self) -> Result<()> {
        let kind = self.inode().read().file_kind();
        match kind {
            FileKind::Regular => self.open()?.sync_all(),
            _ => self.volume().mount_state().sync_names(),
        }
    }

    /// As [`Node::sync_all`], except that metadata that is not needed to read the content, such as
    /// times, may become durable later.
    ///
    /// # Errors
    /// `Device`, `Aborted`.
    pub fn sync_data(&self) -> Result<()> {
        let kind = self.inode().read().file_kind();
        match kind {
            FileKind::Regular => self.open()?.sync_data(),
            _ => self.volume().mount_state().sync_names(),
        }
    }

    /// Opens the regular file.
    ///
    /// # Errors
    /// `IsADirectory`; `Invalid` for devices, pipes and sockets.
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
