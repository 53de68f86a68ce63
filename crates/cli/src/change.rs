//! A change of a volume that happens completely or not at all.
//!
//! ```text
//!   begin ──► verb changes names, content, attributes ──► finish: one commit
//!                      │ error, kill                         │ kill
//!                      ▼                                     ▼
//!                 nothing happened                    nothing, or all of it
//! ```
//!
//! With `--in-steps` the engine commits while the verb runs, and the committed part remains if the
//! program ends early.

use crate::failure::{Failure, print_message};
use crate::image::{Image, as_path, inner_path};
use crate::shown::Shown;
use extant::{Error, Filesystem, InodeFlags, Metadata};
use extant_ondisk::features::Incompat;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// How a change is committed.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Steps {
    /// Commit in steps, for a change larger than the volume's journal. An interruption keeps the
    /// completed steps
    #[arg(long)]
    pub(crate) in_steps: bool,
}

/// The longest value of an attribute, in bytes.
const ATTRIBUTE_MAX: usize = 65536;

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
            print_message(format_args!(
                "{}: the volume has no journal: an interruption can leave the change incomplete",
                Shown::path(&image.name)
            ));
        }
        Ok(Change { image, fs })
    }

    /// The error for a failure at `path` in the volume.
    pub(crate) fn failure(&self, path: &[u8], error: &Error) -> Failure {
        let why = match error {
            Error::NotPermitted => self.forbidden(path),
            // The error concerns the path, not the volume: the path leads to a directory that
            // cannot move.
            Error::Busy => Some("a directory cannot be moved into itself"),
            _ => None,
        };
        match why {
            Some(why) => self.refuse(path, why),
            None => self.image.failure(path, error),
        }
    }

    /// The reason why no user may change `path`.
    fn forbidden(&self, path: &[u8]) -> Option<&'static str> {
        let flags = |path: &[u8]| self.fs.symlink_metadata(as_path(path)).map(|it| it.flags());
        if let Ok(flags) = flags(path) {
            if flags.contains(InodeFlags::IMMUTABLE) {
                return Some("the file is immutable (chattr +i) and cannot be changed");
            }
            if flags.contains(InodeFlags::APPEND) {
                return Some("the file is append-only (chattr +a): data can only be appended");
            }
        }
        let flags = flags(split_last(path).0).ok()?;
        if flags.contains(InodeFlags::IMMUTABLE) {
            return Some("its directory is immutable (chattr +i): names in it cannot change");
        }
        let is_append = flags.contains(InodeFlags::APPEND);
        is_append.then_some("its directory is append-only (chattr +a): names can only be added")
    }

    /// Why a value of `len` bytes cannot be stored, if lack of free blocks is not the reason.
    pub(crate) fn attribute_limit(&self, len: usize) -> Option<String> {
        let superblock = self.fs.superblock();
        let block = superblock.block_size.bytes();
        let in_inodes = superblock.features.incompat.contains(Incompat::EA_INODE);
        let most = if in_inodes { ATTRIBUTE_MAX } else { block };
        if len > most {
            return Some(format!("the value has {len} bytes, the maximum is {most}"));
        }
        let free = superblock.free_blocks.saturating_mul(block as u64);
        (free > 2 * ATTRIBUTE_MAX as u64).then(|| {
            format!(
                "no space for the attribute: all attributes of a file share its inode and one \
                 block of {block} bytes"
            )
        })
    }

    /// A path whose last name is to be removed or moved, with the rules of rm and mv: it is a name
    /// and not the root, and with a slash at its end it must be a directory. `done` is the
    /// operation as a participle, as in "removed".
    pub(crate) fn named(&self, path: &OsStr, done: &str) -> Result<Vec<u8>, Failure> {
        let inner = inner_path(path)?;
        let bytes = path.as_bytes();
        let whole = without_slashes(bytes);
        if inner == b"/" && whole.is_empty() {
            return Err(self.refuse(&inner, &format!("the root directory cannot be {done}")));
        }
        if matches!(split_last(whole).1, b"." | b"..") {
            return Err(self.refuse(bytes, &format!("'.' and '..' cannot be {done}")));
        }
        if whole.len() < bytes.len() && self.look(&inner)?.is_some_and(|there| !there.is_dir()) {
            return Err(self.failure(bytes, &Error::NotADirectory));
        }
        Ok(inner)
    }

    /// Whether two paths are the same name in the same directory, following symlinks on the way.
    pub(crate) fn is_same_name(&self, a: &[u8], b: &[u8]) -> Result<bool, Failure> {
        let ((dir_a, name_a), (dir_b, name_b)) = (split_last(a), split_last(b));
        let ino = |dir| Ok::<_, Failure>(self.metadata_following_links(dir)?.map(|dir| dir.ino()));
        Ok(name_a == name_b && ino(dir_a)? == ino(dir_b)?)
    }

    /// The error for `path` with this reason.
    pub(crate) fn refuse(&self, path: &[u8], why: &str) -> Failure {
        let image = Shown::path(&self.image.name);
        Failure::new(format_args!("{image}: {}: {why}", Shown(path)))
    }

    /// The metadata of `path`, without following symlinks. `None` if it does not exist.
    pub(crate) fn look(&self, path: &[u8]) -> Result<Option<Metadata>, Failure> {
        found(self.fs.symlink_metadata(as_path(path))).map_err(|e| self.failure(path, &e))
    }

    /// The same, following symlinks.
    pub(crate) fn metadata_following_links(
        &self,
        path: &[u8],
    ) -> Result<Option<Metadata>, Failure> {
        found(self.fs.metadata(as_path(path))).map_err(|e| self.failure(path, &e))
    }

    /// Runs one operation at `path`.
    pub(crate) fn at<T>(
        &self,
        path: &[u8],
        work: impl FnOnce(&Filesystem) -> extant::Result<T>,
    ) -> Result<T, Failure> {
        work(&self.fs).map_err(|error| self.failure(path, &error))
    }

    /// Makes the whole change durable.
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

/// A path without slashes at its end.
pub(crate) fn without_slashes(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&byte| byte != b'/').map_or(0, |at| at + 1);
    &path[..end]
}

/// The last part of a path, after the part before it.
pub(crate) fn split_last(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(0) => (b"/", &path[1..]),
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"/", path),
    }
}
