//! Everything at and below a path, each with what could and could not be read of it.
//!
//! ```text
//!   visit /        ─► names, sorted ─► visit /a, visit /a/x, visit /b, …       done(/a) after /a/x
//!     └ problems of the directory itself go with its visit; the walk goes on behind them
//! ```
//!
//! A damaged volume cannot lead round in circles: a directory is entered once.

use crate::failure::{Failure, explained};
use crate::image::{Image, as_path, join};
use extant::{DirEntry, Error, FileKind, Filesystem, Ino, Metadata, Site, What};
use std::collections::HashSet;

/// The longest path that is followed down, in bytes.
const PATH_MAX: usize = 64 << 10;

/// One file, directory or other entry.
pub(crate) struct Visit {
    /// From the volume's root.
    pub(crate) path: Vec<u8>,
    pub(crate) ino: Ino,
    /// As the inode says, else the entry; `None` when neither can tell.
    pub(crate) kind: Option<FileKind>,
    pub(crate) metadata: Option<Metadata>,
    /// Levels below the start.
    pub(crate) depth: usize,
    /// The last name of its directory.
    pub(crate) last: bool,
    /// What could not be read.
    pub(crate) problems: Vec<String>,
}

impl Visit {
    /// The last part of the path.
    pub(crate) fn name(&self) -> &[u8] {
        let start = self.path.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
        if self.path.len() > 1 { &self.path[start..] } else { &self.path }
    }

    /// `Some` when something could not be read.
    pub(crate) fn error(&self) -> Option<String> {
        (!self.problems.is_empty()).then(|| self.problems.join("; "))
    }
}

/// Told what a walk finds.
pub(crate) trait Visitor {
    /// An entry; directories come before what they hold. `false` keeps out of a directory.
    fn visit(&mut self, visit: Visit) -> Result<bool, Failure>;

    /// Everything below the directory of depth `depth` that was visited last was visited.
    fn done(&mut self, depth: usize) -> Result<(), Failure> {
        let _ = depth;
        Ok(())
    }
}

struct Walk<'a, V> {
    fs: &'a Filesystem,
    max_depth: usize,
    entered: HashSet<u32>,
    visitor: &'a mut V,
}

struct Level {
    path: Vec<u8>,
    names: std::vec::IntoIter<DirEntry>,
}

/// Walks from `path` on, `max_depth` levels down. A symlink at the path's end stands for itself.
///
/// Errors: the path does not lead anywhere; the visitor's. Damage goes to the visitor.
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
    fn run(&mut self, path: &[u8], metadata: Metadata) -> Result<(), Failure> {
        let start = Visit {
            path: path.to_vec(),
            ino: metadata.ino(),
            kind: Some(metadata.kind()),
            metadata: Some(metadata),
            depth: 0,
            last: true,
            problems: Vec::new(),
        };
        let mut stack: Vec<Level> = self.enter(start)?.into_iter().collect();
        while let Some(level) = stack.last_mut() {
            let Some(entry) = level.names.next() else {
                stack.pop();
                self.visitor.done(stack.len())?;
                continue;
            };
            let mut visit = Visit {
                path: join(&level.path, entry.name_bytes()),
                ino: entry.ino(),
                kind: None,
                metadata: None,
                last: level.names.len() == 0,
                depth: stack.len(),
                problems: Vec::new(),
            };
            match entry.metadata() {
                Ok(metadata) => {
                    visit.kind = Some(metadata.kind());
                    visit.metadata = Some(metadata);
                }
                Err(error) => {
                    visit.kind = entry.kind().ok();
                    visit.problems.push(explained(&error));
                }
            }
            stack.extend(self.enter(visit)?);
        }
        Ok(())
    }

    /// Visits an entry, and gives the names in it if it is a directory to go into.
    fn enter(&mut self, mut visit: Visit) -> Result<Option<Level>, Failure> {
        let is_dir = visit.metadata.as_ref().is_some_and(|metadata| metadata.is_dir());
        if !is_dir || visit.depth >= self.max_depth {
            self.visitor.visit(visit)?;
            return Ok(None);
        }
        let names = match self.names(&visit) {
            Ok((names, problems)) => {
                visit.problems.extend(problems);
                names
            }
            Err(error) => {
                visit.problems.push(explained(&error));
                Vec::new()
            }
        };
        let level = Level { path: visit.path.clone(), names: names.into_iter() };
        Ok(self.visitor.visit(visit)?.then_some(level))
    }

    fn names(&mut self, visit: &Visit) -> Result<(Vec<DirEntry>, Vec<String>), Error> {
        if !self.entered.insert(visit.ino.get()) {
            return Err(Site::of_ino(visit.ino).corrupt(What::DirectoryLoop));
        }
        if visit.path.len() > PATH_MAX {
            return Err(Error::NameTooLong);
        }
        let (mut names, mut problems) = (Vec::new(), Vec::new());
        for entry in self.fs.read_dir_ino(visit.ino)? {
            match entry {
                Ok(entry) => names.push(entry),
                Err(error) => problems.push(explained(&error)),
            }
        }
        names.sort_by(|a, b| a.name_bytes().cmp(b.name_bytes()));
        Ok((names, problems))
    }
}
