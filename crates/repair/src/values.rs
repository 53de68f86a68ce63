//! Values of attributes in inodes of their own: each attribute leads to its value, and reference
//! counts agree.

use crate::claims::drop_attributes;
use crate::report::Class;
use crate::scan::attributes::{self, Area, Value};
use crate::scan::{Node, Table, attributes_of, judge_sectors, remove_inode};
use crate::volume::Volume;
use extant_base::Result;
use extant_crc32c::crc32c;
use extant_ondisk::features::Incompat;
use extant_ondisk::xattr::VALUE_MAX;
use hashbrown::HashMap;

/// A value inode that can be read.
#[derive(Clone, Copy, Debug)]
struct Found {
    size: u64,
    crc: u32,
    stored_crc: u32,
    owner: u32,
    uses: u64,
    old: bool,
}

/// Removes attributes whose value is lost, and values that no attribute uses. Sets the reference
/// counts of attribute blocks and of values.
pub(crate) fn run(volume: &mut Volume, table: &mut Table) -> Result<()> {
    if volume.has_incompat(Incompat::EA_INODE) {
        let mut values = read(volume, table)?;
        owners(volume, table, &mut values)?;
        counts(volume, table, &values)?;
    }
    blocks(volume, table)
}

fn read(volume: &Volume, table: &mut Table) -> Result<HashMap<u32, Found>> {
    let inos = table.nodes.inos(Node::is_value);
    let mut values = HashMap::new();
    for ino in inos {
        let Some(inode) = volume.inode(ino)? else { continue };
        if inode.size > u64::from(VALUE_MAX) {
            continue;
        }
        let map = table.map_of(volume, ino)?;
        let bytes = crate::map::content(volume, &map, inode.size)?;
        if bytes.len() as u64 == inode.size {
            let found = Found {
                size: inode.size,
                crc: crc32c(volume.sb().csum_seed(), &bytes),
                stored_crc: inode.value_crc(),
                owner: inode.value_owner(),
                uses: 0,
                old: false,
            };
            values.insert(ino, found);
        }
    }
    Ok(values)
}

/// Keeps the attributes of an area whose value is right. Returns whether one was removed.
fn keep(area: &mut Area, owner: u32, values: &mut HashMap<u32, Found>) -> bool {
    let before = area.attributes.len();
    area.attributes.retain(|one| {
        let Value::InInode { ino, size, crc } = one.value else { return true };
        let Some(found) = values.get_mut(&ino.get()) else { return false };
        let old = found.owner == owner && found.stored_crc != found.crc;
        // The hash of a name whose bytes were taken as signed gives another checksum.
        let signed = one.name.iter().any(|byte| !byte.is_ascii());
        let right = found.size == u64::from(size) && (crc == found.crc || old || signed);
        found.uses += u64::from(right);
        found.old |= right && old;
        right
    });
    area.attributes.len() != before
}

fn owners(volume: &mut Volume, table: &mut Table, values: &mut HashMap<u32, Found>) -> Result<()> {
    let inos = table.nodes.inos(|_| true);
    for ino in inos {
        let (Some(inode), Some(mut slot)) = (volume.inode(ino)?, volume.slot(ino)?) else {
            continue;
        };
        let mut area = attributes_of(volume, &inode, &slot);
        if keep(&mut area, ino, values) {
            let range = inode.xattr_area(&volume.format);
            area.put_in_inode(&mut slot[range]);
            volume.put_slot(ino, &slot)?;
            volume.report.add_file(Class::AttributesLost, ino);
            let mut inode = inode;
            inode.sectors = judge_sectors(volume, table, ino, &inode)?;
            volume.put_inode(ino, &inode)?;
        }
    }
    let blocks: Vec<(u64, Vec<u32>)> =
        table.blocks.iter().map(|(block, users)| (*block, users.clone())).collect();
    for (block, users) in blocks {
        let Some(first) = users.first().copied() else { continue };
        let Some(mut area) = table.area(volume, block)?.cloned() else { continue };
        if !keep(&mut area, first, values) {
            continue;
        }
        table.forget_area(block);
        match area.fitted_block(volume) {
            Some(bytes) => {
                attributes::put_block(volume, block, bytes, 1)?;
                for ino in users {
                    volume.report.add_file(Class::AttributesLost, ino);
                    let Some(mut inode) = volume.inode(ino)? else { continue };
                    inode.sectors = judge_sectors(volume, table, ino, &inode)?;
                    volume.put_inode(ino, &inode)?;
                }
            }
            None => {
                table.blocks.remove(&block);
                for ino in users {
                    drop_attributes(volume, table, ino)?;
                }
            }
        }
    }
    Ok(())
}

fn counts(volume: &mut Volume, table: &mut Table, values: &HashMap<u32, Found>) -> Result<()> {
    let inos = table.nodes.inos(Node::is_value);
    for ino in inos {
        let Some(found) = values.get(&ino).filter(|found| found.uses > 0) else {
            volume.report.add(Class::OwnFiles);
            remove_inode(volume, table, ino)?;
            continue;
        };
        let Some(mut inode) = volume.inode(ino)? else { continue };
        if !found.old && (inode.value_references(), inode.value_crc()) != (found.uses, found.crc) {
            inode.set_value_references(found.uses);
            inode.set_value_crc(found.crc);
            volume.report.add(Class::Links);
            volume.put_inode(ino, &inode)?;
        }
    }
    Ok(())
}

/// Writes attribute blocks that are not sound, and their reference counts.
fn blocks(volume: &mut Volume, table: &mut Table) -> Result<()> {
    let blocks: Vec<(u64, Vec<u32>)> =
        table.blocks.iter().map(|(block, users)| (*block, users.clone())).collect();
    for (block, users) in blocks {
        let Ok(count) = u32::try_from(users.len()) else { continue };
        if count == 0 {
            table.blocks.remove(&block);
            continue;
        }
        let Some(mut area) = table.area(volume, block)?.cloned() else { continue };
        let bytes = volume.disk.read(block)?;
        let stored = bytes[4..8].first_chunk().map_or(0, |count| u32::from_le_bytes(*count));
        if area.sound && stored == count {
            continue;
        }
        if area.sound {
            volume.report.add(Class::Links);
            attributes::put_block(volume, block, bytes, count)?;
            continue;
        }
        for ino in &users {
            attributes::report(volume, *ino, &area);
        }
        table.forget_area(block);
        match area.fitted_block(volume) {
            Some(bytes) => attributes::put_block(volume, block, bytes, count)?,
            None => {
                table.blocks.remove(&block);
                for ino in users {
                    drop_attributes(volume, table, ino)?;
                }
            }
        }
    }
    Ok(())
}
