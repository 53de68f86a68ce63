//! Creating, linking, renaming and removing names. Each operation is one handle, so it is atomic.
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
//! The caller's rights were checked by the front end: owners, permissions and sticky directories
//! are not examined here. Errors are those of the system calls, in the order in which Linux reports
//! them.

pub(crate) mod create;
pub(crate) mod credits;
pub(crate) mod hold;
pub(crate) mod inherit;
pub(crate) mod link;
pub(crate) mod lock;
pub(crate) mod rename;
pub(crate) mod unlink;

use crate::volume::Volume;
pub use create::NewFile;

use crate::state::inode::Body;
use extant_base::{Error, Result};
use extant_ondisk::dirent::EntryKind;
use extant_ondisk::inode::{FileKind, InodeFlags};
use extant_ondisk::time::Timestamp;

/// The names of a volume: paths, lookup, creation, links, removal, renames.
#[derive(Clone, Copy)]
pub(crate) struct Names<'a> {
    pub(in crate::tree) volume: &'a Volume,
}

impl Volume {
    /// The names of this volume.
    pub(crate) fn names(&self) -> Names<'_> {
        Names { volume: self }
    }
}

/// The kind of file that a directory entry records.
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

/// `NotFound` or `Invalid` for bytes that cannot be a name. The caller checks "." and "..", and the
/// directory checks the length.
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

    /// `NotPermitted` if the directory accepts no new names.
    fn check_accepts_names(&self) -> Result<()> {
        match self.disk.flags.contains(InodeFlags::IMMUTABLE) {
            true => Err(Error::NotPermitted),
            false => Ok(()),
        }
    }

    /// `NotPermitted` if `target`'s name may not be removed from this directory, because one of the
    /// two is immutable or append-only.
    fn check_may_lose_name(&self, target: &Body) -> Result<()> {
        let fixed = InodeFlags::IMMUTABLE | InodeFlags::APPEND;
        match self.disk.flags.intersects(fixed) || target.disk.flags.intersects(fixed) {
            true => Err(Error::NotPermitted),
            false => Ok(()),
        }
    }

    /// Records that the names of this directory changed at `now`.
    fn names_changed(&mut self, now: Timestamp) {
        (self.disk.mtime, self.disk.ctime) = (now, now);
        self.disk.version = self.disk.version.wrapping_add(1);
    }
}
