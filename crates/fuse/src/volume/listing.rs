//! Directories: opened and listed.
//!
//! ```text
//!   offset   1: "."   2: ".."   3…: the names, counted as they are given
//! ```
//!
//! An opening goes on where the last call stopped, or at any name of the last answer: the kernel often takes
//! only some of those. For a caller that goes back further the directory is listed anew, without the names that were
//! given before that place (`given.rs`): so none that stays is lost or comes twice. In another opening a place is a count.

use super::given::{FIRST, Given};
use super::nodes::id_of;
use super::{KEPT, Volume, errno};
use crate::operations::{Answer, Attributes, Entry, HandleId, Listing, NodeId};
use extant::{DirEntry, FileKind, InodeFlags, Node, ReadDir};
use extant_base::lock::{Mutex, Rank};
use std::collections::{HashSet, VecDeque};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// The type of a directory, as in `st_mode >> 12`.
const DIRECTORY: u32 = 4;

/// One opening of a directory.
pub(super) struct OpenDir {
    dir: Node,
    /// As `open` has them.
    flags: u32,
    at: Mutex<At>,
}

/// Where the listing is.
struct At {
    names: Option<ReadDir>,
    /// How many of "." and ".." were given.
    dots: u64,
    /// The place before the next name.
    given: u64,
    /// An error that comes by itself.
    next: Option<extant::Result<DirEntry>>,
    /// The names of the last answer, and one that found no room in it.
    last: VecDeque<DirEntry>,
    /// How many of them, at the end, are to be given (again).
    again: usize,
    /// What came out of `names`.
    told: Given,
    /// What of `names` was given before the place that it went back to, by its hashes.
    passed_over: HashSet<u64>,
}

impl OpenDir {
    pub(super) fn new(dir: Node, flags: u32) -> OpenDir {
        let at = At {
            names: None,
            dots: 0,
            given: FIRST,
            next: None,
            last: VecDeque::new(),
            again: 0,
            told: Given::new(),
            passed_over: HashSet::new(),
        };
        OpenDir { dir, flags, at: Mutex::new(Rank::Door, at) }
    }
}

impl At {
    /// Goes to the name that `offset` stands for.
    fn seek(&mut self, dir: &Node, offset: u64) -> Answer<()> {
        self.dots = FIRST.min(offset);
        let front = self.given + self.again as u64;
        let is_near = front >= offset && front - offset <= self.last.len() as u64;
        if self.names.is_some() && offset >= FIRST && is_near {
            (self.given, self.again) = (offset, (front - offset) as usize);
            return Ok(());
        }
        (self.given, self.again) = (front, 0);
        self.last.clear();
        let is_back = offset < self.given;
        if self.names.is_none() || is_back {
            let is_first = self.names.replace(dir.read_dir().map_err(errno)?).is_none();
            self.next = None;
            if is_back && !is_first {
                self.passed_over = self.told.go_back(offset.max(FIRST));
                self.given = self.told.end();
                return Ok(());
            }
        }
        // Names, damaged places not counted.
        while self.given < offset {
            match self.take() {
                Some(Ok(entry)) => self.told.add(entry.name_bytes()),
                Some(Err(_)) => continue,
                None => break,
            }
            self.given += 1;
        }
        Ok(())
    }

    fn take(&mut self) -> Option<extant::Result<DirEntry>> {
        if let Some(next) = self.next.take() {
            return Some(next);
        }
        loop {
            let next = self.names.as_mut()?.next()?;
            let is_new = match &next {
                Ok(entry) => {
                    let none = self.passed_over.is_empty();
                    none || !self.passed_over.remove(&self.told.hash(entry.name_bytes()))
                }
                Err(error) => self.told.add_error(error),
            };
            if is_new {
                return Some(next);
            }
        }
    }

    /// A new answer begins: what was given before it is not asked for again.
    fn begin(&mut self) {
        self.last.drain(..self.last.len() - self.again);
    }

    /// The next name, in front of `last` unless it is there already; [`At::given`] goes on when it is given.
    fn look(&mut self) -> Option<extant::Result<DirEntry>> {
        if self.again == 0 {
            match self.take()? {
                Ok(entry) => {
                    self.told.add(entry.name_bytes());
                    self.last.push_back(entry);
                }
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
            None => std::sync::Arc::new(OpenDir::new(self.node(node)?, 0)),
        };
        let mut at = opened.at.lock();
        at.seek(&opened.dir, offset)?;
        self.list_from(&opened.dir, &mut at, into)?;
        self.note_access(node, &opened.dir, opened.flags);
        Ok(())
    }

    fn list_from(&self, dir: &Node, at: &mut At, into: &mut dyn Listing) -> Answer<()> {
        let kept = match dir.metadata().flags().contains(InodeFlags::CASEFOLD) {
            true => Duration::ZERO,
            false => KEPT,
        };
        at.begin();
        while at.dots < FIRST {
            let name = OsStr::new(if at.dots == 0 { "." } else { ".." });
            if !into.fits(name.len()) {
                return Ok(());
            }
            let ino = match at.dots {
                0 => dir.ino(),
                _ => dir.lookup("..").map_or(dir.ino(), |parent| parent.ino()),
            };
            at.dots += 1;
            into.add_name(name, u64::from(ino.get()), DIRECTORY, at.dots);
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
