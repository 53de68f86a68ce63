//! The locks of an operation on names. Threads wait for them in order of inode numbers only.
//!
//! ```text
//!   lock the directory ─► find the name ─► target: try_lock ──locked──► go
//!        ▲                                        └─not locked──► unlock, lock both in order of
//!        └── the name belongs to another inode by now ◄────────── numbers, find the name again
//! ```
//!
//! No thread waits for a lock with a lower inode number than one that it holds, so no cycle of
//! waiting threads can form, whatever names a damaged volume contains.

use super::hold::Held;
use crate::state::inode::{Body, Inode};
use crate::tree::dir::Found;
use crate::tree::names::Names;
use extant_base::lock::WriteGuard;
use extant_base::{Error, Result, Site, What};

/// A name, its directory and its inode; both inodes are locked.
pub(super) struct Entry<'a> {
    pub(super) dir: &'a Inode,
    pub(super) dir_body: WriteGuard<'a, Body>,
    pub(super) found: Found,
    pub(super) target: &'a Inode,
    pub(super) target_body: WriteGuard<'a, Body>,
}

/// Locks two inodes, the lower number first. The guards are returned in the order of the arguments.
pub(super) fn lock_two<'a>(
    a: &'a Inode,
    b: &'a Inode,
) -> (WriteGuard<'a, Body>, WriteGuard<'a, Body>) {
    if a.ino < b.ino {
        let first = a.body.write();
        (first, b.body.write_second())
    } else {
        let first = b.body.write();
        (a.body.write_second(), first)
    }
}

impl Names<'_> {
    /// Runs `act` with directory `dir` and the inode that `name` belongs to locked.
    ///
    /// Errors: `NotFound`; `NotADirectory`; `DirectoryLoop` if the entry `name` points to its own
    /// directory; those of `act`. Locks: takes `Inode` of both.
    pub(super) fn with_entry<T>(
        self,
        dir: &Inode,
        name: &[u8],
        act: impl FnOnce(Entry<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut expected: Option<Held<'_>> = None;
        loop {
            // Declared before the guards, so that it is dropped after them.
            let held;
            {
                let (dir_body, target_body) = match &expected {
                    None => (dir.write(), None),
                    Some(target) => {
                        let (dir_body, target_body) = lock_two(dir, target);
                        (dir_body, Some(target_body))
                    }
                };
                dir_body.check_directory()?;
                let found =
                    self.volume.file(&dir_body).dir()?.find(name)?.ok_or(Error::NotFound)?;
                if found.ino == dir.ino {
                    return Err(Site::of_ino(dir.ino).corrupt(What::DirectoryLoop));
                }
                if let (Some(target), Some(target_body)) = (&expected, target_body)
                    && target.ino == found.ino
                {
                    return act(Entry { dir, dir_body, found, target, target_body });
                }
                held = Held::new(self.volume, self.volume.inodes().get(found.ino)?);
                if let Some(target_body) = held.body.try_write_second() {
                    return act(Entry { dir, dir_body, found, target: &held, target_body });
                }
            }
            expected = Some(held);
        }
    }
}
