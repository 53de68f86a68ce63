//! What files contained after each operation, and which changes operations made at once.

use crate::op::{Falloc, Op};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// The bytes of one file from a view on.
#[derive(Clone, Debug)]
pub(super) struct Version {
    pub(super) view: usize,
    pub(super) bytes: Arc<Vec<u8>>,
}

/// A change that enters the journal when it is made. Once it is committed, older bytes of the range
/// are gone.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) view: usize,
    pub(super) range: Range<usize>,
    /// The file became shorter.
    pub(super) is_shorter: bool,
    /// The bytes in the range were moved from another place.
    pub(super) moves: bool,
}

/// One file, from its creation on.
#[derive(Debug)]
pub struct Life {
    pub(super) ino: u32,
    pub(super) versions: Vec<Version>,
    pub(super) changes: Vec<Change>,
    /// Views whose bytes must be there once the operation before them is committed.
    pub(super) kept: Vec<usize>,
    /// Views before which its name, its map or its size changed at once.
    pub(super) calls: Vec<usize>,
    cut_to_nothing: bool,
}

impl Life {
    /// Its present bytes.
    pub fn bytes(&self) -> &Arc<Vec<u8>> {
        &self.versions.last().expect("it begins empty").bytes
    }

    /// What it contained at some time from view `first` to `last`.
    pub(super) fn between(&self, first: usize, last: usize) -> &[Version] {
        let begin = self.versions.partition_point(|version| version.view <= first).max(1) - 1;
        let end = self.versions.partition_point(|version| version.view <= last);
        &self.versions[begin..end.max(begin)]
    }

    fn set(&mut self, view: usize, bytes: Vec<u8>) {
        self.versions.push(Version { view, bytes: Arc::new(bytes) });
    }

    /// The newest version was a change that entered the journal at once.
    fn changed(&mut self, view: usize, range: Range<usize>, is_shorter: bool, moves: bool) {
        self.changes.push(Change { view, range, is_shorter, moves });
        self.called(view);
    }

    /// A call that changed nothing adds nothing to the journal.
    fn called(&mut self, view: usize) {
        if let [.., before, after] = &self.versions[..]
            && before.bytes != after.bytes
        {
            self.calls.push(view);
        }
    }
}

/// All files of a run.
#[derive(Debug, Default)]
pub struct Contents {
    pub(super) lives: Vec<Life>,
    /// For each view: the names, and the file that each refers to.
    pub(super) names: Vec<BTreeMap<String, usize>>,
}

impl Contents {
    /// Before the first operation.
    pub fn new() -> Contents {
        Contents { lives: Vec::new(), names: vec![BTreeMap::new()] }
    }

    /// The present names and the bytes of their files.
    pub fn now(&self) -> impl Iterator<Item = (&str, &Life)> {
        let names = self.names.last().expect("there is a first view");
        names.iter().map(|(path, life)| (path.as_str(), &self.lives[*life]))
    }

    /// The file that a name refers to now.
    pub fn of(&self, path: &str) -> Option<&Life> {
        self.now().find(|(name, _)| *name == path).map(|(_, life)| life)
    }

    /// A step ran that changes nothing.
    pub fn pass(&mut self) {
        self.names.extend(self.names.last().cloned());
    }

    /// The `n`th step ran: `op`, which wrote `stamp` if it writes, and created the inode `made` if
    /// it creates one.
    pub fn done(&mut self, op: &Op, made: Option<u32>, stamp: &[u8]) {
        let view = self.names.len();
        self.pass();
        let names = self.names.last_mut().expect("there is one now");
        let lives = &mut self.lives;
        match op {
            Op::Create { path, .. } => {
                if let Some(ino) = made {
                    names.insert(path.clone(), lives.len());
                    let empty = Version { view, bytes: Arc::default() };
                    lives.push(Life {
                        ino,
                        versions: vec![empty],
                        changes: Vec::new(),
                        kept: Vec::new(),
                        calls: vec![view],
                        cut_to_nothing: false,
                    });
                }
            }
            Op::Unlink { path } => {
                names.remove(path);
            }
            Op::Rename { from, to, .. } if from != to => {
                if let Some(life) = names.remove(from) {
                    lives[life].calls.push(view);
                    if names.insert(to.clone(), life).is_some() {
                        lives[life].kept.push(view);
                    }
                }
            }
            Op::Write { path, .. }
            | Op::Append { path, .. }
            | Op::DirectWrite { path, .. }
            | Op::Truncate { path, .. }
            | Op::Fallocate { path, .. }
            | Op::Close { path } => {
                if let Some(life) = names.get(path) {
                    change(&mut lives[*life], view, op, stamp);
                }
            }
            _ => {}
        }
    }
}

/// The effect of an operation on one file.
fn change(life: &mut Life, view: usize, op: &Op, stamp: &[u8]) {
    let mut bytes = life.bytes().to_vec();
    let size = bytes.len();
    match op {
        Op::Append { .. } => {
            bytes.extend(stamp);
            life.set(view, bytes);
        }
        Op::Write { at, .. } | Op::DirectWrite { at, .. } => {
            let (at, end) = (*at as usize, *at as usize + stamp.len());
            bytes.resize(size.max(end), 0);
            bytes[at..end].copy_from_slice(stamp);
            life.set(view, bytes);
        }
        Op::Truncate { len, .. } => {
            let len = *len as usize;
            life.cut_to_nothing |= len == 0 && size > 0;
            bytes.resize(len, 0);
            life.set(view, bytes);
            life.changed(view, len.min(size)..usize::MAX, len < size, false);
        }
        Op::Fallocate { mode, at, len, .. } => {
            let (at, end) = (*at as usize, (*at + *len) as usize);
            let (inside, inside_end) = (at.min(size), end.min(size));
            match mode {
                Falloc::Allocate => bytes.resize(size.max(end), 0),
                Falloc::KeepSize => return,
                Falloc::ZeroRange => {
                    bytes[inside..inside_end].fill(0);
                    bytes.resize(size.max(end), 0);
                }
                Falloc::ZeroRangeKeepSize | Falloc::PunchHole => {
                    bytes[inside..inside_end].fill(0);
                }
                Falloc::Collapse => drop(bytes.drain(at..end)),
                Falloc::Insert => drop(bytes.splice(at..at, std::iter::repeat_n(0, end - at))),
            }
            life.set(view, bytes);
            match mode {
                Falloc::Allocate => life.called(view),
                Falloc::Collapse => life.changed(view, at..usize::MAX, true, true),
                Falloc::Insert => life.changed(view, at..usize::MAX, false, true),
                _ => life.changed(view, at..end, false, false),
            }
        }
        Op::Close { .. } if life.cut_to_nothing => {
            life.cut_to_nothing = false;
            life.kept.push(view);
        }
        _ => {}
    }
}
