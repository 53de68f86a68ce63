//! Whole trees of directories: made along a path, taken away with all they hold.
//!
//! ```text
//!   remove_dir_all   stack of directories: a batch of names read, files unlinked, a directory
//!                    pushed; a directory that has given all its names is removed and popped
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
use extant_base::{Error, Result};
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
    /// Makes a directory and those above it that are missing; one that is there is fine.
    ///
    /// Errors: `NotADirectory` where something else stands in the way; as
    /// [`Filesystem::create_dir`].
    pub fn create_dir_all(&self, path: impl AsRef<Path>, new: &NewFile) -> Result<()> {
        let path = path.as_ref();
        match self.metadata(path) {
            Ok(there) if there.is_dir() => return Ok(()),
            Ok(_) => return Err(Error::Exists),
            Err(Error::NotFound) => {}
            Err(error) => return Err(error),
        }
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            self.create_dir_all(parent, new)?;
        }
        match self.create_dir(path, new) {
            // Somebody else was faster.
            Err(Error::Exists) if self.metadata(path)?.is_dir() => Ok(()),
            done => done.map(drop),
        }
    }

    /// Takes a directory away, and everything below it. A symlink is not followed.
    ///
    /// Errors: `NotADirectory`; what taking a single name gives. The tree is smaller then.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        self.volume().noting(|| {
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
            let mut stack = vec![Level::new(top, at.name.to_vec())];
            while let Some(level) = stack.last_mut() {
                if let Some(entry) = level.next(volume)? {
                    if let Some(below) = volume.take_file(&level.dir, &entry.name)? {
                        stack.push(Level::new(below, entry.name));
                    }
                    continue;
                }
                let Some(done) = stack.pop() else { break };
                let parent = stack.last().map_or(&at.dir, |level| &level.dir);
                let name = done.name.clone();
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
