//! Directories: opened and listed.
//!
//! ```text
//!   offset   1: "."   2: ".."   3…: the names, counted as they come
//! ```
//!
//! An opening goes on where the last call stopped, or at any name of the last answer: the kernel often takes
//! only some of those. A caller that goes back further has the directory listed anew up to there, and what
//! came and went meanwhile shifts the places.

use super::nodes::id_of;
use super::{KEPT, Volume, errno};
use crate::operations::{Answer, Attributes, Entry, HandleId, Listing, NodeId};
use extant::{DirEntry, FileKind, InodeFlags, Node, ReadDir};
use extant_base::lock::{Mutex, Rank};
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// Offsets below this one are "." and "..".
const FIRST: u64 = 2;
/// The type of a directory, as in `st_mode >> 12`.
const DIRECTORY: u32 = 4;

/// One opening of a directory.
pub(super) struct OpenDir {
    dir: Node,
    at: Mutex<At>,
}

/// Where the listing is.
struct At {
    names: Option<ReadDir>,
    /// Names given before the next one, "." and ".." included.
    given: u64,
    /// An error that comes by itself.
    next: Option<extant::Result<DirEntry>>,
    /// The names of the last answer, and one that found no room in it.
    last: VecDeque<DirEntry>,
    /// How many of them, at the end, are to be given (again).
    again: usize,
}

impl OpenDir {
    pub(super) fn new(dir: Node) -> OpenDir {
        let at = At { names: None, given: 0, next: None, last: VecDeque::new(), again: 0 };
        OpenDir { dir, at: Mutex::new(Rank::Door, at) }
    }
}

impl At {
    /// Goes to the name that `offset` stands for.
    fn seek(&mut self, dir: &Node, offset: u64) -> Answer<()> {
        let front = self.given + self.again as u64;
        if offset >= FIRST && front >= offset && front - offset <= self.last.len() as u64 {
            (self.given, self.again) = (offset, (front - offset) as usize);
            return Ok(());
        }
        (self.given, self.again) = (front, 0);
        self.last.clear();
        if offset < FIRST || self.names.is_none() || offset < self.given {
            self.names = Some(dir.read_dir().map_err(errno)?);
            (self.given, self.next) = (FIRST.min(offset), None);
        }
        while self.given < offset {
            // "." and ".." first; then names, damaged places not counted.
            if self.given >= FIRST {
                match self.take() {
                    Some(Ok(_)) => {}
                    Some(Err(_)) => continue,
                    None => break,
                }
            }
            self.given += 1;
        }
        Ok(())
    }

    fn take(&mut self) -> Option<extant::Result<DirEntry>> {
        self.next.take().or_else(|| self.names.as_mut()?.next())
    }

    /// A new answer begins: what was given before it is not asked for again.
    fn begin(&mut self) {
        self.last.drain(..self.last.len() - self.again);
    }

    /// The next name, in front of `last` unless it is there already; [`At::given`] goes on when it is given.
    fn look(&mut self) -> Option<extant::Result<DirEntry>> {
        if self.again == 0 {
            match self.take()? {
                Ok(entry) => self.last.push_back(entry),
                Err(error) => return Some(Err(error)),
            }
            self.again = 1;
        }
        self.last.get(self.last.len() - self.again).cloned().map(Ok)
    }

    /// The name that [`At::look`] showed is given.
    fn give(&mut self) {
        self.again -= 1;
        self.given += 1;
    }
}

fn kind_bits(entry: &DirEntry) -> u32 {
    entry.kind().map_or(0, |kind: FileKind| u32::from(kind.mode_bits() >> 12))
}

impl Volume {
    pub(super) fn list(
        &self,
        node: NodeId,
        handle: Option<HandleId>,
        offset: u64,
        into: &mut dyn Listing,
    ) -> Answer<()> {
        let opened = match handle {
            Some(handle) => self.dirs.get(handle)?,
            None => std::sync::Arc::new(OpenDir::new(self.node(node)?)),
        };
        let mut at = opened.at.lock();
        at.seek(&opened.dir, offset)?;
        self.list_from(&opened.dir, &mut at, into)
    }

    fn list_from(&self, dir: &Node, at: &mut At, into: &mut dyn Listing) -> Answer<()> {
        let kept = match dir.metadata().flags().contains(InodeFlags::CASEFOLD) {
            true => Duration::ZERO,
            false => KEPT,
        };
        at.begin();
        while at.given < FIRST {
            let name = OsStr::new(if at.given == 0 { "." } else { ".." });
            if !into.fits(name.len()) {
                return Ok(());
            }
            let ino = match at.given {
                0 => dir.ino(),
                _ => dir.lookup("..").map_or(dir.ino(), |parent| parent.ino()),
            };
            at.given += 1;
            into.add_name(name, u64::from(ino.get()), DIRECTORY, at.given);
        }
        let mut some = false;
        while let Some(next) = at.look() {
            let entry = match next {
                Ok(entry) => entry,
                // Told by itself; what lies behind it comes after.
                Err(error) if some => {
                    at.next = Some(Err(error));
                    return Ok(());
                }
                Err(error) => return Err(errno(error)),
            };
            if !into.fits(entry.name_bytes().len()) {
                return Ok(());
            }
            at.give();
            some = true;
            let name = OsStr::from_bytes(entry.name_bytes());
            let ino = u64::from(entry.ino().get());
            match into.wants_entries() {
                true => into.add_entry(name, &self.listed(&entry, kept), at.given),
                false => into.add_name(name, ino, kind_bits(&entry), at.given),
            }
        }
        Ok(())
    }

    /// The file of a listed name; the name alone where it is gone again or cannot be read.
    fn listed(&self, entry: &DirEntry, kept: Duration) -> Entry {
        match self.fs.node_of_ino(entry.ino()) {
            Ok(node) => self.entry(node, kept),
            Err(_) => Entry {
                node: NodeId(0),
                generation: 0,
                attributes: Attributes {
                    ino: id_of(entry.ino()).0,
                    mode: kind_bits(entry) << 12,
                    ..Attributes::default()
                },
                entry_valid: Duration::ZERO,
                attributes_valid: Duration::ZERO,
            },
        }
    }
}
