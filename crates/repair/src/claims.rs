//! Every block has one owner: what is in use, and who keeps a block that several claim.
//!
//! ```text
//!   fixed metadata ─┐
//!   maps, nodes ────┼──► usage ──► claimed twice? ──► evidence ──► one keeps it
//!   attributes ─────┘                                              others: a copy, or a hole
//! ```
//!
//! Evidence, strongest first: a node or an attribute block that verifies; a directory block that
//! names its owner; a map that was sound; neighbours that continue it. Unwritten blocks and blocks
//! past the end lose nothing. All others get copies, and their ranges are reported.

use crate::claimed::{Claimed, each_cluster};
use crate::map::{self, Mapping};
use crate::report::Class;
use crate::scan::attributes::put_block;
use crate::scan::{Table, attributes_of, judge_sectors, remove_inode, starts_like_directory};
use crate::usage::Usage;
use crate::volume::{Role, Volume};
use extant_base::{BlockNr, Error, Result};
use extant_ondisk::extent;
use extant_ondisk::features::{Incompat, RoCompat};
use extant_ondisk::group_desc::GroupFlags;
use extant_ondisk::inode::{Inode, InodeFlags};
use hashbrown::HashMap;
use std::collections::{BTreeMap, BTreeSet};

/// How many claims of shared clusters are compared; files that claim more of them lose the rest.
const CLAIMS_MAX: usize = 1 << 22;

/// How the journal's superblock begins.
const JOURNAL_MAGIC: [u8; 4] = [0xC0, 0x3B, 0x39, 0x98];

/// What claims a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Data of a logical cluster.
    Data { logical: u32, written: bool, len: u32 },
    /// A node of the map.
    Node { block: u64 },
    /// The attribute block.
    Attributes { block: u64 },
    /// The double-indirect block of the resize inode, which names the reserved blocks.
    Resize,
}

#[derive(Clone, Copy, Debug)]
struct Claim {
    ino: u32,
    part: Part,
}

/// Finds what is in use, and resolves conflicts. Allocates places for lost bitmaps and tables.
pub(crate) fn run(volume: &mut Volume, table: &mut Table) -> Result<Usage> {
    let Claimed { mut usage, shared } = collect(volume, table)?;
    let shares = volume.has_ro_compat(RoCompat::SHARED_BLOCKS);
    if !shared.is_empty() && !shares {
        resolve(volume, table, &mut usage, &shared)?;
    }
    if volume.geometry.cluster_ratio() > 1 {
        align(volume, table, &mut usage)?;
    }
    place_lost(volume, &mut usage)?;
    copy_occupied(volume, table, &mut usage)?;
    move_links(volume, table, &mut usage)?;
    write_maps(volume, table, &mut usage)?;
    // What one claimant gave back may be another's.
    if !shared.is_empty() && !shares && usage.was_reduced() {
        usage = collect(volume, table)?.usage;
    }
    Ok(usage)
}

/// What is in use, and what several claim.
pub(crate) fn collect(volume: &Volume, table: &mut Table) -> Result<Claimed> {
    let mut claimed = match table.claimed.take() {
        Some(claimed) => claimed,
        None => of_maps(volume, table)?,
    };
    if let Some(block) = resize_block(volume)? {
        claimed.add_block(block);
    }
    let used = table.blocks.iter().filter(|(_, users)| !users.is_empty());
    used.for_each(|(block, _)| claimed.add_block(*block));
    Ok(claimed)
}

/// What all maps claim.
fn of_maps(volume: &Volume, table: &mut Table) -> Result<Claimed> {
    let mut claimed = Claimed::of_fixed(volume);
    let mut slot = vec![0; volume.geometry.inode_size()];
    for ino in table.nodes.inos(|_| true) {
        match table.short_map(volume, ino, &mut slot)? {
            Some(map) => claimed.add(volume, map.runs(), &[]),
            None => {
                let map = table.map_of(volume, ino)?;
                claimed.add(volume, &map.runs, &map.nodes);
            }
        }
    }
    Ok(claimed)
}

/// The double-indirect block of the resize inode, if it may be one.
fn resize_block(volume: &Volume) -> Result<Option<u64>> {
    if volume.role(7) != Role::Resize {
        return Ok(None);
    }
    let Some(inode) = volume.inode(7)? else { return Ok(None) };
    let pointer = extant_ondisk::block_map::pointer(&inode.i_block, 13).map(u64::from);
    Ok(pointer.filter(|block| *block != 0 && volume.is_usable(*block)))
}

/// Decides who keeps each shared cluster.
fn resolve(
    volume: &mut Volume,
    table: &mut Table,
    usage: &mut Usage,
    shared: &Usage,
) -> Result<()> {
    let mut claims: BTreeMap<u64, Vec<Claim>> = BTreeMap::new();
    let mut count = 0;
    let mut dropped: BTreeSet<u32> = BTreeSet::new();
    let mut slot = vec![0; volume.geometry.inode_size()];
    for ino in table.nodes.inos(|_| true) {
        let short = table.short_map(volume, ino, &mut slot)?;
        if short.is_some_and(|map| !map.runs().iter().any(|run| shared.has_any(run.blocks()))) {
            continue;
        }
        let map = table.map_of(volume, ino)?;
        each_cluster(volume, &map.runs, &mut |cluster, logical, run| {
            if !shared.has_cluster(cluster) {
                return;
            }
            let part = Part::Data { logical, written: run.written, len: run.len };
            count += 1;
            match (count <= CLAIMS_MAX, part) {
                (true, _) => claims.entry(cluster).or_default().push(Claim { ino, part }),
                (false, _) => {
                    dropped.insert(ino);
                }
            }
        });
        for block in map.nodes {
            if shared.has(block) {
                let cluster = usage.cluster(block);
                claims.entry(cluster).or_default().push(Claim { ino, part: Part::Node { block } });
            }
        }
    }
    for (block, users) in &table.blocks {
        if let Some(ino) = users.first().filter(|_| shared.has(*block)) {
            let claim = Claim { ino: *ino, part: Part::Attributes { block: *block } };
            claims.entry(usage.cluster(*block)).or_default().push(claim);
        }
    }
    if let Some(block) = resize_block(volume)?.filter(|block| shared.has(*block)) {
        let claim = Claim { ino: 7, part: Part::Resize };
        claims.entry(usage.cluster(block)).or_default().push(claim);
    }
    for ino in dropped {
        give_up(volume, table, shared, ino)?;
    }
    let mut scorer = Scorer::default();
    let mut losses: BTreeMap<u32, Vec<Loss>> = BTreeMap::new();
    let mut lost_nodes: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
    for (cluster, mut claimants) in claims {
        let mut scored = Vec::with_capacity(claimants.len());
        for claim in claimants.drain(..) {
            scored.push((scorer.score(volume, table, &claim)?, claim));
        }
        scored.sort_by_key(|(score, claim)| (std::cmp::Reverse(*score), claim.ino));
        let undecided = scored.len() > 1 && scored[0].0 == scored[1].0;
        if undecided {
            uncertain(volume, &scored[0].1);
        }
        for (score, claim) in scored.into_iter().skip(1) {
            if let Part::Node { block } = claim.part {
                lost_nodes.entry(claim.ino).or_default().insert(block);
            }
            if let Some(loss) = lose(volume, table, cluster, &claim, score)? {
                losses.entry(claim.ino).or_default().push(loss);
            }
        }
    }
    for (ino, lost) in lost_nodes {
        let mut map = table.map_of(volume, ino)?;
        map.nodes.retain(|node| !lost.contains(node));
        map.damaged = true;
        volume.report.add_file(Class::MapRebuilt, ino);
        table.maps.insert(ino, map);
    }
    for (ino, losses) in losses {
        move_clusters(volume, table, usage, ino, losses)?;
    }
    Ok(())
}

/// A logical cluster that a file loses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Loss {
    logical: u32,
    /// Only its blocks in this cluster of the volume.
    only: Option<u64>,
    /// It gets a copy.
    copies: bool,
}

/// Takes all shared clusters from a file with more claims than are compared.
fn give_up(volume: &mut Volume, table: &mut Table, shared: &Usage, ino: u32) -> Result<()> {
    table.gave_up = true;
    let mut map = table.map_of(volume, ino)?;
    let changes: Vec<(u32, Option<u64>)> = map
        .each()
        .filter(|(_, at)| shared.has(*at))
        .map(|(logical, _)| (logical, None))
        .take(CLAIMS_MAX)
        .collect();
    // What is left after as many blocks is given up, too.
    if let Some((last, _)) = changes.last().filter(|_| changes.len() == CLAIMS_MAX) {
        map.unmap(*last..u32::MAX);
    }
    map.replace(&changes);
    map.damaged = true;
    table.maps.insert(ino, map);
    volume.report.add_file(Class::MapLost, ino);
    Ok(())
}

/// How many maps are kept in memory to compare claims.
const SCORED_MAX: usize = 64;

/// Judges claims, with the maps of the files that it judged last.
#[derive(Default)]
struct Scorer {
    known: HashMap<u32, Option<(Inode, Mapping)>>,
}

impl Scorer {
    fn score(&mut self, volume: &Volume, table: &mut Table, claim: &Claim) -> Result<i32> {
        if !self.known.contains_key(&claim.ino) {
            if self.known.len() >= SCORED_MAX {
                self.known.clear();
            }
            let known = match volume.inode(claim.ino)? {
                Some(inode) => Some((inode, table.map_of(volume, claim.ino)?)),
                None => None,
            };
            self.known.insert(claim.ino, known);
        }
        match self.known.get(&claim.ino) {
            Some(Some((inode, map))) => score(volume, table, claim, inode, map),
            _ => Ok(-1),
        }
    }
}

/// How strong a claim is; below 0 it loses nothing.
fn score(
    volume: &Volume,
    table: &Table,
    claim: &Claim,
    inode: &Inode,
    map: &Mapping,
) -> Result<i32> {
    let seed = volume.seed(claim.ino, inode);
    let with_sums = volume.checksums.seed().is_some();
    Ok(match claim.part {
        Part::Node { block } => {
            let bytes = volume.disk.read(block)?;
            match inode.has_extents() {
                true if with_sums && extent::checksum_is_right(&bytes, seed) => 100,
                true if bytes[..2] == extent::EXTENT_MAGIC.to_le_bytes() => 70,
                true => 5,
                false => 60,
            }
        }
        Part::Attributes { .. } => 90,
        Part::Resize => 1000,
        Part::Data { logical, written, len } => {
            let ratio = volume.geometry.cluster_ratio();
            let size = volume.geometry.block_size();
            let past_end = (u64::from(logical) * u64::from(ratio)) << size.log2() >= inode.size;
            if claim.ino == 1 {
                -3
            } else if !written {
                -2
            } else if past_end && inode.is_file() {
                -1
            } else {
                let node = table.nodes.get(claim.ino);
                let block = map.locate(logical.saturating_mul(ratio)).unwrap_or(0);
                if claim.ino == volume.sb().journal_inum {
                    // The log is empty, and only its superblock is worth something.
                    let bytes = volume.disk.read(block)?;
                    return Ok(if bytes.starts_with(&JOURNAL_MAGIC) { 120 } else { 1 });
                }
                let mut score = 10;
                if node.is_some_and(|node| node.is_dir() || node.hidden) {
                    let bytes = volume.disk.read(block)?;
                    let format = volume.dir_format(inode);
                    let leaf = extant_ondisk::dirent::DirBlock::new(
                        &bytes,
                        format,
                        extant_base::Site::NOWHERE,
                    );
                    let proven = with_sums && leaf.verify_checksum(seed).is_ok();
                    let starts = logical == 0 && starts_like_directory(&bytes, claim.ino);
                    score = if proven || starts { 80 } else { 15 };
                }
                score += i32::from(node.is_some_and(|node| !node.suspect)) * 20;
                score += i32::from(!table.maps.contains_key(&claim.ino)) * 10;
                score + i32::from(len > 1) * 5
            }
        }
    })
}

fn uncertain(volume: &mut Volume, claim: &Claim) {
    if let Part::Data { logical, .. } = claim.part {
        let bytes = volume.bytes_of(u64::from(volume.geometry.cluster_ratio())) as u64;
        let start = u64::from(logical) * bytes;
        volume.report.add_file(Class::Cloned, claim.ino);
        volume.report.add_range(claim.ino, start..start + bytes);
    }
}

/// Takes a shared cluster from a claimant. A cluster of data is returned: all those of a file move
/// together.
fn lose(
    volume: &mut Volume,
    table: &mut Table,
    cluster: u64,
    claim: &Claim,
    score: i32,
) -> Result<Option<Loss>> {
    match claim.part {
        Part::Node { .. } | Part::Resize => Ok(None),
        Part::Attributes { block } => {
            for ino in table.blocks.remove(&block).unwrap_or_default() {
                drop_attributes(volume, table, ino)?;
            }
            Ok(None)
        }
        Part::Data { logical, .. } if score < 0 => {
            Ok(Some(Loss { logical, only: None, copies: false }))
        }
        Part::Data { logical, .. } => {
            uncertain(volume, claim);
            Ok(Some(Loss { logical, only: Some(cluster), copies: true }))
        }
    }
}

/// Copies the blocks of logical clusters to free ones, or leaves holes if there are none.
fn move_clusters(
    volume: &mut Volume,
    table: &mut Table,
    usage: &mut Usage,
    ino: u32,
    mut losses: Vec<Loss>,
) -> Result<()> {
    losses.sort_unstable();
    let ratio = volume.geometry.cluster_ratio();
    let mut map = table.map_of(volume, ino)?;
    let within = map.node_range(volume);
    let mut changes: Vec<(u32, Option<u64>)> = Vec::new();
    for loss in losses {
        let start = loss.logical.saturating_mul(ratio);
        let blocks: Vec<(u32, u64)> = (start..start.saturating_add(ratio))
            .filter_map(|block| Some((block, map.locate(block)?)))
            .filter(|(_, at)| loss.only.is_none_or(|cluster| usage.cluster(*at) == cluster))
            .collect();
        let goal = blocks.first().map_or(0, |(_, at)| *at);
        let new = if loss.copies { usage.take(goal, &within) } else { None };
        if loss.copies && new.is_none() {
            // A hole is a loss, unless the file loses nothing with it.
            let bytes = volume.bytes_of(1) as u64;
            volume.report.add_file(Class::MapLost, ino);
            let end = u64::from(start) + u64::from(ratio);
            volume.report.add_range(ino, u64::from(start) * bytes..end * bytes);
        }
        for (block, at) in blocks {
            let to = new.map(|new| new + u64::from(block % ratio));
            if let Some(to) = to {
                volume.disk.put(to, &volume.disk.read(at)?)?;
            }
            changes.push((block, to));
        }
    }
    changes.sort_by_key(|(block, _)| *block);
    changes.dedup_by_key(|(block, _)| *block);
    map.replace(&changes);
    map.damaged = true;
    table.maps.insert(ino, map);
    Ok(())
}

/// Moves data that does not lie at the same place in its cluster as in the file.
fn align(volume: &mut Volume, table: &mut Table, usage: &mut Usage) -> Result<()> {
    let ratio = u64::from(volume.geometry.cluster_ratio());
    for ino in table.nodes.inos(|_| true) {
        let map = table.map_of(volume, ino)?;
        let mut wrong = Vec::new();
        // The cluster on the volume of the logical cluster before.
        let mut last: Option<(u32, u64)> = None;
        for run in &map.runs {
            let log = volume.geometry.log_cluster_ratio();
            let first = (run.logical >> log, usage.cluster(run.physical));
            let misplaced = run.physical % ratio != u64::from(run.logical) % ratio;
            if misplaced {
                wrong.extend(run.logical >> log..=(run.end() - 1) >> log);
            } else if last.is_some_and(|last| last.0 == first.0 && last.1 != first.1) {
                wrong.push(first.0);
            }
            last = Some(((run.end() - 1) >> log, usage.cluster(run.blocks().end - 1)));
        }
        wrong.dedup();
        if !wrong.is_empty() {
            volume.report.add_file(Class::MapRebuilt, ino);
            let moves = |logical| Loss { logical, only: None, copies: true };
            move_clusters(volume, table, usage, ino, wrong.into_iter().map(moves).collect())?;
        }
    }
    Ok(())
}

/// Gives files copies of the metadata that lies where their maps lead: the map may be right, and
/// the metadata be written over the file.
fn copy_occupied(volume: &mut Volume, table: &mut Table, usage: &mut Usage) -> Result<()> {
    let mut inos: Vec<u32> = table.maps.keys().copied().collect();
    inos.sort_unstable();
    for ino in inos {
        let is_file = table.nodes.get(ino).is_some_and(|node| !node.hidden && node.mode >> 12 == 8);
        let Some(map) = table.maps.get_mut(&ino) else { continue };
        let occupied = std::mem::take(&mut map.occupied);
        if !is_file || volume.geometry.cluster_ratio() > 1 {
            continue;
        }
        let within = map.node_range(volume);
        for (logical, at) in occupied {
            if map.locate(logical).is_none()
                && let Some(to) = usage.take(at, &within)
            {
                volume.disk.put(to, &volume.disk.read(at)?)?;
                map.set(logical, to);
            }
        }
    }
    Ok(())
}

/// Moves what e2fsprogs misreads in symlinks to blocks of their own: the attributes of short ones,
/// or the target of inline ones.
fn move_links(volume: &mut Volume, table: &mut Table, usage: &mut Usage) -> Result<()> {
    for ino in std::mem::take(&mut table.links_to_move) {
        let (Some(inode), Some(slot)) = (volume.inode(ino)?, volume.slot(ino)?) else {
            continue;
        };
        match inode.has_inline_data() {
            true => move_target(volume, table, usage, ino, inode, slot)?,
            false => move_attributes(volume, table, usage, ino, inode, slot)?,
        }
    }
    Ok(())
}

fn move_attributes(
    volume: &mut Volume,
    table: &mut Table,
    usage: &mut Usage,
    ino: u32,
    mut inode: Inode,
    mut slot: Vec<u8>,
) -> Result<()> {
    let mut area = attributes_of(volume, &inode, &slot);
    let within = volume.geometry.block_range();
    let (Some(bytes), Some(at)) = (area.fitted_block(volume), usage.take(0, &within)) else {
        return Ok(());
    };
    put_block(volume, at, bytes, 1)?;
    slot[inode.xattr_area(&volume.format)].fill(0);
    volume.put_slot(ino, &slot)?;
    inode.file_acl = Some(BlockNr(at));
    inode.sectors += volume.cluster_sectors();
    table.blocks.insert(at, vec![ino]);
    volume.report.add_file(Class::AttributesRebuilt, ino);
    volume.put_inode(ino, &inode)
}

fn move_target(
    volume: &mut Volume,
    table: &mut Table,
    usage: &mut Usage,
    ino: u32,
    mut inode: Inode,
    mut slot: Vec<u8>,
) -> Result<()> {
    let mut area = attributes_of(volume, &inode, &slot);
    let mut target = inode.i_block.to_vec();
    target.extend_from_slice(area.inline_value().unwrap_or_default());
    let extents = volume.has_incompat(Incompat::EXTENTS);
    let mut map = Mapping { extents, ..Mapping::default() };
    if target.len() >= volume.block_bytes() {
        return Ok(());
    }
    let Some(at) = usage.take(0, &map.node_range(volume)) else { return Ok(()) };
    target.resize(volume.block_bytes(), 0);
    volume.disk.put(at, &target)?;
    area.attributes.retain(|one| !one.is_inline());
    area.put_in_inode(&mut slot[inode.xattr_area(&volume.format)]);
    volume.put_slot(ino, &slot)?;
    inode.flags.remove(InodeFlags::INLINE_DATA);
    map.set(0, at);
    map::write(volume, usage, ino, &mut inode, &mut map)?;
    volume.put_inode(ino, &inode)?;
    inode.sectors = judge_sectors(volume, table, ino, &inode)?;
    volume.report.add_file(Class::MapRebuilt, ino);
    volume.put_inode(ino, &inode)
}

/// Removes the attribute block of an inode.
pub(crate) fn drop_attributes(volume: &mut Volume, table: &mut Table, ino: u32) -> Result<()> {
    table.gave_up = true;
    let Some(mut inode) = volume.inode(ino)? else { return Ok(()) };
    inode.file_acl = None;
    volume.report.add_file(Class::AttributesLost, ino);
    inode.sectors = judge_sectors(volume, table, ino, &inode)?;
    volume.put_inode(ino, &inode)
}

/// Finds places for bitmaps and tables that have none.
fn place_lost(volume: &mut Volume, usage: &mut Usage) -> Result<()> {
    let geometry = volume.geometry;
    let table_blocks = u64::from(geometry.itable_blocks());
    let table_clusters = table_blocks.div_ceil(u64::from(geometry.cluster_ratio()));
    let mut any = false;
    for nr in geometry.groups() {
        let n = nr.0 as usize;
        let group = &volume.groups[n];
        if !(group.block_bitmap_lost || group.inode_bitmap_lost || group.table_lost) {
            continue;
        }
        any = true;
        let own = geometry.blocks_of_group(nr).unwrap_or(0..0);
        let all = if geometry.metadata_roams() { geometry.block_range() } else { own.clone() };
        let mut one = || usage.take(own.start, &all).map(BlockNr).ok_or(Error::NoSpace);
        if volume.groups[n].block_bitmap_lost {
            volume.groups[n].desc.block_bitmap = one()?;
        }
        if volume.groups[n].inode_bitmap_lost {
            volume.groups[n].desc.inode_bitmap = one()?;
        }
        if volume.groups[n].table_lost {
            let start = usage.take_run(table_clusters, &all).ok_or(Error::NoSpace)?;
            volume.groups[n].desc.inode_table = BlockNr(start);
            let zeros = vec![0; volume.block_bytes()];
            for block in start..start + table_blocks {
                volume.disk.put(block, &zeros)?;
            }
            volume.groups[n].desc.flags |= GroupFlags::INODE_ZEROED;
        }
        let group = &mut volume.groups[n];
        group.block_bitmap_lost = false;
        group.inode_bitmap_lost = false;
        group.table_lost = false;
    }
    if any {
        volume.find_fixed();
    }
    Ok(())
}

/// Writes all maps that have to be written, and the inodes they belong to.
pub(crate) fn write_maps(volume: &mut Volume, table: &mut Table, usage: &mut Usage) -> Result<()> {
    let mut inos: Vec<u32> = table.maps.keys().copied().collect();
    inos.sort_unstable();
    for ino in inos {
        let Some(mut map) = table.maps.remove(&ino) else { continue };
        let Some(mut inode) = volume.inode(ino)? else { continue };
        // Each round shortens the map, so this ends with one that needs no block.
        while let Err(error) = map::write(volume, usage, ino, &mut inode, &mut map) {
            if !matches!(error, Error::NoSpace) || map.runs.is_empty() {
                return Err(error);
            }
            shorten(volume, usage, ino, &mut map);
        }
        if table.nodes.has_dir(ino) {
            inode.size = u64::from(map.end()) << volume.geometry.block_size().log2();
        }
        // The sectors are counted from what is stored.
        volume.put_inode(ino, &inode)?;
        inode.sectors = judge_sectors(volume, table, ino, &inode)?;
        volume.put_inode(ino, &inode)?;
    }
    Ok(())
}

/// Cuts off the last eighth of a map for which there is no space.
fn shorten(volume: &mut Volume, usage: &mut Usage, ino: u32, map: &mut Mapping) {
    let cut = map.runs.split_off(map.runs.len() - map.runs.len().div_ceil(8));
    let size = volume.geometry.block_size();
    // What several files share stays in use; so does a cluster of which a part is left.
    let frees =
        volume.geometry.cluster_ratio() == 1 && !volume.has_ro_compat(RoCompat::SHARED_BLOCKS);
    for run in cut {
        volume.report.add_file(Class::MapLost, ino);
        let range = u64::from(run.logical)..u64::from(run.end());
        volume.report.add_range(ino, range.start << size.log2()..range.end << size.log2());
        if frees {
            run.blocks().for_each(|block| usage.remove(block));
        }
    }
}

/// Removes an inode, and its blocks from those in use.
pub(crate) fn release(
    volume: &mut Volume,
    table: &mut Table,
    usage: &mut Usage,
    ino: u32,
) -> Result<()> {
    let map = table.map_of(volume, ino)?;
    for (_, block) in map.each() {
        usage.remove(block);
    }
    for node in &map.nodes {
        usage.remove(*node);
    }
    remove_inode(volume, table, ino)
}
