//! One block or inline area: what stays, what changes, what goes.
//!
//! ```text
//!   entries ─► judged ─┬─ all lengths legal: changed in place; a removed entry becomes an unused
//!                      │  one
//!                      └─ else, or "." and ".." out of place: packed again, what does not fit
//!                         goes elsewhere
//! ```

use super::Names;
use super::seen::Seen;
use crate::dir_block::{Entry, parse};
use crate::hints::Hints;
use crate::report::Class;
use crate::scan::Table;
use crate::volume::Volume;
use extant_base::{Ino, Result, Site};
use extant_ondisk::casefold::{CaseFold, fold};
use extant_ondisk::dirent::{DirBlock, DirBlockMut, DirFormat, DirPacker, EntryKind, NAME_MAX};
use extant_ondisk::inode::{Inode, InodeFlags};
use std::borrow::Cow;

/// A block of a directory, or an area of an inline one.
#[derive(Clone, Copy)]
pub(super) struct Region {
    pub(super) format: DirFormat,
    /// The seed of the directory's checksums.
    pub(super) seed: u32,
    /// The directory's number if "." and ".." begin the region.
    pub(super) dots: Option<u32>,
    /// Its place on the volume; 0 in an inode.
    pub(super) block: u64,
    /// The rest of the region is an index.
    pub(super) is_index: bool,
}

/// The mending of one directory.
pub(super) struct Mend<'m> {
    pub(super) volume: &'m mut Volume,
    table: &'m Table,
    pub(super) names: &'m mut Names,
    hints: &'m Hints,
    dir: u32,
    encrypted: bool,
    folds: Option<CaseFold>,
    seen: Seen,
    /// The last number that was added to a name that many files have.
    renamed: u32,
    overflow: Vec<Entry<'static>>,
}

/// What happens to an entry.
enum Fate {
    Stays,
    Goes,
}

impl<'m> Mend<'m> {
    pub(super) fn new(
        volume: &'m mut Volume,
        table: &'m Table,
        names: &'m mut Names,
        hints: &'m Hints,
        dir: u32,
        inode: &Inode,
    ) -> Mend<'m> {
        let encrypted = inode.flags.contains(InodeFlags::ENCRYPT);
        let sb = volume.sb();
        let folds = match inode.flags.contains(InodeFlags::CASEFOLD) && !encrypted {
            true => CaseFold::new(sb.encoding, sb.encoding_flags).ok(),
            false => None,
        };
        let (seen, overflow) = (Seen::default(), Vec::new());
        Mend { volume, table, names, hints, dir, encrypted, folds, seen, renamed: 0, overflow }
    }

    /// Entries that found no place.
    pub(super) fn take_overflow(&mut self) -> Vec<Entry<'static>> {
        std::mem::take(&mut self.overflow)
    }

    /// Remembers the names in a damaged block that a copy replaces.
    pub(super) fn note_replaced(&mut self, bytes: &[u8], format: &DirFormat) {
        let table = self.table;
        let parsed = parse(bytes, format, true, &|ino, kind| table.lives(ino, kind));
        let lives = |entry: &&Entry<'_>| !entry.is_dots() && table.lives(entry.ino, entry.kind);
        for entry in parsed.entries.iter().chain(&parsed.slack).filter(lives) {
            let place = || (self.dir, entry.name.to_vec());
            self.names.replaced.entry(entry.ino).or_insert_with(place);
        }
    }

    /// Mends a region in place. Returns whether it changed.
    pub(super) fn region(&mut self, bytes: &mut [u8], region: &Region) -> Result<bool> {
        let Region { format, seed, dots, block, is_index } = *region;
        let before = bytes.to_vec();
        let table = self.table;
        let parsed = parse(&before, &format, !is_index, &|ino, kind| table.lives(ino, kind));
        for entry in &parsed.slack {
            if !entry.is_dots() {
                let place = || (self.dir, entry.name.to_vec());
                self.names.slack.entry(entry.ino).or_insert_with(place);
            }
        }
        let mut pack = parsed.broken;
        if pack && block != 0 {
            self.names.lost_blocks.insert(block);
        }
        let mut entries = parsed.entries;
        if let Some(own) = dots {
            pack |= !self.dots(bytes, &format, &mut entries, own);
        }
        let head = if dots.is_some() { 2.min(entries.len()) } else { 0 };
        let mut kept: Vec<Entry<'_>> = entries.drain(..head).collect();
        for mut entry in entries {
            let len = entry.name.len();
            match self.judge(&mut entry, &format, block) {
                Fate::Goes => set_ino(bytes, entry.offset, 0),
                Fate::Stays => {
                    if entry.name.len() != len {
                        pack = true;
                    } else if let Cow::Owned(_) = entry.name {
                        let at = entry.offset + 8;
                        bytes[at..at + entry.name.len()].copy_from_slice(&entry.name);
                    }
                    bytes[entry.offset + 7] = entry.kind;
                    kept.push(entry);
                }
            }
        }
        if pack {
            self.volume.report.add_file(Class::Directory, self.dir);
            self.pack(bytes, &format, seed, kept);
        }
        if format.checksums {
            let leaf = DirBlock::new(bytes, format, Site::NOWHERE);
            if leaf.verify_checksum(seed).is_err() {
                if bytes == before {
                    self.volume.report.add_file(Class::Directory, self.dir);
                }
                DirBlockMut::new(bytes, format, seed, Site::NOWHERE).set_checksum();
            }
        }
        if bytes != before {
            self.volume.report.add_file(Class::NameField, self.dir);
        }
        Ok(bytes != before)
    }

    /// Mends "." and ".." at the start of a block. Returns whether they can stay where they are.
    fn dots(
        &mut self,
        bytes: &mut [u8],
        format: &DirFormat,
        entries: &mut Vec<Entry<'_>>,
        own: u32,
    ) -> bool {
        let is = |n: usize, name: &[u8]| entries.get(n).is_some_and(|entry| *entry.name == *name);
        let in_place = is(0, b".")
            && entries[0].offset == 0
            && is(1, b"..")
            && entries[1].offset == 12
            && bytes[9..12] == [0; 3]
            && bytes[22] == 0;
        let found = entries.iter().find(|entry| *entry.name == *b"..").map(|entry| entry.ino);
        let parent = found.filter(|ino| self.table.nodes.has_dir(*ino));
        let parent = parent.unwrap_or(if own == 2 { 2 } else { 0 });
        self.names.dotdots.insert(own, if own == 2 { 2 } else { parent });
        let kind = if format.filetype { EntryKind::Directory.code() } else { 0 };
        let parent = if parent == 0 { Ino::ROOT.get() } else { parent };
        if in_place {
            set_ino(bytes, 0, own);
            let parent = if own == 2 { 2 } else { parent };
            set_ino(bytes, 12, parent);
            (bytes[7], bytes[19]) = (kind, kind);
            return true;
        }
        entries.retain(|entry| !entry.is_dots());
        let dot = |ino, name: &'static [u8]| {
            let name = Cow::Borrowed(name);
            Entry { offset: 0, ino, kind, name, hash: None }
        };
        entries.insert(0, dot(own, b"."));
        entries.insert(1, dot(parent, b".."));
        false
    }

    /// Judges an entry other than "." and "..", which may be changed.
    fn judge(&mut self, entry: &mut Entry<'_>, format: &DirFormat, block: u64) -> Fate {
        if entry.is_dots() {
            return Fate::Goes;
        }
        let node = self.table.nodes.get(entry.ino);
        let Some(node) = node.filter(|node| {
            !node.hidden && !node.is_value() && ![Ino::ROOT.get(), self.dir].contains(&entry.ino)
        }) else {
            self.volume.report.add_file(Class::NameLost, self.dir);
            return Fate::Goes;
        };
        let hinted = self.hints.entries.contains(&(self.dir, block, entry.offset));
        if hinted || (self.encrypted && entry.name.len() < 16) {
            self.volume.report.add_file(Class::NameLost, self.dir);
            return Fate::Goes;
        }
        self.settle_name(entry);
        let stored = entry.name.clone();
        let mut tries = 0;
        while let Err(other) = self.seen.add(&self.key(&entry.name), entry.ino) {
            if tries == 0 && other == entry.ino {
                return Fate::Goes;
            }
            // After a few tries, numbers are not tried twice: many names may be equal.
            self.renamed += u32::from(tries >= 8);
            let n = if tries < 8 { tries } else { 8 + self.renamed };
            entry.name = Cow::Owned(renamed(&stored, n));
            tries += 1;
            self.volume.report.add_file(Class::NameChanged, entry.ino);
        }
        let kind = if format.filetype { EntryKind::from_mode(node.mode).code() } else { 0 };
        if entry.kind != kind {
            entry.kind = kind;
            self.volume.report.add_file(Class::NameField, self.dir);
        }
        self.names.add(self.dir, &entry.name, entry.ino, node.is_dir());
        Fate::Stays
    }

    /// Makes a name legal.
    fn settle_name(&mut self, entry: &mut Entry<'_>) {
        let has_illegal = entry.name.iter().any(|byte| matches!(byte, 0 | b'/'));
        if self.encrypted || !has_illegal && self.folds.is_none() {
            return;
        }
        let mut name = entry.name.to_vec();
        for byte in &mut name {
            if *byte == 0 || *byte == b'/' {
                *byte = b'.';
            }
        }
        if let Some(folds) = &self.folds
            && folds.check_new(&name).is_err()
        {
            for byte in &mut name {
                if !byte.is_ascii() {
                    *byte = b'.';
                }
            }
        }
        if name == b"." || name == b".." {
            name.fill(b'_');
        }
        if name != *entry.name {
            entry.name = Cow::Owned(name);
            self.volume.report.add_file(Class::NameChanged, entry.ino);
        }
    }

    fn key<'n>(&self, name: &'n [u8]) -> Cow<'n, [u8]> {
        match &self.folds {
            Some(_) => {
                fold(name).map_or(Cow::Borrowed(name), |folded| Cow::Owned(folded[..].to_vec()))
            }
            None => Cow::Borrowed(name),
        }
    }

    /// Packs a region from its start.
    fn pack(&mut self, bytes: &mut [u8], format: &DirFormat, seed: u32, kept: Vec<Entry<'_>>) {
        let mut packer = DirPacker::new(DirBlockMut::new(bytes, *format, seed, Site::NOWHERE));
        for entry in kept {
            let Some(ino) = Ino::new(entry.ino) else { continue };
            let kind = EntryKind::from_code(entry.kind);
            if !format.admits(&entry.name) || !packer.push(&entry.name, ino, kind, entry.hash) {
                self.overflow.push(entry.into_owned());
            }
        }
        packer.finish();
    }
}

fn set_ino(bytes: &mut [u8], offset: usize, ino: u32) {
    bytes[offset..offset + 4].copy_from_slice(&ino.to_le_bytes());
}

/// A name for the `n`th other file that has the same one, of the same length if that is possible:
/// then the entry stays where it is.
fn renamed(name: &[u8], n: u32) -> Vec<u8> {
    let end = format!("~{n}");
    let keep = match name.len() > end.len() {
        true => name.len() - end.len(),
        false => name.len().min(NAME_MAX - end.len()),
    };
    [&name[..keep], end.as_bytes()].concat()
}
