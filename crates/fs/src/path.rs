//! From a path to an inode.
//!
//! ```text
//!   a/link/../b      trail  [root] [root a] …      the directories walked through
//!     │              rest   link/../b              names still to look up
//!     └ name: push   "..": pop, never past the root   symlink: its target goes before the rest
//! ```
//!
//! ".." follows the way that was walked, so no path and no symlink leads out of the volume's root,
//! and a directory with a forged ".." misleads nobody. At most 40 symlinks are followed, as in
//! Linux.

use crate::inode::Inode;
use crate::volume::Volume;
use extant_base::{Error, Ino, Result};
use extant_ondisk::inode::FileKind;
use std::sync::Arc;

/// The most symlinks one path leads through.
const LINKS_MAX: u32 = 40;

/// Whether a symlink at the end of a path stands for its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Last {
    /// It does.
    Follow,
    /// It stands for itself (unless a slash follows it).
    Keep,
}

impl Volume {
    /// The inode that `path` names, counted from the root, with or without a leading slash.
    ///
    /// Errors: `NotFound`, `NotADirectory`, `TooManyLinks`, `NameTooLong`; whatever reading gives.
    /// Locks: takes `Inode` (shared), one directory at a time.
    pub(crate) fn resolve(&self, path: &[u8], last: Last) -> Result<Arc<Inode>> {
        let mut walk = Walk::new(self, path)?;
        walk.run(last)?;
        Ok(walk.into_end())
    }

    /// The directory that holds, or would hold, the last name of `path`, and that name.
    ///
    /// Errors: as [`Volume::resolve`]; `Invalid` where the path ends in no name ("/", "." or "..").
    #[allow(dead_code, reason = "the doors that change a volume will call it")]
    pub(crate) fn resolve_parent<'p>(&self, path: &'p [u8]) -> Result<(Arc<Inode>, &'p [u8])> {
        let trimmed = match path.iter().rposition(|byte| *byte != b'/') {
            Some(end) => &path[..=end],
            None => return Err(Error::Invalid("the path names the root")),
        };
        let start = trimmed.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        let name = &trimmed[start..];
        if matches!(name, b"." | b"..") {
            return Err(Error::Invalid("the path ends in no name"));
        }
        let parent = self.resolve(&trimmed[..start], Last::Follow)?;
        if parent.read().file_kind() != FileKind::Directory {
            return Err(Error::NotADirectory);
        }
        Ok((parent, name))
    }
}

struct Walk<'v> {
    volume: &'v Volume,
    /// Directories walked through; the first is the root, the last where names are looked up. A
    /// last element that is no directory ends the walk.
    trail: Vec<Arc<Inode>>,
    /// Names still to look up, from `next` on.
    rest: Vec<u8>,
    next: usize,
    links: u32,
}

impl<'v> Walk<'v> {
    fn new(volume: &'v Volume, path: &[u8]) -> Result<Walk<'v>> {
        if path.contains(&0) {
            return Err(Error::Invalid("a path holds no NUL"));
        }
        let root = volume.inode(Ino::ROOT)?;
        Ok(Walk { volume, trail: vec![root], rest: path.to_vec(), next: 0, links: 0 })
    }

    fn into_end(mut self) -> Arc<Inode> {
        self.trail.pop().expect("the trail starts with the root and never loses it")
    }

    fn here(&self) -> &Arc<Inode> {
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
            let dir = Arc::clone(self.here());
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
            let found = {
                let body = dir.read();
                self.volume.dir(dir.ino, &body)?.lookup(&self.rest[name])?
            };
            let inode = self.volume.inode(found.ino)?;
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

    /// Puts the target of `link` before what is left of the path.
    fn follow(&mut self, link: &Inode) -> Result<()> {
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(Error::TooManyLinks);
        }
        let mut rest = self.volume.symlink_target(link.ino, &link.read())?;
        if rest.first() == Some(&b'/') {
            self.trail.truncate(1);
        }
        // What is left starts with a slash, or is empty.
        rest.extend_from_slice(&self.rest[self.next..]);
        self.rest = rest;
        self.next = 0;
        Ok(())
    }
}
