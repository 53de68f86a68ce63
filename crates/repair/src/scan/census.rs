//! What directories and orphan records say about inodes.
//!
//! ```text
//!   every directory block ──► entries that name a doubtful inode ──► its type, how many names
//!   orphan list and file  ──► inodes that recovery frees or truncates
//! ```

use super::judge;
use super::{Node, Table};
use crate::dir_block;
use crate::map;
use crate::volume::Volume;
use extant_base::{BlockNr, Ino, Result};
use extant_ondisk::dirent::DirFormat;
use extant_ondisk::features::Compat;
use extant_ondisk::inline_dir::PARENT_LEN;
use extant_ondisk::inode::Inode;
use extant_ondisk::orphan_file;
use hashbrown::{HashMap, HashSet};
use std::ops::Range;

/// What names say about an inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Evidence {
    /// Names that lead to it.
    pub(crate) names: u32,
    /// The type that they record, if they agree.
    pub(crate) kind: u8,
    /// They record different types.
    pub(crate) disagree: bool,
    /// Its first block begins as a directory's with its number.
    pub(crate) looks_like_directory: bool,
}

impl Evidence {
    fn add(&mut self, kind: u8) {
        self.disagree |= self.names > 0 && self.kind != kind;
        self.names += 1;
        self.kind = kind;
    }
}

/// What directories say.
pub(super) struct Census {
    /// About the inodes that were asked for.
    evidence: HashMap<u32, Evidence>,
    /// Groups in which names lead to inodes past the mark of unused ones, with the slots to read.
    pub(super) raised: HashMap<usize, Range<u32>>,
}

/// Asks the directories among the sound inodes about the doubtful ones.
pub(super) fn take(volume: &Volume, table: &mut Table, doubtful: &[u32]) -> Result<Census> {
    let mut census = Census {
        evidence: doubtful.iter().map(|ino| (*ino, Evidence::default())).collect(),
        raised: HashMap::new(),
    };
    for ino in doubtful {
        let looks = looks_like_directory(volume, table, *ino)?;
        census.evidence.entry(*ino).or_default().looks_like_directory = looks;
    }
    let marks = table.marks.clone();
    for dir in table.nodes.inos(Node::is_dir) {
        each_entry(volume, table, dir, &mut |entry| {
            count(&mut census.evidence, entry);
            let place = Ino::new(entry.ino).and_then(|ino| volume.geometry.inode_place(ino));
            if let Some(place) = place {
                let group = place.group.0 as usize;
                let mark = marks[group];
                if place.slot >= mark {
                    let range = census.raised.entry(group).or_insert(mark..mark);
                    range.end = range.end.max(place.slot + 1);
                }
            }
        })?;
    }
    Ok(census)
}

impl Census {
    /// What is known when `dirs` are asked, too.
    pub(super) fn with(
        &self,
        volume: &Volume,
        table: &mut Table,
        dirs: &[u32],
    ) -> Result<HashMap<u32, Evidence>> {
        let mut evidence = self.evidence.clone();
        for dir in dirs {
            each_entry(volume, table, *dir, &mut |entry| count(&mut evidence, entry))?;
        }
        Ok(evidence)
    }

    /// Whether the first block of a doubtful inode begins like a directory's.
    pub(super) fn is_like_directory(&self, ino: u32) -> bool {
        self.evidence.get(&ino).is_some_and(|one| one.looks_like_directory)
    }
}

fn count(evidence: &mut HashMap<u32, Evidence>, entry: &dir_block::Entry<'_>) {
    if let Some(one) = evidence.get_mut(&entry.ino)
        && *entry.name != *b"."
    {
        one.add(if entry.is_dots() { 2 } else { entry.kind });
    }
}

/// Whether the first block of an inode begins with "." that names it.
pub(super) fn looks_like_directory(volume: &Volume, table: &mut Table, ino: u32) -> Result<bool> {
    let Some(inode) = volume.inode(ino)? else { return Ok(false) };
    if inode.has_inline_data() {
        return Ok(inode.is_dir());
    }
    let map = map::read(volume, ino, &inode, &mut table.budget, false)?;
    let Some(block) = map.locate(0) else { return Ok(false) };
    let bytes = volume.disk.read(block)?;
    Ok(starts_like_directory(&bytes, ino))
}

/// Whether a block begins with the "." of directory `ino`.
pub(crate) fn starts_like_directory(bytes: &[u8], ino: u32) -> bool {
    bytes[..4] == ino.to_le_bytes()
        && bytes[6] == 1
        && bytes[8] == b'.'
        && bytes[18] == 2
        && bytes[20..22] == *b".."
}

/// Calls `each` with every entry of a directory that can be read.
pub(crate) fn each_entry(
    volume: &Volume,
    table: &mut Table,
    dir: u32,
    each: &mut dyn FnMut(&dir_block::Entry<'_>),
) -> Result<()> {
    let Some(inode) = volume.inode(dir)? else { return Ok(()) };
    let format = volume.dir_format(&inode);
    let any = |ino: u32, _: u8| ino <= volume.geometry.inodes_count();
    if inode.has_inline_data() {
        for area in inline_areas(volume, dir, &inode)? {
            let plain: DirFormat = format.without_tail();
            dir_block::parse(&area, &plain, false, &any).entries.iter().for_each(&mut *each);
        }
        return Ok(());
    }
    let map = map::read(volume, dir, &inode, &mut table.budget, false)?;
    for (_, block) in map.each() {
        let bytes = volume.disk.read(block)?;
        // Index blocks look like unused entries, and their tails are elsewhere.
        let plain = format.without_tail();
        dir_block::parse(&bytes, &plain, false, &any).entries.iter().for_each(&mut *each);
    }
    Ok(())
}

/// The two areas of an inline directory, without the parent's number.
fn inline_areas(volume: &Volume, ino: u32, inode: &Inode) -> Result<Vec<Vec<u8>>> {
    let slot = volume.slot(ino)?.unwrap_or_default();
    let area = super::attributes::in_inode(volume, inode, &slot, false);
    let mut areas = vec![inode.i_block[PARENT_LEN..].to_vec()];
    areas.extend(area.inline_value().filter(|value| !value.is_empty()).map(<[u8]>::to_vec));
    Ok(areas)
}

/// All inodes with orphan records that can be read.
pub(super) fn orphans(volume: &Volume) -> Result<HashSet<u32>> {
    let mut orphans = HashSet::new();
    let sb = volume.sb();
    let mut next = sb.last_orphan;
    while next >= sb.first_ino && next <= sb.inodes_count && orphans.insert(next) {
        next = volume.inode(next)?.map_or(0, |inode| inode.dtime);
    }
    if !volume.has_compat(Compat::ORPHAN_FILE) {
        return Ok(orphans);
    }
    let ino = sb.orphan_file_inum;
    let Some(inode) = volume.inode(ino)? else { return Ok(orphans) };
    if !judge::has_map(&inode, &volume.format) {
        return Ok(orphans);
    }
    let map = map::read(volume, ino, &inode, &mut map::Budget::of(volume), false)?;
    let seed = Ino::new(ino).and_then(|nr| inode.seed(nr, &volume.format));
    for (_, block) in map.each().take(orphan_file::MAX_BLOCKS as usize) {
        let bytes = volume.disk.read(block)?;
        if let Ok(entries) =
            orphan_file::check(&bytes, BlockNr(block), seed, volume.geometry.inodes_count())
        {
            orphans.extend(entries.map(|(_, ino)| ino.get()));
        }
    }
    Ok(orphans)
}
