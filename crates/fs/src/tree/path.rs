//! From a path to an inode.
//!
//! ```text
//!   a/link/../b      trail  [root] [root a] …      the directories walked through
//!     │              rest   link/../b              names still to look up
//!     └ name: push   "..": pop, never past the root   symlink: its target goes before the rest
//! ```
//!
//! ".." goes back along the directories that were walked, so no path and no symlink leads out of
//! the volume's root, and a forged ".." entry has no effect. At most 40 symlinks are followed, as
//! in Linux.

use crate::state::inode::Inode;
use crate::tree::names::create::Content;
use crate::tree::names::hold::Held;
use crate::tree::names::{Names, NewFile};
use crate::volume::Volume;
use extant_base::{Error, Ino, Result};
use extant_ondisk::inode::FileKind;
use std::collections::HashSet;

/// How many symlinks one resolution follows at most.
const LINKS_MAX: u32 = 40;

/// Whether a symlink at the end of a path is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Last {
    /// It is followed.
    Follow,
    /// It is not followed, unless a slash comes after it.
    Keep,
}

impl<'a> Names<'a> {
    /// Holds the inode that `path` names. The path starts at the root, with or without a leading
    /// slash.
    ///
    /// Errors: `NotFound`, `NotADirectory`, `TooManyLinks`, `NameTooLong`; those of reading. Locks:
    /// takes `Inode` (shared), one directory at a time.
    pub(crate) fn resolve(self, path: &[u8], last: Last) -> Result<Held<'a>> {
        let mut walk = Walk::new(self.volume, path)?;
        walk.run(last)?;
        Ok(walk.into_end())
    }

    /// The directories from the root to the inode that `path` names, including that inode.
    ///
    /// Errors: as [`Names::resolve`].
    pub(crate) fn directories_along(self, path: &[u8]) -> Result<HashSet<Ino>> {
        let mut walk = Walk::new(self.volume, path)?;
        walk.run(Last::Keep)?;
        Ok(walk.trail.iter().map(|held| held.ino).collect())
    }

    /// Holds the directory that `path` names and creates the missing directories on the way, each
    /// as an operation of its own. The cost depends only on the length of `path`. A symlink whose
    /// target is missing is not followed.
    ///
    /// Errors: as [`Names::resolve`] and [`Names::create`]; `Exists` if the last name belongs to
    /// another kind of file or to a symlink whose target is missing.
    pub(crate) fn resolve_or_create_dirs(self, path: &[u8], new: &NewFile) -> Result<Held<'a>> {
        let mut walk = Walk::new(self.volume, path)?;
        walk.create = Some(new);
        walk.run(Last::Follow).map_err(|error| match error {
            Error::NotADirectory if walk.is_done() => Error::Exists,
            error => error,
        })?;
        let end = walk.into_end();
        let is_dir = end.read().file_kind() == FileKind::Directory;
        if is_dir { Ok(end) } else { Err(Error::Exists) }
    }

    /// The directory that holds, or would hold, the last name of `path`, and that name, which can
    /// be "." or "..".
    ///
    /// Errors: as [`Names::resolve`]; `NotFound` for an empty path.
    pub(crate) fn resolve_parent<'p>(self, path: &'p [u8]) -> Result<Parent<'a, 'p>> {
        if path.is_empty() {
            return Err(Error::NotFound);
        }
        let Some(end) = path.iter().rposition(|byte| *byte != b'/') else {
            let dir = self.resolve(b"/", Last::Follow)?;
            return Ok(Parent { dir, name: b".", slash: false, is_root: true });
        };
        let trimmed = &path[..=end];
        let start = trimmed.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        let dir = self.resolve(&trimmed[..start], Last::Follow)?;
        if dir.read().file_kind() != FileKind::Directory {
            return Err(Error::NotADirectory);
        }
        let slash = end + 1 < path.len();
        Ok(Parent { dir, name: &trimmed[start..], slash, is_root: false })
    }
}

/// The directory and name of the last part of a path. The name may not exist.
pub(crate) struct Parent<'v, 'p> {
    /// The directory.
    pub(crate) dir: Held<'v>,
    /// The name.
    pub(crate) name: &'p [u8],
    /// Whether a slash follows the name.
    pub(crate) slash: bool,
    /// The path names the root: the name is "." in the root itself.
    pub(crate) is_root: bool,
}

struct Walk<'v, 'n> {
    volume: &'v Volume,
    /// The directories walked through: the first is the root, the last is the one in which names
    /// are looked up. If the last element is not a directory, the walk ends.
    trail: Vec<Held<'v>>,
    /// Names still to look up, from `next` on.
    rest: Vec<u8>,
    next: usize,
    /// How many bytes at the end of `rest` come from the caller's path. Those before them come from
    /// symlinks.
    own: usize,
    links: u32,
    /// If set, missing directories of the caller's path are created with these attributes.
    create: Option<&'n NewFile>,
}

impl<'v> Walk<'v, '_> {
    fn new(volume: &'v Volume, path: &[u8]) -> Result<Self> {
        if path.contains(&0) {
            return Err(Error::Invalid("a path contains NUL"));
        }
        let root = Held::new(volume, volume.inodes().get(Ino::ROOT)?);
        let (rest, own) = (path.to_vec(), path.len());
        Ok(Walk { volume, trail: vec![root], rest, next: 0, own, links: 0, create: None })
    }

    fn into_end(mut self) -> Held<'v> {
        self.trail.pop().expect("the trail starts with the root and never loses it")
    }

    fn here(&self) -> &Held<'v> {
        self.trail.last().expect("the trail starts with the root and never loses it")
    }

    /// The next name, as a range of `rest`, and whether a slash follows it.
    fn take_name(&mut self) -> Option<(std::ops::Range<usize>, bool)> {
        let start = self.next + self.rest[self.next..].iter().position(|byte| *byte != b'/')?;
        let len = self.rest[start..].iter().position(|byte| *byte == b'/');
        let end = len.map_or(self.rest.len(), |len| start + len);
        self.next = end;
        Some((start..end, len.is_some()))
    }

    fn is_done(&self) -> bool {
        self.rest[self.next..].iter().all(|byte| *byte == b'/')
    }

    fn run(&mut self, last: Last) -> Result<()> {
        while let Some((name, slash)) = self.take_name() {
            let dir = self.here();
            if dir.read().file_kind() != FileKind::Directory {
                return Err(Error::NotADirectory);
            }
            match &self.rest[name.clone()] {
                b"." => continue,
                b".." => {
                    if self.trail.len() > 1 {
                        self.trail.pop();
                    }
                    continue;
                }
                _ => {}
            }
            let inode = match self.volume.names().lookup(dir, &self.rest[name.clone()]) {
                Err(Error::NotFound) => self.create_missing(dir, name)?,
                found => found?,
            };
            let kind = inode.read().file_kind();
            let ends_here = self.is_done() && !slash;
            if kind == FileKind::Symlink && !(ends_here && last == Last::Keep) {
                self.follow(&inode)?;
            } else {
                if slash && kind != FileKind::Directory {
                    return Err(Error::NotADirectory);
                }
                self.trail.push(inode);
            }
        }
        Ok(())
    }

    /// Creates the directory `name` in `dir`, if missing directories are to be created.
    fn create_missing(&self, dir: &Inode, name: std::ops::Range<usize>) -> Result<Held<'v>> {
        let new = self.create.ok_or(Error::NotFound)?;
        if name.start < self.rest.len() - self.own {
            return Err(Error::Exists);
        }
        let name = &self.rest[name];
        match self.volume.names().create(dir, name, Content::Directory, new) {
            // Another thread created it first.
            Err(Error::Exists) => self.volume.names().lookup(dir, name),
            created => created,
        }
    }

    /// Puts the target of `link` before the rest of the path.
    fn follow(&mut self, link: &Inode) -> Result<()> {
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(Error::TooManyLinks);
        }
        let mut rest = self.volume.file(&link.read()).symlink_target()?;
        if rest.first() == Some(&b'/') {
            self.trail.truncate(1);
        }
        self.own = self.own.min(self.rest.len() - self.next);
        // The rest of the path starts with a slash or is empty.
        rest.extend_from_slice(&self.rest[self.next..]);
        self.rest = rest;
        self.next = 0;
        Ok(())
    }
}
