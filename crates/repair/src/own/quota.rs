//! Quota files: usage counted over all inodes, limits kept.

use crate::map::{self, Mapping, Run};
use crate::report::Class;
use crate::scan::{Node, Table, attributes_of, judge_sectors};
use crate::usage::Usage;
use crate::volume::Volume;
use extant_base::narrow::fits_u32;
use extant_base::{Error, Result, Site, What};
use extant_ondisk::features::Incompat;
use extant_ondisk::inode::Inode;
use extant_ondisk::quota::{QUOTA_BLOCK, QuotaEntry, QuotaInfo, QuotaKind, QuotaStore};
use std::collections::BTreeMap;

/// The largest quota file whose limits are read, in bytes.
const MOST_BYTES: u64 = 64 << 20;

/// Bytes and inodes by id.
type Totals = BTreeMap<u32, (u64, u64)>;

/// Writes the quota files again.
pub(crate) fn run(volume: &mut Volume, table: &mut Table, usage: &mut Usage) -> Result<()> {
    let inos = volume.quota_inodes();
    if inos == [0; 3] {
        return Ok(());
    }
    let totals = count(volume, table)?;
    let kinds = [QuotaKind::User, QuotaKind::Group, QuotaKind::Project];
    for ((ino, kind), totals) in inos.into_iter().zip(kinds).zip(&totals) {
        if ino != 0 {
            file(volume, table, usage, ino, kind, totals)?;
        }
    }
    Ok(())
}

fn count(volume: &Volume, table: &mut Table) -> Result<[Totals; 3]> {
    let mut all: [Totals; 3] = Default::default();
    for ino in table.nodes.inos(|node| !node.hidden && !node.is_value()) {
        let Some(inode) = volume.inode(ino)? else { continue };
        let space = judge_sectors(volume, table, ino, &inode)? << 9;
        let slot = volume.slot(ino)?.unwrap_or_default();
        let mut inodes = 1 + attributes_of(volume, &inode, &slot).charge(volume).1;
        if let Some(block) = inode.file_acl {
            inodes += table.area(volume, block.0)?.map_or(0, |area| area.charge(volume).1);
        }
        for (totals, id) in all.iter_mut().zip([inode.uid, inode.gid, inode.projid]) {
            let total = totals.entry(id).or_default();
            total.0 += space;
            total.1 += inodes;
        }
    }
    Ok(all)
}

fn file(
    volume: &mut Volume,
    table: &mut Table,
    usage: &mut Usage,
    ino: u32,
    kind: QuotaKind,
    totals: &Totals,
) -> Result<()> {
    let known = table.nodes.has(ino) && !table.broken_own.contains(&ino);
    let inode = volume.inode(ino)?.filter(|_| known);
    let mut map = if known { table.map_of(volume, ino)? } else { Mapping::default() };
    let mut old = match &inode {
        Some(inode) => map::content(volume, &map, inode.size.min(MOST_BYTES))?,
        None => Vec::new(),
    };
    let limits = limits(&mut old, kind);
    let mut entries: BTreeMap<u32, QuotaEntry> =
        limits.into_iter().map(|entry| (entry.id, entry)).collect();
    let mut same = !entries.is_empty() || totals.is_empty();
    for (id, (space, inodes)) in totals {
        let entry =
            entries.entry(*id).or_insert_with(|| QuotaEntry { id: *id, ..QuotaEntry::default() });
        same &= (entry.space, entry.inodes) == (*space, *inodes);
        (entry.space, entry.inodes) = (*space, *inodes);
    }
    for (id, entry) in &mut entries {
        if !totals.contains_key(id) {
            same &= (entry.space, entry.inodes) == (0, 0);
            (entry.space, entry.inodes) = (0, 0);
        }
    }
    // A size past the map makes e2fsprogs read blocks that are not there.
    let log = volume.geometry.block_size().log2();
    let fits = inode.as_ref().is_some_and(|inode| inode.size <= u64::from(map.end()) << log);
    if same && fits && is_sound(&mut old, kind) {
        return Ok(());
    }
    entries.retain(|_, entry| !entry.is_idle());
    let mut bytes = QuotaInfo::build(kind, entries.into_values());
    if old.len() >= 16 && old[..4] == bytes[..4] {
        // The times of grace.
        bytes[8..16].copy_from_slice(&old[8..16]);
    }
    volume.report.add(Class::Quota);
    match put(volume, table, usage, ino, inode, &mut map, &bytes) {
        Err(Error::NoSpace) => {
            volume.report.note("there is no space for a quota file: its quota is turned off");
            map.each().for_each(|(_, block)| usage.remove(block));
            map.nodes.iter().for_each(|block| usage.remove(*block));
            table.nodes.remove(ino);
            table.maps.remove(&ino);
            volume.put_slot(ino, &vec![0; volume.geometry.inode_size()])?;
            volume.change_superblock(|sb| match kind {
                QuotaKind::User => sb.usr_quota_inum = 0,
                QuotaKind::Group => sb.grp_quota_inum = 0,
                QuotaKind::Project => sb.prj_quota_inum = 0,
            })
        }
        other => other,
    }
}

/// The entries of a quota file, as far as its tree can be read.
fn limits(old: &mut Vec<u8>, kind: QuotaKind) -> Vec<QuotaEntry> {
    let mut found = Vec::new();
    let blocks = fits_u32((old.len() / QUOTA_BLOCK) as u64);
    let read = head(old).and_then(|head| QuotaInfo::check(&head, kind, blocks)).and_then(|info| {
        info.for_each(old, |entry| {
            found.push(entry);
            Ok(())
        })
    });
    let _ = read;
    found
}

fn is_sound(old: &mut Vec<u8>, kind: QuotaKind) -> bool {
    let blocks = fits_u32((old.len() / QUOTA_BLOCK) as u64);
    head(old)
        .and_then(|head| QuotaInfo::check(&head, kind, blocks))
        .and_then(|info| {
            info.for_each(old, |_| Ok(()))?;
            info.stray(old)
        })
        .is_ok_and(|stray| stray.is_none())
}

fn head(old: &mut Vec<u8>) -> Result<extant_ondisk::quota::QuotaBlock> {
    match old.is_empty() {
        true => Err(Site::NOWHERE.corrupt(What::QuotaFile)),
        false => old.read(0),
    }
}

fn put(
    volume: &mut Volume,
    table: &mut Table,
    usage: &mut Usage,
    ino: u32,
    inode: Option<Inode>,
    map: &mut Mapping,
    bytes: &[u8],
) -> Result<()> {
    let size = volume.block_bytes();
    let extents = volume.has_incompat(Incompat::EXTENTS);
    let mut inode = match inode {
        Some(inode) => inode,
        None => {
            map.extents = extents;
            volume.put_slot(ino, &vec![0; volume.geometry.inode_size()])?;
            super::fresh(volume)
        }
    };
    let blocks = fits_u32(bytes.len().div_ceil(size) as u64);
    let ratio = volume.geometry.cluster_ratio();
    for run in map.runs.clone() {
        for logical in (run.logical..run.end()).filter(|logical| *logical >= blocks) {
            if let Some(block) = map.locate(logical).filter(|_| logical.is_multiple_of(ratio)) {
                usage.remove(block);
            }
        }
    }
    map.unmap(blocks..u32::MAX);
    map.runs.iter_mut().for_each(|run| run.written = true);
    for logical in 0..blocks {
        let part = &bytes[logical as usize * size..bytes.len().min((logical as usize + 1) * size)];
        let mut block = part.to_vec();
        block.resize(size, 0);
        let at = match map.locate(logical) {
            Some(at) => at,
            None => {
                let near = logical.checked_sub(1).and_then(|before| map.locate(before));
                let at = match near {
                    Some(before) if !logical.is_multiple_of(ratio) => before + 1,
                    _ => {
                        let within = volume.geometry.block_range();
                        usage.take(near.unwrap_or(0), &within).ok_or(Error::NoSpace)?
                    }
                };
                map.set(logical, at);
                at
            }
        };
        volume.disk.put(at, &block)?;
    }
    map.runs = joined(&map.runs);
    inode.size = bytes.len() as u64;
    map::write(volume, usage, ino, &mut inode, map)?;
    let clusters = map.clusters(volume.geometry.log_cluster_ratio()) + map.nodes.len() as u64;
    inode.sectors = clusters * volume.cluster_sectors();
    table.maps.remove(&ino);
    table.nodes.insert(
        ino,
        Node {
            mode: inode.mode,
            links: 1,
            flags: inode.flags,
            hidden: true,
            suspect: false,
            has_content: true,
        },
    );
    volume.put_inode(ino, &inode)
}

fn joined(runs: &[Run]) -> Vec<Run> {
    let mut joined: Vec<Run> = Vec::with_capacity(runs.len());
    for run in runs {
        match joined.last_mut() {
            Some(last) if last.end() == run.logical && last.blocks().end == run.physical => {
                last.len += run.len;
            }
            _ => joined.push(*run),
        }
    }
    joined
}
