//! Whole trees of directories: created along a path, removed with all they hold.
//!
//! ```text
//!   remove_dir_all   stack of directories: a batch of names read, files unlinked, a directory
//!                    pushed; a directory that has given all its names is removed and popped;
//!                    one that is on the stack already is a cycle, and an error
//! ```
//!
//! Each name is an operation of its own: what fails, or a crash, leaves a smaller tree.

use super::create::NewFile;
use super::hold::Held;
use crate::dir::read::{Entry, Position};
use crate::filesystem::Filesystem;
use crate::inode::Inode;
use crate::path::Last;
use crate::volume::Volume;
use extant_base::{Error, Result, Site, What};
use extant_ondisk::inode::FileKind;
use std::collections::VecDeque;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A directory that is being emptied.
struct Level<'v> {
    dir: Held<'v>,
    name: Vec<u8>,
    position: Position,
    batch: VecDeque<Entry>,
    is_read: bool,
}

impl<'v> Level<'v> {
    fn new(dir: Held<'v>, name: Vec<u8>) -> Level<'v> {
        Level { dir, name, position: Position::default(), batch: VecDeque::new(), is_read: false }
    }

    /// The next name, if there is one.
    fn next(&mut self, volume: &Volume) -> Result<Option<Entry>> {
        while self.batch.is_empty() && !self.is_read {
            let mut failed = None;
            let body = self.dir.read();
            let dir = volume.dir(self.dir.ino, &body)?;
            let batch = &mut self.batch;
            self.is_read = !dir.next_batch(&mut self.position, |entry| match entry {
                Ok(entry) => batch.push_back(entry),
                Err(error) => failed = Some(error),
            })?;
            if let Some(error) = failed {
                return Err(error);
            }
        }
        Ok(self.batch.pop_front())
    }
}

impl Filesystem {
    /// Creates a directory and those above it that are missing; one that exists is fine.
    ///
    /// # Errors
    /// `NotADirectory` where something else is in the way, `Exists` where it has the last name; as
    /// [`Filesystem::create_dir`].
    pub fn create_dir_all(&self, path: impl AsRef<Path>, new: &NewFile) -> Result<()> {
        let path = path.as_ref().as_os_str().as_bytes();
        self.volume().context().noting(|| self.volume().resolve_or_create_dirs(path, new).map(drop))
    }

    /// Removes a directory, and everything below it. A symlink is not followed.
    ///
    /// # Errors
    /// `NotADirectory`; `Corrupt` where a directory holds itself or one above it, so that a damaged volume cannot lead
    /// in circles; what removing a single name gives. What was removed before the error stays removed.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        self.volume().context().noting(|| {
            let volume = self.volume();
            let path = path.as_ref().as_os_str().as_bytes();
            let at = volume.resolve_parent(path)?;
            if at.is_root {
                return Err(Error::Busy);
            }
            let top = volume.resolve(path, Last::Keep)?;
            if top.read().file_kind() != FileKind::Directory {
                return Err(Error::NotADirectory);
            }
            // The directories on the stack, and all that lead to them.
            let mut above = volume.directories_along(path)?;
            let mut stack = vec![Level::new(top, at.name.to_vec())];
            while let Some(level) = stack.last_mut() {
                if let Some(entry) = level.next(volume)? {
                    if let Some(below) = volume.take_file(&level.dir, &entry.name)? {
                        if !above.insert(below.ino) {
                            return Err(Site::of_ino(below.ino).corrupt(What::DirectoryLoop));
                        }
                        stack.push(Level::new(below, entry.name));
                    }
                    continue;
                }
                let Some(done) = stack.pop() else { break };
                let parent = stack.last().map_or(&at.dir, |level| &level.dir);
                let name = done.name.clone();
                above.remove(&done.dir.ino);
                drop(done);
                match volume.rmdir(parent, &name) {
                    Ok(()) | Err(Error::NotFound) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        })
    }
}

impl Volume {
    /// Unlinks a name; a directory is given back instead.
    fn take_file(&self, dir: &Inode, name: &[u8]) -> Result<Option<Held<'_>>> {
        match self.unlink(dir, name) {
            Ok(()) | Err(Error::NotFound) => Ok(None),
            Err(Error::IsADirectory) => self.lookup(dir, name).map(Some),
            Err(error) => Err(error),
        }
    }
}
