//! Names by path, in the manner of `std::fs`.
//!
//! ```text
//!   "/a/link/b/"  ──► directory of "/a/link" ─ name "b" ─ a slash follows: directories only
//! ```

use crate::api::filesystem::Filesystem;
use crate::api::inode_hold::InodeHold;
use crate::api::node::Node;
use crate::inodes::lookup::Lookup;
use crate::tree::names::create::{Content, NewFile};
use crate::tree::names::hold::Held;
use crate::tree::names::rename::RenameFlags;
use crate::tree::path::{Last, Parent};
use extant_base::{Error, Ino, Result};
use extant_ondisk::inode::FileKind;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

impl Filesystem {
    /// Holds the inode that `path` names. Symlinks are followed.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `TooManyLinks`, `NameTooLong`; `Corrupt`, `Device`.
    pub fn node(&self, path: impl AsRef<Path>) -> Result<Node> {
        self.volume().context().recording_errors(|| {
            Ok(Node::new(
                self.volume().names().resolve(bytes(path.as_ref()), Last::Follow)?.keep(self),
            ))
        })
    }

    /// As [`Filesystem::node`], but a symlink at the end of the path is not followed.
    ///
    /// # Errors
    /// As [`Filesystem::node`].
    pub fn node_nofollow(&self, path: impl AsRef<Path>) -> Result<Node> {
        self.volume().context().recording_errors(|| {
            Ok(Node::new(
                self.volume().names().resolve(bytes(path.as_ref()), Last::Keep)?.keep(self),
            ))
        })
    }

    /// Holds the inode `ino`, which must have a name.
    ///
    /// # Errors
    /// `Corrupt` naming the inode if it is not in use; `NotFound` if it has lost its last name.
    pub fn node_of_ino(&self, ino: Ino) -> Result<Node> {
        self.volume()
            .context()
            .recording_errors(|| Ok(Node::new(self.volume().names().hold_ino(ino)?.keep(self))))
    }

    /// Holds the inode with a number that came from outside the volume, such as from a network file
    /// server's handle.
    ///
    /// Such a number is no evidence about the volume: it may be invented, or older than a removal.
    /// A number without an inode in use is therefore not damage, and is not recorded as damage.
    ///
    /// # Errors
    /// `NotFound` for a number that is out of range or reserved, and for an inode that is free or
    /// cannot be read; `Device`.
    pub fn node_of_handle(&self, ino: Ino) -> Result<Node> {
        // Peeking first keeps a free inode out of the table of inodes in use.
        let held = self
            .volume()
            .inodes()
            .peek(ino, Lookup::Name)
            .and_then(|_| self.volume().names().hold_ino(ino));
        match held {
            Ok(held) => Ok(Node::new(held.keep(self))),
            Err(error @ Error::Device { .. }) => Err(error),
            Err(_) => Err(Error::NotFound),
        }
    }

    /// Holds the root directory.
    ///
    /// # Errors
    /// As [`Filesystem::node_of_ino`].
    pub fn root(&self) -> Result<Node> {
        self.node_of_ino(Ino::ROOT)
    }

    /// Creates an empty regular file. The name must not exist.
    ///
    /// # Errors
    /// As [`Node::create_file`].
    ///
    /// # Examples
    ///
    /// ```
    /// # let _here = extant_guide_tests::with_image();
    /// use extant::{NewFile, OpenOptions};
    /// let fs = OpenOptions::new().write(true).open("disk.img")?;
    /// fs.create_dir_all("/var/log", &NewFile::directory())?;
    /// fs.create_file("/var/log/new", &NewFile::default())?;
    /// fs.rename("/var/log/new", "/var/log/app.log")?;
    /// fs.close()?;
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn create_file(&self, path: impl AsRef<Path>, new: &NewFile) -> Result<Node> {
        self.make(path.as_ref(), Content::Empty(FileKind::Regular), new)
    }

    /// Creates an empty directory. The name must not exist.
    ///
    /// # Errors
    /// As [`Node::create_dir`].
    pub fn create_dir(&self, path: impl AsRef<Path>, new: &NewFile) -> Result<Node> {
        self.make(path.as_ref(), Content::Directory, new)
    }

    /// Creates a device file, pipe or socket.
    ///
    /// # Errors
    /// As [`Node::mknod`].
    pub fn mknod(&self, path: impl AsRef<Path>, kind: FileKind, new: &NewFile) -> Result<Node> {
        self.make(path.as_ref(), Content::Empty(kind), new)
    }

    /// Creates a symlink at `path` to `target`.
    ///
    /// # Errors
    /// As [`Node::symlink`].
    pub fn symlink(
        &self,
        target: impl AsRef<OsStr>,
        path: impl AsRef<Path>,
        new: &NewFile,
    ) -> Result<Node> {
        self.make(path.as_ref(), Content::Symlink(target.as_ref().as_bytes()), new)
    }

    fn make(&self, path: &Path, content: Content<'_>, new: &NewFile) -> Result<Node> {
        self.volume().context().recording_errors(|| {
            let at = self.volume().names().resolve_parent(bytes(path))?;
            if at.slash && !matches!(content, Content::Directory) {
                self.volume().names().lookup(&at.dir, at.name)?;
                return Err(Error::Exists);
            }
            Ok(Node::new(self.volume().names().create(&at.dir, at.name, content, new)?.keep(self)))
        })
    }

    /// Adds `new` as a further name of the file at `original`. A symlink at the end of `original`
    /// is not followed.
    ///
    /// # Errors
    /// As [`Node::hard_link`].
    pub fn hard_link(&self, original: impl AsRef<Path>, new: impl AsRef<Path>) -> Result<()> {
        self.volume().context().recording_errors(|| {
            let target = self.volume().names().resolve(bytes(original.as_ref()), Last::Keep)?;
            let at = self.volume().names().resolve_parent(bytes(new.as_ref()))?;
            if at.slash {
                self.volume().names().lookup(&at.dir, at.name)?;
                return Err(Error::Exists);
            }
            self.volume().names().link(&at.dir, at.name, &target)
        })
    }

    /// Removes a name that is not a directory's.
    ///
    /// # Errors
    /// As [`Node::remove_file`].
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        self.volume().context().recording_errors(|| {
            let at = self.volume().names().resolve_parent(bytes(path.as_ref()))?;
            if at.slash {
                return Err(
                    match self.volume().names().lookup(&at.dir, at.name)?.read().file_kind() {
                        FileKind::Directory => Error::IsADirectory,
                        _ => Error::NotADirectory,
                    },
                );
            }
            self.volume().names().unlink(&at.dir, at.name)
        })
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As [`Node::remove_dir`]; `Busy` for the root.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.volume().context().recording_errors(|| {
            let at = self.volume().names().resolve_parent(bytes(path.as_ref()))?;
            if at.is_root {
                return Err(Error::Busy);
            }
            self.volume().names().rmdir(&at.dir, at.name)
        })
    }

    /// Renames `from` to `to`, and replaces the file that had the name `to`.
    ///
    /// # Errors
    /// As [`Node::rename`].
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.rename_with(from, to, RenameFlags::REPLACE)
    }

    /// As [`Filesystem::rename`], with flags.
    ///
    /// # Errors
    /// As [`Node::rename`].
    pub fn rename_with(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        flags: RenameFlags,
    ) -> Result<()> {
        self.volume().context().recording_errors(|| {
            let old = self.volume().names().resolve_parent(bytes(from.as_ref()))?;
            let new = self.volume().names().resolve_parent(bytes(to.as_ref()))?;
            if old.slash || new.slash {
                self.check_slashes(&old, &new, flags)?;
            }
            self.volume().names().rename(&old.dir, old.name, &new.dir, new.name, flags)
        })
    }

    /// `NotADirectory` if a slash follows the name of a file that is not a directory.
    fn check_slashes(
        &self,
        old: &Parent<'_, '_>,
        new: &Parent<'_, '_>,
        flags: RenameFlags,
    ) -> Result<()> {
        let is_dir = |held: &Held<'_>| held.read().file_kind() == FileKind::Directory;
        let source = self.volume().names().lookup(&old.dir, old.name)?;
        if flags.exchange {
            let other = self.volume().names().lookup(&new.dir, new.name)?;
            if new.slash && !is_dir(&other) {
                return Err(Error::NotADirectory);
            }
        }
        match is_dir(&source) || (flags.exchange && !old.slash) {
            true => Ok(()),
            false => Err(Error::NotADirectory),
        }
    }

    pub(crate) fn hold_path(&self, path: &Path, last: Last) -> Result<InodeHold> {
        Ok(self.volume().names().resolve(bytes(path), last)?.keep(self))
    }
}
