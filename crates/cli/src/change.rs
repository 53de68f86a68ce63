//! A change of a volume: all of it, or nothing.
//!
//! ```text
//!   begin ──► verb changes names, content, attributes ──► finish: one commit
//!                      │ error, kill                         │ kill
//!                      ▼                                     ▼
//!                 nothing happened                    nothing, or all of it
//! ```
//!
//! With `--in-steps` the engine commits as it goes, and what was done when it ends early stays.

use crate::failure::{Failure, tell};
use crate::image::{Image, as_path};
use crate::shown::Shown;
use extant::{Error, Filesystem, Metadata};
use std::ffi::OsStr;

/// How a change is committed.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Steps {
    /// Commit in steps, for a change larger than the volume's journal: what was done by then stays
    /// when it is interrupted
    #[arg(long)]
    pub(crate) in_steps: bool,
}

/// A volume that is being changed.
pub(crate) struct Change {
    image: Image,
    fs: Filesystem,
}

impl Change {
    /// Opens the volume to be changed.
    pub(crate) fn begin(image: &OsStr, steps: Steps) -> Result<Change, Failure> {
        let image = Image::parse(image)?;
        let mut options = image.options();
        options.write(true).one_transaction(!steps.in_steps).use_reserve(true);
        let fs = image.open_with(&options)?;
        if !fs.superblock().has_journal() {
            tell(format_args!(
                "{}: has no journal: an interruption can leave it half changed",
                Shown::path(&image.name)
            ));
        }
        Ok(Change { image, fs })
    }

    /// What failed at `path` in the volume.
    pub(crate) fn failure(&self, path: &[u8], error: &Error) -> Failure {
        self.image.failure(path, error)
    }

    /// A complaint about `path` in words.
    pub(crate) fn refuse(&self, path: &[u8], why: &str) -> Failure {
        let image = Shown::path(&self.image.name);
        Failure::new(format_args!("{image}: {}: {why}", Shown(path)))
    }

    /// What stands at `path`, symlinks not followed; `None` when nothing does.
    pub(crate) fn look(&self, path: &[u8]) -> Result<Option<Metadata>, Failure> {
        found(self.fs.symlink_metadata(as_path(path))).map_err(|e| self.failure(path, &e))
    }

    /// The same, symlinks followed.
    pub(crate) fn look_behind(&self, path: &[u8]) -> Result<Option<Metadata>, Failure> {
        found(self.fs.metadata(as_path(path))).map_err(|e| self.failure(path, &e))
    }

    /// Does one thing at `path`.
    pub(crate) fn at<T>(
        &self,
        path: &[u8],
        work: impl FnOnce(&Filesystem) -> extant::Result<T>,
    ) -> Result<T, Failure> {
        work(&self.fs).map_err(|error| self.failure(path, &error))
    }

    /// Makes all of it durable.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        let name = self.image.name;
        self.fs.close().map_err(|error| Failure::of_image(&name, &error))
    }
}

fn found(answer: extant::Result<Metadata>) -> extant::Result<Option<Metadata>> {
    match answer {
        Ok(metadata) => Ok(Some(metadata)),
        Err(Error::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The last part of a path, and what is before it.
pub(crate) fn split_last(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(0) => (b"/", &path[1..]),
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"/", path),
    }
}
