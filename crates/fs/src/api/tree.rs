//! Whole directory trees: created along a path, or removed with all their content.
//!
//! ```text
//!   remove_dir_all   a stack of directories: read a batch of names, unlink files, push
//!                    directories; remove and pop a directory that has no more names;
//!                    a directory that is already on the stack is a cycle, and an error
//! ```
//!
//! Each name is an operation of its own, so an error or a crash leaves a smaller tree.

use crate::api::filesystem::Filesystem;
use crate::state::inode::Inode;
use crate::tree::dir::read::{Entry, Position};
use crate::tree::names::create::NewFile;
use crate::tree::names::hold::Held;
use crate::tree::path::Last;
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
            let dir = volume.file(&body).dir()?;
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
    /// Creates a directory and its missing ancestors. A directory that exists already is no error.
    ///
    /// # Errors
    /// `NotADirectory` if an ancestor is another kind of file; `Exists` if the last name belongs to
    /// one; as [`Filesystem::create_dir`].
    pub fn create_dir_all(&self, path: impl AsRef<Path>, new: &NewFile) -> Result<()> {
        let path = path.as_ref().as_os_str().as_bytes();
        self.volume()
            .context()
            .recording_errors(|| self.volume().names().resolve_or_create_dirs(path, new).map(drop))
    }

    /// Removes a directory, and everything below it. A symlink is not followed.
    ///
    /// # Errors
    /// `NotADirectory`; `Corrupt` if a directory contains itself or one of its ancestors, so that a
    /// damaged volume cannot cause an endless loop; those of removing a single name. What was
    /// removed before the error stays removed.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        self.volume().context().recording_errors(|| {
            let volume = self.volume();
            let path = path.as_ref().as_os_str().as_bytes();
            let at = volume.names().resolve_parent(path)?;
            if at.is_root {
                return Err(Error::Busy);
            }
            let top = volume.names().resolve(path, Last::Keep)?;
            if top.read().file_kind() != FileKind::Directory {
                return Err(Error::NotADirectory);
            }
            // The directories on the stack and all their ancestors.
            let mut above = volume.names().directories_along(path)?;
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
                match volume.names().rmdir(parent, &name) {
                    Ok(()) | Err(Error::NotFound) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        })
    }
}

impl Volume {
    /// Unlinks a name. If it is a directory's, nothing is unlinked and the directory is returned.
    fn take_file(&self, dir: &Inode, name: &[u8]) -> Result<Option<Held<'_>>> {
        match self.names().unlink(dir, name) {
            Ok(()) | Err(Error::NotFound) => Ok(None),
            Err(Error::IsADirectory) => self.names().lookup(dir, name).map(Some),
            Err(error) => Err(error),
        }
    }
}
