//! Names: making, giving, changing and taking them, each as one handle that is whole or absent.
//!
//! ```text
//!   Filesystem, Node ──► create · link · unlink · rename
//!                           │
//!                           ├ lock     directories and targets: waits in number order only
//!                           ├ check    everything that can be wrong, before anything changes
//!                           ├ handle   credits by formula (`credits.rs`)
//!                           └ change   what fails half-way is undone in the same handle
//! ```
//!
//! Who asks has been checked by the door that he came through: owners, permissions and sticky
//! directories are not looked at here. Errors are those of the system calls, in Linux' order.

pub(crate) mod by_path;
pub(crate) mod create;
pub(crate) mod credits;
pub(crate) mod hold;
pub(crate) mod inherit;
pub(crate) mod link;
pub(crate) mod lock;
pub(crate) mod rename;
pub(crate) mod tree;
pub(crate) mod unlink;

pub use create::NewFile;

use crate::inode::Body;
use extant_base::{Error, Result};
use extant_ondisk::dirent::EntryKind;
use extant_ondisk::inode::{FileKind, InodeFlags};
use extant_ondisk::time::Timestamp;

/// The kind of file that an entry records beside a name.
pub(crate) fn entry_kind(kind: FileKind) -> EntryKind {
    match kind {
        FileKind::Fifo => EntryKind::Fifo,
        FileKind::CharDevice => EntryKind::CharDevice,
        FileKind::Directory => EntryKind::Directory,
        FileKind::BlockDevice => EntryKind::BlockDevice,
        FileKind::Regular => EntryKind::Regular,
        FileKind::Symlink => EntryKind::Symlink,
        FileKind::Socket => EntryKind::Socket,
    }
}

/// `NotFound` and `Invalid` for what is no name at all. "." and ".." are left to the caller, and the
/// length to the directory.
fn check_name(name: &[u8]) -> Result<()> {
    if name.is_empty() {
        return Err(Error::NotFound);
    }
    if name.contains(&0) || name.contains(&b'/') {
        return Err(Error::Invalid("a name holds a slash or NUL"));
    }
    Ok(())
}

impl Body {
    /// `NotFound` for a directory that was removed, `NotADirectory` for anything else.
    fn check_directory(&self) -> Result<()> {
        match self.file_kind() {
            FileKind::Directory if self.disk.links == 0 => Err(Error::NotFound),
            FileKind::Directory => Ok(()),
            _ => Err(Error::NotADirectory),
        }
    }

    /// `NotPermitted` for a directory that takes no new names.
    fn check_takes_names(&self) -> Result<()> {
        match self.disk.flags.contains(InodeFlags::IMMUTABLE) {
            true => Err(Error::NotPermitted),
            false => Ok(()),
        }
    }

    /// `NotPermitted` where names may not go away: from an immutable or append-only directory, or
    /// from such a file.
    fn check_loses_name(&self, target: &Body) -> Result<()> {
        let fixed = InodeFlags::IMMUTABLE | InodeFlags::APPEND;
        match self.disk.flags.intersects(fixed) || target.disk.flags.intersects(fixed) {
            true => Err(Error::NotPermitted),
            false => Ok(()),
        }
    }

    /// The names of this directory changed at `now`.
    fn names_changed(&mut self, now: Timestamp) {
        (self.disk.mtime, self.disk.ctime) = (now, now);
        self.disk.version = self.disk.version.wrapping_add(1);
    }
}
