//! The paths of deleted files, from their names and the directories of these.
//!
//! ```text
//!   name ─► directory ─┬─ in use: its name in its parent ─┐
//!                      └─ deleted: its best name ─────────┴─► directory ─► … ─► root
//! ```

use super::Candidate;
use super::evidence::Evidence;
use super::inodes::Directory;
use super::names::{Name, Names};
use crate::state::inode::Body;
use crate::tree::dir::read::Position;
use crate::volume::Volume;
use extant_base::Ino;
use hashbrown::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Most directories on a path. A longer path begins at the directory that many levels up.
const LEVELS_MAX: usize = 4096;

/// Finds the paths of candidates.
pub(super) struct Paths<'a> {
    evidence: &'a Evidence<'a>,
    candidates: &'a [Candidate],
    names: &'a Names,
    /// Directories in use: their parents and names; `None` for one without a path to the root.
    live: HashMap<Ino, Option<(Ino, Vec<u8>)>>,
}

impl<'a> Paths<'a> {
    pub(super) fn new(
        evidence: &'a Evidence<'a>,
        candidates: &'a [Candidate],
        names: &'a Names,
    ) -> Paths<'a> {
        Paths { evidence, candidates, names, live: HashMap::new() }
    }

    /// The paths of candidate `n`, the best first. If a directory on one has no name, the path
    /// begins with `#` and the directory's number.
    pub(super) fn of(&mut self, n: usize) -> Vec<PathBuf> {
        let names = self.names;
        names[n].iter().map(|name| self.path(name)).collect()
    }

    fn path(&mut self, name: &Name) -> PathBuf {
        let mut parts = vec![name.name.clone()];
        let mut directory = name.directory;
        while parts.len() < LEVELS_MAX && self.evidence.spend() {
            let (ino, above) = match directory {
                Directory::Live(Ino::ROOT) => {
                    parts.push(Vec::new());
                    break;
                }
                Directory::Live(ino) => {
                    let above = self.name_in_use(ino);
                    (ino, above.map(|(parent, name)| (Directory::Live(parent), name)))
                }
                Directory::Deleted(n) => {
                    let name = self.names[n].first();
                    let above = name.map(|name| (name.directory, name.name.clone()));
                    (self.candidates[n].ino(), above)
                }
            };
            match above {
                Some((parent, name)) => {
                    parts.push(name);
                    directory = parent;
                }
                None => {
                    parts.push(format!("#{}", ino.get()).into_bytes());
                    break;
                }
            }
        }
        parts.reverse();
        PathBuf::from(OsString::from_vec(parts.join(&b'/')))
    }

    /// Parent and name of a directory in use.
    fn name_in_use(&mut self, ino: Ino) -> Option<(Ino, Vec<u8>)> {
        let volume = self.evidence.volume;
        self.live.entry(ino).or_insert_with(|| find_name(volume, ino)).clone()
    }
}

/// Finds the name of directory `ino` in its parent.
fn find_name(volume: &Volume, ino: Ino) -> Option<(Ino, Vec<u8>)> {
    let body: Body = volume.inodes().read(ino).ok()?;
    let parent = volume.file(&body).dir().ok()?.lookup(b"..").ok()?.ino;
    let above = volume.inodes().read(parent).ok()?;
    let dir = volume.file(&above).dir().ok()?;
    let mut position = Position::default();
    let mut name = None;
    while name.is_none() {
        let more = dir.next_batch(&mut position, |entry| match entry {
            Ok(entry) if entry.ino == ino => name = Some(entry.name),
            _ => {}
        });
        if !more.ok()? {
            break;
        }
    }
    name.map(|name| (parent, name))
}
