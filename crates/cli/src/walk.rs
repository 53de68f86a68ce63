//! Visits everything at and below a path, with what could and could not be read of each entry.
//!
//! ```text
//!   visit /        ─► names, sorted ─► visit /a, visit /a/x, visit /b, …       done(/a) after /a/x
//!     └ problems of the directory itself go with its visit; the walk continues after them
//! ```
//!
//! A damaged volume cannot cause an endless walk: each directory is entered once. The walk keeps
//! one path, which grows and shrinks with the depth, so memory is linear in the depth of the tree.

use crate::failure::{Failure, explained};
use crate::image::{Image, as_path};
use extant::{DirEntry, Error, FileKind, Filesystem, Ino, Metadata, Site, What};
use std::collections::HashSet;

/// The longest path, in bytes, whose directory a visitor that writes whole paths enters. Such
/// output grows with the square of the depth, and Linux accepts no path of more than 4096 bytes.
pub(crate) const PATH_MAX: usize = 64 << 10;

/// One file, directory or other entry.
pub(crate) struct Visit<'p> {
    /// The path from the volume's root.
    pub(crate) path: &'p [u8],
    /// The last part of the path. For the start of the walk, the whole path.
    pub(crate) name: &'p [u8],
    pub(crate) ino: Ino,
    /// The type according to the inode, else to the directory entry; `None` if neither is known.
    pub(crate) kind: Option<FileKind>,
    pub(crate) metadata: Option<Metadata>,
    /// Levels below the start.
    pub(crate) depth: usize,
    /// Whether it is the last name of its directory.
    pub(crate) last: bool,
    /// Whether the name before it in its directory is the same. Only damage causes that.
    pub(crate) is_repeated: bool,
    /// All names of its directory, sorted. Empty for the start of the walk.
    pub(crate) siblings: &'p [DirEntry],
    /// What could not be read.
    pub(crate) problems: Vec<String>,
}

impl Visit<'_> {
    /// The problems as one text, or `None`.
    pub(crate) fn error(&self) -> Option<String> {
        (!self.problems.is_empty()).then(|| self.problems.join("; "))
    }

    /// Whether its directory holds `name`.
    pub(crate) fn has_sibling(&self, name: &[u8]) -> bool {
        self.siblings.binary_search_by(|entry| entry.name_bytes().cmp(name)).is_ok()
    }
}

/// The directories of a walk as numbers. They record where a file was without storing a path for
/// each file.
///
/// ```text
///   dirs    0 ─ usr ◄─ share ◄─ doc       each holds the number of its parent and its own name
///   open    [ 1 ][ 2 ][ 3 ]               those on the way to the entry that is visited
/// ```
#[derive(Default)]
pub(crate) struct Trail {
    dirs: Vec<(u32, Box<[u8]>)>,
    open: Vec<u32>,
}

impl Trail {
    /// Number of the directory where the walk starts.
    pub(crate) const START: u32 = 0;

    /// Records that the walk enters a directory, `depth` levels below the start.
    pub(crate) fn enter(&mut self, depth: usize, name: &[u8]) {
        self.open.truncate(depth.saturating_sub(1));
        self.dirs.push((self.dir(depth), name.into()));
        // A volume has fewer than 2^32 inodes, and a directory is entered once.
        self.open.push(self.dirs.len() as u32);
    }

    /// Number of the directory that contains an entry `depth` levels below the start.
    pub(crate) fn dir(&self, depth: usize) -> u32 {
        depth.checked_sub(2).and_then(|at| self.open.get(at)).copied().unwrap_or(Trail::START)
    }

    /// The names from the start down to a directory.
    pub(crate) fn names(&self, mut dir: u32) -> Vec<&[u8]> {
        let mut names = Vec::new();
        while let Some((above, name)) = (dir as usize).checked_sub(1).and_then(|n| self.dirs.get(n))
        {
            names.push(&name[..]);
            dir = *above;
        }
        names.reverse();
        names
    }
}

/// Receives the results of a walk.
pub(crate) trait Visitor {
    /// An entry. A directory comes before its contents; on `false` the walk does not enter it.
    fn visit(&mut self, visit: Visit<'_>) -> Result<bool, Failure>;

    /// The walk has visited everything below the directory of depth `depth` that was visited last.
    fn done(&mut self, depth: usize) -> Result<(), Failure> {
        let _ = depth;
        Ok(())
    }

    /// Longest path in bytes. The walk does not enter a directory with a longer one, and reports
    /// that as a problem.
    fn path_max(&self) -> usize {
        usize::MAX
    }
}

struct Walk<'a, V> {
    fs: &'a Filesystem,
    max_depth: usize,
    entered: HashSet<u32>,
    visitor: &'a mut V,
}

struct Level {
    /// Length of the directory's path in bytes.
    path_len: usize,
    /// Sorted.
    names: Vec<DirEntry>,
    /// How many of them the walk has visited.
    visited: usize,
}

/// Walks from `path` on, `max_depth` levels down. A symlink at the path's end is not followed.
///
/// Errors: `path` does not exist; errors of the visitor. Damage is passed to the visitor.
pub(crate) fn walk(
    image: &Image,
    fs: &Filesystem,
    path: &[u8],
    max_depth: usize,
    visitor: &mut impl Visitor,
) -> Result<(), Failure> {
    let metadata =
        fs.symlink_metadata(as_path(path)).map_err(|error| image.failure(path, &error))?;
    Walk { fs, max_depth, entered: HashSet::new(), visitor }.run(path, metadata)
}

impl<V: Visitor> Walk<'_, V> {
    fn run(&mut self, start: &[u8], metadata: Metadata) -> Result<(), Failure> {
        let mut path = start.to_vec();
        let visit = Visit {
            path: &path,
            name: &path,
            ino: metadata.ino(),
            kind: Some(metadata.file_type()),
            metadata: Some(metadata),
            depth: 0,
            last: true,
            is_repeated: false,
            siblings: &[],
            problems: Vec::new(),
        };
        let mut stack: Vec<Level> = self.enter(visit)?.into_iter().collect();
        loop {
            let depth = stack.len();
            let Some(level) = stack.last_mut() else { return Ok(()) };
            let nr = level.visited;
            level.visited += 1;
            let level = &*level;
            let Some(entry) = level.names.get(nr) else {
                stack.pop();
                self.visitor.done(stack.len())?;
                continue;
            };
            let name = entry.name_bytes();
            let before = nr.checked_sub(1).and_then(|before| level.names.get(before));
            let is_repeated = before.is_some_and(|before| before.name_bytes() == name);
            path.truncate(level.path_len);
            if !path.ends_with(b"/") {
                path.push(b'/');
            }
            path.extend_from_slice(name);
            let mut visit = Visit {
                path: &path,
                name,
                ino: entry.ino(),
                kind: None,
                metadata: None,
                last: nr + 1 == level.names.len(),
                is_repeated,
                siblings: &level.names,
                depth,
                problems: Vec::new(),
            };
            match entry.metadata() {
                Ok(metadata) => {
                    visit.kind = Some(metadata.file_type());
                    visit.metadata = Some(metadata);
                }
                Err(error) => {
                    visit.kind = entry.file_type().ok();
                    visit.problems.push(explained(&error));
                }
            }
            let below = self.enter(visit)?;
            stack.extend(below);
        }
    }

    /// Visits an entry. Returns its names if it is a directory to enter.
    fn enter(&mut self, mut visit: Visit<'_>) -> Result<Option<Level>, Failure> {
        let is_dir = visit.metadata.as_ref().is_some_and(|metadata| metadata.is_dir());
        if !is_dir || visit.depth >= self.max_depth {
            self.visitor.visit(visit)?;
            return Ok(None);
        }
        let path_len = visit.path.len();
        let names = if path_len > self.visitor.path_max() {
            visit.problems.push(format!(
                "its path has {path_len} bytes, more than the {} that can be printed: its content \
                 is skipped; start at a directory nearer to it",
                self.visitor.path_max()
            ));
            Vec::new()
        } else {
            match self.names(&visit) {
                Ok((names, problems)) => {
                    visit.problems.extend(problems);
                    names
                }
                Err(error) => {
                    visit.problems.push(explained(&error));
                    Vec::new()
                }
            }
        };
        let level = Level { path_len, names, visited: 0 };
        Ok(self.visitor.visit(visit)?.then_some(level))
    }

    fn names(&mut self, visit: &Visit<'_>) -> Result<(Vec<DirEntry>, Vec<String>), Error> {
        if !self.entered.insert(visit.ino.get()) {
            return Err(Site::of_ino(visit.ino).corrupt(What::DirectoryLoop));
        }
        let (mut names, mut problems) = (Vec::new(), Vec::new());
        for entry in self.fs.node_of_ino(visit.ino).and_then(|node| node.read_dir())? {
            match entry {
                Ok(entry) => names.push(entry),
                Err(error) => problems.push(explained(&error)),
            }
        }
        names.sort_by(|a, b| a.name_bytes().cmp(b.name_bytes()));
        Ok((names, problems))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trail_knows_the_way_to_every_directory() {
        let mut trail = Trail::default();
        trail.enter(1, b"usr");
        trail.enter(2, b"lib");
        let lib = trail.dir(3);
        trail.enter(2, b"share");
        trail.enter(3, b"doc");
        let doc = trail.dir(4);
        trail.enter(1, b"etc");
        assert_eq!(trail.dir(1), Trail::START);
        assert_eq!(trail.names(trail.dir(2)), [b"etc"]);
        assert_eq!(trail.names(lib), [&b"usr"[..], b"lib"]);
        assert_eq!(trail.names(doc), [&b"usr"[..], b"share", b"doc"]);
        assert!(trail.names(Trail::START).is_empty());
    }
}
