//! Inodes without a name: each gets one, the best that anything still shows.
//!
//! ```text
//!   names that a damaged block still had ─► the log's, not removed ─► slack of directories
//!     ─► the log's, removed later ─► lost+found/#ino
//! ```
//!
//! A directory is connected after the one that its name is in, so that what hangs below it needs no
//! place of its own. Files whose link count says that they had further names get those back that
//! only a lost block had.

use super::{ROOT, lost_and_found};
use crate::names::{self, Names, OldName};
use crate::report::Class;
use crate::scan::{Node, Table, each_entry};
use crate::usage::Usage;
use crate::volume::Volume;
use extant_base::{Error, Result};
use extant_ondisk::dirent::EntryKind;
use hashbrown::{HashMap, HashSet};

/// How many old names of one inode are tried.
const TRIES: usize = 8;
/// How many directories deep a path is at most.
const DEPTH_MAX: usize = 100_000;

/// A place where an inode had a name.
struct Place {
    dir: u32,
    name: Vec<u8>,
    hash: Option<(u32, u32)>,
}

impl Place {
    fn of(old: &OldName) -> Place {
        Place { dir: old.dir, name: old.name.clone(), hash: old.hash }
    }
}

/// The volume, and what is known of old names.
struct Connect<'c> {
    volume: &'c mut Volume,
    table: &'c mut Table,
    usage: &'c mut Usage,
    names: &'c mut Names,
    logged: HashMap<u32, Vec<OldName>>,
    /// The names in the directory that was looked into last.
    there: Option<(u32, HashSet<Vec<u8>>)>,
    lost_and_found: Option<u32>,
}

/// Gives inodes without a name one, or removes them if there is nothing to keep.
pub(super) fn run(
    volume: &mut Volume,
    table: &mut Table,
    usage: &mut Usage,
    names: &mut Names,
) -> Result<()> {
    let may_have_name = |(ino, node): &(u32, Node)| {
        *ino != ROOT && !node.hidden && !node.is_value() && names.count(*ino) == 0
    };
    let nameless: Vec<(u32, Node)> = table.nodes.iter().filter(may_have_name).collect();
    let (kept, empty): (Vec<_>, Vec<_>) =
        nameless.into_iter().partition(|(_, node)| node.has_content);
    let lacking = lacking(table, names);
    let mut wanted: Vec<u32> = kept.iter().chain(&empty).map(|(ino, _)| *ino).collect();
    wanted.extend(&lacking);
    let logged = names::logged(volume, table, names, &wanted)?;
    let (there, lost_and_found) = (None, None);
    let mut connect = Connect { volume, table, usage, names, logged, there, lost_and_found };
    for (ino, node) in empty {
        connect.empty(ino, node)?;
    }
    let (dirs, files): (Vec<_>, Vec<_>) = kept.into_iter().partition(|(_, node)| node.is_dir());
    connect.directories(&dirs)?;
    for (ino, node) in files {
        connect.one(ino, node)?;
    }
    for ino in lacking {
        connect.further(ino)?;
    }
    Ok(())
}

/// Files that have fewer names than links, if names were lost.
fn lacking(table: &Table, names: &Names) -> Vec<u32> {
    if names.lost_blocks.is_empty() {
        return Vec::new();
    }
    let is_lacking = |(ino, node): &(u32, Node)| {
        !node.is_dir()
            && !node.hidden
            && !node.is_value()
            && node.links > 1
            && names.count(*ino) < u32::from(node.links)
    };
    table.nodes.iter().filter(is_lacking).map(|(ino, _)| ino).collect()
}

impl Connect<'_> {
    /// An inode without content: it is kept only if it had a name that a lost block held.
    fn empty(&mut self, ino: u32, node: Node) -> Result<()> {
        let lost = self.logged.get(&ino).and_then(|names| names.first());
        if let Some(place) = lost.filter(|name| name.state.is_lost).map(Place::of)
            && self.put(&place, ino, node)?
        {
            self.volume.report.add_file(Class::NameRestored, ino);
            return Ok(());
        }
        self.volume.report.add_file(Class::InodeField, ino);
        crate::claims::release(self.volume, self.table, self.usage, ino)
    }

    /// Connects directories, each after the one above it.
    fn directories(&mut self, dirs: &[(u32, Node)]) -> Result<()> {
        let mut left: HashMap<u32, Node> = dirs.iter().copied().collect();
        for (first, _) in dirs {
            let mut way = vec![*first];
            let mut on_way: HashSet<u32> = HashSet::from([*first]);
            while let Some(ino) = way.last().copied() {
                let Some(node) = left.get(&ino).copied() else {
                    way.pop();
                    continue;
                };
                let above = self.places(ino, node).first().map(|place| self.top(place.dir));
                match above.filter(|top| left.contains_key(top) && on_way.insert(*top)) {
                    Some(top) => way.push(top),
                    None => {
                        left.remove(&ino);
                        way.pop();
                        self.one(ino, node)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The topmost directory above `dir`, or `dir` itself.
    fn top(&self, dir: u32) -> u32 {
        let mut at = dir;
        for _ in 0..DEPTH_MAX {
            match self.names.parents.get(&at) {
                Some(parent) if at != ROOT => at = *parent,
                _ => break,
            }
        }
        at
    }

    /// Whether `dir` lies below `top`, or is not connected itself.
    fn is_below(&self, dir: u32, top: u32) -> bool {
        let mut at = dir;
        for _ in 0..DEPTH_MAX {
            if at == ROOT {
                return false;
            }
            match self.names.parents.get(&at) {
                Some(parent) if at != top => at = *parent,
                _ => return true,
            }
        }
        true
    }

    /// Where an inode had its name, the best place first.
    fn places(&self, ino: u32, node: Node) -> Vec<Place> {
        let plain = |(dir, name): (u32, Vec<u8>)| Place { dir, name, hash: None };
        let logged =
            self.logged.get(&ino).map_or(&[][..], |names| &names[..names.len().min(TRIES)]);
        let (stand, removed): (Vec<_>, Vec<_>) = logged.iter().partition(|name| name.state.stands);
        let mut places: Vec<Place> =
            self.names.replaced.get(&ino).cloned().map(plain).into_iter().collect();
        places.extend(stand.into_iter().map(Place::of));
        places.extend(self.names.slack.get(&ino).cloned().map(plain));
        places.extend(removed.into_iter().map(Place::of));
        if node.is_dir()
            && let Some(parent) = self.names.dotdots.get(&ino)
        {
            // Its ".." is a second witness.
            places.sort_by_key(|place| place.dir != *parent);
        }
        places
    }

    /// Gives an inode its name at `place`. Returns whether that was possible.
    fn put(&mut self, place: &Place, ino: u32, node: Node) -> Result<bool> {
        let Place { dir, name, hash } = place;
        if *dir == ino || !self.is_free(*dir, name)? || (node.is_dir() && self.is_below(*dir, ino))
        {
            return Ok(false);
        }
        let kind = EntryKind::from_mode(node.mode);
        let (volume, table, usage) = (&mut *self.volume, &mut *self.table, &mut *self.usage);
        match names::insert_entry(volume, table, usage, *dir, name, ino, kind, *hash) {
            Ok(()) => {
                self.note(*dir, name, ino, node);
                Ok(true)
            }
            Err(Error::NoSpace) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Gives an inode a name.
    fn one(&mut self, ino: u32, node: Node) -> Result<()> {
        for place in self.places(ino, node) {
            if self.put(&place, ino, node)? {
                self.volume.report.add_file(Class::NameRestored, ino);
                return Ok(());
            }
        }
        self.volume.report.add_file(Class::Reconnected, ino);
        // Without space for lost+found, the root directory may have some left.
        let lost = self.lost_and_found();
        let placed = match lost.and_then(|lost| self.numbered(lost, ino, node)) {
            Err(Error::NoSpace) => self.numbered(ROOT, ino, node),
            other => other,
        };
        match placed {
            Err(Error::NoSpace) => {
                // The next ones find space then. What hangs below a directory is found in the next
                // round.
                let report = &mut self.volume.report;
                report.add_file(Class::InodeLost, ino);
                report.note("there is no space for the names of files that have lost theirs");
                crate::claims::release(self.volume, self.table, self.usage, ino)
            }
            other => other,
        }
    }

    /// Gives an inode a name that consists of its number.
    fn numbered(&mut self, dir: u32, ino: u32, node: Node) -> Result<()> {
        let mut name = format!("#{ino}").into_bytes();
        while !self.is_free(dir, &name)? {
            name.push(b'_');
        }
        names::insert(self.volume, self.table, self.usage, dir, &name, ino)?;
        self.note(dir, &name, ino, node);
        Ok(())
    }

    /// The directory for files without a name.
    fn lost_and_found(&mut self) -> Result<u32> {
        if let Some(known) = self.lost_and_found {
            return Ok(known);
        }
        // It can be made in the root directory.
        self.there = None;
        let found = lost_and_found(self.volume, self.table, self.usage, self.names)?;
        self.lost_and_found = Some(found);
        Ok(found)
    }

    /// Whether a directory is there and has no such name.
    fn is_free(&mut self, dir: u32, name: &[u8]) -> Result<bool> {
        if !self.table.nodes.has_dir(dir) {
            return Ok(false);
        }
        if let Some((_, names)) = self.there.as_ref().filter(|(of, _)| *of == dir) {
            return Ok(!names.contains(name));
        }
        let mut names = HashSet::new();
        each_entry(self.volume, self.table, dir, &mut |entry| {
            names.insert(entry.name.to_vec());
        })?;
        let is_free = !names.contains(name);
        self.there = Some((dir, names));
        Ok(is_free)
    }

    /// Counts a new name.
    fn note(&mut self, dir: u32, name: &[u8], ino: u32, node: Node) {
        self.names.add(dir, name, ino, node.is_dir());
        if let Some((_, names)) = self.there.as_mut().filter(|(of, _)| *of == dir) {
            names.insert(name.to_vec());
        }
    }

    /// Gives a file the further names that lost blocks held.
    fn further(&mut self, ino: u32) -> Result<()> {
        let Some(node) = self.table.nodes.get(ino) else { return Ok(()) };
        let lost = |name: &&OldName| name.state.is_lost && name.state.stands;
        let places: Vec<Place> = self
            .logged
            .get(&ino)
            .map(|names| names.iter().filter(lost).map(Place::of).collect())
            .unwrap_or_default();
        for place in places {
            if self.names.count(ino) >= u32::from(node.links) {
                break;
            }
            if self.put(&place, ino, node)? {
                self.volume.report.add_file(Class::NameRestored, ino);
            }
        }
        Ok(())
    }
}
