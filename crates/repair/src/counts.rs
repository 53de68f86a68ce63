//! What follows from everything else: bitmaps, counts, flags and checksums of groups, and the
//! superblock. Computed last.

use crate::report::Class;
use crate::scan::Table;
use crate::usage::Usage;
use crate::volume::{Role, Volume};
use extant_base::{BlockNr, ByteOffset, GroupNr, Result};
use extant_ondisk::bitmap::{self, Kind};
use extant_ondisk::features::{Incompat, RoCompat};
use extant_ondisk::group_desc::GroupFlags;
use extant_ondisk::superblock::{ErrorRecord, VolumeState};

/// Writes them.
pub(crate) fn run(volume: &mut Volume, table: &Table, usage: &Usage) -> Result<()> {
    let mut free_clusters = 0;
    let mut free_inodes = 0;
    let mut wrong = 0;
    for nr in volume.geometry.groups() {
        let group = group(volume, table, usage, nr)?;
        free_clusters += u64::from(group.free_clusters);
        free_inodes += group.free_inodes;
        wrong += u64::from(group.changed);
    }
    for _ in 0..wrong.min(1) {
        volume.report.add(Class::Counts);
    }
    superblock(volume, table, free_clusters, free_inodes)
}

/// The counts of a group.
struct Counted {
    free_clusters: u32,
    free_inodes: u32,
    changed: bool,
}

fn group(volume: &mut Volume, table: &Table, usage: &Usage, nr: GroupNr) -> Result<Counted> {
    let geometry = volume.geometry;
    let checksums = volume.checksums;
    let n = nr.0 as usize;
    let mut desc = volume.groups[n].desc;
    let before = desc;
    let clusters = geometry.clusters_in_group(nr).unwrap_or(0);
    let ipg = geometry.inodes_per_group();
    let block_bytes = volume.block_bytes();

    let mut blocks = vec![0; block_bytes];
    let start = geometry.first_block(nr).map_or(0, |block| usage.cluster(block.0));
    let mut next = start;
    while let Some(cluster) = usage.next_used(next..start + u64::from(clusters)) {
        bitmap::set(&mut blocks, extant_base::narrow::fits_u32(cluster - start));
        next = cluster + 1;
    }
    bitmap::fill_padding(&mut blocks, clusters);
    let mut inodes = vec![0; block_bytes];
    let first = nr.0 * ipg + 1;
    let mut last = 0;
    let mut dirs = 0;
    for ino in first..volume.sb().first_ino.min(first + ipg) {
        bitmap::set(&mut inodes, ino - first);
        last = ino - first + 1;
    }
    for (ino, node) in table.nodes.range(first..=first + (ipg - 1)) {
        bitmap::set(&mut inodes, ino - first);
        last = last.max(ino - first + 1);
        dirs += u32::from(node.is_dir());
    }
    bitmap::fill_padding(&mut inodes, ipg);

    desc.free_clusters = bitmap::count_zeros(&blocks, 0..clusters);
    desc.free_inodes = bitmap::count_zeros(&inodes, 0..ipg);
    desc.used_dirs = dirs;
    if checksums.groups_may_be_uninit() {
        if desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
            let mut own = vec![0; block_bytes];
            bitmap::init_block_bitmap(&mut own, nr, &desc, &geometry);
            if own != blocks || nr.0 + 1 == geometry.groups_count() {
                desc.flags.remove(GroupFlags::BLOCK_UNINIT);
            }
        }
        desc.itable_unused = desc.itable_unused.min(ipg - last);
        if last > 0 || desc.itable_unused < ipg {
            desc.flags.remove(GroupFlags::INODE_UNINIT);
        }
    } else {
        desc.flags.remove(GroupFlags::BLOCK_UNINIT | GroupFlags::INODE_UNINIT);
        desc.itable_unused = 0;
    }
    let mut changed = false;
    if !desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
        changed |= put(volume, desc.block_bitmap.0, &blocks)?;
        bitmap::set_checksum(&mut desc, &blocks, Kind::Block, &geometry, &checksums);
    }
    if !desc.flags.contains(GroupFlags::INODE_UNINIT) {
        changed |= put(volume, desc.inode_bitmap.0, &inodes)?;
        bitmap::set_checksum(&mut desc, &inodes, Kind::Inode, &geometry, &checksums);
    }
    volume.groups[n].desc = desc;
    if let Some((k, offset)) = geometry.desc_place(nr)
        && let Some(block) = geometry.desc_block(k)
    {
        let at = ByteOffset(geometry.block_size().start_of(block).0 + offset as u64);
        let mut bytes = vec![0; geometry.desc_size()];
        volume.disk.read_bytes(at, &mut bytes)?;
        desc.write(&mut bytes, nr, &checksums);
        volume.disk.put_bytes(at, &bytes)?;
    }
    Ok(Counted {
        free_clusters: desc.free_clusters,
        free_inodes: desc.free_inodes,
        changed: changed || desc != before,
    })
}

/// Writes a bitmap. Returns whether it changed.
fn put(volume: &Volume, block: u64, bytes: &[u8]) -> Result<bool> {
    volume.disk.replace(volume.geometry.block_size().start_of(BlockNr(block)), bytes)
}

fn superblock(
    volume: &mut Volume,
    table: &Table,
    free_clusters: u64,
    free_inodes: u32,
) -> Result<()> {
    let log = volume.geometry.log_cluster_ratio();
    let mut large = false;
    let known = volume.has_ro_compat(RoCompat::LARGE_FILE);
    for (ino, node) in table.nodes.iter().filter(|_| !known) {
        // The volume's own files count, too: a journal can be as large.
        let may_be = volume.role(ino) != Role::BadBlocks;
        if may_be && node.kind() == Some(extant_ondisk::inode::FileKind::Regular) {
            large |= volume.inode(ino)?.is_some_and(|inode| inode.size > 0x7FFF_FFFF);
        }
    }
    let before = volume.sb().clone();
    volume.change_superblock(|sb| {
        sb.free_blocks = free_clusters << log;
        sb.free_inodes = free_inodes;
        sb.state.insert(VolumeState::VALID);
        sb.state.remove(VolumeState::ERROR | VolumeState::ORPHANS);
        sb.features.incompat.remove(Incompat::LIVE);
        if large {
            sb.features.ro_compat.insert(RoCompat::LARGE_FILE);
        }
        sb.error_count = 0;
        sb.first_error = no_error();
        sb.last_error = no_error();
    })?;
    if *volume.sb() != before {
        volume.report.add(Class::Superblock);
    }
    Ok(())
}

fn no_error() -> ErrorRecord {
    ErrorRecord { time: 0, ino: 0, block: 0, func: [0; 32], line: 0, code: 0 }
}
