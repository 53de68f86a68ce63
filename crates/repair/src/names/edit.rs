//! Single names: added, removed, and the parent of a directory.

use super::drop_index;
use crate::dir_block::Entry;
use crate::map::{Mapping, Run, nodes_needed};
use crate::scan::{Table, attributes_of};
use crate::usage::Usage;
use crate::volume::Volume;
use extant_base::{Error, Ino, Result, Site};
use extant_ondisk::dirent::{DirBlock, DirBlockMut, EntryKind};
use extant_ondisk::inline_dir::PARENT_LEN;
use extant_ondisk::inode::{Inode, InodeFlags};

/// Adds a name to a directory, which grows if it has to. An index is dropped first.
///
/// Errors: `NoSpace`, `Device`.
pub(crate) fn insert(
    volume: &mut Volume,
    table: &mut Table,
    usage: &mut Usage,
    dir: u32,
    name: &[u8],
    ino: u32,
) -> Result<()> {
    let mode = table.nodes.get(ino).map_or(0, |node| node.mode);
    insert_entry(volume, table, usage, dir, name, ino, EntryKind::from_mode(mode), None)
}

/// As [`insert`], with the kind and the hash words of an entry.
///
/// Errors: `NoSpace`, `Device`.
#[expect(clippy::too_many_arguments, reason = "an entry and where it goes")]
pub(crate) fn insert_entry(
    volume: &mut Volume,
    table: &mut Table,
    usage: &mut Usage,
    dir: u32,
    name: &[u8],
    ino: u32,
    kind: EntryKind,
    hash: Option<(u32, u32)>,
) -> Result<()> {
    let (Some(mut inode), Some(nr)) = (volume.inode(dir)?, Ino::new(ino)) else { return Ok(()) };
    if inode.has_inline_data() {
        expand(volume, table, usage, dir, &mut inode)?;
    }
    let map = table.map_of(volume, dir)?;
    if inode.flags.contains(InodeFlags::INDEX) {
        drop_index(volume, dir, &mut inode, &map)?;
    }
    // Many names often go to one directory: the blocks before the last one are full.
    let last = table.last_space.filter(|(of, _)| *of == dir).map_or(0, |(_, nth)| nth);
    let blocks: Vec<u64> = map.each().map(|(_, block)| block).collect();
    let last = last.min(blocks.len());
    for nth in (last..blocks.len()).chain(0..last) {
        if put_in(volume, dir, &inode, blocks[nth], name, nr, kind, hash)? {
            table.last_space = Some((dir, nth));
            return Ok(());
        }
    }
    table.last_space = Some((dir, blocks.len()));
    let block = append(volume, table, usage, dir, None)?;
    let inode = volume.inode(dir)?.unwrap_or(inode);
    match put_in(volume, dir, &inode, block, name, nr, kind, hash)? {
        true => Ok(()),
        false => Err(Error::NoSpace),
    }
}

#[expect(clippy::too_many_arguments, reason = "an entry and where it goes")]
fn put_in(
    volume: &Volume,
    dir: u32,
    inode: &Inode,
    block: u64,
    name: &[u8],
    ino: Ino,
    kind: EntryKind,
    hash: Option<(u32, u32)>,
) -> Result<bool> {
    let format = volume.dir_format(inode);
    let mut bytes = volume.disk.read(block)?;
    let mut leaf = DirBlockMut::new(&mut bytes, format, volume.seed(dir, inode), Site::NOWHERE);
    if leaf.insert(name, ino, kind, hash)?.is_none() {
        return Ok(false);
    }
    leaf.set_checksum();
    volume.disk.put(block, &bytes)?;
    Ok(true)
}

/// Appends a block to a directory and returns its place. `first` is the parent, for a directory
/// that has no block yet.
pub(super) fn append(
    volume: &mut Volume,
    table: &mut Table,
    usage: &mut Usage,
    dir: u32,
    first: Option<u32>,
) -> Result<u64> {
    let Some(inode) = volume.inode(dir)? else { return Err(Error::NoSpace) };
    let mut map = table.map_of(volume, dir)?;
    let logical = map.end();
    let ratio = volume.geometry.cluster_ratio();
    let last = map.runs.last().copied();
    let block = match last {
        // The cluster of the last block has more blocks.
        Some(run) if !logical.is_multiple_of(ratio) => run.blocks().end,
        _ => {
            let mut within = volume.geometry.block_range();
            if !map.extents && map.nodes.len() + map.runs.len() > 0 {
                within.end = within.end.min(1 << 32);
            }
            let goal = last.map_or(0, |run| run.blocks().end);
            usage.take(goal, &within).ok_or(Error::NoSpace)?
        }
    };
    map.extents |=
        volume.has_incompat(extant_ondisk::features::Incompat::EXTENTS) && map.runs.is_empty();
    map.runs.push(Run { logical, physical: block, len: 1, written: true });
    join(&mut map);
    // Without space for its map, the directory stays as it is.
    let more = nodes_needed(volume, &map).saturating_sub(map.nodes.len() as u64);
    if !usage.can_take(more, &map.node_range(volume)) {
        if logical.is_multiple_of(ratio) {
            usage.remove(block);
        }
        return Err(Error::NoSpace);
    }
    let mut bytes = vec![0; volume.block_bytes()];
    let format = volume.dir_format(&inode);
    let mut leaf = DirBlockMut::new(&mut bytes, format, volume.seed(dir, &inode), Site::NOWHERE);
    match first.and_then(Ino::new).zip(Ino::new(dir)) {
        Some((parent, own)) => leaf.init_first(own, parent),
        None => leaf.init_empty(),
    }
    volume.disk.put(block, &bytes)?;
    map.damaged = true;
    table.maps.insert(dir, map);
    crate::claims::write_maps(volume, table, usage)?;
    Ok(block)
}

fn join(map: &mut Mapping) {
    let Some(run) = map.runs.pop() else { return };
    match map.runs.last_mut() {
        Some(last) if last.end() == run.logical && last.blocks().end == run.physical => {
            last.len += run.len;
        }
        _ => map.runs.push(run),
    }
}

/// Gives an inline directory a block of its own.
fn expand(
    volume: &mut Volume,
    table: &mut Table,
    usage: &mut Usage,
    dir: u32,
    inode: &mut Inode,
) -> Result<()> {
    // Its entries take one block, or two if an inode is nearly as large as a block.
    let extents = volume.has_incompat(extant_ondisk::features::Incompat::EXTENTS);
    let mut empty = Mapping { extents, ..Mapping::default() };
    if !usage.can_take(2, &empty.node_range(volume)) {
        return Err(Error::NoSpace);
    }
    let stored = u32::from_le_bytes(inode.i_block[..4].try_into().unwrap_or_default());
    // Any directory will do: the right one is set later.
    let parent = if table.nodes.has_dir(stored) { stored } else { Ino::ROOT.get() };
    let mut slot = volume.slot(dir)?.unwrap_or_default();
    let mut area = attributes_of(volume, inode, &slot);
    let value = area.inline_value().map(<[u8]>::to_vec).unwrap_or_default();
    let format = volume.dir_format(inode).without_tail();
    let mut entries = Vec::new();
    for bytes in [&inode.i_block[PARENT_LEN..], &value] {
        let any = |_: u32, _: u8| true;
        let parsed = crate::dir_block::parse(bytes, &format, false, &any);
        entries.extend(parsed.entries.into_iter().map(Entry::into_owned));
    }
    area.attributes.retain(|one| !one.is_inline());
    let range = inode.xattr_area(&volume.format);
    area.put_in_inode(&mut slot[range]);
    volume.put_slot(dir, &slot)?;
    inode.flags.remove(InodeFlags::INLINE_DATA);
    inode.flags.set(InodeFlags::EXTENTS, extents);
    inode.i_block.fill(0);
    crate::map::write(volume, usage, dir, inode, &mut empty)?;
    volume.put_inode(dir, inode)?;
    append(volume, table, usage, dir, Some(parent))?;
    for entry in entries {
        let kind = EntryKind::from_code(entry.kind);
        insert_entry(volume, table, usage, dir, &entry.name, entry.ino, kind, entry.hash)?;
    }
    *inode = volume.inode(dir)?.unwrap_or_else(|| inode.clone());
    Ok(())
}

/// Stores the parent of a directory.
pub(crate) fn set_parent(
    volume: &mut Volume,
    table: &mut Table,
    dir: u32,
    parent: u32,
) -> Result<()> {
    let (Some(mut inode), Some(nr)) = (volume.inode(dir)?, Ino::new(parent)) else {
        return Ok(());
    };
    if inode.has_inline_data() {
        inode.i_block[..4].copy_from_slice(&parent.to_le_bytes());
        return volume.put_inode(dir, &inode);
    }
    let map = table.map_of(volume, dir)?;
    let Some(block) = map.locate(0) else { return Ok(()) };
    if inode.flags.contains(InodeFlags::INDEX) {
        drop_index(volume, dir, &mut inode, &map)?;
    }
    let mut bytes = volume.disk.read(block)?;
    let format = volume.dir_format(&inode);
    let seed = volume.seed(dir, &inode);
    let mut leaf = DirBlockMut::new(&mut bytes, format, seed, Site::NOWHERE);
    let is_there =
        leaf.view().entries().nth(1).is_some_and(|entry| {
            entry.is_ok_and(|entry| entry.name == b".." && entry.offset == 12)
        });
    if is_there {
        leaf.set_inode(12, nr, EntryKind::Directory)?;
        leaf.set_checksum();
        volume.disk.put(block, &bytes)?;
    }
    Ok(())
}

/// Removes the name of `ino` from a directory.
pub(crate) fn remove_entry(
    volume: &mut Volume,
    table: &mut Table,
    dir: u32,
    name: &[u8],
    ino: u32,
) -> Result<()> {
    let Some(mut inode) = volume.inode(dir)? else { return Ok(()) };
    let format = volume.dir_format(&inode);
    if inode.has_inline_data() {
        let plain = format.without_tail();
        let mut first = inode.i_block[PARENT_LEN..].to_vec();
        if clear(&mut first, plain, 0, name, ino) {
            inode.i_block[PARENT_LEN..].copy_from_slice(&first);
            return volume.put_inode(dir, &inode);
        }
        let mut slot = volume.slot(dir)?.unwrap_or_default();
        let mut area = attributes_of(volume, &inode, &slot);
        let mut value = area.inline_value().map(<[u8]>::to_vec).unwrap_or_default();
        if clear(&mut value, plain, 0, name, ino) {
            area.attributes.retain(|one| !one.is_inline());
            area.attributes.insert(0, crate::scan::inline_attribute(value));
            let range = inode.xattr_area(&volume.format);
            area.put_in_inode(&mut slot[range]);
            volume.put_slot(dir, &slot)?;
            volume.put_inode(dir, &inode)?;
        }
        return Ok(());
    }
    let seed = volume.seed(dir, &inode);
    for (_, block) in table.map_of(volume, dir)?.each() {
        let mut bytes = volume.disk.read(block)?;
        if clear(&mut bytes, format, seed, name, ino) {
            return volume.disk.put(block, &bytes);
        }
    }
    Ok(())
}

/// Makes an entry an unused one.
fn clear(
    bytes: &mut [u8],
    format: extant_ondisk::dirent::DirFormat,
    seed: u32,
    name: &[u8],
    ino: u32,
) -> bool {
    let found = DirBlock::new(bytes, format, Site::NOWHERE)
        .entries()
        .filter_map(|entry| entry.ok())
        .find(|entry| entry.name == name && entry.ino.is_some_and(|nr| nr.get() == ino))
        .map(|entry| entry.offset);
    let Some(offset) = found else { return false };
    bytes[offset..offset + 4].fill(0);
    if format.checksums {
        DirBlockMut::new(bytes, format, seed, Site::NOWHERE).set_checksum();
    }
    true
}
