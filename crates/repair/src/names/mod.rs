//! All directories: every entry legal, in its place, and leading to a file.
//!
//! ```text
//!   directory ─┬─ inline ─► two areas ─┐
//!              └─ blocks ─► index? ────┼─► mend: entries kept, changed, removed ─► links, parents
//!                           not sound: │           └ broken lengths: packed again
//!                           dropped    └─► names that need another block
//! ```

mod area;
mod edit;
mod logged;
mod paths;
mod seen;

pub(crate) use edit::{insert, insert_entry, remove_entry, set_parent};
pub(crate) use logged::{OldName, logged};
pub(crate) use paths::{name_in, paths};

use crate::by_ino::ByIno;
use crate::hints::Hints;
use crate::map::Mapping;
use crate::report::Class;
use crate::scan::{Node, Table, inline_attribute, starts_like_directory};
use crate::usage::Usage;
use crate::volume::Volume;
use area::{Mend, Region};
use extant_base::{Error, Ino, Result, Site};
use extant_ondisk::dirent::{DirBlock, DirBlockMut, EntryKind};
use extant_ondisk::features::{Compat, Incompat};
use extant_ondisk::htree::{Index, RawCountLimit, levels_max, limit_node, looks_like_node};
use extant_ondisk::inline_dir::PARENT_LEN;
use extant_ondisk::inode::{Inode, InodeFlags};
use hashbrown::{HashMap, HashSet};
use zerocopy::FromBytes;

/// The names of an inode.
#[derive(Clone, Copy, Debug)]
struct Named {
    /// How many lead to it, "." and ".." not counted.
    count: u32,
    /// The directory that has the first one.
    dir: u32,
}

/// What directories say.
#[derive(Default)]
pub(crate) struct Names {
    named: ByIno<Named>,
    /// The directory in which a directory has its name.
    pub(crate) parents: HashMap<u32, u32>,
    /// What ".." says.
    pub(crate) dotdots: HashMap<u32, u32>,
    /// Further names of directories: directory, name, child.
    pub(crate) second: Vec<(u32, Vec<u8>, u32)>,
    /// Names in the slack of directory blocks, for inodes without another.
    pub(crate) slack: HashMap<u32, (u32, Vec<u8>)>,
    /// Names in blocks that the log's copy has replaced: the copy may be older than these.
    pub(crate) replaced: HashMap<u32, (u32, Vec<u8>)>,
    /// Blocks that had names which cannot be read any more.
    pub(crate) lost_blocks: HashSet<u64>,
}

impl Names {
    /// Counts a name.
    pub(crate) fn add(&mut self, dir: u32, name: &[u8], ino: u32, is_dir: bool) {
        if is_dir {
            if self.parents.contains_key(&ino) {
                self.second.push((dir, name.to_vec(), ino));
                return;
            }
            self.parents.insert(ino, dir);
        }
        self.named.place(ino).get_or_insert(Named { count: 0, dir }).count += 1;
    }

    /// How many names lead to an inode, "." and ".." not counted.
    pub(crate) fn count(&self, ino: u32) -> u32 {
        self.named.get(ino).map_or(0, |named| named.count)
    }

    /// The directory in which an inode has a name, if it has one.
    pub(crate) fn dir_of(&self, ino: u32) -> Option<u32> {
        let parent = self.parents.get(&ino).copied();
        parent
            .or_else(|| self.named.get(ino).filter(|named| named.count > 0).map(|named| named.dir))
    }

    /// Forgets a name that was counted, but found no place.
    fn forget(&mut self, ino: u32) {
        if let Some(named) = self.named.place(ino) {
            named.count = named.count.saturating_sub(1);
        }
        self.parents.remove(&ino);
    }

    /// Forgets the name of a directory.
    pub(crate) fn forget_dir(&mut self, ino: u32) {
        self.parents.remove(&ino);
        self.named.remove(ino);
    }
}

/// Mends every directory.
pub(crate) fn run(
    volume: &mut Volume,
    table: &mut Table,
    usage: &mut Usage,
    hints: &Hints,
) -> Result<Names> {
    let mut names = Names::default();
    for dir in table.nodes.inos(Node::is_dir) {
        let Some(inode) = volume.inode(dir)? else { continue };
        match inode.has_inline_data() {
            true => inline(volume, table, &mut names, hints, dir, inode)?,
            false => blocks(volume, table, usage, &mut names, hints, dir, inode)?,
        }
    }
    Ok(names)
}

/// Mends a directory whose entries the inode holds.
fn inline(
    volume: &mut Volume,
    table: &mut Table,
    names: &mut Names,
    hints: &Hints,
    dir: u32,
    mut inode: Inode,
) -> Result<()> {
    let format = volume.dir_format(&inode).without_tail();
    let slot = volume.slot(dir)?.unwrap_or_default();
    let mut area = crate::scan::attributes_of(volume, &inode, &slot);
    let mut mend = Mend::new(volume, table, names, hints, dir, &inode);
    let parent = u32::from_le_bytes(inode.i_block[..4].try_into().unwrap_or_default());
    mend.names.dotdots.insert(dir, parent);
    let mut first = inode.i_block[PARENT_LEN..].to_vec();
    let region = Region { format, seed: 0, dots: None, block: 0, is_index: false };
    let mut changed = mend.region(&mut first, &region)?;
    inode.i_block[PARENT_LEN..].copy_from_slice(&first);
    let value = area.inline_value().map(<[u8]>::to_vec).unwrap_or_default();
    let mut second = value.clone();
    if !second.is_empty() {
        changed |= mend.region(&mut second, &region)?;
    }
    // Names that find no place in either area get one in lost+found.
    let lost = mend.take_overflow();
    for entry in lost {
        names.forget(entry.ino);
    }
    if !changed {
        return Ok(());
    }
    volume.put_inode(dir, &inode)?;
    if second != value {
        area.attributes.retain(|one| !one.is_inline());
        area.attributes.insert(0, inline_attribute(second));
        let mut slot = volume.slot(dir)?.unwrap_or_default();
        let range = inode.xattr_area(&volume.format);
        area.put_in_inode(&mut slot[range]);
        volume.put_slot(dir, &slot)?;
        volume.put_inode(dir, &inode)?;
    }
    Ok(())
}

/// Mends a directory whose entries are in blocks.
fn blocks(
    volume: &mut Volume,
    table: &mut Table,
    usage: &mut Usage,
    names: &mut Names,
    hints: &Hints,
    dir: u32,
    mut inode: Inode,
) -> Result<()> {
    let map = table.map_of(volume, dir)?;
    if map.runs.is_empty() {
        return match empty(volume, table, usage, names, dir) {
            // The next round finds what hung below it.
            Err(Error::NoSpace) if dir != Ino::ROOT.get() => {
                volume.report.add_file(Class::InodeLost, dir);
                volume.report.note("there is no space for the first block of a directory");
                crate::claims::release(volume, table, usage, dir)
            }
            other => other,
        };
    }
    let indexed = inode.flags.contains(InodeFlags::INDEX);
    let keeps = indexed && !hints.htree.contains(&dir) && index_is_sound(volume, &inode, &map)?;
    if indexed && !keeps {
        drop_index(volume, dir, &mut inode, &map)?;
    }
    let format = volume.dir_format(&inode);
    let seed = volume.seed(dir, &inode);
    let mut mend = Mend::new(volume, table, names, hints, dir, &inode);
    let mut touched_index = false;
    // Of two equal names, the one in a block whose checksum is right stays.
    let mut later = Vec::new();
    let mut blocks = map.each();
    loop {
        let (next, proven) = match blocks.next() {
            Some(next) => (Some(next), false),
            None => (later.pop(), true),
        };
        let Some((logical, block)) = next else { break };
        let mut bytes = mend.volume.disk.read(block)?;
        let is_root = keeps && logical == 0;
        let is_leaf = |bytes: &[u8]| {
            DirBlock::new(bytes, format, Site::NOWHERE).verify_checksum(seed).is_ok()
        };
        if keeps && logical != 0 && is_node(&format, &bytes) {
            continue;
        }
        if format.checksums && !is_root && !proven && !is_leaf(&bytes) {
            let copy = mend.volume.restored(block, bytes.clone(), is_leaf)?;
            if copy == bytes {
                mend.names.lost_blocks.insert(block);
                later.push((logical, block));
                continue;
            }
            mend.note_replaced(&bytes, &format);
            bytes = copy;
        }
        let dots = (logical == 0).then_some(dir);
        let region = Region { format, seed, dots, block, is_index: is_root };
        if is_root {
            let plain = Region { format: format.without_tail(), ..region };
            touched_index |= mend.region(&mut bytes, &plain)?;
            continue;
        }
        if mend.region(&mut bytes, &region)? {
            mend.volume.disk.put(block, &bytes)?;
        }
    }
    let overflow = mend.take_overflow();
    if touched_index || (keeps && !overflow.is_empty()) {
        drop_index(volume, dir, &mut inode, &map)?;
    }
    for entry in overflow {
        let kind = EntryKind::from_code(entry.kind);
        let (name, hash) = (&entry.name, entry.hash);
        match edit::insert_entry(volume, table, usage, dir, name, entry.ino, kind, hash) {
            // It gets a name in lost+found.
            Err(Error::NoSpace) => names.forget(entry.ino),
            other => other?,
        }
    }
    Ok(())
}

/// Gives a directory without blocks its first one.
fn empty(
    volume: &mut Volume,
    table: &mut Table,
    usage: &mut Usage,
    names: &mut Names,
    dir: u32,
) -> Result<()> {
    edit::append(volume, table, usage, dir, Some(Ino::ROOT.get()))?;
    volume.report.add_file(Class::Directory, dir);
    volume.report.add_file(Class::NameLost, dir);
    names.dotdots.insert(dir, Ino::ROOT.get());
    Ok(())
}

fn is_node(format: &extant_ondisk::dirent::DirFormat, bytes: &[u8]) -> bool {
    let limit = limit_node(bytes.len(), format.checksums, format.hash_words);
    let raw = bytes.get(8..).and_then(|rest| RawCountLimit::ref_from_prefix(rest).ok());
    looks_like_node(bytes) && raw.is_some_and(|(raw, _)| usize::from(raw.limit.get()) == limit)
}

/// Whether the root of the index can be read.
fn index_is_sound(volume: &Volume, inode: &Inode, map: &Mapping) -> Result<bool> {
    if !volume.has_compat(Compat::DIR_INDEX) {
        return Ok(false);
    }
    let Some(block) = map.locate(0) else { return Ok(false) };
    let bytes = volume.disk.read(block)?;
    let levels = levels_max(volume.has_incompat(Incompat::LARGEDIR));
    let format = volume.dir_format(inode);
    Ok(Index::root(&bytes, &format, levels, Site::NOWHERE).is_ok())
}

/// Makes an indexed directory a linear one: index blocks become blocks without names.
fn drop_index(volume: &mut Volume, dir: u32, inode: &mut Inode, map: &Mapping) -> Result<()> {
    let Some(nr) = Ino::new(dir) else { return Ok(()) };
    let format = volume.dir_format(inode);
    let seed = volume.seed(dir, inode);
    let mut nodes: HashSet<u32> = HashSet::new();
    for (logical, block) in map.each() {
        let mut bytes = volume.disk.read(block)?;
        if logical == 0 && is_root_shaped(&bytes, dir) {
            let parent = u32::from_le_bytes(bytes[12..16].try_into().unwrap_or_default());
            let parent = Ino::new(parent).filter(|_| parent <= format.inodes_count);
            let parent = parent.unwrap_or(Ino::ROOT);
            let mut block = DirBlockMut::new(&mut bytes, format, seed, Site::NOWHERE);
            block.init_first(nr, parent);
        } else if logical != 0 && is_node(&format, &bytes) {
            nodes.insert(logical);
            DirBlockMut::new(&mut bytes, format, seed, Site::NOWHERE).init_empty();
        } else {
            continue;
        }
        volume.disk.put(block, &bytes)?;
    }
    inode.flags.remove(InodeFlags::INDEX);
    volume.report.add_file(Class::Directory, dir);
    volume.put_inode(dir, inode)
}

/// Whether a block has the shape of an index root: ".." reaches its end.
fn is_root_shaped(bytes: &[u8], dir: u32) -> bool {
    let dots = starts_like_directory(bytes, dir)
        || (bytes[6] == 1 && bytes[8] == b'.' && bytes[18] == 2 && bytes[20..22] == *b"..");
    let len = extant_ondisk::dirent::rec_len_decode(
        u16::from_le_bytes([bytes[16], bytes[17]]),
        bytes.len(),
    );
    dots && (len == bytes.len() - 12 || bytes[29] == 8)
}

/// The inode to which a name leads, byte for byte.
pub(crate) fn find(
    volume: &Volume,
    table: &mut Table,
    dir: u32,
    name: &[u8],
) -> Result<Option<u32>> {
    let Some(inode) = volume.inode(dir)? else { return Ok(None) };
    let format = volume.dir_format(&inode).without_tail();
    let mut regions = Vec::new();
    if inode.has_inline_data() {
        let slot = volume.slot(dir)?.unwrap_or_default();
        let area = crate::scan::attributes_of(volume, &inode, &slot);
        regions.push(inode.i_block[PARENT_LEN..].to_vec());
        regions.extend(area.inline_value().map(<[u8]>::to_vec));
    } else {
        for (_, block) in table.map_of(volume, dir)?.each() {
            regions.push(volume.disk.read(block)?);
        }
    }
    let any = |_: u32, _: u8| true;
    Ok(regions.iter().find_map(|bytes| {
        let parsed = crate::dir_block::parse(bytes, &format, false, &any);
        parsed.entries.iter().find(|entry| *entry.name == *name).map(|entry| entry.ino)
    }))
}

/// Gives a new directory its first block.
pub(crate) fn first_block(
    volume: &mut Volume,
    table: &mut Table,
    usage: &mut Usage,
    dir: u32,
    parent: u32,
) -> Result<()> {
    edit::append(volume, table, usage, dir, Some(parent)).map(|_| ())
}
