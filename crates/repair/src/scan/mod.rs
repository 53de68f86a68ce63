//! All inodes, judged one by one: what is in use, and with which map.
//!
//! ```text
//!   tables ─► slots ─┬─ sound ──────────────────────────────► node, small faults repaired
//!                    └─ doubtful ─► census of names ─ kind ─► node, or free
//! ```
//!
//! A doubtful inode has a wrong checksum, no legal type, or content that does not fit its type. The
//! census asks all directories what they say about exactly those.

pub(crate) mod attributes;
mod census;
mod judge;
mod nodes;

use crate::claimed::Claimed;
use crate::map::{Budget, Mapping, Run, ShortMap};
use crate::report::Class;
use crate::volume::{Role, Volume};
use attributes::Area;
pub(crate) use attributes::inline_attribute;
use census::Evidence;
pub(crate) use census::{each_entry, starts_like_directory};
use extant_base::Result;
use extant_ondisk::features::RoCompat;
use extant_ondisk::inode::is_zero_slot;
use hashbrown::{HashMap, HashSet};
pub(crate) use judge::{remove as remove_inode, sectors as judge_sectors};
pub(crate) use nodes::{Node, Nodes};
use std::collections::BTreeMap;

/// Bytes of a table that are read at a time.
const PIECE: usize = 64 << 10;
/// How many attribute blocks are kept in memory.
const AREAS_MAX: usize = 1 << 16;
/// How often marks of unused inodes may rise.
const RAISES_MAX: usize = 64;

/// What the scan has found.
pub(crate) struct Table {
    pub(crate) nodes: Nodes,
    /// Maps that have to be written.
    pub(crate) maps: HashMap<u32, Mapping>,
    /// Attribute blocks, and the inodes that use them.
    pub(crate) blocks: BTreeMap<u64, Vec<u32>>,
    /// What was read of attribute blocks.
    areas: HashMap<u64, Option<Area>>,
    /// Slots of each group that may hold inodes.
    pub(crate) marks: Vec<u32>,
    /// Internal files that have to be made again.
    pub(crate) broken_own: Vec<u32>,
    /// Symlinks that e2fsprogs misreads until their target or their attributes are in a block.
    pub(crate) links_to_move: Vec<u32>,
    /// Inodes that recovery would truncate.
    pub(crate) truncate: HashSet<u32>,
    pub(crate) budget: Budget,
    /// What all maps claim; `None` after a map was forgotten.
    pub(crate) claimed: Option<Claimed>,
    /// An inode, a part of a map or an attribute block was dropped, and its blocks may still count
    /// as used.
    pub(crate) gave_up: bool,
    /// The directory that got the last new name, and which of its blocks had space for it.
    pub(crate) last_space: Option<(u32, usize)>,
}

impl Table {
    fn new(volume: &Volume) -> Table {
        let all = volume.geometry.inodes_per_group();
        let mark = |group: &crate::volume::descriptors::Group| match group.trusted {
            true => group.desc.used_slots(&volume.geometry, &volume.checksums),
            false => all,
        };
        Table {
            nodes: Nodes::default(),
            maps: HashMap::new(),
            blocks: BTreeMap::new(),
            areas: HashMap::new(),
            marks: volume.groups.iter().map(mark).collect(),
            broken_own: Vec::new(),
            links_to_move: Vec::new(),
            truncate: HashSet::new(),
            budget: Budget::of(volume),
            claimed: Some(Claimed::of_fixed(volume)),
            gave_up: false,
            last_space: None,
        }
    }

    /// The map of an inode: the one to be written, or the stored one.
    pub(crate) fn map_of(&mut self, volume: &Volume, ino: u32) -> Result<Mapping> {
        if let Some(map) = self.maps.get(&ino) {
            return Ok(map.clone());
        }
        match volume.inode(ino)? {
            Some(inode) if judge::has_map(&inode, &volume.format) => {
                crate::map::read(volume, ino, &inode, &mut self.budget, false)
            }
            _ => Ok(Mapping::default()),
        }
    }

    /// The map of an inode if it is a short one that is stored. `slot` is as long as a slot.
    pub(crate) fn short_map(
        &self,
        volume: &Volume,
        ino: u32,
        slot: &mut [u8],
    ) -> Result<Option<ShortMap>> {
        let is_stored = !self.maps.contains_key(&ino) && volume.read_slot(ino, slot)?;
        Ok(if is_stored { ShortMap::of(volume, slot) } else { None })
    }

    /// Claims the blocks of a map.
    fn claim(&mut self, volume: &Volume, runs: &[Run], nodes: &[u64]) {
        if let Some(claimed) = &mut self.claimed {
            claimed.add(volume, runs, nodes);
        }
    }

    /// Whether an entry of this type may lead to `ino`.
    pub(crate) fn lives(&self, ino: u32, kind: u8) -> bool {
        self.nodes.get(ino).is_some_and(|node| {
            let own = node.mode >> 12;
            let stored = extant_ondisk::dirent::EntryKind::from_mode(own << 12).code();
            !node.hidden && !node.is_value() && (kind == 0 || kind == stored)
        })
    }

    /// The attributes in a block; `None` if it holds none.
    pub(crate) fn area(&mut self, volume: &Volume, block: u64) -> Result<Option<&Area>> {
        if !self.areas.contains_key(&block) {
            if self.areas.len() >= AREAS_MAX {
                self.areas.clear();
            }
            let usable = volume.is_usable(block);
            let area = if usable { attributes::in_block(volume, block)? } else { None };
            self.areas.insert(block, area);
        }
        Ok(self.areas.get(&block).and_then(Option::as_ref))
    }

    /// Forgets what was read of an attribute block.
    pub(crate) fn forget_area(&mut self, block: u64) {
        self.areas.remove(&block);
    }
}

/// Reads every inode, and judges those that are in `faulty`: all if it is `None`.
pub(crate) fn run(volume: &mut Volume, faulty: Option<&HashSet<u32>>) -> Result<Table> {
    let mut table = Table::new(volume);
    read(volume, &mut table, faulty)?;
    table.budget.end_scan();
    Ok(table)
}

fn read(volume: &mut Volume, table: &mut Table, faulty: Option<&HashSet<u32>>) -> Result<()> {
    let mut scan = Scan { faulty, orphans: census::orphans(volume)?, doubtful: Vec::new() };
    for group in 0..volume.groups.len() {
        let mark = table.marks[group];
        scan.slots(volume, table, group, 0..mark)?;
    }
    // The check did not look past the marks.
    scan.faulty = None;
    let mut census = census::take(volume, table, &scan.doubtful)?;
    for _ in 0..RAISES_MAX {
        if census.raised.is_empty() {
            break;
        }
        for (group, slots_to_read) in census.raised {
            let start = slots_to_read.start;
            table.marks[group] = slots_to_read.end;
            volume.report.add(Class::Counts);
            scan.slots(volume, table, group, start..slots_to_read.end)?;
        }
        census = census::take(volume, table, &scan.doubtful)?;
    }
    settle(volume, table, &census, &scan.doubtful)
}

/// Judges the doubtful inodes. Directories first: their names are evidence about the others.
fn settle(
    volume: &mut Volume,
    table: &mut Table,
    census: &census::Census,
    doubtful: &[u32],
) -> Result<()> {
    let (dirs, others): (Vec<u32>, Vec<u32>) =
        doubtful.iter().partition(|ino| census.is_like_directory(**ino));
    let nothing = Evidence::default();
    let evidence = census.with(volume, table, &dirs)?;
    for ino in &dirs {
        judge::doubtful(volume, table, *ino, evidence.get(ino).unwrap_or(&nothing))?;
    }
    let kept: Vec<u32> = dirs.iter().copied().filter(|ino| table.nodes.has_dir(*ino)).collect();
    let evidence = census.with(volume, table, &kept)?;
    for ino in &others {
        judge::doubtful(volume, table, *ino, evidence.get(ino).unwrap_or(&nothing))?;
    }
    Ok(())
}

/// A reading of inode tables.
struct Scan<'s> {
    /// The inodes that are judged; all if it is `None`.
    faulty: Option<&'s HashSet<u32>>,
    /// Inodes with orphan records.
    orphans: HashSet<u32>,
    doubtful: Vec<u32>,
}

impl Scan<'_> {
    /// Judges the sound inodes among slots of a group and notes the doubtful ones.
    fn slots(
        &mut self,
        volume: &mut Volume,
        table: &mut Table,
        group: usize,
        range: std::ops::Range<u32>,
    ) -> Result<()> {
        if volume.groups[group].table_lost || range.is_empty() {
            return Ok(());
        }
        let size = volume.geometry.inode_size();
        let start = volume.geometry.block_size().start_of(volume.groups[group].desc.inode_table).0;
        let per_piece = extant_base::narrow::len_u32(PIECE / size).max(1);
        let nr = extant_base::GroupNr(extant_base::narrow::len_u32(group));
        let mut bytes = vec![0; per_piece.min(range.end - range.start) as usize * size];
        let mut slot = range.start;
        while slot < range.end {
            let count = per_piece.min(range.end - slot);
            let piece = &mut bytes[..count as usize * size];
            let at = extant_base::ByteOffset(start + u64::from(slot) * size as u64);
            volume.disk.read_bytes(at, piece)?;
            for (number, one) in (slot..).zip(piece.chunks_exact(size)) {
                if let Some(ino) = volume.geometry.ino_of_slot(nr, number) {
                    self.slot(volume, table, ino.get(), one)?;
                }
            }
            slot += count;
        }
        Ok(())
    }

    fn slot(&mut self, volume: &mut Volume, table: &mut Table, ino: u32, one: &[u8]) -> Result<()> {
        let role = volume.role(ino);
        let is_empty = is_zero_slot(one);
        let known = self.faulty.is_some_and(|faulty| !faulty.contains(&ino));
        if known
            && role == Role::Ordinary
            && !is_empty
            && !self.orphans.contains(&ino)
            && judge::accept(volume, table, ino, one)?
        {
            return Ok(());
        }
        let restored = match role {
            Role::Ordinary => volume.restored_slot(ino, one)?,
            // The file of the data checksums: nothing else can make it again.
            Role::BootLoader if volume.has_ro_compat(RoCompat::DATA_CSUM) => {
                volume.restored_slot(ino, one)?
            }
            _ => None,
        };
        if restored.is_some() {
            volume.report.add_file(Class::FromJournal, ino);
        }
        if is_empty && restored.is_none() && role == Role::Ordinary {
            return Ok(());
        }
        let one = restored.as_deref().unwrap_or(one);
        if judge::first_look(volume, table, ino, one, &self.orphans)? {
            self.doubtful.push(ino);
        }
        Ok(())
    }
}

/// The attributes in an inode's slot.
pub(crate) fn attributes_of(
    volume: &Volume,
    inode: &extant_ondisk::inode::Inode,
    slot: &[u8],
) -> Area {
    attributes::in_inode(volume, inode, slot, false)
}
