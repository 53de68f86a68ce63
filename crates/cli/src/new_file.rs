//! A file that a verb makes: it gets its name only when it is complete.
//!
//! ```text
//!   OUT.partial   created, filled, flushed ──► OUT, which must not exist
//!        └── dropped before that: removed
//! ```

use crate::failure::Failure;
use crate::shown::Shown;
use extant::{BlockDevice, FileDevice, FileOptions};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// A file in progress, as a device of zeros.
pub(crate) struct NewFile {
    path: PathBuf,
    partial: PathBuf,
    device: FileDevice,
}

impl NewFile {
    /// Makes a sparse file of `bytes` for `path`, which must not exist.
    pub(crate) fn create(path: &Path, bytes: u64) -> Result<NewFile, Failure> {
        if fs::symlink_metadata(path).is_ok() {
            return Err(exists(path));
        }
        let mut name: OsString = path.file_name().unwrap_or_default().into();
        name.push(".partial");
        let partial = path.with_file_name(name);
        // What a command that was killed left.
        let _ = fs::remove_file(&partial);
        let device = FileOptions::new()
            .create(&partial, bytes)
            .map_err(|error| Failure::of_image(&partial, &error))?;
        Ok(NewFile { path: path.into(), partial, device })
    }

    pub(crate) fn device(&self) -> &FileDevice {
        &self.device
    }

    /// Makes everything durable and gives the file its name.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        self.device.flush().map_err(|error| Failure::of_image(&self.partial, &error))?;
        self.rename().map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => exists(&self.path),
            _ => Failure::of_file("make", &self.path, error),
        })
    }

    fn rename(&self) -> io::Result<()> {
        match renameat_with(CWD, &self.partial, CWD, &self.path, RenameFlags::NOREPLACE) {
            // Not every file system can do that.
            Err(Errno::INVAL | Errno::NOSYS) => fs::rename(&self.partial, &self.path)?,
            done => done?,
        }
        let dir = self.path.parent().filter(|dir| !dir.as_os_str().is_empty());
        // The name is durable once its directory is.
        File::open(dir.unwrap_or(Path::new(".")))?.sync_all()
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        // After the rename there is none. An error leaves a partial name, which nothing reads.
        let _ = fs::remove_file(&self.partial);
    }
}

fn exists(path: &Path) -> Failure {
    let name = Shown::path(path);
    Failure::new(format_args!("{name}: already exists: choose another name for OUT"))
}
